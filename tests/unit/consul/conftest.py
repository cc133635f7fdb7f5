"""Consul's API in one process, over an agent's API that only records what it is asked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.consul.app import build
from lepa.consul.edge import Bodies, ConsulSettings, Guest
from lepa.consul.following import Following
from lepa.consul.local_services import LocalServices
from lepa.consul.registrations import AgentNode
from lepa.kit.sources import SeededRandom, SystemClock
from lepa.model.errors import LepaError
from lepa.sdk.connection import Answer

NODES = (
    Node(name="n1", address="10.0.0.1", id="1", datacenter="dc1"),
    Node(name="n2", address="10.0.0.2", id="2", datacenter="dc2"),
)
WEB = Instance(id="web-1", service="web", node_id="1", node_name="n1", datacenter="dc1", address="10.0.0.1", port=80)


class RecordingApi:
    """Stands in for lepa.sdk.async_connection: answers by method and path, and remembers what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, Any, Any]] = []
        self.answers: dict[tuple[str, str], Any] = {}
        self.otherwise: Any = None

    async def get(self, path: str, params: Any = None) -> Answer:
        return await self.send("GET", path, params)

    async def send(self, method: str, path: str, params: Any = None, body: Any = None) -> Answer:
        self.sent.append((method, path, params, body))
        answer = self.answers.get((method, path), self.otherwise)
        if isinstance(answer, LepaError):
            raise answer
        return answer if isinstance(answer, Answer) else Answer(answer, 7)


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi()


@pytest.fixture
def catalog() -> Following:
    found = Following(SystemClock())
    found.publish(ServiceTable.build([WEB], NODES, 10))
    return found


@pytest.fixture
async def local(api: Any, catalog: Following) -> AsyncIterator[LocalServices]:
    node = AgentNode("n1", "1", "10.0.0.1", "dc1")
    async with LocalServices(node, api, catalog, SystemClock(), SeededRandom(1)) as found:
        yield found


@pytest.fixture
async def http(api: Any, catalog: Following, local: LocalServices) -> AsyncIterator[TestClient[Any, Any]]:
    settings = ConsulSettings(node_name="n1", node_id="1", address="10.0.0.1")
    guest = Guest(settings, catalog, local, api, SystemClock(), SeededRandom(1), Bodies())
    async with TestClient(TestServer(build(guest))) as client:
        yield client
