"""The broker loses no evaluation and gives no job to two workers."""

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_eval, make_job

from lepa.server.eval_broker import ACK_TIMEOUT_S, EvalBroker, kept

TYPES = ("service", kept("service"))
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["enqueue", "delay", "dequeue", "ack", "nack", "take back", "keep", "wait"]),
        st.integers(0, 3),
        st.integers(1, 40),
    ),
    max_size=60,
)


class Model:
    """A broker and what became of every evaluation that it was given."""

    def __init__(self) -> None:
        self.broker = EvalBroker()
        self.now = 0.0
        self.given: set[str] = set()
        self.ended: dict[str, str] = {}
        self.held: dict[str, tuple[str, str]] = {}

    def collect(self) -> None:
        for evaluation in self.broker.take_failed():
            self.end(evaluation.id, "failed")
        for evaluation in self.broker.take_superseded():
            self.end(evaluation.id, "superseded")

    def end(self, eval_id: str, how: str) -> None:
        assert eval_id not in self.ended, f"{eval_id} ended as {self.ended.get(eval_id)} and {how}"
        self.ended[eval_id] = how

    def step(self, action: str, job: int, number: int) -> None:
        if action in ("enqueue", "delay"):
            eval_id = f"e{len(self.given)}"
            self.given.add(eval_id)
            evaluation = make_eval(eval_id, job=make_job(f"job-{job}", priority=number), create_index=len(self.given))
            self.broker.enqueue(evaluation, self.now, number if action == "delay" else 0)
        elif action == "dequeue":
            delivery = self.broker.dequeue(TYPES, f"token-{self.now}-{number}-{len(self.held)}", self.now)
            if delivery is not None:
                self.take_back(self.now)
                jobs = [held_job for _, held_job in self.held.values()]
                assert delivery.evaluation.job_id not in jobs, "one job with two workers"
                self.held[delivery.evaluation.id] = (delivery.token, delivery.evaluation.job_id)
        elif action in ("ack", "nack", "take back", "keep") and self.held:
            eval_id = sorted(self.held)[number % len(self.held)]
            token, _ = self.held.pop(eval_id)
            if action == "ack":
                if self.broker.ack(eval_id, token, 0, self.now):
                    self.end(eval_id, "done")
            elif action == "nack":
                self.broker.nack(eval_id, token, self.now)
            elif action == "keep":
                self.broker.keep(eval_id, token)
            else:
                self.broker.take_back(eval_id, token)
        elif action == "wait":
            self.now += number
            self.broker.poll(self.now)
            self.take_back(self.now)
        self.collect()

    def take_back(self, now: float) -> None:
        self.held = {k: v for k, v in self.held.items() if self.broker.holds(k, v[0])}

    def drain(self) -> None:
        """Work until nothing is left."""
        for _ in range(2_000):
            self.now += ACK_TIMEOUT_S
            self.broker.poll(self.now)
            self.held.clear()
            self.collect()
            while (delivery := self.broker.dequeue(TYPES, "last", self.now)) is not None:
                assert self.broker.ack(delivery.evaluation.id, "last", 0, self.now)
                self.end(delivery.evaluation.id, "done")
                self.collect()
            if not any(self.broker.counts()):
                return
        raise AssertionError("the broker never came to rest")


@given(ACTIONS)
def test_every_evaluation_ends_once_and_no_job_has_two_workers(actions: list[tuple[str, int, int]]) -> None:
    model = Model()
    for action in actions:
        model.step(*action)
    model.drain()
    assert set(model.ended) == model.given


def test_what_is_kept_goes_only_to_those_who_ask_for_it() -> None:
    broker = EvalBroker()
    broker.enqueue(make_eval("large", job=make_job()), 0.0)
    for attempt in range(5):
        delivery = broker.dequeue(TYPES, f"token-{attempt}", 0.0)
        assert delivery is not None, "what is taken back was not delivered, however often"
        assert broker.keep("large", delivery.token)
        assert broker.dequeue(("service",), "other", 0.0) is None
    assert broker.dequeue(TYPES, "last", 0.0) is not None
    assert broker.ack("large", "last", 0, 0.0)
    broker.enqueue(make_eval("large", job=make_job()), 0.0)
    assert broker.dequeue(("service",), "again", 0.0) is not None, "its next look may be anybody's"
