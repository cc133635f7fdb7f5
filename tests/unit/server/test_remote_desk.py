"""Which deliveries a follower says it holds. Whole regions with followers that schedule are in tests/integration."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.builders import make_eval
from tests.clocks import ManualClock, settle

from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc import server_requests as s
from lepa.server.remote_desk import RemoteDesk


class Leader:
    """Hands out one evaluation, notes what it is told that is held, and answers to the end of it when allowed to."""

    def __init__(self) -> None:
        self.holding: list[tuple[str, ...]] = []
        self.heard_of_the_end = asyncio.Event()
        self._given = False

    async def ask(self, address: str, method: m.Method[Any, Any], request: Any, timeout_s: float) -> r.Reply[Any]:
        if method is m.EVAL_DONE:
            await self.heard_of_the_end.wait()
            return r.Reply(value=None)
        self.holding.append(request.holding)
        if self._given:
            await asyncio.sleep(0)
            return r.Reply(value=())
        self._given = True
        return r.Reply(value=(s.EvalDelivery(evaluation=make_eval(), token="token", wait_index=0),))


async def test_a_delivery_is_held_until_the_leader_has_heard_of_its_end() -> None:
    """A request for more may overtake that; what it does not name is handed out again, and was placed twice."""
    leader, clock = Leader(), ManualClock()
    follower: Any = SimpleNamespace(leader_address="leader", key=SimpleNamespace(created=1), leading=None)
    async with RemoteDesk("follower", ("service",), follower, leader, clock) as desk:
        delivery = await desk.dequeue(("service",))
        waiting = asyncio.ensure_future(desk.dequeue(("service",)))
        desk.ack(delivery, 7)
        await settle()
        assert leader.holding[-1] == ("token",)
        leader.heard_of_the_end.set()
        await settle()
        assert leader.holding[-1] == ()
        waiting.cancel()
