"""Pure: predictions from arrival to reply: one answer each, within the objective or the default at the deadline.

`Predictions` holds what a query frontend knows: applications, model versions, their queues and replicas, the cache,
the open queries. Events come in as method calls with `now` (monotonic seconds): a query, a replica that joins or
leaves, a batch that is back, a new registry. Then, once a turn: `dispatch(now)` returns the batches that shall leave,
so that models work while answers are written; `reply(now)` answers what is due; `replied(now)` says that this is
done. `wake_at()` says when the next turn is due without an event. Answers go to the callback that came with the
query, once.

    predict -> select models -> cached: answer
                             -> already asked for the same input: join that task
                             -> else a task in the model's batcher
    dispatch -> SendBatch(replica, tasks)                  -> container
    batch_answered, reply -> cache, settle every waiting query -> answer when all its models have answered
    reply   -> deadline passed: combine what is there, else the default output

Invariants: the callback is called exactly once for every query, at the latest by the first `reply` after its
deadline; a task is in one queue, or in flight at one replica, or done; a query is in `open` of its application until
it is answered.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import msgspec

from lepa.model.errors import invalid
from lepa.serving.batching import OBJECTIVE_SHARE, AimdSize, Batcher, FixedSize, SendBatch, Task
from lepa.serving.cache import PredictionCache
from lepa.serving.container_rpc import Failure
from lepa.serving.inputs import INPUT_TYPES, input_type
from lepa.serving.metrics import ApplicationMetrics, Counter, Meter, Metric, ModelMetrics, Ratio
from lepa.serving.records import Application, Container, ModelVersion, Registry
from lepa.serving.selection import selection_policy

NO_MODEL = "No connected models found for query"
LATE = "Failed to retrieve a prediction response within the specified latency SLO"
CROWDED = "Too many queries are waiting"
REPLICA_LOST = "The model's replica was lost while it predicted"

ATTEMPTS_MAX = 2
"""Batches a task may leave in. A second one heals the loss of a replica; more would let a query that kills models
kill them all."""
OPEN_MAX = 100_000
"""Queries without an answer in one frontend; more get the default at once."""
REPLICAS_MAX = 10_000
"""Replicas connected to one frontend."""


class Answer(NamedTuple):
    """The one answer to a query. output: JSON. explanation: why it is the default output; "" when models gave it."""

    query_id: int
    output: bytes
    explanation: str


Reply = Callable[[Answer], None]


class Query:
    """One query that waits. missing: models that have not answered; failure: why the last one could not."""

    __slots__ = (
        "answered",
        "application",
        "arrived",
        "asked",
        "deadline",
        "failure",
        "id",
        "missing",
        "outputs",
        "reply",
    )

    def __init__(self, query_id: int, application: "ServedApplication", arrived: float, reply: Reply) -> None:
        self.id = query_id
        self.application = application
        self.arrived = arrived
        self.deadline = arrived + application.slo_s
        self.reply = reply
        self.asked = 0
        self.missing = 0
        self.outputs: dict[str, bytes] = {}
        self.failure = ""
        self.answered = False


class ServedModel:
    """One model version in this frontend: its queue, its replicas, and who asked for what."""

    def __init__(self, name: str, version: str, now: float) -> None:
        self.name = name
        self.version = version
        self.key = f"{name}:{version}"
        self.record: ModelVersion | None = None
        self.batcher = Batcher()
        self.flights: dict[bytes, Task] = {}
        self.cache_epoch = 0
        self.next_replica_id = 0
        self.metrics = ModelMetrics(now)

    def configure(self, record: ModelVersion | None, cache_epoch: int) -> None:
        """Take the registered record; another registration starts with an empty cache and fresh batch sizes."""
        if record == self.record:
            return
        self.record = record
        self.cache_epoch = cache_epoch
        self.flights = {}
        if record is not None:
            fixed = record.batch_size > 0
            self.batcher.set_sizes(partial(FixedSize, record.batch_size) if fixed else AimdSize)


class ServedApplication:
    """One application in this frontend. open: its unanswered queries in order of their deadlines (answered ones may
    stand between them)."""

    def __init__(self, record: Application, metrics: ApplicationMetrics) -> None:
        self.record = record
        self.name = record.name
        self.input_type = input_type(record.input_type)
        self.slo_s = record.latency_slo_micros / 1e6
        self.default_json = as_json(record.default_output.encode())
        self.policy = selection_policy(record.policy)
        self.models: dict[str, ServedModel] = {}
        self.open: deque[Query] = deque()
        self.metrics = metrics


class Replica(NamedTuple):
    """A connected model container. id: of the connection; replica_id: within its model version."""

    id: int
    model: ServedModel
    replica_id: int
    input_type: int


class Predictions:
    """See the module."""

    def __init__(self, cache_bytes_max: int, now: float) -> None:
        self.applications: dict[str, ServedApplication] = {}
        self.models: dict[str, ServedModel] = {}
        self.replicas: dict[int, Replica] = {}
        self.cache = PredictionCache(cache_bytes_max)
        self._registry = Registry()
        self._next_query_id = 0
        self._open_count = 0
        self._next_replica = 0
        self._epoch = 0
        self._busy_applications: dict[ServedApplication, None] = {}
        self._busy_models: dict[ServedModel, None] = {}
        self._answered: list[tuple[ServedModel, list[Task], list[bytes | Failure]]] = []
        self._total = Counter()
        self._aggregate = Meter(now)

    # What is registered

    def configure(self, registry: Registry, now: float) -> None:
        """Follow a new registry. Open queries of applications that changed or went are still answered."""
        self._registry = registry
        self._epoch += 1
        for record in registry.models.values():
            self._model(record.model_name, record.model_version, now).configure(record, self._epoch)
        for key in [key for key in self.models if key not in registry.models]:
            self.models[key].configure(None, self._epoch)
            self._forget_if_unused(self.models[key])
        kept = {}
        for app in registry.applications.values():
            served = self.applications.get(app.name)
            metrics = served.metrics if served else ApplicationMetrics(now)
            kept[app.name] = served if served and served.record == app else ServedApplication(app, metrics)
        self.applications = kept
        for served in kept.values():
            served.models = self._linked(served.record)
        self._set_objectives()

    def _model(self, name: str, version: str, now: float) -> ServedModel:
        key = f"{name}:{version}"
        if (model := self.models.get(key)) is None:
            model = self.models[key] = ServedModel(name, version, now)
            model.cache_epoch = self._epoch
        return model

    def _forget_if_unused(self, model: ServedModel) -> None:
        if model.record is None and not model.batcher.replica_count:
            self.models.pop(model.key, None)
            self._busy_models.pop(model, None)

    def _linked(self, app: Application) -> dict[str, ServedModel]:
        current = self._registry.current
        keys = [(name, f"{name}:{current[name]}") for name in app.linked_models if name in current]
        return {name: self.models[key] for name, key in keys if key in self.models}

    def _set_objectives(self) -> None:
        """A batch's share of the objective follows the strictest application that uses the model."""
        strictest: dict[str, float] = {}
        for app in self.applications.values():
            for name in app.record.linked_models:
                strictest[name] = min(app.slo_s, strictest.get(name, app.slo_s))
        for model in self.models.values():
            model.batcher.objective_s = strictest.get(model.name, 1.0) * OBJECTIVE_SHARE

    # Queries

    def predict(self, served: ServedApplication, data: bytes, version: str, reply: Reply, now: float) -> None:
        """A query has arrived. Raises LepaError(invalid) for a version that does not exist, before anything is open."""
        models = served.models if not version else self._version(served, version)
        query = Query(self._next_query_id, served, now, reply)
        self._next_query_id += 1
        self._total.count += 1
        served.metrics.throughput.count += 1
        if self._open_count >= OPEN_MAX:
            query.failure = CROWDED
            self._open_count += 1
            self._answer(query, now)
            return
        self._open_count += 1
        query.failure = NO_MODEL
        chosen = served.policy.select(tuple(models))
        query.asked = query.missing = len(chosen)
        if not chosen:
            self._answer(query, now)
            return
        for name in chosen:
            self._ask(query, models[name], data, now)
        if not query.answered:
            query.failure = LATE
            if not served.open:
                self._busy_applications[served] = None
            served.open.append(query)

    def _version(self, served: ServedApplication, version: str) -> dict[str, ServedModel]:
        links = served.record.linked_models
        if len(links) > 1:
            raise invalid(f"Too many models linked to application {served.name}")
        if not links:
            return {}
        key = f"{links[0]}:{version}"
        if key not in self._registry.models:
            raise invalid(f"Requested version: {version} does not exist for model: {links[0]}")
        return {links[0]: self.models[key]}

    def _ask(self, query: Query, model: ServedModel, data: bytes, now: float) -> None:
        """Find the output in the cache, or wait for it with those that ask the same, or be the first to ask."""
        if self.cache.bytes_max:
            output = self.cache.get((model.cache_epoch, data))
            model.metrics.cache_hits.total += 1
            if output is not None:
                model.metrics.cache_hits.hits += 1
                self._settle(query, model.name, output, "", now)
                return
        if not model.batcher.replica_count:
            self._settle(query, model.name, None, NO_MODEL, now)
            return
        if self.cache.bytes_max and (task := model.flights.get(data)) is not None and task.expires > now:
            task.waiting.append(query)
            task.expires = max(task.expires, query.deadline)
            return
        task = Task(data, query.deadline, [query])
        if not model.batcher.submit(task):
            self._settle(query, model.name, None, CROWDED, now)
            return
        model.flights[data] = task
        self._busy_models[model] = None

    def _settle(self, query: Query, model_name: str, output: bytes | None, failure: str, now: float) -> None:
        """One of the query's models has answered, or will not. What comes after the deadline does not count: an answer
        is never late without saying so, also when the loop was too busy to notice the deadline."""
        if query.answered:
            return
        if now > query.deadline:
            query.failure = LATE
        elif output is None:
            query.failure = failure
        else:
            query.outputs[model_name] = output
        query.missing -= 1
        if not query.missing:
            self._answer(query, now)

    def _answer(self, query: Query, now: float) -> None:
        """The one place where a query ends."""
        query.answered = True
        self._open_count -= 1
        served = query.application
        combined = served.policy.combine(query.outputs, query.asked) if query.outputs else None
        defaults = served.metrics.defaults
        defaults.total += 1
        served.metrics.latency_us.add((now - query.arrived) * 1e6)
        waiting = served.open
        while waiting and waiting[0].answered:
            waiting.popleft()
        if combined is None:
            defaults.hits += 1
            query.reply(Answer(query.id, served.default_json, query.failure))
        else:
            query.reply(Answer(query.id, combined.output, ""))

    # Replicas

    def replica_joined(self, name: str, version: str, kind: int, now: float) -> Replica | None:
        """A container has said what it serves; None when this frontend holds no more."""
        if len(self.replicas) >= REPLICAS_MAX:
            return None
        model = self._model(name, version, now)
        replica = Replica(self._next_replica, model, model.next_replica_id, kind)
        self._next_replica += 1
        model.next_replica_id += 1
        self.replicas[replica.id] = replica
        model.batcher.add_replica(replica.id)
        self._busy_models[model] = None
        return replica

    def replica_left(self, replica_id: int, now: float) -> None:
        """A container is gone. What it had in flight goes to another replica, once."""
        model = self.replicas.pop(replica_id).model
        lost = model.batcher.remove_replica(replica_id)
        for task in lost:
            if task.expires > now and task.attempts < ATTEMPTS_MAX and model.batcher.replica_count:
                model.batcher.submit(task, force=True)
            else:
                self._give_up(model, task, REPLICA_LOST, now)
        self._busy_models[model] = None
        self._forget_if_unused(model)

    def batch_answered(self, replica_id: int, outputs: list[bytes | Failure], now: float) -> None:
        """A container has answered its batch; the answers go out with the next `reply`."""
        model = self.replicas[replica_id].model
        tasks = model.batcher.completed(replica_id, now)
        self._busy_models[model] = None
        if tasks:
            self._answered.append((model, tasks, outputs))

    def _conclude(self, model: ServedModel, tasks: list[Task], outputs: list[bytes | Failure], now: float) -> None:
        if len(outputs) != len(tasks):
            failure = Failure(f"the model gave {len(outputs)} outputs for {len(tasks)} inputs")
            outputs = [failure] * len(tasks)
        metrics = model.metrics
        metrics.throughput.count += len(tasks)
        self._aggregate.count += len(tasks)
        metrics.latency_us.add((now - min(q.arrived for q in tasks[0].waiting)) * 1e6)
        for task, output in zip(tasks, outputs, strict=True):
            if isinstance(output, Failure):
                metrics.failures.count += 1
                self._give_up(model, task, f"The model failed: {output.text}", now)
            else:
                self._deliver(model, task, as_json(output), now)

    def _deliver(self, model: ServedModel, task: Task, output: bytes, now: float) -> None:
        if model.flights.get(task.data) is task:
            del model.flights[task.data]
            if self.cache.bytes_max:
                self.cache.put((model.cache_epoch, task.data), output)
        for query in task.waiting:
            self._settle(query, model.name, output, "", now)

    def _give_up(self, model: ServedModel, task: Task, failure: str, now: float) -> None:
        if model.flights.get(task.data) is task:
            del model.flights[task.data]
        for query in task.waiting:
            self._settle(query, model.name, None, failure, now)

    # Time

    def dispatch(self, now: float) -> list[SendBatch]:
        """The batches that leave now."""
        orders: list[SendBatch] = []
        for model in list(self._busy_models):
            sent, dropped = model.batcher.poll(now)
            orders += sent
            for task in dropped:
                self._give_up(model, task, LATE, now)
            for order in sent:
                model.metrics.batch_left(len(order.tasks), order.reason)
            if model.batcher.wake_at() is None:
                del self._busy_models[model]
        return orders

    def reply(self, now: float) -> None:
        """Answer the queries of batches that are back, then those whose deadline has passed."""
        for model, tasks, outputs in self._answered:
            self._conclude(model, tasks, outputs, now)
        for served in list(self._busy_applications):
            self._expire(served, now)

    def replied(self, now: float) -> None:
        """The answers are on their way."""
        for model, _, _ in self._answered:
            model.batcher.answered(now)
        self._answered.clear()

    def _expire(self, served: ServedApplication, now: float) -> None:
        waiting = served.open
        while waiting and (waiting[0].answered or waiting[0].deadline <= now):
            query = waiting.popleft()
            if not query.answered:
                self._answer(query, now)
        if not waiting:
            self._busy_applications.pop(served, None)

    def next_deadline(self) -> float | None:
        """When the first open query has to be answered."""
        return min((app.open[0].deadline for app in self._busy_applications if app.open), default=None)

    def next_batch(self) -> float | None:
        """When the first lingering replica shall leave."""
        ends = (model.batcher.wake_at() for model in self._busy_models)
        return min((end for end in ends if end is not None), default=None)

    def wake_at(self) -> float | None:
        """When to poll although nothing has happened."""
        times = [time for time in (self.next_deadline(), self.next_batch()) if time is not None]
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Bring moving averages up to date; to be called every few seconds."""
        self._aggregate.tick(now)
        for served in self.applications.values():
            served.metrics.throughput.tick(now)
        for model in self.models.values():
            model.metrics.throughput.tick(now)

    # Views

    @property
    def open_count(self) -> int:
        """Queries without an answer."""
        return self._open_count

    def containers(self) -> list[Container]:
        """The connected replicas, for the management frontend."""
        names = {kind.code: kind.name for kind in INPUT_TYPES.values()}
        return [
            Container(r.model.key, r.model.name, r.model.version, r.replica_id, names.get(r.input_type, "unknown"))
            for r in self.replicas.values()
        ]

    def metrics(self) -> Iterable[tuple[str, Metric]]:
        """All metrics under Clipper's names, and some of ours."""
        lookups, hits = Counter(), Ratio()
        lookups.count = hits.total = self.cache.lookups
        hits.hits = self.cache.hits
        yield "internal:prediction_cache_lookups", lookups
        yield "internal:aggregate_num_predictions", self._total
        yield "internal:prediction_cache_hit_ratio", hits
        yield "internal:aggregate_model_throughput", self._aggregate
        for name, served in self.applications.items():
            yield from served.metrics.named(name)
        for key, model in self.models.items():
            yield from model.metrics.named(key)


def as_json(output: bytes) -> bytes:
    """A model's output as JSON: itself where it parses as JSON, else as a JSON string."""
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(output.decode(errors="replace"))
    return output
