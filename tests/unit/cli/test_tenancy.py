"""Namespaces and node pools."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply
from tests.unit.cli.objects import NODE, job_stub, node_stub

from lepa.model.tenancy import Namespace, NodePool, NodePoolSchedulerConfiguration
from lepa.model.wire import to_builtins

DEV = to_builtins(Namespace(name="dev", description="For trying", meta={"owner": "me"}))
POOL = to_builtins(
    NodePool(
        name="gpu",
        description="Fast",
        scheduler_configuration=NodePoolSchedulerConfiguration(scheduler_algorithm="spread"),
    )
)


@pytest.fixture
def parted(agent: FakeAgent) -> FakeAgent:
    """An agent with namespaces and a node pool."""
    agent.on("GET /v1/namespaces", [DEV, to_builtins(Namespace(name="default", description="Default"))])
    agent.on("GET /v1/namespace/dev", DEV)
    agent.on("PUT /v1/namespace/dev", Reply())
    agent.on("PUT /v1/namespace/new", Reply())
    agent.on("DELETE /v1/namespace/dev", Reply())
    agent.on("GET /v1/node/pools", [POOL])
    agent.on("GET /v1/node/pool/gpu", POOL)
    agent.on("PUT /v1/node/pools", Reply())
    agent.on("DELETE /v1/node/pool/gpu", Reply())
    return agent


def test_namespaces_are_listed_and_shown(parted: FakeAgent, lepa: Run) -> None:
    assert lepa("namespace", "list").out == "Name     Description\ndefault  Default\ndev      For trying\n"
    out = lepa("namespace", "status", "dev").out
    assert out.startswith("Name            = dev\nDescription     = For trying\n")
    assert out.endswith("Metadata\nowner = me\n")
    assert '"Name": "dev"' in lepa("namespace", "inspect", "dev").out
    assert "Prefix matched multiple namespaces" in lepa("namespace", "status", "de").error
    assert 'No namespace with name or prefix "zz"' in lepa("namespace", "status", "zz").error


def test_applying_flags_changes_only_what_they_name(parted: FakeAgent, lepa: Run) -> None:
    assert lepa("namespace", "apply", "-description", "Other", "dev").code == 0
    body = parted.requests[-1].body
    assert (body["Description"], body["Meta"]) == ("Other", {"owner": "me"})
    assert lepa("namespace", "apply", "-meta=a=1", "new").out == 'Successfully applied namespace "new"!\n'
    assert parted.requests[-1].body == {"Name": "new", "Meta": {"a": "1"}}


def test_applying_a_file(parted: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    path = tmp_path / "new.hcl"
    path.write_text(
        'name = "new"\ndescription = "D"\nmeta {\n  odd-key = "v"\n}\n'
        'capabilities {\n  enabled_task_drivers = ["docker"]\n}\n'
    )
    assert lepa("namespace", "apply", str(path)).code == 0
    assert parted.requests[-1].body == {
        "Name": "new",
        "Description": "D",
        "Meta": {"odd-key": "v"},
        "Capabilities": {"EnabledTaskDrivers": ["docker"]},
    }
    path.write_text('descripton = "D"\n')
    assert '"descripton" is not known' in lepa("namespace", "apply", str(path)).error
    path.write_text('description = "D"\n')
    assert "the namespace has no name" in lepa("namespace", "apply", str(path)).error


def test_namespaces_are_deleted(parted: FakeAgent, lepa: Run) -> None:
    assert lepa("namespace", "delete", "dev").out == 'Successfully deleted namespace "dev"!\n'


def test_node_pools_are_listed_shown_and_deleted(parted: FakeAgent, lepa: Run) -> None:
    assert lepa("node", "pool", "list").out == "Name  Description\ngpu   Fast\n"
    out = lepa("node", "pool", "info", "gp").out
    assert "No metadata" in out
    assert "Scheduler Algorithm             = spread" in out
    assert lepa("node", "pool", "delete", "gpu").code == 0


def test_node_pools_are_applied_from_a_file(parted: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    path = tmp_path / "gpu.hcl"
    path.write_text(
        'node_pool "gpu" {\n  description = "Fast"\n  scheduler_config {\n    scheduler_algorithm = "spread"\n  }\n}\n'
    )
    assert lepa("node", "pool", "apply", str(path)).out == 'Successfully applied node pool "gpu"!\n'
    assert parted.requests[-1].body == {
        "Name": "gpu",
        "Description": "Fast",
        "SchedulerConfiguration": {"SchedulerAlgorithm": "spread"},
    }
    path.write_text("node_pool {")
    assert "gpu.hcl:1" in lepa("node", "pool", "apply", str(path)).error


def test_what_is_in_a_node_pool(parted: FakeAgent, lepa: Run) -> None:
    parted.on("GET /v1/node/pool/gpu/nodes", [node_stub()])
    parted.on("GET /v1/node/pool/gpu/jobs", [job_stub()])
    assert lepa("node", "pool", "nodes", "gpu").out.split("\n")[1].startswith("22222222")
    assert lepa("node", "pool", "jobs", "gpu").out.split("\n")[1].split() == [
        "web",
        "default",
        "service",
        "50",
        "running",
    ]
    parted.on("GET /v1/node/pool/gpu/jobs", [])
    assert lepa("node", "pool", "jobs", "gpu").out == "No jobs found\n"


def test_lists_of_pools_come_in_pages(agent: FakeAgent, lepa: Run) -> None:
    pool = {"Name": "gpu", "Description": "fast"}
    page = Reply(200, json.dumps([pool]), {"X-Nomad-NextToken": "next"})
    agent.on("GET /v1/node/pools", page)
    assert lepa("node", "pool", "list", "-per-page=1").out.endswith("-page-token next\n")
    assert agent.requests[-1].query == {"per_page": "1"}
    agent.on("GET /v1/node/pool/gpu", pool)
    agent.on("GET /v1/node/pool/gpu/nodes", [node_stub()])
    assert NODE in lepa("node", "pool", "nodes", "-verbose", "-filter=x", "gpu").out


def test_an_example_of_a_pool_is_written(lepa: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.hcl"
    assert "lepa node pool apply" in lepa("node", "pool", "init", str(path)).out
    assert 'node_pool "example"' in path.read_text()
    assert "already exists" in lepa("node", "pool", "init", str(path)).error
    assert lepa("node", "pool", "init", "-quiet", "-out=json", str(tmp_path / "p.json")).out == ""
    assert "-out" in lepa("node", "pool", "init", "-out=xml").error
