"""Saved states: what is in them, and without their secrets."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from tests.builders import make_node
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.test_snapshot_replay import saved
from tests.world import World

SECRET = "00000000-1111-4222-8333-444444444444"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    world = World()
    world.node(make_node("one", secret_id=SECRET, status="ready"))
    return saved(world, tmp_path / "state.snap")


def test_everything_is_printed_by_kind(agent: FakeAgent, file: Path, lepa: Run) -> None:
    (node,) = json.loads(lepa("operator", "snapshot", "state", str(file)).out)["nodes"]
    assert (node["Name"], node["SecretID"], node["ModifyIndex"] > 0) == ("one", SECRET, True)
    assert json.loads(lepa("operator", "snapshot", "state", "-filter=node", str(file)).out).keys() == {"nodes"}
    assert "nothing of jobs is there" in lepa("operator", "snapshot", "state", "-filter", "jobs", str(file)).error


def test_secrets_are_taken_out_in_place(agent: FakeAgent, file: Path, lepa: Run) -> None:
    before = json.loads(lepa("operator", "snapshot", "inspect", "-json", str(file)).out)["Meta"]
    assert lepa("operator", "snapshot", "redact", str(file)).out == f"Secrets were taken out of {file}\n"
    assert SECRET not in lepa("operator", "snapshot", "state", str(file)).out
    after = json.loads(lepa("operator", "snapshot", "inspect", "-json", str(file)).out)["Meta"]
    assert {key: after[key] for key in ("Index", "Region", "Cluster", "Created")} == {
        key: before[key] for key in ("Index", "Region", "Cluster", "Created")
    }
    assert file.stat().st_mode & 0o077 == 0
    file.write_bytes(b"damaged")
    assert str(file) in lepa("operator", "snapshot", "redact", str(file)).error
    assert file.read_bytes() == b"damaged"


def test_a_state_may_be_saved_without_its_secrets(agent: FakeAgent, file: Path, lepa: Run, tmp_path: Path) -> None:
    content = file.read_bytes()
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    agent.on("GET /v1/operator/snapshot", Reply(200, "", {"Digest": f"sha-256={digest}"}, (content,)))
    to = tmp_path / "saved.snap"
    assert lepa("operator", "snapshot", "save", "-redact", str(to)).code == 0
    assert '"one"' in lepa("operator", "snapshot", "state", str(to)).out
    assert SECRET not in lepa("operator", "snapshot", "state", str(to)).out
    assert lepa("operator", "snapshot", "save", str(to)).code == 0
    assert SECRET in lepa("operator", "snapshot", "state", str(to)).out
