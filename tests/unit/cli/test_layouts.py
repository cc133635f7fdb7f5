"""How the main outputs look, held against tests/unit/cli/golden; `--rewrite-layouts` writes the files.

What a command asks and when it fails is tried in the tests of each command; here is only what a person sees.
"""

from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.objects import ALLOC, DEPLOYMENT, NODE, OTHER, alloc_stub, deployment, job, job_stub, node_stub

from lepa.model.operator import SchedulerConfiguration
from lepa.model.wire import to_builtins

NAMESPACE = {
    "Name": "blue",
    "Description": "the blue team",
    "Meta": {"owner": "anna"},
    "Capabilities": {"EnabledTaskDrivers": ["docker", "exec"], "DisabledTaskDrivers": ["raw_exec"]},
    "NodePoolConfiguration": {"Default": "gpu", "Allowed": ["gpu", "default"], "Denied": None},
}
POOL = {
    "Name": "gpu",
    "Description": "fast ones",
    "Meta": {"rack": "r1"},
    "SchedulerConfiguration": {"SchedulerAlgorithm": "spread", "MemoryOversubscriptionEnabled": True},
}
PEERS = {
    "Servers": [
        {"Node": name, "ID": name, "Address": f"10.0.0.{number}:4647", "Leader": number == 1, "Voter": True}
        for number, name in ((1, "a.global"), (2, "b.global"))
    ]
}
SERVICES = [
    {
        "Namespace": "default",
        "Services": [
            {"ServiceName": "db", "Tags": []},
            {"ServiceName": "web", "Tags": ["urlprefix-/", "v2"]},
        ],
    }
]
ANSWERS: dict[str, Any] = {
    "GET /v1/jobs": [job_stub(), job_stub("nightly", Type="batch", Periodic=True, Status="running")],
    "GET /v1/job/web": job(),
    "GET /v1/job/web/allocations": [alloc_stub(), alloc_stub(OTHER, ClientStatus="failed", DesiredStatus="stop")],
    "GET /v1/job/web/deployments": [deployment(), {**deployment("failed"), "ID": "55555555-x", "JobVersion": 2}],
    "GET /v1/deployments": [deployment()],
    f"GET /v1/deployment/allocations/{DEPLOYMENT}": [alloc_stub()],
    "GET /v1/namespaces": [NAMESPACE, {"Name": "default", "Description": "Default shared namespace"}],
    "GET /v1/namespace/blue": NAMESPACE,
    "GET /v1/node/pools": [POOL, {"Name": "all", "Description": ""}],
    "GET /v1/node/pool/gpu": POOL,
    "GET /v1/node/pool/gpu/nodes": [node_stub()],
    "GET /v1/operator/scheduler/configuration": {"SchedulerConfig": to_builtins(SchedulerConfiguration())},
    "GET /v1/operator/raft/configuration": PEERS,
    "GET /v1/services": SERVICES,
    "GET /v1/agent/self": {"stats": {"client": {"node_id": NODE}, "runtime": {"arch": "x86_64", "cpu_s": "1.5"}}},
}


@pytest.mark.parametrize(
    "words",
    [
        ("job", "allocs", "web"),
        ("job", "allocs", "-verbose", "web"),
        ("job", "deployments", "web"),
        ("deployment", "list"),
        ("deployment", "status", "4444"),
        ("deployment", "status", "-verbose", "4444"),
        ("namespace", "list"),
        ("namespace", "status", "blue"),
        ("node", "pool", "list"),
        ("node", "pool", "info", "gpu"),
        ("node", "pool", "nodes", "gpu"),
        ("operator", "scheduler", "get-config"),
        ("operator", "raft", "list-peers"),
        ("service", "list"),
        ("agent-info",),
    ],
    ids=" ".join,
)
def test_layout(agent: FakeAgent, lepa: Run, golden: Any, words: tuple[str, ...]) -> None:
    for call, answer in ANSWERS.items():
        agent.on(call, answer)
    if ALLOC[:4] in words or "web" in words:
        agent.on("GET /v1/jobs", [job_stub()])
    done = lepa(*words)
    assert (done.code, done.error) == (0, "")
    golden("_".join(word.strip("-").replace("-", "_") for word in words), done.out)
