"""Feeds the broker from the state, and workers from the broker.

Whatever writes an evaluation, be it an endpoint, a plan or a decider, the broker hears of it from the replica's
changes; so it knows nothing that is not durable, and a new leader begins with the same evaluations. Capacity is heard
of the same way: a node that becomes ready or an allocation that gives way lets blocked evaluations go.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.model.node import Node
from lepa.server.alarm import Alarm
from lepa.server.blocked_evals import BlockedEvals
from lepa.server.eval_broker import DELIVERIES_MAX, Delivery, EvalBroker, delay_s
from lepa.server.writer import Writer
from lepa.state.commands import evaluations as evaluation_commands
from lepa.state.commands.draft import Draft
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES, TERMINAL_EVALUATION_STATUSES
from lepa.state.reducer import RowChange
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot

GIVEN_MAX: Final = 1_000
"""Deliveries whose time is taken."""

SCHEDULER_TYPES: Final = ("service", "batch", "system", "sysbatch")

RETRY_BLOCKED_S: Final = 60.0
"""How often evaluations that were blocked for refused plans are tried again."""

WRITE_ATTEMPTS_MAX: Final = 10
WRITE_RETRY_S: Final = 1.0

GIVEN_UP: Final = f"evaluation reached delivery limit ({DELIVERIES_MAX})"
SUPERSEDED: Final = "canceled after more recent eval was processed"

log = logging.getLogger(__name__)


class EvalFeed:
    """The broker and the blocked evaluations of a leading server, as an async context manager."""

    def __init__(self, replica: Replica, writer: Writer, clock: Clock, random: Random, metrics: Metrics) -> None:
        self._replica = replica
        self._writer = writer
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._tasks = Tasks("eval_feed")
        self._moved = asyncio.Event()
        self._given: dict[str, tuple[float, float]] = {}
        self.broker = EvalBroker()
        self.blocked = BlockedEvals()

    async def __aenter__(self) -> "EvalFeed":
        subscription = self._replica.subscribe()
        self._fill(subscription.start)
        self._tasks.start("follow", self._follow(subscription))
        self._tasks.start("time", self._keep_time())
        self._tasks.start("retry", self._retry_blocked())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        self.broker.clear()
        self.blocked.clear()

    async def dequeue(self, types: Iterable[str]) -> Delivery:
        """The next evaluation for a worker; waits for one."""
        types = tuple(types)
        while True:
            moved = self._moved
            if (delivery := self.take(types)) is not None:
                return delivery
            await moved.wait()

    def take(self, types: Iterable[str]) -> Delivery | None:
        """The next evaluation for a worker, if there is one."""
        if self._replica.snapshot.scheduler_configuration().pause_eval_broker:
            return None
        delivery = self.broker.dequeue(types, self._random.uuid(), self._clock.now())
        if delivery is None:
            return None
        self._handed_out(delivery)
        return delivery._replace(wait_index=max(delivery.wait_index, self._written(delivery.evaluation)))

    def _written(self, evaluation: Evaluation) -> int:
        """When the job's evaluations and the counts of its allocations were last written, as far as this server knows:
        a worker that is given an evaluation again, elsewhere perhaps, sees what came of it before."""
        snapshot, job = self._replica.snapshot, (evaluation.namespace, evaluation.job_id)
        counted = snapshot.tallies[job].changed if job in snapshot.tallies else 0
        return max((counted, *(each.modify_index for each in snapshot.job_evaluations(*job))))

    def _handed_out(self, delivery: Delivery) -> None:
        waited_ns = max(0, self._clock.now_ns() - delivery.evaluation.modify_time)
        self._metrics.sample("nomad.nomad.broker.wait_time", waited_ns / 1e6)
        self._metrics.sample("nomad.nomad.broker.eval_waiting", waited_ns / 1e6)
        while len(self._given) >= GIVEN_MAX:  # of workers that were lost
            self._given.pop(next(iter(self._given)))
        self._given[delivery.token] = (self._clock.now(), waited_ns / 1e6)

    def ack(self, delivery: Delivery, index: int) -> None:
        """The worker is done with it; `index` is its last write."""
        self.done(delivery.evaluation.id, delivery.token, index)

    def nack(self, delivery: Delivery) -> None:
        """The worker could not do it."""
        self.failed(delivery.evaluation.id, delivery.token)

    def done(self, eval_id: str, token: str, index: int) -> None:
        """Some worker is done with a delivery."""
        given, waited_ms = self._given.pop(token, (self._clock.now(), 0.0))
        worked_ms = 1e3 * (self._clock.now() - given)
        self._metrics.sample("nomad.nomad.broker.process_time", worked_ms)
        self._metrics.sample("nomad.nomad.broker.response_time", waited_ms + worked_ms)
        self.broker.ack(eval_id, token, index, self._clock.now())
        self._move()

    def failed(self, eval_id: str, token: str) -> None:
        """Some worker could not do a delivery."""
        self._given.pop(token, None)
        self.broker.nack(eval_id, token, self._clock.now())
        self._move()

    def keep(self, eval_id: str, token: str) -> None:
        """A delivery is for workers of this server only."""
        self.broker.keep(eval_id, token)
        self._move()

    def take_back(self, eval_id: str, token: str) -> None:
        """A delivery never reached a worker, or its worker is gone."""
        self._given.pop(token, None)
        self.broker.take_back(eval_id, token)
        self._move()

    def holds(self, eval_id: str, token: str) -> bool:
        """Whether a worker still has this delivery."""
        return self.broker.holds(eval_id, token)

    def report(self) -> None:
        """Bring the gauges up to date."""
        counts = self.broker.counts()
        self._metrics.gauge("nomad.nomad.broker.total_ready", counts.ready)
        self._metrics.gauge("nomad.nomad.broker.total_unacked", counts.unacknowledged)
        self._metrics.gauge("nomad.nomad.broker.total_pending", counts.waiting)
        self._metrics.gauge("nomad.nomad.broker.total_waiting", counts.delayed)
        self._metrics.gauge("nomad.nomad.broker.total_cancelable", 0)
        ready, held = self.broker.ready_by_type(), self.broker.unacknowledged_by_type()
        for kind in SCHEDULER_TYPES:
            self._metrics.gauge(f"nomad.nomad.broker.{kind}_ready", ready.get(kind, 0))
            self._metrics.gauge(f"nomad.nomad.broker.{kind}_unacked", held.get(kind, 0))
        self._metrics.gauge("nomad.nomad.blocked_evals.total_quota_limit", 0)
        self._metrics.gauge("nomad.nomad.blocked_evals.total_blocked", len(self.blocked))
        self._metrics.gauge("nomad.nomad.blocked_evals.total_escaped", self.blocked.escaped)

    # From the state

    def _fill(self, snapshot: Snapshot) -> None:
        for evaluation in snapshot.evaluations():
            self._take(evaluation)

    async def _follow(self, subscription: Any) -> None:
        async for delivery in subscription:
            if delivery.lagged:
                self._fill(delivery.snapshot)
            for change in delivery.changes:
                if handle := _HANDLERS.get(change.table):
                    handle(self, change, delivery.snapshot)
            self._move()

    def _evaluation_changed(self, change: RowChange, snapshot: Snapshot) -> None:
        if change.after is not None:
            self._take(change.after)
        if change.after is None or change.after.status in TERMINAL_EVALUATION_STATUSES:
            self.blocked.drop(change.key)

    def _take(self, evaluation: Evaluation) -> None:
        if evaluation.status == "pending":
            self.broker.enqueue(evaluation, self._clock.now(), delay_s(evaluation, self._clock.now_ns()))
        elif evaluation.status == "blocked":
            self._release(self.blocked.block(evaluation))

    def _node_changed(self, change: RowChange, snapshot: Snapshot) -> None:
        node: Node | None = change.after
        if node is not None and _takes_work(node) and _offers_more(change.before, node):
            self._release(self.blocked.unblock(node.computed_class, node.id, change.revision))

    def _allocation_changed(self, change: RowChange, snapshot: Snapshot) -> None:
        if change.before is None or not _gives_way(change.before, change.after):
            return
        node = snapshot.node(change.before.node_id)
        if node is not None and _takes_work(node):
            self._release(self.blocked.unblock(node.computed_class, node.id, change.revision))

    def _release(self, evaluations: Iterable[Evaluation]) -> None:
        for evaluation in evaluations:
            self.broker.enqueue(evaluation, self._clock.now())

    # Time, and what has to be written

    def _move(self) -> None:
        """Let workers look again, and write down what became of evaluations that nobody processes."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        commands: list[Callable[[Draft], None]] = []
        for evaluation in self.broker.take_failed():
            log.warning("evaluation given up eval_id=%s job_id=%s", evaluation.id, evaluation.job_id)
            commands.append(partial(_give_up, eval_id=evaluation.id, delay_ns=self._follow_up_delay_ns()))
        for evaluation in self.broker.take_superseded():
            commands.append(partial(_cancel, eval_id=evaluation.id, reason=SUPERSEDED))
        for evaluation in self.blocked.take_duplicates():
            reason = f'existing blocked evaluation exists for job "{evaluation.job_id}"'
            commands.append(partial(_cancel, eval_id=evaluation.id, reason=reason))
        if commands:
            self._tasks.start("write", self._write(commands))

    def _follow_up_delay_ns(self) -> int:
        return evaluation_commands.FOLLOW_UP_MIN_NS + int(
            self._random.uniform(0, evaluation_commands.FOLLOW_UP_SPREAD_NS)
        )

    async def _write(self, commands: list[Callable[[Draft], None]]) -> None:
        """What cannot be written now is found pending by the next leader, which decides again."""
        for command in commands:
            for attempt in range(WRITE_ATTEMPTS_MAX):
                try:
                    await self._writer.write(command)
                    break
                except LepaError as error:
                    if error.code == "no_leader":
                        return
                    log.warning("evaluation not marked attempt=%d error=%s", attempt, error.message)
                    await self._clock.sleep(WRITE_RETRY_S)

    async def _keep_time(self) -> None:
        alarm = Alarm(self._clock, self._tasks)
        while True:
            self.broker.poll(self._clock.now())
            self._move()
            moved = self._moved
            await alarm.wait(moved, self.broker.wake_at())

    async def _retry_blocked(self) -> None:
        while True:
            await self._clock.sleep(RETRY_BLOCKED_S)
            self._release(self.blocked.unblock_failed())
            self._move()


