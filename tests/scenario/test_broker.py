"""The evaluation broker and the blocked evaluations, as dialogues."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.builders import make_eval, make_job
from tests.scenario.transcript import check

from lepa.model.evaluation import Evaluation
from lepa.server.blocked_evals import BlockedEvals
from lepa.server.eval_broker import EvalBroker

SCRIPTS = sorted((Path(__file__).parent / "broker").glob("*.txt"))


class Desk:
    """A broker and a set of blocked evaluations with a clock that the script sets.

    enqueue EVAL JOB [priority= type= delay=]   dequeue [TYPE…]   ack EVAL [index=]   nack EVAL   at SECONDS   counts
    block EVAL JOB [seen= yes=CLASS,… no=CLASS,… escaped= node=]   unblock CLASS [node= index=]   retry   length
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.created = 0
        self.broker = EvalBroker()
        self.blocked = BlockedEvals()
        self.tokens: dict[str, str] = {}

    def act(self, name: str, words: list[str], options: dict[str, str]) -> list[str]:
        answers: list[str] = getattr(self, f"do_{name}")(words, options)
        answers += [f"{one.id} is given up" for one in self.broker.take_failed()]
        answers += [f"{one.id} is superseded" for one in self.broker.take_superseded()]
        answers += [f"{one.id} is a duplicate" for one in self.blocked.take_duplicates()]
        return answers

    def make(self, words: list[str], options: dict[str, str]) -> Evaluation:
        self.created += 1
        job = make_job(words[1], type=options.get("type", "service"), priority=int(options.get("priority", "50")))
        return make_eval(words[0], job=job, create_index=self.created, modify_index=self.created)

    def do_enqueue(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.broker.enqueue(self.make(words, options), self.now, float(options.get("delay", "0")))
        return []

    def do_dequeue(self, words: list[str], options: dict[str, str]) -> list[str]:
        token = f"token-{len(self.tokens)}"
        delivery = self.broker.dequeue(words or ["service"], token, self.now)
        if delivery is None:
            return ["nothing"]
        self.tokens[delivery.evaluation.id] = token
        return [f"{delivery.evaluation.id} of {delivery.evaluation.job_id}, state {delivery.wait_index} or newer"]

    def do_ack(self, words: list[str], options: dict[str, str]) -> list[str]:
        index = int(options.get("index", "0"))
        held = self.broker.ack(words[0], options.get("token", self.tokens[words[0]]), index, self.now)
        return [] if held else ["refused"]

    def do_nack(self, words: list[str], options: dict[str, str]) -> list[str]:
        held = self.broker.nack(words[0], options.get("token", self.tokens[words[0]]), self.now)
        return [] if held else ["refused"]

    def do_at(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.now = float(words[0])
        self.broker.poll(self.now)
        return []

    def do_wake(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [f"at {self.broker.wake_at()}"]

    def do_counts(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [", ".join(f"{count} {name}" for name, count in self.broker.counts()._asdict().items())]

    def do_block(self, words: list[str], options: dict[str, str]) -> list[str]:
        may = {name: True for name in options.get("yes", "").split(",") if name}
        may_not = {name: False for name in options.get("no", "").split(",") if name}
        evaluation = replace(
            self.make(words, options),
            status="blocked",
            snapshot_index=int(options.get("seen", "0")),
            class_eligibility=may | may_not,
            escaped_computed_class="escaped" in options,
            node_id=options.get("node", ""),
            triggered_by=options.get("because", "queued-allocs"),
        )
        return [f"{one.id} goes on at once" for one in self.blocked.block(evaluation)]

    def do_unblock(self, words: list[str], options: dict[str, str]) -> list[str]:
        gone = self.blocked.unblock(words[0], options.get("node", "n"), int(options.get("index", "0")))
        return [f"{one.id} goes on" for one in gone] or ["nobody"]

    def do_drop(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.blocked.drop(words[0])
        return []

    def do_retry(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [f"{one.id} goes on" for one in self.blocked.unblock_failed()] or ["nobody"]

    def do_length(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [f"{len(self.blocked)} blocked, {self.blocked.escaped} escaped"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_dialogue(script: Path, rewrite: bool) -> None:
    check(script, Desk().act, rewrite)
