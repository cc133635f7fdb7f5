"""The machines."""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import NODE, allocation, node, node_stub

FIGURES = {
    "Uptime": 90_061,
    "CPUTicksConsumed": 123.4,
    "Memory": {"Used": 3 << 30, "Total": 8 << 30},
    "AllocDirStats": {"Used": 1 << 30, "Size": 50 << 30},
    "CPU": [{"CPU": "cpu0", "User": 10.0, "System": 5.0, "Idle": 85.0}],
    "DiskStats": [{"Device": "sda", "Mountpoint": "/", "Size": 50 << 30, "Used": 1 << 30, "UsedPercent": 2.0}],
}


@pytest.fixture
def box(agent: FakeAgent) -> FakeAgent:
    """An agent with one node that runs one allocation."""
    agent.on("GET /v1/nodes", [node_stub()])
    agent.on(f"GET /v1/node/{NODE}", node())
    agent.on(f"GET /v1/node/{NODE}/allocations", [allocation()])
    agent.on("GET /v1/client/stats", FIGURES)
    agent.on("GET /v1/agent/self", {"stats": {"client": {"node_id": NODE}}})
    for verb in ("eligibility", "drain"):
        agent.on(f"PUT /v1/node/{NODE}/{verb}", {"Index": 1})
    return agent


def test_the_list(box: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("node_list", lepa("node", "status").out)
    golden("node_list_verbose", lepa("node", "status", "-verbose", "-allocs").out)
    assert lepa("node", "status", "-quiet").out == "22222222\n"
    assert lepa("node", "status", "-os", "-filter", 'Name == "box"').code == 0
    assert box.requests[-1].query == {"filter": 'Name == "box"', "os": "true"}
    box.on("GET /v1/nodes", [])
    assert lepa("node", "status").out == "No nodes registered\n"


def test_more_pages_are_announced(box: FakeAgent, lepa: Run) -> None:
    box.on("GET /v1/nodes", Reply(text="[]", headers={"X-Nomad-NextToken": "abc"}))
    assert lepa("node", "status", "-per-page=1").out.endswith("-page-token abc\n")


def test_one_node(box: FakeAgent, lepa: Run, golden: Any) -> None:
    golden("node_status", lepa("node", "status", "-stats", "box").out)
    verbose = lepa("node", "status", "-verbose", "-self").out
    assert "docker    false     false    no daemon" in verbose
    assert "kernel.name = linux" in verbose
    assert "rack = r1" in verbose
    assert "Allocated Resources" not in lepa("node", "status", "-short", "-self").out


def test_host_volumes_and_networks_are_shown(box: FakeAgent, lepa: Run) -> None:
    """B137."""
    networks = {
        "a": {"CIDR": "10.0.0.0/8", "Interface": "", "ReservedPorts": "22"},
        "b": {"CIDR": "", "Interface": "eth1", "ReservedPorts": ""},
    }
    made = node(HostNetworks=networks, HostVolumes={"data": {"ReadOnly": True, "Path": "/srv"}})
    box.on(f"GET /v1/node/{NODE}", made)
    out = lepa("node", "status", "-verbose", "-self").out
    assert "a     10.0.0.0/8  <none>     22" in out
    assert "b     <none>      eth1       <none>" in out
    assert "data  true      /srv" in out


def test_a_node_that_cannot_be_asked_is_shown_all_the_same(box: FakeAgent, lepa: Run) -> None:
    box.on("GET /v1/client/stats", Reply(404, "No path to node"))
    done = lepa("node", "status", "-self")
    assert done.code == 0
    assert "cannot be asked for its present use" in done.out


def test_a_server_alone_has_no_own_node(box: FakeAgent, lepa: Run) -> None:
    box.on("GET /v1/agent/self", {"stats": {}})
    assert lepa("node", "status", "-self").error == "Error: the asked agent is no client: name a node\n"


def test_eligibility_is_set(box: FakeAgent, lepa: Run) -> None:
    assert lepa("node", "eligibility", "-disable", "box").out.endswith("ineligible for scheduling\n")
    assert box.requests[-1].body == {"NodeID": NODE, "Eligibility": "ineligible"}
    assert lepa("node", "eligibility", "-enable", "-self").code == 0
    for words in (("-enable", "-disable", "box"), ("box",)):
        assert "give either -enable or -disable" in lepa("node", "eligibility", *words).error
    assert "name one node, or give -self" in lepa("node", "eligibility", "-enable").error


@pytest.mark.parametrize(
    ("flags", "deadline"),
    [((), 3600 * 10**9), (("-deadline=5m",), 300 * 10**9), (("-force",), -(10**9)), (("-no-deadline",), 0)],
)
def test_a_drain_has_a_deadline(box: FakeAgent, lepa: Run, flags: tuple[str, ...], deadline: int) -> None:
    lepa("node", "drain", "-enable", "-detach", "-ignore-system", "-m=why", "-meta=by=me", *flags, "box")
    body = box.requests[-1].body
    assert body["DrainSpec"] == {"Deadline": deadline, "IgnoreSystemJobs": True}
    assert body["Meta"] == {"message": "why", "by": "me"}


def test_a_drain_is_followed_until_the_node_is_empty(box: FakeAgent, lepa: Run) -> None:
    looks = iter([node(DrainStrategy={"Deadline": 0})] * 2 + [node()])
    lists = iter(
        [[allocation()], [allocation(DesiredTransition={"Migrate": True})], [allocation(ClientStatus="complete")]]
    )
    started = [node()]
    box.on(f"GET /v1/node/{NODE}", lambda _: started.pop() if started else next(looks))
    box.on(f"GET /v1/node/{NODE}/allocations", lambda _: next(lists))
    out = lepa("node", "drain", "-enable", "box").out
    assert "marked for migration" in out
    assert "status complete" in out
    assert out.endswith(f"Drain complete for node {NODE}\n")


def test_ending_a_drain_makes_the_node_eligible_unless_told(box: FakeAgent, lepa: Run) -> None:
    lepa("node", "drain", "-disable", "box")
    assert (box.requests[-1].body["DrainSpec"], box.requests[-1].body["MarkEligible"]) == (None, True)
    lepa("node", "drain", "-disable", "-keep-ineligible", "box")
    assert box.requests[-1].body["MarkEligible"] is False


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-enable", "-disable"), "give one of -enable, -disable and -monitor"),
        ((), "give one of -enable, -disable and -monitor"),
        (("-enable", "-force", "-no-deadline"), "exclude each other"),
        (("-enable", "-deadline=x"), "-deadline: invalid duration"),
        (("-enable", "-deadline=0"), "-deadline is longer than nothing"),
    ],
)
def test_wrong_drains_are_refused(box: FakeAgent, lepa: Run, flags: tuple[str, ...], message: str) -> None:
    assert message in lepa("node", "drain", *flags, "box").error


