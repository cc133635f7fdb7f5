"""An edge over a caller that only records what it is asked."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from lepa.api.app import build
from lepa.api.edge import Edge, Settings
from lepa.kit.sources import SystemClock
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError, not_found
from lepa.rpc.acl_requests import Authorized
from lepa.rpc.methods import Method
from lepa.rpc.requests import Member, Members, Reply


def nothing_is_known(request: Any) -> Any:
    """Where the servers know neither nodes nor allocations."""
    if request.alloc_id:
        return not_found(f'Unknown allocation "{request.alloc_id}"')
    return not_found(f'Unknown node "{request.node_id}"') if request.node_id else Authorized()


class RecordingCaller:
    """Answers every call with what the test gave for its method, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {"ACL.Authorize": nothing_is_known}
        self.batches: list[Any] = []

    async def call(self, method: Method[Any, Any], request: Any) -> Reply[Any]:
        self.requests.append((method.name, request))
        answer = self.answers.get(method.name)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, LepaError):
            raise answer
        return answer if isinstance(answer, Reply) else Reply(value=answer, index=5)

    async def stream(self, method: Method[Any, Any], request: Any) -> AsyncIterator[Any]:
        self.requests.append((method.name, request))
        for batch in self.batches:
            yield batch

    def last(self) -> Any:
        """The newest request."""
        return self.requests[-1][1]


class QuietAgent:
    """An agent that is well."""

    def __init__(self) -> None:
        self.found = {"server": (True, "ok"), "client": (True, "ok")}
        self.reloaded = 0
        self.sent_away: list[tuple[str, bool]] = []
        self.log: Path | None = None
        self.operated: Any = None

    def describe(self) -> dict[str, Any]:
        return {"Region": "global"}

    def stats(self) -> dict[str, dict[str, str]]:
        return {"nomad": {"server": "true"}}

    async def health(self) -> dict[str, tuple[bool, str]]:
        return dict(self.found)

    def servers(self) -> list[str]:
        return ["127.0.0.1:4647"]

    async def members(self) -> Members:
        return Members(server_name="s.global", server_region="global", members=(Member(name="s.global"),))

    def knows_region(self, region: str) -> bool:
        return region == "us"

    async def join(self, addresses: Sequence[str]) -> tuple[int, str, str]:
        return (0, "no answer in time", "") if "silent" in addresses else (len(addresses), "", "")

    def force_leave(self, name: str, *, prune: bool) -> None:
        self.sent_away.append((name, prune))

    async def gossip_keyring(self, operation: str, key: str) -> dict[str, Any]:
        return {"Messages": {}, "Keys": {f"{operation} {key}": 1}, "NumNodes": 1}

    async def host(self) -> dict[str, Any]:
        return {"AgentID": "a"}

    def reload(self) -> None:
        self.reloaded += 1

    async def log_lines(self, level: str, *, as_json: bool) -> AsyncIterator[bytes]:
        yield f"{level} {as_json}\n".encode()

    def log_file(self) -> Path | None:
        return self.log

    def schedulers(self) -> dict[str, Any]:
        worker = {"id": "worker-0", "enabled_schedulers": ["service"], "started": True, "status": "Started"}
        return {"server_id": "s", "schedulers": [worker]}

    def cluster(self) -> Any:
        return self.operated

    async def update_metrics(self) -> None:
        pass


class Parts:
    """The pieces of the edge under test."""

    def __init__(self) -> None:
        self.caller = RecordingCaller()
        self.agent = QuietAgent()
        self.metrics = Metrics()
        self.node: Any = None
        self.settings = Settings()

    def edge(self) -> Edge:
        return Edge(self.caller, self.agent, self.node, SystemClock(), self.metrics, self.settings)


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
async def client_of() -> AsyncIterator[Callable[[Parts], Any]]:
    clients: list[TestClient[Any, Any]] = []

    async def make(parts: Parts) -> TestClient[Any, Any]:
        client = TestClient(TestServer(build(parts.edge())))
        await client.start_server()
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
async def http(parts: Parts, client_of: Callable[[Parts], Any]) -> TestClient[Any, Any]:
    return await client_of(parts)
