"""Queries that ask several models: one answer each, in time, that says what the models said, whatever they do.

Two models and a shadow answer application "vote", all three answer "learn", which gets feedback too. Replicas come and
go, batches fail, are late or get lost.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lepa.serving.batching import SendBatch
from lepa.serving.container_rpc import Failure
from lepa.serving.query import Predictions
from lepa.serving.records import (
    Application,
    ModelVersion,
    Registry,
    add_application,
    add_links,
    add_model,
)
from lepa.serving.selection import PolicyOptions
from lepa.serving.served import Answer

MODELS = ("a", "b", "c")
SLO_S = {"vote": 0.02, "learn": 0.05}


def said_by(model: str, data: bytes) -> bytes:
    """What a model answers: `a` and `b` agree about even inputs only, `c` about none."""
    return b"0" if model != "c" and not data[0] % 2 else {"a": b"1", "b": b"2", "c": b"3"}[model]


class EnsemblesAnswerOnce(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        registry = Registry()
        for model in MODELS:
            registry = add_model(registry, ModelVersion(model, "1", "bytes"))
        vote = PolicyOptions(shadow=("c",), confidence_min=0.4)
        registry = add_application(
            registry, Application("vote", "bytes", "default", int(SLO_S["vote"] * 1e6), (), "majority", vote)
        )
        registry = add_application(
            registry, Application("learn", "bytes", "default", int(SLO_S["learn"] * 1e6), (), "exp4")
        )
        registry = add_links(registry, "vote", ("a", "b"))
        self.registry = add_links(registry, "learn", MODELS)
        self.predictions = Predictions(2000, self.now, lambda: 0.5)
        self.predictions.configure(self.registry, self.now)
        self.in_flight: dict[int, SendBatch] = {}
        self.asked: list[tuple[str, bytes, float, bool]] = []
        self.answers: list[list[tuple[Answer, float]]] = []

    def turn(self) -> None:
        for order in self.predictions.dispatch(self.now):
            assert order.replica not in self.in_flight
            self.in_flight[order.replica] = order
        self.predictions.reply(self.now)
        self.predictions.replied(self.now)

    def _ask(self, app: str, data: bytes, label: str | None) -> None:
        answers: list[tuple[Answer, float]] = []
        self.answers.append(answers)
        self.asked.append((app, data, self.now + SLO_S[app], label is not None))
        served = self.predictions.applications[app]

        def reply(answer: Answer) -> None:
            answers.append((answer, self.now))

        if label is None:
            self.predictions.predict(served, data, "", reply, self.now)
        else:
            self.predictions.feedback(served, data, label, reply, self.now, "u")

    @rule(app=st.sampled_from(sorted(SLO_S)), data=st.integers(0, 5))
    def ask(self, app: str, data: int) -> None:
        self._ask(app, bytes((data,)), None)

    @rule(data=st.integers(0, 5), label=st.sampled_from(["0", "1", "2"]))
    def tell(self, data: int, label: str) -> None:
        self._ask("learn", bytes((data,)), label)

    @rule(seconds=st.sampled_from([0.0, 0.0005, 0.01, 0.06]), notices=st.booleans())
    def time_passes(self, seconds: float, notices: bool) -> None:
        self.now += seconds
        if notices:
            self.turn()

    @rule(model=st.sampled_from(MODELS))
    def replica_joins(self, model: str) -> None:
        if len(self.predictions.replicas) < 6:
            self.predictions.replica_joined(model, "1", 0, self.now)
            self.turn()

    @precondition(lambda self: self.predictions.replicas)
    @rule(which=st.integers(0, 5))
    def replica_leaves(self, which: int) -> None:
        replicas = sorted(self.predictions.replicas)
        gone = replicas[which % len(replicas)]
        self.in_flight.pop(gone, None)
        self.predictions.replica_left(gone, self.now)
        self.turn()

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 5), how=st.sampled_from(["right", "right", "right", "all fail", "too few"]))
    def batch_is_answered(self, which: int, how: str) -> None:
        replicas = sorted(self.in_flight)
        order = self.in_flight.pop(replicas[which % len(replicas)])
        model = self.predictions.replicas[order.replica].model.name
        outputs: list[bytes | Failure] = [said_by(model, task.data) for task in order.tasks]
        if how == "all fail":
            outputs = [Failure("no")] * len(outputs)
        if how == "too few":
            outputs = outputs[1:]
        self.predictions.batch_answered(order.replica, outputs, self.now)
        self.turn()

    @invariant()
    def each_is_answered_at_most_once_and_open_ones_are_counted(self) -> None:
        assert all(len(answers) <= 1 for answers in self.answers)
        assert self.predictions.open_count == sum(not answers for answers in self.answers)

    @invariant()
    def answers_are_in_time_and_what_models_said(self) -> None:
        for (app, data, deadline, is_feedback), answers in zip(self.asked, self.answers, strict=True):
            for answer, when in answers:
                if is_feedback:
                    assert answer.output in (b"0", b"1")
                elif answer.explanation:
                    assert answer.output == b'"default"'
                else:
                    voters = MODELS[:2] if app == "vote" else MODELS
                    assert answer.output in {said_by(model, data) for model in voters}
                    assert answer.confidence is not None
                    assert 0 < answer.confidence <= 1 + 1e-9
                    # An output that only a deadline has completed is given by the first turn that notices it.
                    assert when <= deadline or answer.confidence < 1 - 1e-9

    @invariant()
    def what_all_voters_say_is_sure(self) -> None:
        for (app, data, _, is_feedback), answers in zip(self.asked, self.answers, strict=True):
            for answer, _ in answers:
                if app == "vote" and not is_feedback and not answer.explanation and data[0] % 2:
                    assert answer.confidence == 0.5

    @invariant()
    def observations_name_the_arms_and_keep_losses_in_bounds(self) -> None:
        for observation in self.predictions.arms.observations:
            assert set(observation.losses) == {f"{model}:1" for model in MODELS}
            assert all(0 <= loss.loss <= 1 for loss in observation.losses.values())

    @invariant()
    def somebody_will_look_at_every_open_query(self) -> None:
        open_deadlines = [asked[2] for asked, answers in zip(self.asked, self.answers, strict=True) if not answers]
        if open_deadlines:
            wake_at = self.predictions.wake_at()
            assert wake_at is not None
            assert wake_at <= min(open_deadlines) + 1e-9

    def teardown(self) -> None:
        self.now += 1.0
        self.turn()
        assert all(len(answers) == 1 for answers in self.answers)
        assert self.predictions.open_count == 0


TestEnsemblesAnswerOnce = EnsemblesAnswerOnce.TestCase
TestEnsemblesAnswerOnce.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
