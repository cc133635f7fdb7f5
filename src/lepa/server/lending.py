"""The leader's side of scheduling on other servers: hands out evaluations, takes plans, takes back what got lost."""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from lepa.kit.sources import Clock
from lepa.kit.telemetry import Metrics
from lepa.model.errors import conflict
from lepa.model.plan import Plan, PlanResult
from lepa.rpc import server_requests as s
from lepa.scheduler.outcome import Outcome
from lepa.server.desk import LocalDesk
from lepa.server.eval_broker import Delivery
from lepa.server.eval_feed import EvalFeed
from lepa.server.loans import Loan, Loans

WAIT_MAX_S: Final = 2.0
AT_ONCE_MAX: Final = 32
LOOK_S: Final = 1.0

log = logging.getLogger(__name__)


class Lending:
    """What other servers schedule for a leading one."""

    def __init__(self, feed: EvalFeed, desk: LocalDesk, clock: Clock, metrics: Metrics) -> None:
        self._feed = feed
        self._desk = desk
        self._clock = clock
        self._metrics = metrics
        self._loans = Loans()
        self._requests: dict[str, int] = {}

    async def dequeue(self, request: s.EvalDequeueRequest) -> tuple[s.EvalDelivery, ...]:
        """Evaluations for a server's workers; none when there are none in time or it has asked again meanwhile."""
        server = request.server
        number = self._requests[server] = self._requests.get(server, 0) + 1
        self._take_back(self._loans.asked(server, request.holding, self._clock.now()))
        first = await self._first(request)
        if first is None:
            return ()
        if self._requests[server] != number:
            self._feed.take_back(first.evaluation.id, first.token)
            return ()
        found = [first]
        while len(found) < min(request.most, AT_ONCE_MAX) and (more := self._feed.take(request.types)) is not None:
            found.append(more)
        for delivery in found:
            self._loans.lent(server, Loan(delivery.evaluation.id, delivery.token))
        self._metrics.count("lepa.evaluations.lent", len(found), server=server)
        return tuple(s.EvalDelivery(evaluation=d.evaluation, token=d.token, wait_index=d.wait_index) for d in found)

    async def _first(self, request: s.EvalDequeueRequest) -> Delivery | None:
        try:
            async with asyncio.timeout(min(request.wait_s, WAIT_MAX_S)):
                return await self._feed.dequeue(request.types)
        except TimeoutError:
            return None

    def done(self, request: s.EvalDoneRequest) -> None:
        """A worker of another server is done with a delivery, or gives it back."""
        self._loans.done(request.token)
        if request.keep:
            self._feed.keep(request.eval_id, request.token)
        elif request.fine:
            self._feed.done(request.eval_id, request.token, request.index)
        else:
            self._feed.failed(request.eval_id, request.token)

    async def close(self, request: s.EvalCloseRequest) -> int:
        """Close an evaluation that needs no plan; the revision. Raises LepaError(conflict)."""
        evaluation = request.evaluation
        if not self._feed.holds(evaluation.id, request.token):
            raise conflict("evaluation token does not match; the evaluation was not closed")
        outcome = Outcome(plan=Plan(), evaluation=evaluation, new_evaluations=request.new_evaluations)
        return await self._desk.close(Delivery(evaluation, request.token, 0), outcome)

    async def submit(self, request: s.PlanSubmitRequest) -> PlanResult:
        """Apply a plan of another server's worker. Of what was applied the answer has an example: the rest is known."""
        plan = request.plan
        await self._desk.let_pass()
        outcome = Outcome(plan=plan, evaluation=request.evaluation, new_evaluations=request.new_evaluations)
        result = await self._desk.submit(plan, outcome)
        return replace(result, updates=result.updates[:1], stops=result.stops[:1])

    async def watch(self) -> None:
        """Take back what silent servers have, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._take_back(self._loans.overdue(self._clock.now()))

    def _take_back(self, lost: list[Loan]) -> None:
        for loan in lost:
            log.warning("evaluation taken back from another server eval_id=%s", loan.eval_id)
            self._feed.take_back(loan.eval_id, loan.token)