_HANDLERS: Final[dict[str, Callable[[EvalFeed, RowChange, Snapshot], None]]] = {
    "evals": EvalFeed._evaluation_changed,
    "nodes": EvalFeed._node_changed,
    "allocs": EvalFeed._allocation_changed,
}


def _takes_work(node: Node) -> bool:
    return node.status == "ready" and node.scheduling_eligibility == "eligible" and node.drain_strategy is None


def _offers_more(before: Node | None, after: Node) -> bool:
    """Whether a node that takes work may take something that it would not have taken before."""
    return (
        before is None
        or not _takes_work(before)
        or before.computed_class != after.computed_class
        or before.node_resources != after.node_resources
        or before.reserved_resources != after.reserved_resources
    )


def _gives_way(before: Allocation, after: Allocation | None) -> bool:
    """Whether an allocation has let go of room on its node: its share when it is told to stop, its ports at its end."""
    if before.client_status in TERMINAL_CLIENT_STATUSES:
        return False
    if after is None or after.client_status in TERMINAL_CLIENT_STATUSES:
        return True
    return before.desired_status == "run" != after.desired_status


def _cancel(draft: Draft, eval_id: str, reason: str) -> None:
    evaluation_commands.cancel_evaluation(draft, eval_id, reason)


def _give_up(draft: Draft, eval_id: str, delay_ns: int) -> None:
    evaluation_commands.fail_evaluation(draft, eval_id, GIVEN_UP, follow_up_delay_ns=delay_ns)
