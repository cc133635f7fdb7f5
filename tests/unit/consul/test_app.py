"""Requests over HTTP: lepa.consul.edge, lepa.consul.catalog_routes, lepa.consul.agent_routes, lepa.consul.kv_routes and
lepa.consul.registration_routes.

What needs a real catalog behind it is in tests/integration/test_consul_api.py.
"""

import asyncio
import random
import re
from typing import Any

import pytest
from tests.unit.consul.conftest import NODES, WEB

from lepa.catalog.table import Instance, ServiceTable
from lepa.consul.app import ROUTES, ConsulApi
from lepa.consul.edge import BODIES_SIZE_MAX, Bodies
from lepa.consul.following import Following
from lepa.consul.indexes import View
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError, not_found
from lepa.sdk.connection import Answer

SESSION = {
    "ID": "s", "Name": "", "Node": "n1", "LockDelay": 0, "Behavior": "release", "TTL": 0, "Checks": [],
    "ServiceChecks": [], "CreateIndex": 1, "ModifyIndex": 1,
}  # fmt: skip


async def test_every_read_tells_how_fresh_it_is(http: Any) -> None:
    response = await http.get("/v1/health/service/web?stale")
    assert response.headers["X-Consul-Index"] == "10"
    assert response.headers["X-Consul-Effective-Consistency"] == "stale"
    assert len(await response.json()) == 1


