"""The servers as a cluster, and snapshots, over HTTP."""

import hashlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from lepa.model.errors import invalid, not_found
from lepa.model.operator import AutopilotConfiguration
from lepa.rpc.cluster_service import ClusterHealth, Peer, PeerHealth, PeerList
from lepa.rpc.server_requests import ServerRecord

CONTENT = b"an archive" * 50_000


class FakeCluster:
    """One server of two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.removed: list[str] = []
        self.restored: list[bytes] = []
        self.well = True
        self.leads: list[str] = []

    async def peers(self) -> PeerList:
        a = Peer(id="a.global", node="a.global", address="a:4647", leader=True)
        return PeerList(servers=(a, Peer(id="b.global", node="b.global", address="b:4647", voter=False)), index=9)

    async def remove_peer(self, peer_id: str) -> None:
        if peer_id != "b.global":
            raise not_found(f'no server "{peer_id}" keeps the state')
        self.removed.append(peer_id)

    def near(self, peer_id: str) -> str | None:
        return None if peer_id == "b.global" else ""

    async def take_over(self) -> None:
        self.leads.append("b.global")

    async def health(self) -> ClusterHealth:
        a = PeerHealth(id="a.global", name="a.global", healthy=self.well, last_index=5)
        return ClusterHealth(
            healthy=self.well, failure_tolerance=1, servers=(a,), leader="a.global", voters=("a.global",)
        )

    async def save_snapshot(self) -> Path:
        path = self.scratch()
        path.write_bytes(CONTENT)
        return path

    async def restore_snapshot(self, archive: Path) -> int:
        self.restored.append(archive.read_bytes())
        if archive.read_bytes() == b"damaged":
            raise invalid("the snapshot is damaged")
        return 1

    def scratch(self) -> Path:
        return self.folder / "scratch"


AUTOPILOT = "/v1/operator/autopilot/configuration"


async def test_how_servers_look_after_each_other_is_read_and_set(http: Any, parts: Any) -> None:
    caller = parts.caller
    caller.answers |= {"Operator.Autopilot": AutopilotConfiguration(modify_index=7), "Operator.SetAutopilot": True}
    found = await (await http.get(AUTOPILOT)).json()
    assert (found["CleanupDeadServers"], found["LastContactThreshold"], found["ModifyIndex"]) == (False, "200ms", 7)
    taken = await http.put(AUTOPILOT, json={**found, "MinQuorum": 3, "LastContactThreshold": "1500ms"})
    assert (taken.status, await taken.json(), caller.last().check_index) == (200, True, False)
    wanted = caller.last().configuration
    assert (wanted.min_quorum, wanted.last_contact_threshold, wanted.last_contact_max_s) == (3, "1.5s", 1.5)
    await http.put(f"{AUTOPILOT}?cas=7", json={"ServerStabilizationTime": 20_000_000_000})
    assert (caller.last().check_index, caller.last().cas) == (True, 7)
    assert caller.last().configuration == AutopilotConfiguration(server_stabilization_time="20s")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"LastContactThreshold": "soon"}, "LastContactThreshold: invalid duration"),
        ({"ServerStabilizationTime": "-1s"}, "server_stabilization_time is -1s; it must not be negative"),
        ({"MaxTrailingLogs": -1}, "max_trailing_logs is -1"),
        ({"CleanupDeadServers": "yes"}, "CleanupDeadServers"),
    ],
)
async def test_settings_that_cannot_be_are_refused(http: Any, body: dict[str, Any], said: str) -> None:
    refused = await http.put(AUTOPILOT, json=body)
    assert (refused.status, said in await refused.text()) == (400, True), await refused.text()


@pytest.fixture
def cluster(parts: Any, tmp_path: Path) -> FakeCluster:
    parts.agent.operated = FakeCluster(tmp_path)
    return parts.agent.operated


@pytest.mark.parametrize("named", ["id=b.global", "address=b:4647"])
async def test_a_certain_server_is_made_to_lead(http: Any, cluster: FakeCluster, named: str) -> None:
    answer = await (await http.put(f"/v1/operator/raft/transfer-leadership?{named}")).json()
    assert (answer["From"]["ID"], answer["To"]["ID"], answer["Noop"], answer["Err"]) == (
        "a.global", "b.global", False, None
    )  # fmt: skip
    assert cluster.leads == ["b.global"]
    noop = await (await http.post("/v1/operator/raft/transfer-leadership?id=a.global")).json()
    assert (noop["To"]["ID"], noop["Noop"], cluster.leads) == ("a.global", True, ["b.global"])


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("", "must specify id or address"),
        ("?id=b.global&address=b:4647", "must specify either id or address"),
        ("?id=", "id must not be empty"),
        ("?id=x", 'no server has the id "x"'),
    ],
)
async def test_who_is_to_lead_has_to_be_named(http: Any, cluster: FakeCluster, named: str, said: str) -> None:
    refused = await http.put(f"/v1/operator/raft/transfer-leadership{named}")
    assert (refused.status, cluster.leads) == (400, [])
    assert said in await refused.text()


async def test_servers_are_shown_in_the_shape_of_raft(http: Any, cluster: FakeCluster) -> None:
    shown = await (await http.get("/v1/operator/raft/configuration")).json()
    assert shown["Index"] == 9
    assert shown["Servers"][0] == {
        "ID": "a.global",
        "Node": "a.global",
        "Address": "a:4647",
        "Leader": True,
        "Voter": True,
        "RaftProtocol": "3",
    }
    assert [server["Voter"] for server in shown["Servers"]] == [True, False]


async def test_a_server_is_removed_by_its_id_only(http: Any, cluster: FakeCluster) -> None:
    assert (await http.delete("/v1/operator/raft/peer?id=b.global")).status == 200
    assert cluster.removed == ["b.global"]
    assert (await http.delete("/v1/operator/raft/peer?id=x")).status == 404
    for query in ("", "?address=b:4647"):
        assert (await http.delete(f"/v1/operator/raft/peer{query}")).status == 400
    assert (await http.put("/v1/operator/raft/peer?id=b.global")).status == 404


async def test_health_is_429_when_something_is_not_well(http: Any, cluster: FakeCluster) -> None:
    answer = await http.get("/v1/operator/autopilot/health")
    shown = await answer.json()
    assert (answer.status, shown["Healthy"], shown["FailureTolerance"], shown["Voters"]) == (200, True, 1, ["a.global"])
    assert {"ID", "Name", "Address", "SerfStatus", "LastContact", "LastTerm", "LastIndex", "StableSince"} <= set(
        shown["Servers"][0]
    )
    cluster.well = False
    answer = await http.get("/v1/operator/autopilot/health")
    assert (answer.status, (await answer.json())["Healthy"]) == (429, False)


async def test_a_snapshot_comes_with_its_digest_and_leaves_no_file(http: Any, cluster: FakeCluster) -> None:
    answer = await http.get("/v1/operator/snapshot")
    assert await answer.read() == CONTENT
    assert answer.headers["Digest"] == f"sha-256={b64encode(hashlib.sha256(CONTENT).digest()).decode()}"
    assert not cluster.scratch().exists()


async def test_a_snapshot_larger_than_any_other_body_is_restored(http: Any, cluster: FakeCluster) -> None:
    body = bytes(40 << 20)
    assert (await http.put("/v1/operator/snapshot", data=body)).status == 200
    assert cluster.restored == [body]
    assert not cluster.scratch().exists()


async def test_a_damaged_snapshot_and_an_empty_body_are_refused(http: Any, cluster: FakeCluster) -> None:
    answer = await http.put("/v1/operator/snapshot", data=b"damaged")
    assert (answer.status, await answer.text()) == (400, "the snapshot is damaged")
    assert (await http.put("/v1/operator/snapshot")).status == 400
    assert not cluster.scratch().exists()


async def test_an_agent_without_a_server_passes_it_on(parts: Any, http: Any, client_of: Any, tmp_path: Path) -> None:
    parts.caller.answers["Status.Servers"] = ()
    assert (await http.get("/v1/operator/snapshot")).status == 500
    server = type(parts)()
    server.agent.operated = FakeCluster(tmp_path)
    far = await client_of(server)
    address = f"127.0.0.1:{far.server.port}"
    parts.caller.answers["Status.Servers"] = (ServerRecord(name="a.global", http_address=address),)
    assert await (await http.get("/v1/operator/snapshot")).read() == CONTENT
    assert (await http.put("/v1/operator/snapshot", data=CONTENT)).status == 200
    assert server.agent.operated.restored == [CONTENT]


async def test_what_is_meant_for_another_region_is_never_done_here(
    parts: Any, http: Any, client_of: Any, cluster: FakeCluster, tmp_path: Path
) -> None:
    away = type(parts)()
    away.settings = away.settings._replace(region="us")
    (tmp_path / "us").mkdir()
    away.agent.operated = FakeCluster(tmp_path / "us")
    far = await client_of(away)
    address = f"127.0.0.1:{far.server.port}"
    parts.caller.answers["Status.Servers"] = (ServerRecord(name="a.us", http_address=address),)
    assert (await http.put("/v1/operator/snapshot?region=us", data=CONTENT)).status == 200
    assert parts.caller.last().region == "us"
    assert (cluster.restored, away.agent.operated.restored) == ([], [CONTENT])
    assert (await http.delete("/v1/operator/raft/peer?region=us&id=b.global")).status == 200
    assert (cluster.removed, away.agent.operated.removed) == ([], ["b.global"])
