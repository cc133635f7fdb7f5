"""In place or by replacement."""

from typing import Any

import pytest
from tests.builders import make_group, make_job, make_node, make_task

from lepa.model.constraint import Affinity, Constraint, Spread
from lepa.model.job import EphemeralDisk, Job
from lepa.model.policies import RestartPolicy
from lepa.model.resources import NetworkResource, Resources
from lepa.model.service import Service
from lepa.scheduler.feasible import group_checks
from lepa.scheduler.updates import UpdateKinds, may_stay, needs_restart

OLD = make_job(groups=(make_group(tasks=(make_task(),)),))


def changed(task: dict[str, Any] | None = None, **group: Any) -> Job:
    return make_job(groups=(make_group(**({"tasks": (make_task(**(task or {})),)} | group)),))


@pytest.mark.parametrize(
    "new",
    [
        changed(count=5),
        changed(affinities=(Affinity(weight=10),)),
        changed(spreads=(Spread(attribute="${node.datacenter}"),)),
        changed(constraints=(Constraint(operand="distinct_hosts"),)),
        changed(restart_policy=RestartPolicy(attempts=9)),
        changed(services=(Service(name="web"),)),
        changed({"kill_timeout": 1}),
    ],
)
def test_what_the_tasks_need_not_notice_changes_in_place(new: Job) -> None:
    """B003."""
    assert not needs_restart(OLD, new, "web")


@pytest.mark.parametrize(
    "new",
    [
        changed({"env": {"A": "1"}}),
        changed({"driver": "raw_exec"}),
        changed({"config": {"image": "x"}}),
        changed({"resources": Resources(cpu=7)}),
        changed({"name": "other"}),
        changed(networks=(NetworkResource(mode="bridge"),)),
        changed(meta={"a": "b"}),
        changed(ephemeral_disk=EphemeralDisk(sticky=True)),
        changed(tasks=(make_task("a"), make_task("b"))),
        changed(services=(Service(name="web", connect={"SidecarService": {}}),)),
        make_job(groups=OLD.task_groups, meta={"a": "b"}),
        make_job(groups=(make_group("renamed"),)),
    ],
)
def test_what_the_tasks_run_with_needs_new_ones(new: Job) -> None:
    assert needs_restart(OLD, new, "web")


def test_versions_are_compared_once_and_a_lost_one_means_replacement() -> None:
    asked: list[int] = []

    def version(number: int) -> Job | None:
        asked.append(number)
        return OLD if number == 0 else None

    kinds = UpdateKinds(changed(count=5), version)
    assert [kinds.needs_restart(number, "web") for number in (0, 0, 7, 7)] == [False, False, True, True]
    assert asked == [0, 7]


def test_a_node_has_to_suit_the_new_version() -> None:
    job = make_job(datacenters=("dc1",), constraints=(Constraint(ltarget="${meta.x}", operand="is_set"),))
    checks = group_checks(job, job.task_groups[0])
    assert may_stay(make_node(meta={"x": "1"}), job, checks)
    assert not may_stay(make_node(), job, checks)
    assert not may_stay(make_node(datacenter="dc2", meta={"x": "1"}), job, checks)
    assert not may_stay(None, job, checks)
