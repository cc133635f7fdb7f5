"""`lepa operator debug`: what is in the archive, and what is not."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import NODE, node, node_stub

CANARY = "hush-7d1f"


@pytest.fixture
def talking(agent: FakeAgent) -> FakeAgent:
    agent.on("GET /v1/nodes", [node_stub()])
    agent.on(f"GET /v1/node/{NODE}", {**node(), "SecretID": CANARY})
    agent.on("GET /v1/client/stats", {"Uptime": 5})
    agent.on("GET /v1/agent/self", {"config": {"ACL": {"ReplicationToken": CANARY}, "Encrypt": CANARY, "Region": "r"}})
    agent.on("GET /v1/jobs", [{"ID": "web", "Payload": CANARY}])
    agent.on("GET /v1/agent/monitor", Reply(chunks=(b"a line\n",)))
    event = {"Topic": "Job", "Payload": {"Job": {"ID": "web", "Meta": {"password": CANARY}, "Env": CANARY}}}
    lines = b"{}\n" + json.dumps({"Index": 3, "Events": [event]}).encode() + b'\n{"half'
    agent.on("GET /v1/event/stream", Reply(chunks=(lines,)))
    return agent


def files(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("lepa-debug-*.tar.gz")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        return {entry.name.partition("/")[2]: tar.extractfile(entry).read() for entry in tar.getmembers()}  # type: ignore[union-attr]


def test_the_archive_tells_much_and_no_secrets(talking: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    words = ("-duration=2s", "-interval=1s", "-event-topic=Job", f"-output={tmp_path}")
    done = lepa("operator", "debug", *words)
    assert (done.code, "Created debug archive" in done.out) == (0, True)
    found = files(tmp_path)
    assert {"state/0000/jobs.json", "state/0001/jobs.json", f"node/{NODE}/stats.json", "agent/self.json"} <= set(found)
    assert CANARY.encode() not in b"".join(found.values())
    index = json.loads(found["index.json"])
    assert index["looks"] == 2
    assert "cluster/members" in index["missing"]
    assert json.loads(found["agent/self.json"])["config"]["Region"] == "r"


def test_nodes_are_chosen(talking: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    lepa("operator", "debug", "-duration=1s", "-interval=1s", "-node-id=none", "-log-level=none", f"-output={tmp_path}")
    assert not [name for name in files(tmp_path) if name.startswith("node/") or name.endswith(".log")]


def test_what_cannot_be_is_said(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    assert "-interval" in lepa("operator", "debug", "-interval=0s").error
    assert "-duration" in lepa("operator", "debug", "-duration=long").error
    agent.on("GET /v1/nodes", [])
    done = lepa("operator", "debug", "-duration=1s", "-interval=1s", f"-output={tmp_path}/none")
    assert (done.code, "cannot write" in done.error) == (1, True)
