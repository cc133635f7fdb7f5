"""Consul's API with access control on: the caller's token decides."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.clocks import ManualClock

from lepa.consul.access import OF_AGENT, OF_BOTH, OF_NODES, OPEN, probes
from lepa.consul.app import ROUTES, build
from lepa.consul.edge import Bodies, ConsulSettings, Guest
from lepa.consul.following import Following
from lepa.consul.local_services import LocalServices
from lepa.consul.registrations import AgentNode
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.sdk.address import Target
from lepa.sdk.connection import Answer

RIGHTS = {
    "reader": {"/v1/services"},
    "operator": {"/v1/nodes", "/v1/agent/self"},
    "writer": {"/v1/services", "/v1/service", "/v1/kv"},
    "root": {"/v1/services", "/v1/nodes", "/v1/agent/self", "/v1/acl/tokens", "/v1/service", "/v1/kv"},
}


class Api:
    """An agent's API that knows some tokens."""

    def __init__(self, token: str = "guest", asked: list[Any] | None = None) -> None:
        self.target = Target("http", "h", 1, token=token)
        self.asked: list[Any] = [] if asked is None else asked

    def with_token(self, token: str) -> "Api":
        return Api(token, self.asked)

    async def get(self, path: str, params: Any = None) -> Answer:
        return await self.send("GET", path, params)

    async def send(self, method: str, path: str, params: Any = None, body: Any = None) -> Answer:
        self.asked.append((self.target.token, method, path, dict(params or {})))
        if path.startswith("/v1/status") or any(path.startswith(one) for one in RIGHTS.get(self.target.token, ())):
            return Answer([] if method == "GET" else True, 7)
        raise LepaError("denied", "Permission denied", status=403)


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def http(api: Any, catalog: Following, clock: ManualClock) -> AsyncIterator[TestClient[Any, Any]]:
    node = AgentNode("n1", "1", "10.0.0.1", "dc1")
    async with LocalServices(node, api, catalog, clock, SeededRandom(1)) as local:
        settings = ConsulSettings(node_name="n1", node_id="1", address="10.0.0.1")
        guest = Guest(settings, catalog, local, api, clock, SeededRandom(1), Bodies(), acl=True)
        async with TestClient(TestServer(build(guest))) as client:
            yield client


async def status(http: TestClient[Any, Any], verb: str, path: str, token: str = "", body: Any = None) -> int:
    headers = {"X-Consul-Token": token} if token else {}
    async with http.request(verb, path, headers=headers, json=body) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/catalog/services", {"reader", "writer", "root"}),
        ("/v1/health/service/web", {"reader", "writer", "root"}),
        ("/v1/agent/services", {"reader", "writer", "root"}),
        ("/v1/catalog/nodes", {"operator", "root"}),
        ("/v1/catalog/node/n1", {"root"}),
        ("/v1/agent/self", {"operator", "root"}),
        ("/v1/catalog/services?ns=*", {"root"}),
        ("/v1/kv/a?recurse", {"writer", "root"}),
        ("/v1/catalog/datacenters", {"", "made-up", *RIGHTS}),
    ],
)
async def test_reads_need_the_right_to_read_the_like_in_the_agents_api(
    http: TestClient[Any, Any], path: str, allowed: set[str]
) -> None:
    for token in ("", "made-up", "guest", *RIGHTS):
        wanted = token in allowed or (path.endswith("datacenters") and token == "guest")
        assert (await status(http, "GET", path, token) == 403) is not wanted, token


async def test_the_agents_own_token_is_never_a_callers(http: TestClient[Any, Any], api: Api) -> None:
    for route in ROUTES:
        path = "/v1/" + route.path.replace("{key:.*}", "k").replace("{id}", "x").replace("{name}", "x")
        verb = route.verbs.split()[0]
        await status(http, verb, path.replace("{node}", "n"), body={"Name": "x", "Node": "n", "Address": "1.2.3.4"})
    assert {token for token, *_ in api.asked} == {""}


async def test_a_yes_is_believed_for_some_seconds_in_its_namespace(
    http: TestClient[Any, Any], api: Api, clock: ManualClock
) -> None:
    for _ in range(3):
        assert await status(http, "GET", "/v1/catalog/services", "reader") == 200
    assert api.asked == [("reader", "GET", "/v1/services", {"namespace": "default", "per_page": 1})]
    await status(http, "GET", "/v1/catalog/services?ns=dev", "reader")
    assert api.asked[-1][3]["namespace"] == "dev"
    await clock.advance(6)
    await status(http, "GET", "/v1/catalog/services", "reader")
    assert len(api.asked) == 3


async def test_registering_and_telling_need_the_right_to_submit(
    http: TestClient[Any, Any], api: Api, clock: ManualClock
) -> None:
    body = {"Name": "db", "Port": 1, "Check": {"TTL": "60s", "CheckID": "c"}}
    assert await status(http, "PUT", "/v1/agent/service/register", "reader", body) == 403
    assert await status(http, "PUT", "/v1/agent/service/register", "writer", body) == 200
    assert await status(http, "PUT", "/v1/agent/check/pass/c", "reader") == 403
    assert await status(http, "PUT", "/v1/agent/check/pass/c") == 403
    assert await status(http, "PUT", "/v1/agent/check/pass/c", "writer") == 200
    await clock.advance(5)
    assert {token for token, *_ in api.asked[-2:]} <= {"", "writer"}
    assert await status(http, "PUT", "/v1/agent/check/pass/c", "root") == 200
    assert await status(http, "PUT", "/v1/agent/service/deregister/db", "reader") == 403
    assert await status(http, "PUT", "/v1/agent/service/deregister/db", "writer") == 200


async def test_tokens_are_shown_as_clients_of_consul_do(http: TestClient[Any, Any]) -> None:
    path = "/v1/catalog/services"
    for headers, query in (
        ({"X-Consul-Token": "reader"}, ""),
        ({"Authorization": "Bearer reader"}, ""),
        ({"X-Nomad-Token": "reader"}, ""),
        ({}, "?token=reader"),
    ):
        async with http.get(path + query, headers=headers) as answer:
            assert answer.status == 200


def test_every_read_of_the_table_asks_for_something() -> None:
    asking = {route.path for route in ROUTES if probes(route, "default")}
    stored = {route.path for route in ROUTES if route.path.startswith(("kv/", "session/", "txn"))}
    reads = {route.path for route in ROUTES if route.verbs == "GET"}
    assert reads - asking - stored <= OPEN
    assert asking >= OF_AGENT | OF_NODES | OF_BOTH
