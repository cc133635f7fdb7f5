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

Which arms are asked and what their outputs come to is the business of `arms`. Feedback is a query of its own: the arms
that the policy wants judged are asked for the same input, and what each lost goes to `arms.observations`, for the
management frontend to learn from. Shadow arms are asked beside a query; they never
hold it up and never answer it.

Invariants: the callback is called exactly once for every query, at the latest by the first `reply` after its
deadline; a task is in one queue, or in flight at one replica, or done; a query is in `open` of its application until
it is answered.
"""

from collections.abc import Iterable

from lepa.serving.arms import Arms, combined
from lepa.serving.batching import OBJECTIVE_SHARE, SendBatch, Task
from lepa.serving.cache import PredictionCache
from lepa.serving.container_rpc import Failure
from lepa.serving.inputs import INPUT_TYPES
from lepa.serving.metrics import ApplicationMetrics, Counter, Meter, Metric, Ratio
from lepa.serving.records import Container, Registry
from lepa.serving.selection import Chance, Choice
from lepa.serving.served import (
    Answer,
    Query,
    Replica,
    ReplicaWork,
    Reply,
    ServedApplication,
    ServedModel,
    as_json,
)

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


class Predictions:
    """See the module."""

    def __init__(self, cache_bytes_max: int, now: float, chance: Chance) -> None:
        self.arms = Arms(chance)
        self.applications: dict[str, ServedApplication] = {}
        self.models: dict[str, ServedModel] = {}
        self.replicas: dict[int, Replica] = {}
        self.cache = PredictionCache(cache_bytes_max)
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
        self._epoch += 1
        asleep = {name for name, settings in registry.scaling.items() if not settings.replicas_min}
        for record in registry.models.values():
            model = self._model(record.model_name, record.model_version, now)
            model.configure(record, self._epoch)
            model.comes_back = record.model_name in asleep
        for key in [key for key in self.models if key not in registry.models]:
            self.models[key].configure(None, self._epoch)
            self._forget_if_unused(self.models[key])
        kept = {}
        for app in registry.applications.values():
            served = self.applications.get(app.name)
            metrics = served.metrics if served else ApplicationMetrics(now)
            kept[app.name] = served if served and served.record == app else ServedApplication(app, metrics)
        self.applications = kept
        self.arms.configure(registry, kept.values(), self.models)
        self._set_objectives()

    def _model(self, name: str, version: str, now: float) -> ServedModel:
        key = f"{name}:{version}"
        if (model := self.models.get(key)) is None:
            model = self.models[key] = ServedModel(name, version, now)
            model.registration = (key, self._epoch)
        return model

    def _forget_if_unused(self, model: ServedModel) -> None:
        if model.record is None and not model.batcher.replica_count:
            self.models.pop(model.key, None)
            self._busy_models.pop(model, None)

    def _set_objectives(self) -> None:
        """A batch's share of the objective follows the strictest application that uses the model."""
        strictest: dict[str, float] = {}
        for app in self.applications.values():
            for name in app.record.linked_models:
                strictest[name] = min(app.slo_s, strictest.get(name, app.slo_s))
        for model in self.models.values():
            model.batcher.objective_s = strictest.get(model.name, 1.0) * OBJECTIVE_SHARE

    # Queries

    def predict(
        self, served: ServedApplication, data: bytes, version: str, reply: Reply, now: float, user: str = ""
    ) -> None:
        """A query has arrived. Raises LepaError(invalid) for a version that does not exist, before anything is open."""
        arms = self.arms
        choice = arms.version(served, version) if version else served.always or arms.choose(served, user)
        query = Query(self._next_query_id, served, now, reply)
        self._next_query_id += 1
        self._total.count += 1
        served.metrics.throughput.count += 1
        if served.shadows:
            query.watched = dict.fromkeys((model.key for model in served.shadows), None)
        self._open(query, choice, data, now)
        for model in served.shadows:
            if self._open_count < OPEN_MAX:
                self._ask(query, model, data, now)

    def feedback(
        self, served: ServedApplication, data: bytes, label: float | str, reply: Reply, now: float, user: str = ""
    ) -> None:
        """Somebody knows the right answer: judge the arms by it. The answer's output is 1 when that was possible."""
        query = Query(self._next_query_id, served, now, reply)
        self._next_query_id += 1
        if not served.policy.learns:
            reply(Answer(query.id, b"1", ""))
            return
        query.label = label
        query.user = user
        self._open(query, self.arms.choose(served, user), data, now)

    def passes_to(self, served: ServedApplication) -> ServedModel | None:
        """The model that the application chooses now, where that answers by itself at an endpoint."""
        key = next(iter((served.always or self.arms.choose(served, "")).weights), "")
        model = self.models[key] if key else None
        return model if model and model.record and model.record.endpoint else None

    def _open(self, query: Query, choice: Choice, data: bytes, now: float) -> None:
        """Ask the chosen arms, and let the query wait for them."""
        self._open_count += 1
        query.choice = choice
        query.missing = len(choice.weights)
        query.failure = CROWDED if self._open_count > OPEN_MAX else NO_MODEL
        if not query.missing or self._open_count > OPEN_MAX:
            self._answer(query, now)
            return
        for key in choice.weights:
            self._ask(query, self.models[key], data, now)
        if not query.answered:
            query.failure = LATE
            served = query.application
            if not served.open:
                self._busy_applications[served] = None
            served.open.append(query)

    def _ask(self, query: Query, model: ServedModel, data: bytes, now: float) -> None:
        """Find the output in the cache, or wait for it with those that ask the same, or be the first to ask."""
        if self.cache.bytes_max:
            output = self.cache.get((model.registration, data))
            model.metrics.cache_hits.total += 1
            if output is not None:
                model.metrics.cache_hits.hits += 1
                self._settle(query, model, output, "", now)
                return
        if not model.batcher.replica_count and not model.comes_back:
            self._settle(query, model, None, NO_MODEL, now)
            return
        if self.cache.bytes_max and (task := model.flights.get(data)) is not None and task.expires > now:
            task.waiting.append(query)
            task.expires = max(task.expires, query.deadline)
            return
        task = Task(data, query.deadline, [query])
        if not model.batcher.submit(task):
            self._settle(query, model, None, CROWDED, now)
            return
        model.flights[data] = task
        self._busy_models[model] = None

    def _settle(self, query: Query, model: ServedModel, output: bytes | None, failure: str, now: float) -> None:
        """One of the query's models has answered, or will not. What comes after the deadline does not count: an answer
        is never late without saying so, also when the loop was too busy to notice the deadline."""
        if query.watched is not None and model.key in query.watched:
            self._watched(query, model, output)
            return
        if query.answered:
            return
        if now > query.deadline:
            query.failure = LATE
        elif output is None:
            query.failure = failure
        else:
            query.outputs[model.key] = output
        query.missing -= 1
        if not query.missing:
            self._answer(query, now)

    def _answer(self, query: Query, now: float) -> None:
        """The one place where a query ends."""
        query.answered = True
        self._open_count -= 1
        served = query.application
        waiting = served.open
        while waiting and waiting[0].answered:
            waiting.popleft()
        if query.label is not None:
            query.reply(self.arms.judge(query, query.label))
            return
        defaults = served.metrics.defaults
        defaults.total += 1
        served.metrics.latency_us.add((now - query.arrived) * 1e6)
        answer = combined(query)
        if answer.explanation:
            defaults.hits += 1
        query.output = answer.output
        query.reply(answer)
        if query.watched:
            self._compare(query)

    def _watched(self, query: Query, model: ServedModel, output: bytes | None) -> None:
        """A shadow has answered: keep it for the comparison, or compare when the query is answered already."""
        assert query.watched is not None
        query.watched[model.key] = output
        if query.answered:
            self._compare(query)

    def _compare(self, query: Query) -> None:
        """Count how often shadows say what the application answered."""
        watched, query.watched = query.watched or {}, dict.fromkeys(query.watched or {})
        for key, output in watched.items():
            if output is not None and (model := self.models.get(key)) is not None:
                model.metrics.agreement.total += 1
                model.metrics.agreement.hits += output == query.output

    # Replicas

    def replica_joined(self, name: str, version: str, kind: int, now: float, instance: str = "") -> Replica | None:
        """A container has said what it serves; None when this frontend holds no more."""
        if len(self.replicas) >= REPLICAS_MAX:
            return None
        model = self._model(name, version, now)
        replica = Replica(self._next_replica, model, model.next_replica_id, kind, ReplicaWork(), instance)
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
        replica = self.replicas[replica_id]
        model = replica.model
        tasks = model.batcher.completed(replica_id, now)
        replica.work.busy_s += now - replica.work.sent_at
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
                self.cache.put((model.registration, task.data), output)
        for query in task.waiting:
            self._settle(query, model, output, "", now)

    def _give_up(self, model: ServedModel, task: Task, failure: str, now: float) -> None:
        if model.flights.get(task.data) is task:
            del model.flights[task.data]
        for query in task.waiting:
            self._settle(query, model, None, failure, now)

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
                self._left(model, order, now)
            if model.batcher.wake_at() is None:
                del self._busy_models[model]
        return orders

    def _left(self, model: ServedModel, order: SendBatch, now: float) -> None:
        count, reason = len(order.tasks), order.reason
        model.metrics.batch_left(count, reason)
        work = self.replicas[order.replica].work
        work.sent_at = now
        work.predictions += count
        work.batches[reason] = work.batches.get(reason, 0) + 1

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
            Container(
                r.model.key, r.model.name, r.model.version, r.replica_id, names.get(r.input_type, "unknown"), r.instance
            )
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
