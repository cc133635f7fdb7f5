"""Serving: every query gets one answer, in time or marked as default; frames survive; the cache keeps its bound."""

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lepa.serving.batch_sizes import AimdSize
from lepa.serving.batching import Batcher, SendBatch, Task
from lepa.serving.cache import ENTRY_OVERHEAD_BYTES, PredictionCache
from lepa.serving.container_rpc import (
    Batch,
    Failure,
    Outputs,
    decode_from_container,
    decode_from_frontend,
    encode_batch,
    encode_outputs,
)
from lepa.serving.query import Predictions
from lepa.serving.records import (
    Application,
    ModelVersion,
    Registry,
    add_application,
    add_links,
    add_model,
    delete_links,
    delete_model,
)
from lepa.serving.served import Answer
from lepa.serving.srv_query import decode_answer

SLO_S = {"fast": 0.01, "slow": 0.1}


def registry() -> Registry:
    found = Registry()
    for name, slo_s in SLO_S.items():
        found = add_application(found, Application(name, "bytes", "default", int(slo_s * 1e6)))
    found = add_model(found, ModelVersion("m", "1", "bytes"))
    for name in SLO_S:
        found = add_links(found, name, ("m",))
    return found


class EveryQueryIsAnsweredOnce(RuleBasedStateMachine):
    """The machine is driven as the frontend drives it, with replicas that come, go, fail and answer nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.predictions = Predictions(10_000, self.now, lambda: 0.5)
        self.registry = registry()
        self.predictions.configure(self.registry, self.now)
        self.asked: dict[int, tuple[bytes, float]] = {}
        self.answers: dict[int, list[tuple[Answer, float]]] = {}
        self.in_flight: dict[int, SendBatch] = {}

    def turn(self) -> None:
        orders = self.predictions.dispatch(self.now)
        for order in orders:
            assert order.replica in self.predictions.replicas
            assert order.replica not in self.in_flight, "a replica has two batches"
            assert order.tasks
            self.in_flight[order.replica] = order
        tasks = [id(task) for order in self.in_flight.values() for task in order.tasks]
        assert len(tasks) == len(set(tasks)), "a task is in two batches"
        self.predictions.reply(self.now)
        self.predictions.replied(self.now)

    @rule(app=st.sampled_from(sorted(SLO_S)), data=st.binary(max_size=1))
    def ask(self, app: str, data: bytes) -> None:
        number = len(self.asked)
        self.asked[number] = (data, self.now + SLO_S[app])
        self.answers[number] = []

        def reply(answer: Answer) -> None:
            self.answers[number].append((answer, self.now))

        self.predictions.predict(self.predictions.applications[app], data, "", reply, self.now)

    @rule()
    def turn_ends(self) -> None:
        self.turn()

    @rule(seconds=st.sampled_from([0.0001, 0.001, 0.005, 0.05]), notices=st.booleans())
    def time_passes(self, seconds: float, notices: bool) -> None:
        self.now += seconds
        if notices:
            self.turn()

    @rule()
    def replica_joins(self) -> None:
        if len(self.predictions.replicas) < 4:
            self.predictions.replica_joined("m", "1", 0, self.now)
            self.turn()

    @precondition(lambda self: self.predictions.replicas)
    @rule(which=st.integers(0, 3))
    def replica_leaves(self, which: int) -> None:
        replicas = sorted(self.predictions.replicas)
        gone = replicas[which % len(replicas)]
        self.in_flight.pop(gone, None)
        self.predictions.replica_left(gone, self.now)
        self.turn()

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 3), how=st.sampled_from(["right", "right", "some fail", "too few"]))
    def batch_is_answered(self, which: int, how: str) -> None:
        replicas = sorted(self.in_flight)
        order = self.in_flight.pop(replicas[which % len(replicas)])
        outputs: list[bytes | Failure] = [task.data.hex().encode() + b"!" for task in order.tasks]
        if how == "some fail":
            outputs[::2] = [Failure("no")] * len(outputs[::2])
        if how == "too few":
            outputs = outputs[1:]
        self.predictions.batch_answered(order.replica, outputs, self.now)

    @rule(change=st.sampled_from(["unlink", "link", "deploy again"]))
    def registry_changes(self, change: str) -> None:
        linked = bool(self.registry.applications["fast"].linked_models)
        if change == "unlink" and linked:
            self.registry = delete_links(self.registry, "fast", ("m",))
        elif change == "link" and not linked:
            self.registry = add_links(self.registry, "fast", ("m",))
        elif change == "deploy again":
            self.registry = add_model(delete_model(self.registry, "m", "1"), ModelVersion("m", "1", "bytes"))
        self.predictions.configure(self.registry, self.now)

    @invariant()
    def no_query_is_answered_twice(self) -> None:
        assert all(len(answers) <= 1 for answers in self.answers.values())

    @invariant()
    def an_output_is_right_and_in_time(self) -> None:
        for number, answers in self.answers.items():
            data, deadline = self.asked[number]
            for answer, when in answers:
                if answer.explanation:
                    assert answer.output == b'"default"'
                else:
                    assert answer.output == b'"%b!"' % data.hex().encode()
                    assert when <= deadline

    @invariant()
    def what_is_open_is_counted(self) -> None:
        assert self.predictions.open_count == sum(not answers for answers in self.answers.values())

    @invariant()
    def somebody_will_look_at_every_open_query(self) -> None:
        open_deadlines = [self.asked[n][1] for n, answers in self.answers.items() if not answers]
        if open_deadlines:
            wake_at = self.predictions.wake_at()
            assert wake_at is not None
            assert wake_at <= min(open_deadlines) + 1e-9

    def teardown(self) -> None:
        self.now += 1.0
        self.turn()
        assert all(len(answers) == 1 for answers in self.answers.values())
        assert self.predictions.open_count == 0


TestEveryQueryIsAnsweredOnce = EveryQueryIsAnsweredOnce.TestCase
TestEveryQueryIsAnsweredOnce.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class NoTaskIsLostByTheBatcher(RuleBasedStateMachine):
    """Each task is queued, in flight once, handed back, or dropped after it expired; batches keep size and order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.batcher = Batcher(queue_max=50)
        self.queued: set[Task] = set()
        self.in_flight: dict[int, list[Task]] = {}
        self.replicas = 0

    @rule(wait_s=st.sampled_from([0.001, 0.01, 0.1]))
    def submit(self, wait_s: float) -> None:
        task = Task(b"x", self.now + wait_s, [])
        if self.batcher.submit(task):
            self.queued.add(task)
        else:
            assert len(self.queued) >= 50

    @rule(wait_s=st.sampled_from([0.0, 0.002, 0.02]))
    def batches_are_delayed(self, wait_s: float) -> None:
        self.batcher.wait_s = wait_s

    @rule()
    def add_replica(self) -> None:
        self.batcher.add_replica(self.replicas)
        self.replicas += 1

    @precondition(lambda self: self.in_flight)
    @rule()
    def remove_busy_replica(self) -> None:
        replica, tasks = self.in_flight.popitem()
        assert self.batcher.remove_replica(replica) == tasks

    @rule(seconds=st.sampled_from([0.0, 0.0001, 0.002, 0.05]))
    def poll(self, seconds: float) -> None:
        self.now += seconds
        orders, dropped = self.batcher.poll(self.now)
        for task in dropped:
            assert task.expires <= self.now
            self.queued.remove(task)
        for order in orders:
            assert order.replica not in self.in_flight
            assert 1 <= len(order.tasks) <= self.batcher.batch_size(order.replica)
            assert order.tasks == sorted(order.tasks, key=lambda task: task.deadline)
            self.in_flight[order.replica] = order.tasks
            self.queued.difference_update(order.tasks)

    @precondition(lambda self: self.in_flight)
    @rule()
    def complete(self) -> None:
        replica, tasks = self.in_flight.popitem()
        assert self.batcher.completed(replica, self.now) == tasks
        self.batcher.answered(self.now)

    @invariant()
    def queue_holds_what_was_not_sent(self) -> None:
        assert self.batcher.queued == len(self.queued)

    @invariant()
    def a_lingering_replica_wakes_somebody(self) -> None:
        if (wake_at := self.batcher.wake_at()) is not None:
            assert self.queued
            assert wake_at < self.now + 1.0


