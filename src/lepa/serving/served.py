"""Pure: what one query frontend serves and holds: applications, model versions, replicas, and queries that wait.

These are the parts; `query.Predictions` moves them.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from lepa.serving.batch_sizes import sizes_of
from lepa.serving.batching import Batcher, Task
from lepa.serving.inputs import input_type
from lepa.serving.metrics import ApplicationMetrics, ModelMetrics
from lepa.serving.records import Application, ModelVersion
from lepa.serving.selection import Choice, Single, selection_policy


class Answer(NamedTuple):
    """The one answer to a query. output: JSON. explanation: why it is the default output; "" when models gave it.
    confidence: where several models were asked, the share that stands behind the output."""

    query_id: int
    output: bytes
    explanation: str
    confidence: float | None = None


Reply = Callable[[Answer], None]
NOBODY = Choice({})
"""Asks no model."""


class Query:
    """One query that waits. choice: the arms that are to answer; missing: those of them that have not; failure: why the
    last one could not. watched: shadow arms, with what they said. label: for a feedback, the right answer."""

    __slots__ = (
        "answered",
        "application",
        "arrived",
        "choice",
        "deadline",
        "failure",
        "id",
        "label",
        "missing",
        "output",
        "outputs",
        "reply",
        "user",
        "watched",
    )

    def __init__(self, query_id: int, application: "ServedApplication", arrived: float, reply: Reply) -> None:
        self.id = query_id
        self.application = application
        self.arrived = arrived
        self.deadline = arrived + application.slo_s
        self.reply = reply
        self.choice = NOBODY
        self.missing = 0
        self.outputs: dict[str, bytes] = {}
        self.output: bytes | None = None
        self.watched: dict[str, bytes | None] | None = None
        self.label: float | str | None = None
        self.user = ""
        self.failure = ""
        self.answered = False


class Streams:
    """What passes through to a model's own server. open: under way now; begun: ever; seconds: that all of them took
    together until the newest change."""

    __slots__ = ("_changed_at", "_seconds", "begun", "open")

    def __init__(self, now: float) -> None:
        self.open = 0
        self.begun = 0
        self._seconds = 0.0
        self._changed_at = now

    def seconds(self, now: float) -> float:
        """Seconds of all streams together, those that are under way as far as they are."""
        self._seconds += self.open * (now - self._changed_at)
        self._changed_at = now
        return self._seconds

    def began(self, now: float) -> None:
        self.seconds(now)
        self.open += 1
        self.begun += 1

    def ended(self, now: float) -> None:
        self.seconds(now)
        self.open -= 1


class ServedModel:
    """One model version in this frontend: its queue, its replicas, and who asked for what. registration: no other model
    has it, and no earlier registration of this one had it. comes_back: it may be scaled to zero, and a replica is
    started when somebody asks."""

    def __init__(self, name: str, version: str, now: float) -> None:
        self.name = name
        self.version = version
        self.key = f"{name}:{version}"
        self.record: ModelVersion | None = None
        self.batcher = Batcher()
        self.flights: dict[bytes, Task] = {}
        self.registration = (self.key, 0)
        self.comes_back = False
        self.next_replica_id = 0
        self.streams = Streams(now)
        self.metrics = ModelMetrics(now)

    def configure(self, record: ModelVersion | None, epoch: int) -> None:
        """Take the registered record; another registration starts with an empty cache and fresh batch sizes."""
        if record == self.record:
            return
        before, self.record = self.record, record
        if record is not None:
            self.batcher.set_sizes(sizes_of(record.ways))
            self.batcher.wait_s = record.ways.wait_us / 1e6
            if before is not None and before.created == record.created:
                return
        self.registration = (self.key, epoch)
        self.flights = {}


class ServedApplication:
    """One application in this frontend. arms: the model versions that may answer, with the weight that options give
    them; shadows: those that are only compared; always: the choice where there is but one. open: its unanswered queries
    in order of their deadlines (answered ones may stand between them)."""

    def __init__(self, record: Application, metrics: ApplicationMetrics) -> None:
        self.record = record
        self.name = record.name
        self.input_type = input_type(record.input_type)
        self.slo_s = record.latency_slo_micros / 1e6
        self.default_json = as_json(record.default_output.encode())
        self.policy = selection_policy(record.policy)
        self.options = record.policy_options
        self.arms: dict[str, float] = {}
        self.shadows: tuple[ServedModel, ...] = ()
        self.always: Choice | None = None
        self.open: deque[Query] = deque()
        self.metrics = metrics

    def set_arms(self, arms: dict[str, float], shadows: tuple[ServedModel, ...]) -> None:
        self.arms = arms
        self.shadows = tuple(model for model in shadows if model.key not in arms)
        self.always = Choice(dict.fromkeys(list(arms)[:1], 1.0)) if isinstance(self.policy, Single) else None


class ReplicaWork:
    """What one replica has done. batches: by the reason for which they left; sent_at: of the newest batch."""

    __slots__ = ("batches", "busy_s", "predictions", "sent_at")

    def __init__(self) -> None:
        self.predictions = 0
        self.batches: dict[str, int] = {}
        self.busy_s = 0.0
        self.sent_at = 0.0


class Replica(NamedTuple):
    """A connected model container. id: of the connection; replica_id: within its model version; instance: what it calls
    itself at every frontend, "" where it does not say."""

    id: int
    model: ServedModel
    replica_id: int
    input_type: int
    work: ReplicaWork
    instance: str = ""


def as_json(output: bytes) -> bytes:
    """A model's output as JSON: itself where it parses as JSON, else as a JSON string."""
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(output.decode(errors="replace"))
    return output
