"""`lepa monitor`."""

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import NODE, node, node_stub


def test_the_log_is_followed_until_it_ends(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/agent/monitor", Reply(chunks=(b"one\n", b"two\n")))
    assert lepa("monitor", "-log-level=WARN").out == "one\ntwo\n"
    assert agent.requests[0].query == {"log_level": "warn", "plain": "true"}
    assert lepa("monitor").out == "one\ntwo\n"
    assert lepa("monitor", "follow", "-json").out == "one\ntwo\n"
    assert agent.requests[-1].query["log_json"] == "true"


def test_another_nodes_log(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/nodes", [node_stub()])
    agent.on(f"GET /v1/node/{NODE}", node())
    agent.on("GET /v1/agent/monitor", Reply(chunks=(b"far\n",)))
    assert lepa("monitor", "-node-id=2222").out == "far\n"
    assert agent.requests[-1].query["node_id"] == NODE


def test_a_level_has_to_be_one(agent: FakeAgent, lepa: Run) -> None:
    assert "-log-level is one of" in lepa("monitor", "-log-level=loud").error


def test_the_log_file_is_printed_from_a_time_on(agent: FakeAgent, lepa: Run) -> None:
    lines = (
        b"2000-01-01T00:00:00.000Z [INFO] a: old\n  more of it\n",
        b"2999-01-01T00:00:00.000Z [INFO] a: n",
        b"ew\nx",
    )
    agent.on("GET /v1/agent/monitor/export", Reply(chunks=lines))
    done = lepa("monitor", "export")
    assert done.error == ""
    assert done.out == "2999-01-01T00:00:00.000Z [INFO] a: new\nx"
    assert "-logs-since" in lepa("monitor", "export", "-logs-since=soon").error
    as_json = b'{"@timestamp":"2999-01-01T00:00:00.000Z"}\n'
    agent.on("GET /v1/agent/monitor/export", Reply(chunks=(b'{"@timestamp":"2000-01-01T00:00:00.000Z"}\n', as_json)))
    assert lepa("monitor", "export").out == as_json.decode()
