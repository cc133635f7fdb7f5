"""A follower's workers: they schedule from their own server's copy of the state and hand their plans to the leader.

One loop asks the leader for evaluations, as many as workers are idle, and says with each request what they still work
on. Deliveries belong to one leader's term: when another leads, what was under way is let go, because the new leader
hands the same evaluations out again, and no plan of an old delivery is taken.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.plan import Plan, PlanResult
from lepa.rpc import methods as m
from lepa.rpc import server_requests as s
from lepa.rpc.channel import Peers
from lepa.scheduler.outcome import Outcome
from lepa.server.eval_broker import Delivery
from lepa.server.leadership import Leadership

WAIT_S: Final = 1.0
ANSWER_S: Final = 5.0
"""More than WAIT_S: how long the leader may take to answer."""
SUBMIT_S: Final = 60.0
RETRY_S: Final = 0.5
AT_ONCE_MAX: Final = 4
"""Evaluations fetched at once: what one server has waits for it while others may be idle."""
PLAN_ITEMS_MAX: Final = 4_000
"""Allocations of a plan that is sent to the leader; a larger one is made by the leader itself."""

log = logging.getLogger(__name__)


class RemoteDesk:
    """The leader's desk as a follower sees it, as an async context manager. Fits `lepa.server.desk.Desk`."""

    def __init__(self, name: str, types: Sequence[str], leadership: Leadership, peers: Peers, clock: Clock) -> None:
        """name: of this server. types: of schedulers that run here."""
        self._name = name
        self._types = tuple(types)
        self._leadership = leadership
        self._peers = peers
        self._clock = clock
        self._tasks = Tasks("remote_desk")
        self._idle: asyncio.Queue[asyncio.Future[Delivery]] = asyncio.Queue()
        self._terms: dict[str, tuple[int, str]] = {}
        self._leaders: set[str] = set()

    async def __aenter__(self) -> "RemoteDesk":
        self._tasks.start("fetch", self._fetch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    async def dequeue(self, types: Sequence[str]) -> Delivery:
        delivery: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        await self._idle.put(delivery)
        return await delivery

    def ack(self, delivery: Delivery, index: int) -> None:
        self._end(delivery, s.EvalDoneRequest(eval_id=delivery.evaluation.id, token=delivery.token, index=index))

    def nack(self, delivery: Delivery) -> None:
        request = s.EvalDoneRequest(
            eval_id=delivery.evaluation.id,
            token=delivery.token,
            fine=False,
            keep=delivery.token in self._leaders,
        )
        self._leaders.discard(delivery.token)
        self._end(delivery, request)

    def under_way(self) -> list[Allocation]:
        """Only the leader knows."""
        return []

    def alone(self, delivery: Delivery) -> AbstractAsyncContextManager[None]:
        """The leader knows of all plans that are under way; here the next try might come too late again."""
        self._leaders.add(delivery.token)
        raise LepaError("unsupported", "plans of other servers came first; the leader's next try will not be too late")

    async def submit(self, plan: Plan, outcome: Outcome) -> PlanResult:
        if len(plan.updates) + len(plan.stops) > PLAN_ITEMS_MAX:
            self._leaders.add(plan.eval_token)
            raise LepaError("unsupported", f"a plan of more than {PLAN_ITEMS_MAX} changes is the leader's to make")
        request = s.PlanSubmitRequest(plan=plan, evaluation=outcome.evaluation, new_evaluations=outcome.new_evaluations)
        _, address = self._term(plan.eval_token)
        return (await self._peers.ask(address, m.PLAN_SUBMIT, request, SUBMIT_S)).value

    async def close(self, delivery: Delivery, outcome: Outcome) -> int:
        request = s.EvalCloseRequest(
            token=delivery.token, evaluation=outcome.evaluation, new_evaluations=outcome.new_evaluations
        )
        _, address = self._term(delivery.token)
        return (await self._peers.ask(address, m.EVAL_CLOSE, request, SUBMIT_S)).index

    def _term(self, token: str) -> tuple[int, str]:
        """The term and the leader that a delivery belongs to. Raises LepaError when that term is over."""
        term = self._terms.get(token)
        if term is None or term[0] != self._leadership.key.created:
            raise LepaError("no_leader", "another server leads now; it hands the evaluation out again")
        return term

    def _end(self, delivery: Delivery, request: s.EvalDoneRequest) -> None:
        if delivery.token in self._terms:
            self._tasks.start("done", self._tell(self._terms[delivery.token][1], request))

    async def _tell(self, address: str, request: s.EvalDoneRequest) -> None:
        """The delivery is held until the leader knows how it ended: a request for more that overtakes this one would
        have it handed out again. When this is lost, the leader sees that the delivery is no longer held."""
        try:
            await self._peers.ask(address, m.EVAL_DONE, request, ANSWER_S)
        except LepaError as error:
            log.debug("end of a delivery not told eval_id=%s error=%s", request.eval_id, error.message)
        finally:
            self._terms.pop(request.token, None)

    async def _fetch(self) -> None:
        while True:
            idle = await self._idle.get()
            self._idle.put_nowait(idle)
            address, created = self._leadership.leader_address, self._leadership.key.created
            if self._leadership.leading is not None or not address:
                await self._leadership.changed(self._clock.now() + RETRY_S)
                continue
            try:
                await self._ask(address, created)
            except LepaError as error:
                log.debug("no evaluations fetched address=%s error=%s", address, error.message)
                await self._clock.sleep(RETRY_S)

    async def _ask(self, address: str, created: int) -> None:
        request = s.EvalDequeueRequest(
            server=self._name,
            types=self._types,
            most=min(AT_ONCE_MAX, self._idle.qsize()),
            wait_s=WAIT_S,
            holding=tuple(token for token, (term, _) in self._terms.items() if term == created),
        )
        for found in (await self._peers.ask(address, m.EVAL_DEQUEUE, request, ANSWER_S)).value:
            idle = self._idle.get_nowait()
            if not idle.done():
                self._terms[found.token] = (created, address)
                idle.set_result(Delivery(found.evaluation, found.token, found.wait_index))
