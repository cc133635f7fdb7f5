"""Registered, and heard of often enough."""

from itertools import pairwise
from typing import Any

import pytest
from tests.builders import make_node
from tests.clocks import ManualClock, settle

from lepa.client.server_link import ServerLink
from lepa.kit.sources import SeededRandom
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, not_found
from lepa.rpc import methods as m
from lepa.rpc.requests import NodeUpdateResponse, Reply


class FakeServers:
    def __init__(self) -> None:
        self.calls: list[tuple[float, str]] = []
        self.error: LepaError | None = None
        self.clock = ManualClock()

    async def call(self, method: m.Method[Any, Any], request: Any) -> Reply[Any]:
        self.calls.append((self.clock.now(), method.name))
        if self.error is not None:
            raise self.error
        return Reply(value=NodeUpdateResponse(heartbeat_ttl=20_000_000_000))

    def stream(self, method: Any, request: Any) -> Any:
        raise AssertionError

    def times(self, method: m.Method[Any, Any]) -> list[float]:
        return [now for now, name in self.calls if name == method.name]


class Linked:
    def __init__(self, tasks: Tasks) -> None:
        self.servers = FakeServers()
        self.clock = self.servers.clock
        self.lost = 0
        self.link = ServerLink(self.servers, self.clock, SeededRandom(1), self._forgotten)
        self.link.node = make_node()
        tasks.start("register", self.link.register())
        tasks.start("beat", self.link.beat())

    def _forgotten(self) -> None:
        self.lost += 1


async def test_heartbeats_come_twice_as_often_as_the_servers_want_them() -> None:
    async with Tasks("test") as tasks:
        it = Linked(tasks)
        await it.clock.advance(100.0)
        beats = it.servers.times(m.NODE_HEARTBEAT)
        assert it.link.registered.is_set()
        assert max(after - before for before, after in zip([0.0, *beats], beats, strict=False)) <= 10.0
        assert len(it.servers.times(m.NODE_REGISTER)) == 1
        assert it.link.last_contact == beats[-1]


async def test_a_lost_heartbeat_is_sent_again_soon() -> None:
    async with Tasks("test") as tasks:
        it = Linked(tasks)
        await it.clock.advance(5.0)
        it.servers.error = LepaError("no_leader", "away")
        await it.clock.advance(15.0)
        late = [now for now in it.servers.times(m.NODE_HEARTBEAT) if now > 11.0]
        assert {round(after - before, 3) for before, after in pairwise(late)} == {1.0}


async def test_a_failing_registration_is_tried_ever_less_often() -> None:
    async with Tasks("test") as tasks:
        it = Linked(tasks)
        it.servers.error = LepaError("no_leader", "away")
        await it.clock.advance(100.0)
        assert 6 <= len(it.servers.times(m.NODE_REGISTER)) <= 14
        assert not it.link.registered.is_set()
        it.servers.error = None
        await it.clock.advance(20.0)
        assert it.link.registered.is_set()


async def test_a_server_that_does_not_know_the_node_hears_of_it_again() -> None:
    async with Tasks("test") as tasks:
        it = Linked(tasks)
        await settle()
        it.servers.error = not_found("node not found")
        await it.clock.advance(10.0)
        assert it.lost == 1
        it.servers.error = None
        await it.clock.advance(5.0)
        assert it.link.registered.is_set()


async def test_a_change_of_the_node_is_told_without_telling_everything_else() -> None:
    async with Tasks("test") as tasks:
        it = Linked(tasks)
        await settle()
        it.link.change(make_node(name="other"))
        assert not it.link.registered.is_set()
        await settle()
        assert it.link.registered.is_set()
        assert len(it.servers.times(m.NODE_REGISTER)) == 2
        assert it.lost == 0


async def test_a_server_that_does_not_answer_is_an_error_with_the_calls_name() -> None:
    async def silence(method: Any, request: Any) -> Any:
        raise TimeoutError

    servers = FakeServers()
    servers.call = silence  # type: ignore[method-assign]
    link = ServerLink(servers, servers.clock, SeededRandom(1), lambda: None)
    with pytest.raises(LepaError, match=r"Node\.Heartbeat within 1 s"):
        await link.call(m.NODE_HEARTBEAT, m.NODE_HEARTBEAT.request(), 1.0)
