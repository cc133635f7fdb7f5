"""Joining servers, sending them away, and their keys."""

import base64

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply

JOIN = "PUT /v1/agent/join"


def test_servers_are_joined(agent: FakeAgent, lepa: Run) -> None:
    agent.on(JOIN, {"num_joined": 2, "error": "", "warning": "three: cannot be reached: Connection refused"})
    done = lepa("server", "join", "one", "two:4648", "three")
    assert done.out == "Joined 2 servers successfully\n"
    assert done.error == "Warning: three: cannot be reached: Connection refused\n"
    agent.on(JOIN, {"num_joined": 0, "error": "one: no answer in time", "warning": ""})
    done = lepa("server", "join", "one")
    assert done.code == 1
    assert done.error == "Error: Error joining: one: no answer in time\n"
    assert lepa("server", "join").code == 1


def test_a_server_is_sent_away(agent: FakeAgent, lepa: Run) -> None:
    agent.on("PUT /v1/agent/force-leave", {})
    agent.on("GET /v1/agent/members", {"ServerRegion": "eu", "Members": [{"Name": "one.eu"}]})
    assert lepa("server", "force-leave", "two").error == 'Error: no server is called "two" or "two.eu"\n'
    assert lepa("server", "force-leave", "one").code == 0
    assert lepa("server", "force-leave", "one.eu").code == 0
    assert agent.requests[-1].query == {"node": "one.eu"}
    assert lepa("server", "force-leave", "-prune", "one.eu").code == 0
    assert agent.requests[-1].query == {"node": "one.eu", "prune": "true"}


def test_keys(agent: FakeAgent, lepa: Run) -> None:
    key = lepa("operator", "gossip", "keyring", "generate").out.strip()
    assert len(base64.b64decode(key)) == 32
    assert key != lepa("operator", "gossip", "keyring", "generate").out.strip()
    agent.on("GET /v1/agent/keyring/list", {"Messages": {}, "Keys": {key: 3}, "NumNodes": 3})
    listed = lepa("operator", "gossip", "keyring", "list").out.splitlines()
    assert [line.split() for line in listed] == [["Key", "Servers"], [key, "3/3"]]
    done = {"Messages": {}, "Keys": {}, "NumNodes": 3}
    agent.on("PUT /v1/agent/keyring/install", done)
    agent.on("PUT /v1/agent/keyring/use", done)
    agent.on("PUT /v1/agent/keyring/remove", done)
    assert lepa("operator", "gossip", "keyring", "install", key).out == "Key installed on all servers\n"
    assert lepa("operator", "gossip", "keyring", "use", key).out == "All servers seal with this key now\n"
    assert lepa("operator", "gossip", "keyring", "remove", key).out == "Key removed from all servers\n"
    assert [request.body for request in agent.requests[-3:]] == [{"Key": key}] * 3
    agent.on("PUT /v1/agent/keyring/remove", Reply(500, "one.eu: removing the primary key is not allowed"))
    refused = lepa("operator", "gossip", "keyring", "remove", key)
    assert refused.error == "Error: one.eu: removing the primary key is not allowed\n"
