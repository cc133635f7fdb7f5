"""Small commands of operators."""

from pathlib import Path

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply


def test_metrics_in_each_form(agent: FakeAgent, lepa: Run) -> None:
    def answer(request):  # type: ignore[no-untyped-def]
        if request.query.get("format") == "prometheus":
            return Reply(text="nomad_x 1\n")
        return {"Gauges": [{"Name": "nomad.x"}]}

    agent.on("GET /v1/metrics", answer)
    assert lepa("operator", "metrics").out == '{"Gauges": [{"Name": "nomad.x"}]}\n'
    assert lepa("operator", "metrics", "-pretty").out.startswith('{\n    "Gauges": [')
    assert lepa("operator", "metrics", "-format=prometheus").out == "nomad_x 1\n"
    assert lepa("operator", "metrics", "-t", "{{(index .Gauges 0).Name}}").out == "nomad.x\n"
    assert "-format" in lepa("operator", "metrics", "-format=xml").error


def test_storage_plugins(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/plugins", [])
    assert lepa("plugin", "status").out == "No CSI plugins\n"
    plugin = {"ID": "ebs", "Provider": "p", "NodesHealthy": 1, "NodesExpected": 2}
    agent.on("GET /v1/plugins", [plugin])
    assert lepa("plugin", "status").out.splitlines()[1].split() == ["ebs", "p", "0/0", "1/2"]
    agent.on("GET /v1/plugin/csi/ebs", plugin)
    assert "Nodes Healthy/Expected       = 1/2" in lepa("plugin", "status", "ebs").out
    agent.on("GET /v1/plugin/csi/none", Reply(404, "plugin not found"))
    refused = 'Error: there is no csi plugin "none"; `lepa plugin status` lists them\n'
    assert lepa("plugin", "status", "none").error == refused


def test_the_servers_of_a_client(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/agent/servers", ["10.0.0.1:4647", "10.0.0.2:4647"])
    assert lepa("node", "config", "-servers").out == "10.0.0.1:4647\n10.0.0.2:4647\n"
    agent.on("PUT /v1/agent/servers", Reply(501, "servers are set by the client block"))
    assert lepa("node", "config", "-update-servers", "10.0.0.3:4647").code == 1
    assert "either" in lepa("node", "config").error


def test_a_configuration_is_checked(lepa: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.hcl", tmp_path / "bad.hcl"
    good.write_text('data_dir = "/var/lib/lepa"\nserver { enabled = true }\nvault { enabled = true }\n')
    bad.write_text('data_dri = "/x"\n')
    done = lepa("config", "validate", str(good))
    assert (done.code, done.out) == (0, "Configuration is valid!\n")
    assert 'Warning: "vault" has no effect' in done.error
    done = lepa("config", "validate", str(bad))
    assert (done.code, "data_dir" in done.error) == (1, True)


def test_there_is_nothing_to_set_up(lepa: Run) -> None:
    assert "nothing to set up" in lepa("setup", "consul", "-y").out
    assert "nothing to set up" in lepa("setup", "vault", "-check").out
