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
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def services(self, request: web.Request) -> web.Response:
        listed = [{"Namespace": "default", "Services": [{"ServiceName": "web", "Tags": []}]}]
        return web.json_response(listed, headers={"X-Nomad-Index": str(self.index)})

    async def service(self, request: web.Request) -> web.Response:
        return web.json_response(self.instances, headers={"X-Nomad-Index": str(self.index)})

    async def nodes(self, request: web.Request) -> web.Response:
        return web.json_response(
            [{"ID": "n1", "Name": "node-1", "Address": "127.0.0.9", "Datacenter": "dc1", "Status": "ready"}]
        )

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
