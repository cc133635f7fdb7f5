"""Consul's API of a real agent, asked by py-consul and by hand.

The beginning of a name says what it is about: c31 what all requests share, c32 blocking queries, c33 and c34 catalog
and health, c35 registrations, c36 keys, c37 sessions and locks, c4 what known clients call, c61 checks of the agent.
"""

import importlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import quote

import pytest
from tests import components
from tests.e2e.agents import HOST, Agent, eventually, free_ports, running
from tests.integration.peers import install
from tests.integration.web_jobs import web_job


@dataclass
class Reply:
    """An answer, read whole."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def index(self) -> int:
        return int(self.headers["X-Consul-Index"])


@dataclass
class ConsulAgent:
    """A running agent and its port for Consul's API."""

    agent: Agent
    port: int

    def ask(self, method: str, path: str, body: Any = None, headers: Any = None) -> Reply:
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request(method, path, raw, headers or {})
            response: HTTPResponse = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, f"{path}: {reply.status} {reply.text}"
        return reply.json

    def put(self, path: str, body: Any = None) -> Reply:
        reply = self.ask("PUT", path, body)
        assert reply.status == 200, f"{path}: {reply.status} {reply.text}"
        return reply

    def wakes(self, path: str, cause: Callable[[], object]) -> Reply:
        """The answer of a blocking query that begins before `cause` and must end because of it."""
        found: list[Reply] = []
        first = self.ask("GET", path)
        joint = "&" if "?" in path else "?"
        waiting = threading.Thread(
            target=lambda: found.append(self.ask("GET", f"{path}{joint}index={first.index}&wait=20s"))
        )
        began = time.monotonic()
        waiting.start()
        cause()
        waiting.join()
        assert time.monotonic() - began < 15, "the query ended with its time, not with the change"
        assert found[0].index > first.index
        return found[0]


@pytest.fixture(scope="module")
def consul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsulAgent]:
    port = free_ports()["http"]
    settings = {"consul_api": {"enabled": True, "port": port}}
    with running(tmp_path_factory.mktemp("agent"), settings=settings) as agent:
        yield ConsulAgent(agent, port)


@pytest.fixture(scope="module")
def pyconsul(tmp_path_factory: pytest.TempPathFactory, consul: ConsulAgent) -> Iterator[Any]:
    """py-consul's client of the agent."""
    target = install("py-consul", tmp_path_factory.getbasetemp())
    sys.path.append(str(target))
    try:
        yield importlib.import_module("consul").Consul(host=HOST, port=consul.port)
    finally:
        sys.path.remove(str(target))