async def test_before_the_catalog_was_read_there_is_no_leader(
    http: Any, catalog: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lepa.consul.following.FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(catalog, "_view", Following(SystemClock())._view)
    response = await http.get("/v1/catalog/services")
    assert (response.status, (await response.text())[:17]) == (500, "No cluster leader")


async def test_a_read_waits_for_a_change(http: Any, catalog: Following) -> None:
    waiting = asyncio.ensure_future(http.get("/v1/catalog/service/web?index=10&wait=1m"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    catalog.publish(ServiceTable.build([], [], 12))
    response = await waiting
    assert (response.headers["X-Consul-Index"], await response.json()) == ("12", [])


async def test_pretty_is_indented(http: Any) -> None:
    assert "\n    " in await (await http.get("/v1/catalog/nodes?pretty")).text()


async def test_an_error_of_ours_does_not_show_its_details(http: Any, api: Any) -> None:
    api.answers["GET", "/v1/status/leader"] = LepaError("no_leader", "No cluster leader")
    response = await http.get("/v1/status/leader")
    assert (response.status, await response.text()) == (500, "No cluster leader")


async def test_the_agent_describes_itself(http: Any) -> None:
    shown = await (await http.get("/v1/agent/self")).json()
    assert (shown["Config"]["Datacenter"], shown["Config"]["NodeName"]) == ("dc1", "n1")
    assert shown["Member"]["Addr"] == "10.0.0.1"


async def test_members_are_the_nodes_that_are_heard_of(http: Any) -> None:
    shown = await (await http.get("/v1/agent/members")).json()
    assert [member["Name"] for member in shown] == ["n1", "n2"]


async def test_one_service_of_the_agent_is_waited_for_by_its_hash(http: Any, catalog: Following) -> None:
    response = await http.get("/v1/agent/service/web-1")
    digest = response.headers["X-Consul-ContentHash"]
    waiting = asyncio.ensure_future(http.get(f"/v1/agent/service/web-1?hash={digest}&wait=1m"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    catalog.publish(ServiceTable.build([], [], 12))
    assert (await waiting).status == 404


async def test_health_is_told_by_the_status_of_the_answer(http: Any) -> None:
    assert (await http.get("/v1/agent/health/service/id/web-1")).status == 200
    assert (await http.get("/v1/agent/health/service/name/none")).status == 404
    response = await http.get("/v1/agent/health/service/name/web?format=text")
    assert await response.text() == "passing"


async def test_a_registration_is_stored_through_the_api(http: Any, api: Any) -> None:
    response = await http.put("/v1/agent/service/register", json={"Name": "my db", "ID": "a/b", "Port": 1})
    assert (response.status, await response.text()) == (200, "")
    method, path, _, service = api.sent[-1]
    assert (method, path) == ("PUT", "/v1/service/my%20db/a%2Fb")
    assert (service.node_id, service.agent) == ("1", "n1")


async def test_taking_the_node_out_of_use_is_refused_with_what_to_do(http: Any) -> None:
    response = await http.put("/v1/agent/maintenance?enable=true")
    assert (response.status, "lepa node drain" in await response.text()) == (400, True)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
async def test_bodies_that_are_no_object_are_refused(http: Any, body: bytes) -> None:
    assert (await http.put("/v1/agent/service/register", data=body)).status == 400


async def test_a_missing_key_keeps_the_index_to_go_on_from(http: Any, api: Any) -> None:
    api.answers["GET", "/v1/kv/entry"] = LepaError("not_found", "key not found", status=404, index=44)
    response = await http.get("/v1/kv/a?index=40&wait=500s")
    assert (response.status, response.headers["X-Consul-Index"]) == (404, "44")
    assert api.sent[-1][2] == {"key": "a", "index": 40, "wait": "4m0s"}


async def test_a_refused_write_keeps_its_status(http: Any, api: Any) -> None:
    api.answers["PUT", "/v1/kv"] = LepaError("invalid", "Value exceeds", status=413)
    assert (await http.put("/v1/kv/a", data=b"x")).status == 413


async def test_a_session_of_an_unknown_node_is_refused(http: Any, api: Any) -> None:
    assert (await http.put("/v1/session/create", json={"Node": "nobody"})).status == 500
    api.answers["PUT", "/v1/session"] = "s"
    assert await (await http.put("/v1/session/create", json={"Node": "n2"})).json() == {"ID": "s"}
    assert api.sent[-1][3]["NodeID"] == "2"


async def test_sessions_are_listed_by_node(http: Any, api: Any) -> None:
    api.answers["GET", "/v1/sessions"] = Answer([SESSION, SESSION | {"ID": "t", "Node": "n2"}], 9)
    assert [each["ID"] for each in await (await http.get("/v1/session/node/n2")).json()] == ["t"]


async def test_a_session_that_is_over_cannot_be_renewed(http: Any, api: Any) -> None:
    api.answers["PUT", "/v1/session/s/renew"] = LepaError("not_found", "Session id 's' not found", status=404)
    assert (await http.put("/v1/session/renew/s")).status == 404


async def test_deregistering_a_machine_leaves_jobs_alone(http: Any, api: Any) -> None:
    await http.put("/v1/catalog/deregister", json={"Node": "n1"})
    assert [path for method, path, _, _ in api.sent if method == "DELETE"] == ["/v1/service/web/web-1"]
    api.answers["DELETE", "/v1/service/web/web-1"] = not_found("gone already")
    assert (await http.put("/v1/catalog/deregister", json={"Node": "n1"})).status == 200


async def test_a_port_that_is_taken_is_named() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(LepaError, match="another program has the port"):
        async with ConsulApi(None, "127.0.0.1", port):  # type: ignore[arg-type]
            pass
    server.close()


async def test_random_requests_never_meet_an_error_of_ours(http: Any, api: Any) -> None:
    """2,000 requests from a seed: strange verbs, paths, parameters and bodies."""
    chance = random.Random(4)
    api.otherwise = not_found("nothing of that name", status=404)
    api.answers["PUT", "/v1/kv"] = {"Applied": True, "Entries": [], "Errors": []}
    paths = [route.path for route in ROUTES] + ["", "../..", "kv", "catalog//nodes", "%00", "x" * 5_000]
    words = ["", "web", "a%2Fb", "%FF", "é", "a b", ".", "-1", "9" * 30, "true", "10s", "{", "[]", "n1"]
    names = ["index", "wait", "stale", "consistent", "cached", "dc", "ns", "near", "tag", "node-meta", "passing", "cas"]
    names += ["filter", "pretty", "keys", "recurse", "raw", "separator", "hash", "format", "enable", "flags", "acquire"]
    for _ in range(2_000):
        path = re.sub(r"\{[^}]*\}", lambda _: chance.choice(words), chance.choice(paths))
        query = "&".join(f"{chance.choice(names)}={chance.choice(words)}" for _ in range(chance.randrange(4)))
        verb = chance.choice(["GET", "PUT", "DELETE", "POST", "OPTIONS", "PATCH", "HEAD"])
        body = chance.choice(["", "{}", "[]", '{"Name":"a"}', '{"Node":5}', "null", "\0", '[{"KV":{"Verb":"get"}}]'])
        response = await http.request(verb, f"/v1/{path}?{query}&wait=1ms", data=body)
        assert "internal error" not in await response.text(), (verb, path, query, body)


async def test_an_answer_that_is_kept_is_not_given_for_another_view(http: Any, catalog: Following) -> None:
    for _ in range(2):
        assert len(await (await http.get("/v1/catalog/service/web")).json()) == 1
    catalog.publish(ServiceTable.build([], [], 12))
    assert await (await http.get("/v1/catalog/service/web")).json() == []


def test_kept_answers_are_bounded() -> None:
    kept, view, large = Bodies(), View(), "x" * (BODIES_SIZE_MAX // 4)
    for key in range(6):
        assert kept.of(view, key, lambda: large) == f'"{large}"'.encode()
    assert len(kept._kept) == 2


async def test_services_are_filtered_by_what_their_instances_show(http: Any, catalog: Following) -> None:
    """As HAProxy's dataplaneapi asks."""
    rows = [WEB, Instance(id="db-1", service="db", tags=("primary",))]
    catalog.publish(ServiceTable.build(rows, NODES, 12))
    response = await http.get("/v1/catalog/services", params={"filter": 'ServiceTags contains "primary"'})
    assert await response.json() == {"db": ["primary"]}
    response = await http.get("/v1/agent/services", params={"filter": 'Service == "none"'})
    assert await response.json() == {}
