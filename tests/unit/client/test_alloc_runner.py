"""One allocation's parts: what it takes in from the servers, and who may be asked what.

Its whole life, with tasks, services and health, is in tests/integration/test_client.py.
"""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job

from lepa.client.alloc_runner import _merged_health, job_and_group
from lepa.model.allocation import AllocDeploymentStatus
from lepa.model.errors import LepaError


def health(healthy: bool | None, *, canary: bool = False) -> AllocDeploymentStatus:
    return AllocDeploymentStatus(healthy=healthy, canary=canary, timestamp="2026-01-01T00:00:00Z")


def test_the_nodes_verdict_stays_until_the_servers_know_it() -> None:
    ours = make_alloc(deployment_id="d", deployment_status=health(True, canary=True))
    theirs = make_alloc(deployment_id="d", deployment_status=health(None))
    assert _merged_health(ours, theirs) == health(True)
    assert _merged_health(ours, replace(theirs, deployment_status=None)) == health(True, canary=True)


def test_the_servers_verdict_wins_and_a_new_deployment_begins_anew() -> None:
    ours = make_alloc(deployment_id="d", deployment_status=health(True))
    told = make_alloc(deployment_id="d", deployment_status=health(False))
    assert _merged_health(ours, told) == health(False)
    assert _merged_health(ours, make_alloc(deployment_id="e", deployment_status=health(None))) == health(None)


def test_an_allocation_without_its_group_cannot_run() -> None:
    job = make_job()
    alloc = replace(make_alloc(job=job), job=job)
    assert job_and_group(alloc) == (job, job.task_groups[0])
    empty = make_job(groups=(make_group(tasks=()),))
    for wrong in (replace(alloc, task_group="other"), replace(alloc, job=None), replace(alloc, job=empty)):
        with pytest.raises(LepaError, match="task group"):
            job_and_group(wrong)