class Switch:
    """An HTTP server whose answer the test sets."""

    def __init__(self) -> None:
        self.code = 200
        switch = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(switch.code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer((HOST, 0), Handler)
        self.port = self.server.server_address[1]


@pytest.fixture
def switch() -> Iterator[Switch]:
    found = Switch()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


# 3.1 and 3.2: what all reads share


def test_c31_every_read_has_an_index_that_is_never_zero(consul: ConsulAgent) -> None:
    for path in ("catalog/nodes", "catalog/services", "catalog/service/x", "health/service/x", "health/state/any"):
        reply = consul.ask("GET", f"/v1/{path}")
        assert reply.index >= 1, path
        assert reply.headers["X-Consul-KnownLeader"] == "true"
        assert reply.headers["X-Consul-LastContact"] == "0"


def test_c31_empty_lists_are_lists(consul: ConsulAgent) -> None:
    for path in ("catalog/service/none", "health/service/none", "health/checks/none", "health/node/none"):
        assert consul.ask("GET", f"/v1/{path}").body == b"[]"


def test_c31_errors_are_plain_text_with_their_status(consul: ConsulAgent) -> None:
    for path, status in (
        ("catalog/nodes?index=x", 400),
        ("catalog/nodes?wait=x&index=1", 400),
        ("catalog/nodes?stale&consistent", 400),
        ("catalog/nodes?filter=((", 400),
        ("catalog/nodes?dc=nowhere", 500),
        ("nothing/of/that/kind", 404),
    ):
        reply = consul.ask("GET", f"/v1/{path}")
        assert (path, reply.status) == (path, status)
        assert reply.headers["Content-Type"].startswith("text/plain")


def test_c31_a_wrong_verb_is_told_the_right_ones(consul: ConsulAgent) -> None:
    reply = consul.ask("GET", "/v1/agent/service/register")
    assert (reply.status, reply.headers["Allow"]) == (405, "OPTIONS,PUT")
    assert consul.ask("OPTIONS", "/v1/catalog/nodes").headers["Allow"] == "OPTIONS,GET"


def test_c32_a_query_for_something_unknown_waits_and_wakes(consul: ConsulAgent) -> None:
    reply = consul.wakes(
        "/v1/health/service/later", lambda: consul.put("/v1/agent/service/register", {"Name": "later", "Port": 1})
    )
    assert [entry["Service"]["ID"] for entry in reply.json] == ["later"]
    gone = consul.wakes("/v1/health/service/later", lambda: consul.put("/v1/agent/service/deregister/later"))
    assert gone.json == []


def test_c32_an_unrelated_change_does_not_wake(consul: ConsulAgent) -> None:
    index = consul.ask("GET", "/v1/health/service/quiet").index
    began = time.monotonic()
    found: list[Reply] = []
    waiting = threading.Thread(
        target=lambda: found.append(consul.ask("GET", f"/v1/health/service/quiet?index={index}&wait=1s"))
    )
    waiting.start()
    consul.put("/v1/agent/service/register", {"Name": "loud", "Port": 1})
    waiting.join()
    assert time.monotonic() - began >= 1.0
    assert found[0].index == index
    consul.put("/v1/agent/service/deregister/loud")


def test_c32_a_client_that_leaves_is_forgotten(consul: ConsulAgent) -> None:
    index = consul.ask("GET", "/v1/catalog/nodes").index
    for _ in range(20):
        connection = HTTPConnection(HOST, consul.port, timeout=5)
        connection.request("GET", f"/v1/catalog/nodes?index={index}&wait=60s")
        connection.close()
    assert consul.get("/v1/catalog/nodes")


# 3.3 to 3.5: catalog, health and registrations


def test_c34_a_job_is_shown_with_node_service_and_checks(consul: ConsulAgent) -> None:
    consul.agent.run(web_job("shown", "shown-web"))
    consul.agent.running("shown")
    entries = eventually(lambda: consul.get("/v1/health/service/shown-web?passing"))
    (entry,) = entries
    assert set(entry) == {"Node", "Service", "Checks"}
    assert {"ID", "Node", "Address", "Datacenter", "TaggedAddresses", "Meta", "CreateIndex", "ModifyIndex"} == set(
        entry["Node"]
    )
    assert {check["CheckID"] for check in entry["Checks"]} >= {"serfHealth"}
    assert entry["Service"]["Address"] == HOST
    (flat,) = consul.get("/v1/catalog/service/shown-web")
    assert (flat["ServiceAddress"], flat["ServicePort"]) == (HOST, entry["Service"]["Port"])
    assert "shown-web" in consul.get("/v1/catalog/services")
    gone = consul.wakes("/v1/catalog/service/shown-web", lambda: consul.agent.purge("shown"))
    assert gone.json == []


def test_c33_catalog_services_includes_consul_itself(consul: ConsulAgent) -> None:
    assert "consul" in consul.get("/v1/catalog/services")
    assert len(consul.get("/v1/health/service/consul?passing")) == 1


def test_c33_an_unknown_node_is_null(consul: ConsulAgent) -> None:
    assert consul.get("/v1/catalog/node/nobody") is None


def test_c35_registering_by_py_consul(consul: ConsulAgent, pyconsul: Any) -> None:
    service = pyconsul.agent.service
    assert service.register("web", service_id="web-1", address="10.1.1.1", port=80, tags=["a", "b"], meta={"v": "1"})
    index, entries = eventually(lambda: found if (found := pyconsul.health.service("web", tag="a"))[1] else None)
    assert int(index) > 0
    assert entries[0]["Service"]["Meta"] == {"v": "1"}
    assert pyconsul.agent.services()["web-1"]["Port"] == 80
    assert pyconsul.catalog.services()[1]["web"] == ["a", "b"]
    assert pyconsul.health.service("web", tag="c")[1] == []
    assert service.deregister("web-1")
    assert eventually(lambda: pyconsul.catalog.service("web")[1] == [])


def test_c35_a_wrong_body_is_refused_with_a_sentence(consul: ConsulAgent) -> None:
    for body, said in (
        ({"Port": 1}, "Missing service name"),
        ({"Name": "x", "Address": "0.0.0.0"}, "Invalid service address"),
        ({"Name": "x", "Meta": {"k": "v" * 600}}, "metadata"),
        ({"Name": "x", "Check": {"TTL": "1s", "Interval": "1s"}}, "Interval and TTL"),
        ({"Name": "x", "Check": {"Args": ["true"], "Interval": "1s"}}, "script"),
        ({"Name": "x", "Check": {"HTTP": "http://a/", "Interval": ""}}, "Interval must be > 0"),
        ({"Name": "x", "Check": {}}, ""),
    ):
        reply = consul.ask("PUT", "/v1/agent/service/register", body)
        assert reply.status in (200, 400)
        assert said in reply.text
    consul.put("/v1/agent/service/deregister/x")
    assert consul.ask("PUT", "/v1/agent/service/deregister/nobody").status == 404


def test_c35_registering_again_keeps_checks_that_are_not_named(consul: ConsulAgent) -> None:
    first = {"Name": "kept", "Checks": [{"CheckID": "one", "TTL": "10m"}, {"CheckID": "two", "TTL": "10m"}]}
    consul.put("/v1/agent/service/register", first)
    consul.put("/v1/agent/check/pass/one")
    consul.put("/v1/agent/service/register", {"Name": "kept", "Checks": [{"CheckID": "one", "TTL": "10m"}]})
    assert eventually(lambda: {"one", "two"} <= set(consul.get("/v1/agent/checks")))
    assert consul.get("/v1/agent/checks")["one"]["Status"] == "passing"
    consul.put("/v1/agent/service/register?replace-existing-checks", {"Name": "kept", "Check": {"TTL": "10m"}})
    assert eventually(lambda: not {"one", "two"} & set(consul.get("/v1/agent/checks")))
    consul.put("/v1/agent/service/deregister/kept")


def test_c35_a_machine_outside_the_cluster_is_a_node(consul: ConsulAgent) -> None:
    body = {
        "Node": "printer-room",
        "Address": "10.9.9.9",
        "Service": {"Service": "printer", "ID": "p1", "Port": 631},
        "Check": {"Name": "paper", "CheckID": "paper", "Status": "passing", "ServiceID": "p1"},
    }
    consul.put("/v1/catalog/register", body)
    (entry,) = eventually(lambda: consul.get("/v1/health/service/printer?passing"))
    assert (entry["Node"]["Node"], entry["Node"]["Address"]) == ("printer-room", "10.9.9.9")
    assert [node["Node"] for node in consul.get("/v1/catalog/nodes")].count("printer-room") == 1
    consul.put("/v1/catalog/deregister", {"Node": "printer-room"})
    assert eventually(lambda: consul.get("/v1/health/service/printer") == [])


# 6.1: checks that the agent runs


def test_c61_a_check_is_critical_until_it_passes_and_reaches_every_reader(consul: ConsulAgent, switch: Switch) -> None:
    switch.code = 500
    check = {"HTTP": f"http://{HOST}:{switch.port}/", "Interval": "1s", "Timeout": "1s"}
    consul.put("/v1/agent/service/register", {"Name": "checked", "Port": switch.port, "Check": check})
    assert consul.get("/v1/health/service/checked?passing") == []
    passes = consul.wakes("/v1/health/service/checked?passing", lambda: setattr(switch, "code", 204))
    assert len(passes.json) == 1
    warns = consul.wakes("/v1/health/service/checked", lambda: setattr(switch, "code", 429))
    assert [c["Status"] for c in warns.json[0]["Checks"] if c["CheckID"] == "service:checked"] == ["warning"]
    assert consul.ask("GET", "/v1/agent/health/service/id/checked").status == 429
    consul.put("/v1/agent/service/deregister/checked")


def test_c61_a_ttl_check_expires_when_its_owner_is_silent(consul: ConsulAgent) -> None:
    consul.put("/v1/agent/service/register", {"Name": "told", "Check": {"TTL": "1s", "CheckID": "told-ttl"}})
    consul.put("/v1/agent/check/pass/told-ttl?note=fine")
    assert eventually(lambda: consul.get("/v1/health/service/told?passing"))
    assert eventually(lambda: consul.get("/v1/health/service/told?passing") == [])
    assert consul.get("/v1/agent/checks")["told-ttl"]["Output"] == "Missed TTL 1s"
    update = {"Status": "warning", "Output": "tired"}
    consul.put("/v1/agent/check/update/told-ttl", update)
    assert consul.get("/v1/agent/checks")["told-ttl"]["Status"] == "warning"
    assert consul.ask("PUT", "/v1/agent/check/pass/nobody").status == 404
    consul.put("/v1/agent/service/deregister/told")


def test_c61_maintenance_wins(consul: ConsulAgent) -> None:
    consul.put("/v1/agent/service/register", {"Name": "tended", "Port": 1})
    consul.put("/v1/agent/service/maintenance/tended?enable=true&reason=oil")
    assert eventually(lambda: consul.get("/v1/health/service/tended?passing") == [])
    assert consul.ask("GET", "/v1/agent/health/service/name/tended?format=text").text == "maintenance"
    consul.put("/v1/agent/service/maintenance/tended?enable=false")
    assert eventually(lambda: consul.get("/v1/health/service/tended?passing"))
    consul.put("/v1/agent/service/deregister/tended")


# 3.6: keys


def test_c36_keys_by_py_consul(pyconsul: Any) -> None:
    kv = pyconsul.kv
    assert kv.get("py/none")[1] is None
    assert kv.put("py/a", "1", flags=2**64 - 1)
    entry = kv.get("py/a")[1]
    assert (entry["Value"], entry["Flags"]) == (b"1", 2**64 - 1)
    assert not kv.put("py/a", "2", cas=0)
    assert kv.put("py/a", "2", cas=entry["ModifyIndex"])
    assert kv.put("py/sub/b", None)
    assert kv.get("py/", keys=True, separator="/")[1] == ["py/a", "py/sub/"]
    assert [each["Key"] for each in kv.get("py/", recurse=True)[1]] == ["py/a", "py/sub/b"]
    assert kv.delete("py/", recurse=True)
    assert kv.get("py/", recurse=True)[1] is None


def test_c36_a_value_is_base64_or_null_or_raw(consul: ConsulAgent) -> None:
    consul.put("/v1/kv/raw", b"\x00\xff")
    assert consul.get("/v1/kv/raw")[0]["Value"] == "AP8="
    assert consul.ask("GET", "/v1/kv/raw?raw").body == b"\x00\xff"
    consul.put("/v1/kv/raw", b"")
    assert consul.get("/v1/kv/raw")[0]["Value"] is None
    assert set(consul.get("/v1/kv/raw")[0]) == {"LockIndex", "Key", "Flags", "Value", "CreateIndex", "ModifyIndex"}


def test_c36_a_missing_key_is_404_without_a_body_and_can_be_waited_for(consul: ConsulAgent) -> None:
    missing = consul.ask("GET", "/v1/kv/not-yet")
    assert (missing.status, missing.body) == (404, b"")
    found = consul.wakes("/v1/kv/not-yet", lambda: consul.put("/v1/kv/not-yet", b"now"))
    assert found.json[0]["Key"] == "not-yet"


def test_c36_a_prefix_wakes_on_deletion(consul: ConsulAgent) -> None:
    consul.put("/v1/kv/tree/1", b"x")
    gone = consul.wakes("/v1/kv/tree/?recurse", lambda: consul.ask("DELETE", "/v1/kv/tree/1"))
    assert gone.status == 404


def test_c36_writing_the_same_leaves_the_index(consul: ConsulAgent) -> None:
    consul.put("/v1/kv/same", b"x")
    before = consul.get("/v1/kv/same")[0]["ModifyIndex"]
    consul.put("/v1/kv/same", b"x")
    assert consul.get("/v1/kv/same")[0]["ModifyIndex"] == before


@pytest.mark.parametrize("key", ["a b", "ä", "with%percent", "q?mark", "/leading", "a//b", "x+y", "a%2Fb"])
def test_c36_any_name_can_be_a_key(consul: ConsulAgent, key: str) -> None:
    path = f"/v1/kv/{quote(key)}"
    consul.put(path, b"x")
    assert consul.get(path)[0]["Key"] == key
    assert consul.ask("DELETE", path).json is True
    assert consul.ask("GET", path).status == 404


def test_c36_what_is_refused(consul: ConsulAgent) -> None:
    assert consul.ask("PUT", "/v1/kv/big", b"x" * (512 * 1024 + 1)).status == 413
    assert consul.ask("PUT", "/v1/kv/a?cas=1&acquire=s", b"").status == 400
    assert consul.ask("PUT", "/v1/kv/%20a", b"").status == 400
    assert consul.ask("PUT", "/v1/kv/a/../b", b"").status == 400
    assert consul.ask("PUT", "/v1/kv/", b"").status == 400


def test_c36_a_transaction(consul: ConsulAgent) -> None:
    body = [{"KV": {"Verb": "set", "Key": "t/1", "Value": "MQ=="}}, {"KV": {"Verb": "get", "Key": "t/1"}}]
    reply = consul.put("/v1/txn", body).json
    assert [result["KV"]["Value"] for result in reply["Results"]] == ["MQ==", "MQ=="]
    failed = consul.ask("PUT", "/v1/txn", [{"KV": {"Verb": "check-not-exists", "Key": "t/1"}}])
    assert failed.status == 409
    assert failed.json["Errors"][0]["OpIndex"] == 0


# 3.7: sessions and locks


def test_c37_a_lock_moves_from_one_session_to_the_next(pyconsul: Any) -> None:
    first = pyconsul.session.create(name="first", ttl=10)
    second = pyconsul.session.create(name="second", ttl=10)
    assert pyconsul.kv.put("lock", "first", acquire=first)
    assert not pyconsul.kv.put("lock", "second", acquire=second)
    assert pyconsul.kv.get("lock")[1]["Session"] == first
    assert pyconsul.session.renew(first)["ID"] == first
    assert pyconsul.kv.put("lock", "first", release=first)
    assert pyconsul.session.destroy(first)
    assert pyconsul.kv.put("lock", "second", acquire=second)
    entry = pyconsul.kv.get("lock")[1]
    assert (entry["Session"], entry["LockIndex"], entry["Value"]) == (second, 2, b"second")
    assert pyconsul.kv.put("lock", "", release=second)
    assert pyconsul.session.destroy(second)


def test_c37_a_lock_delay_keeps_others_out_for_a_while(consul: ConsulAgent) -> None:
    def session(delay: Any) -> str:
        return str(consul.put("/v1/session/create", {"LockDelay": delay, "Behavior": "delete"}).json["ID"])

    first, second = session("1s"), session(0)
    assert consul.put(f"/v1/kv/delayed?acquire={first}", b"").json is True
    consul.put(f"/v1/session/destroy/{first}")
    assert consul.ask("GET", "/v1/kv/delayed").status == 404
    assert consul.put(f"/v1/kv/delayed?acquire={second}", b"").json is False
    assert eventually(lambda: consul.put(f"/v1/kv/delayed?acquire={second}", b"").json)
    consul.put(f"/v1/session/destroy/{second}")


def test_c37_sessions_are_listed_and_refused(consul: ConsulAgent) -> None:
    created = consul.put("/v1/session/create", {"Name": "listed", "TTL": "15s"}).json["ID"]
    (info,) = consul.get(f"/v1/session/info/{created}")
    assert (info["TTL"], info["LockDelay"], info["Behavior"], info["NodeChecks"]) == (
        "15s",
        15_000_000_000,
        "release",
        ["serfHealth"],
    )
    assert created in [session["ID"] for session in consul.get("/v1/session/list")]
    assert created in [session["ID"] for session in consul.get(f"/v1/session/node/{info['Node']}")]
    consul.put(f"/v1/session/destroy/{created}")
    assert consul.get(f"/v1/session/info/{created}") == []
    assert consul.ask("PUT", f"/v1/session/renew/{created}").status == 404
    assert consul.ask("PUT", "/v1/session/create", {"TTL": "1s"}).status == 400
    assert consul.ask("PUT", "/v1/kv/k?acquire=nobody", b"").status == 500


def test_what_was_registered_outlives_the_agent(tmp_path: Any) -> None:
    port = free_ports()["http"]
    settings = {"consul_api": {"enabled": True, "port": port}}
    with running(tmp_path / "agent", dev=False, settings=settings) as agent:
        consul = ConsulAgent(agent, port)
        consul.put("/v1/agent/service/register", {"Name": "lasting", "Check": {"TTL": "10m", "CheckID": "l"}})
        consul.put("/v1/agent/check/pass/l")
        consul.put("/v1/kv/lasting", b"x")
        eventually(lambda: consul.get("/v1/health/service/lasting?passing"))
        agent.restart()
        assert consul.ask("GET", "/v1/kv/lasting?raw").body == b"x"
        assert eventually(lambda: consul.ask("PUT", "/v1/agent/check/warn/l").status == 200)
        assert consul.get("/v1/agent/checks")["l"]["Status"] == "warning"
        consul.put("/v1/agent/service/deregister/lasting")


# 4: who calls what


def test_c4_a_prometheus_kind_of_scraper_finds_targets(consul: ConsulAgent, tmp_path: Any) -> None:
    """VictoriaMetrics' consul_sd: it blocks on catalog/services and on health/service of each name."""
    binary, port = components.require("victoria-metrics", "victoria-metrics"), free_ports()["http"]
    config = {
        "scrape_configs": [
            {"job_name": "consul", "consul_sd_configs": [{"server": f"{HOST}:{consul.port}", "services": ["scraped"]}]}
        ]
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    command = [
        binary,
        f"-storageDataPath={tmp_path}/data",
        f"-httpListenAddr={HOST}:{port}",
        f"-promscrape.config={tmp_path}/prometheus.yml",
        "-promscrape.consulSDCheckInterval=1s",
        "-retentionPeriod=1d",
    ]

    def targets() -> set[str]:
        connection = HTTPConnection(HOST, port, timeout=5)
        try:
            connection.request("GET", "/api/v1/targets")
            shown = json.loads(connection.getresponse().read())
            return {target["discoveredLabels"]["__address__"] for target in shown["data"]["activeTargets"]}
        except OSError:
            return {"not listening yet"}
        finally:
            connection.close()

    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: targets() == set(), 30.0)
            consul.put("/v1/agent/service/register", {"Name": "scraped", "Address": "10.7.7.7", "Port": 9100})
            eventually(lambda: targets() == {"10.7.7.7:9100"}, 30.0)
            consul.put("/v1/agent/service/deregister/scraped")
            eventually(lambda: targets() == set(), 30.0)
        finally:
            process.terminate()
            process.wait(20)


def test_c4_what_fabio_asks_for(consul: ConsulAgent) -> None:
    """Its calls in their order: who is the agent, all checks, one service, its configuration, itself as a service."""
    assert consul.get("/v1/agent/self")["Config"]["Datacenter"] == "dc1"
    consul.put("/v1/agent/service/register", {"Name": "site", "Port": 80, "Tags": ["urlprefix-/site strip=/site"]})
    checks = eventually(
        lambda: [c for c in consul.get("/v1/health/state/any?consistent") if c["ServiceName"] == "site"]
    )
    assert [(check["Status"], check["ServiceTags"]) for check in checks] == [
        ("passing", ["urlprefix-/site strip=/site"])
    ]
    (entry,) = consul.get("/v1/catalog/service/site?consistent")
    assert (entry["ServiceID"], entry["ServicePort"]) == ("site", 80)
    assert consul.ask("GET", "/v1/kv/fabio/config?recurse&consistent").status == 404
    woken = consul.wakes(
        "/v1/kv/fabio/config?recurse", lambda: consul.put("/v1/kv/fabio/config", b"route add site / http://a/")
    )
    assert woken.json[0]["Key"] == "fabio/config"
    check = {"HTTP": f"http://{HOST}:1/health", "Interval": "1s", "DeregisterCriticalServiceAfter": "90m"}
    consul.put("/v1/agent/service/register", {"Name": "fabio", "ID": "fabio-vm-9998", "Port": 9998, "Check": check})
    assert "fabio-vm-9998" in eventually(lambda: consul.get("/v1/agent/services"))
    consul.put("/v1/agent/service/deregister/fabio-vm-9998")
    consul.put("/v1/agent/service/deregister/site")
    eventually(lambda: {"site", "fabio"}.isdisjoint(consul.get("/v1/catalog/services")))


def test_what_an_agent_took_is_seen_by_others_and_is_unhealthy_when_its_node_dies(tmp_path: Any) -> None:
    first_port, second_port = free_ports()["http"], free_ports()["http"]
    quick = {"server": {"min_heartbeat_ttl": "1s", "heartbeat_grace": "1s"}}
    first_settings = quick | {"consul_api": {"enabled": True, "port": first_port}}
    with running(tmp_path / "first", settings=first_settings) as first:
        second_settings = {
            "name": "second",
            "server": {"enabled": False},
            "client": {"servers": [f"{HOST}:{first.ports['rpc']}"]},
            "consul_api": {"enabled": True, "port": second_port},
        }
        with running(tmp_path / "second", dev=False, settings=second_settings) as second:
            near, far = ConsulAgent(first, first_port), ConsulAgent(second, second_port)
            eventually(lambda: "second" in [node["Node"] for node in near.get("/v1/catalog/nodes")])
            far.put("/v1/agent/service/register", {"Name": "shared", "Port": 1})
            (entry,) = eventually(lambda: near.get("/v1/health/service/shared?passing"))
            assert entry["Node"]["Node"] == "second"
            assert far.put("/v1/kv/from-far", b"x").json is True
            assert near.ask("GET", "/v1/kv/from-far?raw").body == b"x"
            session = far.put("/v1/session/create", {"LockDelay": 0}).json["ID"]
            assert far.put(f"/v1/kv/lead?acquire={session}", b"").json is True
            second.kill9()
            eventually(lambda: near.get("/v1/health/service/shared?passing") == [], 30.0)
            (check,) = [c for c in near.get("/v1/health/service/shared")[0]["Checks"] if c["CheckID"] == "serfHealth"]
            assert check["Status"] == "critical"
            eventually(lambda: "Session" not in near.get("/v1/kv/lead")[0])
            second.start()
            eventually(lambda: near.get("/v1/health/service/shared?passing"))
            eventually(lambda: "shared" in far.get("/v1/agent/services"))
            far.put("/v1/agent/service/deregister/shared")