@pytest.mark.parametrize(
    ("strategy", "shown"),
    [
        ({"Deadline": -1}, "true; force drain"),
        ({"Deadline": 0}, "true; no deadline"),
        ({"Deadline": 1, "ForceDeadline": "2026-05-28T21:00:00Z"}, "true; 2026-05-28T21:00:00Z deadline"),
    ],
)
def test_a_drain_is_shown(box: FakeAgent, lepa: Run, strategy: dict[str, Any], shown: str) -> None:
    box.on(f"GET /v1/node/{NODE}", node(DrainStrategy=strategy))
    assert f"Drain         = {shown}\n" in lepa("node", "status", "-short", "box").out


def test_metadata_is_read_and_changed(box: FakeAgent, lepa: Run) -> None:
    meta = {"Meta": {"rack": "r1", "a": "1"}, "Dynamic": {"a": "1"}, "Static": {"rack": "r1"}}
    box.on("GET /v1/client/metadata", meta)
    box.on("POST /v1/client/metadata", meta)
    assert "All Meta\nKey   Value\na     1\nrack  r1\n" in lepa("node", "meta", "read").out
    assert lepa("node", "meta", "read", "-t", "{{.Meta.rack}}", "-node-id=box").out == "r1\n"
    assert lepa("node", "meta", "apply", "-unset", "x,y", "a=2").code == 0
    assert box.requests[-1].body["Meta"] == {"x": None, "y": None, "a": "2"}
    assert "given as key=value" in lepa("node", "meta", "apply", "a").error
    assert "give key=value pairs" in lepa("node", "meta", "apply").error


def test_waiting_for_a_node_that_is_not_drained_is_told_so(box: FakeAgent, lepa: Run) -> None:
    done = lepa("node", "drain", "-monitor", "box")
    assert (done.code, "is not being drained" in done.out) == (0, True)
