"""This agent, and its metrics: lepa.api.agent, lepa.api.prometheus."""

from lepa.api.prometheus import exposition
from lepa.kit.telemetry import Metrics


async def test_self_shows_configuration_member_and_figures(http) -> None:
    shown = await (await http.get("/v1/agent/self")).json()
    assert shown["config"] == {"Region": "global"}
    assert shown["member"]["Name"] == "s.global"
    assert shown["stats"]["nomad"]["server"] == "true"


async def test_health_is_500_when_a_part_is_not_well(http, parts) -> None:
    answer = await http.get("/v1/agent/health")
    assert (answer.status, (await answer.json())["server"]) == (200, {"ok": True, "message": "ok"})
    parts.agent.found["client"] = (False, "no known servers")
    answer = await http.get("/v1/agent/health")
    assert (answer.status, (await answer.json())["client"]["message"]) == (500, "no known servers")
    assert (await http.get("/v1/agent/health?type=server")).status == 200
    assert (await http.get("/v1/agent/health?type=x")).status == 400


async def test_a_part_that_is_not_enabled_is_not_well_when_asked_for(http, parts) -> None:
    del parts.agent.found["client"]
    answer = await http.get("/v1/agent/health?type=client")
    assert (answer.status, (await answer.json())["client"]["message"]) == (500, "client not enabled")


async def test_servers_are_joined_and_sent_away(http, parts) -> None:
    answer = await (await http.post("/v1/agent/join?address=10.0.0.1&address=10.0.0.2")).json()
    assert answer == {"num_joined": 2, "error": "", "warning": ""}
    answer = await (await http.put("/v1/agent/join?address=silent")).json()
    assert answer == {"num_joined": 0, "error": "no answer in time", "warning": ""}
    missing = await http.post("/v1/agent/join")
    assert (missing.status, await missing.text()) == (400, "missing address to join")
    for query in ("node=x", "node=x&prune", "node=x&prune=true", "node=x&prune=false"):
        assert (await http.post(f"/v1/agent/force-leave?{query}")).status == 200
    assert parts.agent.sent_away == [("x", False), ("x", True), ("x", True), ("x", False)]
    missing = await http.post("/v1/agent/force-leave")
    assert (missing.status, await missing.text()) == (400, "missing node to force leave")


async def test_keys_of_gossip_are_listed_and_changed(http) -> None:
    assert (await (await http.get("/v1/agent/keyring/list")).json())["Keys"] == {"list ": 1}
    for path in ("/v1/agent/keyring/install", "/v1/agent/keyring/use", "/v1/agent/keyring/remove"):
        answer = await (await http.put(path, json={"Key": "k"})).json()
        assert answer == {"Messages": {}, "Keys": {f"{path.rpartition('/')[2]} k": 1}, "NumNodes": 1}
        assert (await http.put(path, json={})).status == 400


async def test_servers_are_known_to_a_client_only(http) -> None:
    assert (await http.get("/v1/agent/servers")).status == 501


async def test_host_facts_need_debugging(http, parts, client_of) -> None:
    assert (await http.get("/v1/agent/host")).status == 403
    parts.settings = parts.settings._replace(debug=True)
    assert (await (await client_of(parts)).get("/v1/agent/host")).status == 200


async def test_reloading_is_handed_on(http, parts) -> None:
    await http.put("/v1/agent/reload")
    assert parts.agent.reloaded == 1


async def test_metrics_come_as_json_and_for_prometheus(http, parts, client_of) -> None:
    parts.metrics.gauge("nomad.jobs.running", 3)
    shown = await (await http.get("/v1/metrics")).json()
    assert {"Name": "nomad.jobs.running", "Value": 3, "Labels": {}} in shown["Gauges"]
    answer = await http.get("/v1/metrics?format=prometheus")
    assert answer.content_type == "text/plain"
    assert "nomad_jobs_running 3.0" in await answer.text()
    parts.settings = parts.settings._replace(prometheus=False)
    answer = await (await client_of(parts)).get("/v1/metrics?format=prometheus")
    assert (answer.status, await answer.text()) == (415, "Prometheus is not enabled")


def test_every_kind_of_series_is_exposed_with_its_labels() -> None:
    metrics = Metrics()
    metrics.gauge("nomad.a-b", 1.5, node="n")
    metrics.count("nomad.calls", 2)
    metrics.sample("nomad.wait", 3.0, path="x")
    metrics.sample("nomad.wait", 5.0, path="x")
    metrics.gauge("nomad.mixed", 1)
    metrics.gauge("nomad.mixed", 2, extra="y")
    text = exposition(metrics).decode()
    assert 'nomad_a_b{node="n"} 1.5' in text
    assert "# TYPE nomad_calls untyped" in text
    assert "nomad_calls 2.0" in text
    assert 'nomad_wait{path="x",quantile="0.5"} 5.0' in text
    assert 'nomad_wait_count{path="x"} 2.0' in text
    assert 'nomad_wait_sum{path="x"} 8.0' in text
    assert 'nomad_mixed{extra="y"} 2.0' in text


async def test_other_servers_are_a_setting(http) -> None:
    assert (await http.put("/v1/agent/servers")).status == 400
    answer = await http.put("/v1/agent/servers?address=10.0.0.1:4647")
    assert (answer.status, "client { servers }" in await answer.text()) == (501, True)