TestNoTaskIsLostByTheBatcher = NoTaskIsLostByTheBatcher.TestCase
TestNoTaskIsLostByTheBatcher.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0.0001, 2.0)), max_size=100))
def test_adaptive_size_stays_within_its_bounds(batches: list[tuple[int, float]]) -> None:
    size = AimdSize()
    for count, latency_s in batches:
        before = size.size
        size.observe(count, latency_s, 0.5)
        assert 1 <= size.size <= before + AimdSize.STEP
        assert size.size <= before or latency_s < 0.5


@given(st.lists(st.binary(max_size=20), max_size=30), st.booleans(), st.integers(0, 2**32 - 1))
def test_batches_survive_the_wire(inputs: list[bytes], packed: bool, number: int) -> None:
    decoded = decode_from_frontend(encode_batch(number, 0, inputs, packed))
    assert isinstance(decoded, Batch)
    assert (decoded.message_id, decoded.inputs) == (number, inputs)


@given(st.lists(st.binary(max_size=20) | st.text(max_size=10).map(Failure), max_size=30), st.booleans())
def test_outputs_survive_the_wire(outputs: list[bytes | Failure], packed: bool) -> None:
    decoded = decode_from_container(encode_outputs(7, outputs, packed))
    assert isinstance(decoded, Outputs)
    assert decoded.outputs == outputs


@given(
    st.lists(st.binary(max_size=24) | st.sampled_from([b"", b"\1\0\0\0", b"\3\0\0\0", b"\1" + bytes(7)]), max_size=9)
)
def test_no_frames_break_the_decoders(frames: list[bytes]) -> None:
    for decode in (decode_from_container, decode_from_frontend):
        decoded = decode(frames)
        assert isinstance(decoded, tuple)


@given(st.binary(max_size=200))
def test_no_datagram_breaks_the_resolver(datagram: bytes) -> None:
    try:
        decode_answer(datagram, 0)
    except ValueError:
        return


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=400), st.booleans()), max_size=80))
def test_cache_keeps_its_bound_and_never_mixes_up_inputs(steps: list[tuple[bytes, bytes, bool]]) -> None:
    bound = 5 * ENTRY_OVERHEAD_BYTES
    cache = PredictionCache(bound)
    truth: dict[bytes, bytes] = {}
    for data, output, puts in steps:
        if puts:
            truth[data] = output
            cache.put((1, data), output)
        elif (found := cache.get((1, data))) is not None:
            assert found == truth[data]
        assert cache.bytes_used <= bound
