"""A table of services kept fresh by the event stream, against a small agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lepa.catalog.table import ServiceTable
from lepa.catalog.watcher import Watcher
from lepa.kit.sources import SystemClock
from lepa.kit.tasks import Tasks
from lepa.sdk.address import target
from lepa.sdk.async_connection import AsyncConnection


def registration(number: int, **more: Any) -> dict[str, Any]:
    return {
        "ID": f"r{number}",
        "ServiceName": "web",
        "Namespace": "default",
        "NodeID": "n1",
        "Datacenter": "dc1",
        "Address": "127.0.0.1",
        "Port": 8000 + number,
        "Tags": None,
    } | more


class SmallAgent:
    """Answers what the watcher reads, and sends the events that the test puts."""

    def __init__(self) -> None:
        self.instances = [registration(1)]
        self.index = 10
        self.node_status = "ready"
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def services(self, request: web.Request) -> web.Response:
        listed = [{"Namespace": "default", "Services": [{"ServiceName": "web", "Tags": []}]}]
        return web.json_response(listed, headers={"X-Nomad-Index": str(self.index)})

    async def service(self, request: web.Request) -> web.Response:
        return web.json_response(self.instances, headers={"X-Nomad-Index": str(self.index)})

    async def nodes(self, request: web.Request) -> web.Response:
        node = {"ID": "n1", "Name": "node-1", "Address": "127.0.0.9", "Datacenter": "dc1", "Status": self.node_status}
        return web.json_response([node], headers={"X-Nomad-Index": str(self.index)})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    def send(self, index: int, kind: str, found: dict[str, Any]) -> None:
        event = {"Topic": "Service", "Type": kind, "Payload": {"Service": found}}
        self.events.put_nowait({"Index": index, "Events": [event]})


class Published:
    """Tables as they come."""

    def __init__(self) -> None:
        self.tables: asyncio.Queue[ServiceTable] = asyncio.Queue()

    async def next(self) -> ServiceTable:
        return await asyncio.wait_for(self.tables.get(), 5)


@pytest.fixture
async def agent() -> SmallAgent:
    return SmallAgent()


@pytest.fixture
async def published(agent: SmallAgent) -> AsyncIterator[Published]:
    app = web.Application()
    app.router.add_get("/v1/services", agent.services)
    app.router.add_get("/v1/service/{name}", agent.service)
    app.router.add_get("/v1/nodes", agent.nodes)
    app.router.add_get("/v1/event/stream", agent.stream)
    found = Published()
    async with TestServer(app) as server, Tasks("test") as tasks:
        async with AsyncConnection(target({}, address=f"127.0.0.1:{server.port}")) as connection:
            watcher = Watcher(connection, SystemClock(), found.tables.put_nowait)
            running = tasks.start("watcher", watcher.run())
            yield found
            running.cancel()
        agent.events.put_nowait(None)


async def test_the_first_table_holds_what_was_read(published: Published) -> None:
    table = await published.next()
    [instance] = table.service("default", "web").healthy
    assert (instance.address, instance.port, instance.node_name, instance.tags) == ("127.0.0.1", 8001, "node-1", ())
    assert table.node("node-1")[0].address == "127.0.0.9"


async def test_events_after_the_read_change_the_table(agent: SmallAgent, published: Published) -> None:
    await published.next()
    agent.send(11, "ServiceRegistration", registration(2))
    assert len((await published.next()).service("default", "web").all) == 2
    agent.send(12, "ServiceDeregistration", registration(1))
    [left] = (await published.next()).service("default", "web").all
    assert left.id == "r2"


async def test_events_that_the_read_contains_are_left_out(agent: SmallAgent, published: Published) -> None:
    await published.next()
    agent.send(10, "ServiceDeregistration", registration(1))
    agent.send(11, "ServiceRegistration", registration(3))
    assert len((await published.next()).service("default", "web").all) == 2


async def test_critical_instances_are_not_given_to_clients(agent: SmallAgent, published: Published) -> None:
    await published.next()
    agent.send(11, "ServiceRegistration", registration(1, Status="critical"))
    rows = (await published.next()).service("default", "web")
    assert (len(rows.all), rows.healthy) == (1, ())


async def test_an_instance_on_a_node_that_is_down_is_not_healthy(agent: SmallAgent, published: Published) -> None:
    assert (await published.next()).service("default", "web").healthy
    agent.node_status = "down"
    agent.events.put_nowait({"Index": 11, "Events": [{"Topic": "Node", "Type": "NodeStreamEvent", "Payload": {}}]})
    table = await published.next()
    assert (len(table.service("default", "web").all), table.service("default", "web").healthy) == (1, ())
    assert table.nodes == {}


async def test_a_machine_outside_the_cluster_is_a_node_while_it_offers_something(
    agent: SmallAgent, published: Published
) -> None:
    await published.next()
    outside = registration(9, NodeID="", NodeName="box", NodeAddress="10.9.9.9", ServiceName="printer")
    agent.send(11, "ServiceRegistration", outside)
    table = await published.next()
    (row,) = table.service("default", "printer").all
    found = table.node_of(row)
    assert found is not None
    assert (found.name, found.address) == ("box", "10.9.9.9")
    agent.send(12, "ServiceDeregistration", outside)
    assert (await published.next()).node("box") == ()


async def test_the_index_of_a_table_never_falls(agent: SmallAgent, published: Published) -> None:
    assert (await published.next()).index == 10
    agent.node_status = "down"
    agent.events.put_nowait({"Index": 8, "Events": [{"Topic": "Node", "Type": "NodeStreamEvent", "Payload": {}}]})
    assert (await published.next()).index == 10


async def test_what_registrations_tell_of_checks_and_meta_is_kept(agent: SmallAgent, published: Published) -> None:
    await published.next()
    check = {"ID": "c", "Name": "alive", "Status": "warning"}
    agent.send(11, "ServiceRegistration", registration(2, Status="warning", Checks=[check], Meta={"v": "1"}))
    row = (await published.next()).service("default", "web").all[1]
    assert (row.status, row.healthy, row.checks[0].name, row.meta) == ("warning", True, "alive", (("v", "1"),))
