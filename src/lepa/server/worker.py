"""Processes evaluations: waits for a state that is new enough, schedules in a thread, submits the plan.

A plan that is refused in part is made again on the state that refused it, as often as the job's type allows, as long as
nothing gets through; then a blocked evaluation stands in until the cluster has changed. How the evaluation ended is
written together with the plan, so that it is never done without its plan, nor its plan without it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Final

from msgspec.structs import replace

from lepa.kit.sources import Clock, Random
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.outcome import Outcome
from lepa.scheduler.process import attempts_max, give_up, process_ahead
from lepa.server.desk import Desk
from lepa.server.eval_broker import Delivery
from lepa.state.job_tally import TERMINAL_EVALUATION_STATUSES
from lepa.state.replica import Replica

SNAPSHOT_WAIT_S: Final = 5.0
AT_ONCE: Final = 8
"""Evaluations that a worker has under way: while one is scheduled, the plans of others are committed together."""

log = logging.getLogger(__name__)


class Turns:
    """When evaluations are scheduled: one at a time by each worker, or by one worker alone.

    Two that are scheduled at the same time know nothing of each other and may choose the same room; then one of their
    plans is refused. Its second try is made alone, at the leader, so that it is not refused for that again.
    """

    def __init__(self, workers: int) -> None:
        self._locks = [asyncio.Lock() for _ in range(workers)]

    @asynccontextmanager
    async def take(self, worker: int, *, alone: bool) -> AsyncIterator[None]:
        """The turn of a worker (counted from 0). Locks are taken in one order, so that nobody waits in a circle."""
        async with AsyncExitStack() as stack:
            for lock in self._locks if alone else self._locks[worker : worker + 1]:
                await stack.enter_async_context(lock)
            yield


class Worker:
    """One worker."""

    def __init__(
        self,
        replica: Replica,
        desk: Desk,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        types: Sequence[str],
        turns: Turns,
        number: int = 0,
    ) -> None:
        """number: of this worker among those that share the turns."""
        self._replica = replica
        self._desk = desk
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._types = types
        self._columns = NodeColumns()
        self._turns = turns
        self._number = number

    async def run(self) -> None:
        """Process evaluations one after the other, until cancelled.

        May run several times at once: they take turns at scheduling, and none waits for the plans of another.
        """
        while True:
            asked = self._clock.now()
            delivery = await self._desk.dequeue(self._types)
            started = self._clock.now()
            self._metrics.sample("nomad.nomad.worker.dequeue_eval", 1e3 * (started - asked))
            try:
                index = await self._process(delivery)
            except LepaError as error:
                level = logging.DEBUG if error.code in ("no_leader", "unsupported") else logging.WARNING
                log.log(level, "evaluation not processed eval_id=%s error=%s", delivery.evaluation.id, error)
                self._desk.nack(delivery)
            except Exception:
                log.exception("evaluation failed eval_id=%s", delivery.evaluation.id)
                self._desk.nack(delivery)
            else:
                acknowledged = self._clock.now()
                self._desk.ack(delivery, index)
                self._metrics.sample("nomad.nomad.worker.send_ack", 1e3 * (self._clock.now() - acknowledged))
            self._metrics.sample("nomad.nomad.worker.process_eval", 1e3 * (self._clock.now() - started))

    async def _process(self, delivery: Delivery) -> int:
        """Returns the revision of the last write."""
        waited = self._clock.now()
        snapshot = await self._replica.wait_for(delivery.wait_index, SNAPSHOT_WAIT_S)
        self._metrics.sample("nomad.nomad.worker.wait_for_index", 1e3 * (self._clock.now() - waited))
        evaluation = snapshot.evaluation(delivery.evaluation.id)
        if evaluation is None or evaluation.status in TERMINAL_EVALUATION_STATUSES:
            return snapshot.index
        left, again = attempts_max(evaluation), False
        while left > 0:
            async with self._desk.alone(delivery) if again else nullcontext():
                outcome = await self._schedule(evaluation, alone=again)
            again = True
            if outcome.plan.empty:
                return await self._desk.close(delivery, outcome)
            submitted = self._clock.now()
            result = await self._desk.submit(replace(outcome.plan, eval_token=delivery.token), outcome)
            self._metrics.sample("nomad.nomad.worker.submit_plan", 1e3 * (self._clock.now() - submitted))
            if not result.refresh_index:
                return result.applied_index
            self._metrics.count("lepa.plan.conflicts")
            progress = bool(result.updates or result.stops)
            left = attempts_max(evaluation) if progress else left - 1
            newer = max(result.refresh_index, result.applied_index)
            snapshot = await self._replica.wait_for(newer, SNAPSHOT_WAIT_S)
        now_ns = self._clock.now_ns()
        outcome = give_up(evaluation, snapshot, now_ns=now_ns, new_id=self._random.uuid)
        return await self._desk.close(delivery, outcome)

    async def _schedule(self, evaluation: Evaluation, *, alone: bool) -> Outcome:
        """On the newest snapshot, with what other plans are about to place."""
        async with self._turns.take(self._number, alone=alone):
            started = self._clock.now()
            outcome = await asyncio.to_thread(
                process_ahead,
                evaluation,
                self._replica.snapshot,
                self._desk.under_way(),
                now_ns=self._clock.now_ns(),
                seed=self._random.seed(),
                new_id=self._random.uuid,
                columns=self._columns,
            )
        name = f"nomad.nomad.worker.invoke_scheduler_{evaluation.type}"
        self._metrics.sample(name, 1e3 * (self._clock.now() - started))
        return outcome
