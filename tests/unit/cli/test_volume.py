"""`lepa volume …` against an agent that answers from a table; with a cluster: tests/cluster/test_volumes.py."""

from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Request

STUB = {"ID": "v1", "Name": "data", "Namespace": "default"}
CLAIM = {
    "ID": "c1", "Namespace": "default", "JobID": "web", "AllocID": "a" * 36, "TaskGroupName": "g",
    "VolumeID": "v1", "VolumeName": "data",
}  # fmt: skip


def test_an_example_is_written_once(lepa: Run, tmp_path: Path, agent: FakeAgent) -> None:
    for kind in ("host", "csi"):
        for form in ([], ["-json"]):
            path = str(tmp_path / f"{kind}{len(form)}")
            assert lepa("volume", "init", "-type", kind, *form, path).code == 0
            assert "already exists" in lepa("volume", "init", "-type", kind, *form, path).error
            text = Path(path).read_text()
            assert text.startswith("{") == bool(form)
    assert "-type must be" in lepa("volume", "init", "-type", "x", str(tmp_path / "x")).error


def test_what_is_there_is_registered_and_forgotten(lepa: Run, tmp_path: Path, agent: FakeAgent) -> None:
    file = tmp_path / "v.hcl"
    assert lepa("volume", "init", str(file)).code == 0
    agent.on("PUT /v1/volume/csi/data", {"Warnings": ""})
    assert lepa("volume", "register", str(file)).out == 'Volume "data" registered\n'
    (asked,) = agent.asked("PUT /v1/volume/csi/data")
    assert asked.body["Volumes"][0]["RequestedCapabilities"][0]["AccessMode"] == "single-node-writer"
    agent.on("GET /v1/volumes", lambda request: [STUB] if request.query["type"] == "csi" else [])
    agent.on("GET /v1/volume/csi/v1", STUB)
    agent.on("DELETE /v1/volume/csi/v1", None)
    assert "Successfully deregistered" in lepa("volume", "deregister", "-force", "v1").out
    assert agent.asked("DELETE /v1/volume/csi/v1")[0].query["force"] == "true"
    agent.on("GET /v1/volumes", [])
    assert "No volume(s) with prefix" in lepa("volume", "deregister", "none").error


def test_claims_are_listed_and_given_back(lepa: Run, agent: FakeAgent) -> None:
    def claims(request: Request) -> Any:
        return [CLAIM] if "c1".startswith(request.query.get("prefix", "")) else []

    agent.on("GET /v1/volumes/claims", claims)
    agent.on("DELETE /v1/volumes/claim/c1", None)
    out = lepa("volume", "claim", "list", "-job", "web").out
    assert out.splitlines()[1].split() == ["c1", "default", "web", "aaaaaaaa", "g", "v1", "data"]
    assert agent.requests[-1].query["job_id"] == "web"
    assert "Successfully deleted" in lepa("volume", "claim", "delete", "-y", "c1").out
    assert lepa("volume", "claim", "delete", "-y", "x").code == 1
