"""Calls that name a region."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.clocks import ManualClock

from lepa.agent.regions import RegionCaller, together
from lepa.kit.sources import SeededRandom
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import ServerSession


class Own:
    """The servers of this region."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, method: Any, request: Any) -> r.Reply[Any]:
        self.asked.append(method.name)
        if method is m.STATUS_MEMBERS:
            near = r.Member(name="b.eu", status="failed"), r.Member(name="c.eu")
            return r.Reply(value=r.Members(server_name="a.eu", server_region="eu", members=near))
        return r.Reply(value="own")

    async def stream(self, method: Any, request: Any) -> AsyncIterator[Any]:
        self.asked.append(method.name)
        yield "own"


class Known:
    def members(self) -> list[r.Member]:
        return [r.Member(name="a.eu"), r.Member(name="b.eu"), r.Member(name="d.us", status="left")]

    def regions(self) -> tuple[str, ...]:
        return ("eu", "us")

    def servers(self, region: str) -> list[str]:
        return {"us": ["127.0.0.1:1"]}.get(region, [])


def region_caller(own: Own, metrics: Metrics | None = None) -> RegionCaller:
    metrics = metrics or Metrics()
    return RegionCaller(own, "eu", Known(), lambda region: ServerSession(), ManualClock(), SeededRandom(1), metrics)


async def test_calls_stay_here_unless_they_name_another_region() -> None:
    own, metrics = Own(), Metrics()
    async with region_caller(own, metrics) as caller:
        for region in ("", "eu"):
            assert (await caller.call(m.STATUS_LEADER, r.ReadRequest(region=region))).value == "own"
            stream = caller.stream(m.EVENT_STREAM, r.EventStreamRequest(region=region))
            assert [answer async for answer in stream] == ["own"]
        assert (await caller.call(m.STATUS_REGIONS, r.ReadRequest())).value == ("eu", "us")
        with pytest.raises(LepaError, match="No path to region") as error:
            await caller.call(m.STATUS_LEADER, r.ReadRequest(region="mars"))
        assert error.value.facts == {"http_status": 500}
        with pytest.raises(LepaError, match="No path to region"):
            caller.stream(m.EVENT_STREAM, r.EventStreamRequest(region="mars"))
        stream = caller.stream(m.EVENT_STREAM, r.EventStreamRequest(region="us"))
        with pytest.raises(LepaError, match=r"127\.0\.0\.1:1"):
            await anext(stream)
        assert len(own.asked) == 4
        assert metrics.totals == {("nomad.nomad.rpc.cross_region", (("region", "us"),)): 1}


async def test_members_are_those_of_gossip_and_of_this_region() -> None:
    async with region_caller(Own()) as caller:
        members = (await caller.call(m.STATUS_MEMBERS, r.ReadRequest())).value
    assert members.server_name == "a.eu"
    found = [(member.name, member.status) for member in members.members]
    assert found == [("a.eu", "alive"), ("b.eu", "failed"), ("c.eu", "alive"), ("d.us", "left")]


def test_gossip_knows_who_left() -> None:
    gossip = {"b.eu": r.Member(name="b.eu", status="left")}
    assert together(gossip, [r.Member(name="b.eu", status="failed")])[0].status == "left"
