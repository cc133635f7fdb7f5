"""Pure: can a running allocation take a new version of its job as it is, or must it be replaced."""

from collections.abc import Callable, Sequence
from typing import Any

from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.scheduler.feasible import Check, datacenter_matches, failed_check, pool_matches

JOB_FIELDS = ("meta", "payload", "consul_namespace", "vault_namespace")
GROUP_FIELDS = ("networks", "ephemeral_disk", "volumes", "meta", "consul", "max_run_duration")
TASK_FIELDS = (
    "name",
    "driver",
    "user",
    "lifecycle",
    "config",
    "env",
    "resources",
    "meta",
    "log_config",
    "artifacts",
    "vault",
    "consul",
    "templates",
    "dispatch_payload",
    "volume_mounts",
    "csi_plugin_config",
    "leader",
    "kill_signal",
    "kind",
    "secrets",
    "identity",
    "identities",
    "schedule",
)
"""What a running task cannot take over; everything else (counts, constraints, policies, checks) changes in place."""


def needs_restart(old: Job, new: Job, group_name: str) -> bool:
    """Whether tasks of a group have to be started anew to run `new` instead of `old`."""
    before, after = find_group(old, group_name), find_group(new, group_name)
    if before is None or after is None or len(before.tasks) != len(after.tasks):
        return True
    if _differ(old, new, JOB_FIELDS) or _differ(before, after, GROUP_FIELDS):
        return True
    if any(_differ(a, b, TASK_FIELDS) for a, b in zip(before.tasks, after.tasks, strict=True)):
        return True
    return _connect_services(before) != _connect_services(after)


def find_group(job: Job, name: str) -> TaskGroup | None:
    """A group of a job by name."""
    return next((group for group in job.task_groups if group.name == name), None)


def _differ(a: Any, b: Any, fields: tuple[str, ...]) -> bool:
    return any(getattr(a, field) != getattr(b, field) for field in fields)


def _connect_services(group: TaskGroup) -> list[Any]:
    return [(service.name, service.connect) for service in group.services if service.connect]


def may_stay(node: Node | None, job: Job, checks: Sequence[Check]) -> bool:
    """Whether a node still suits an allocation that runs there. checks: those of its group."""
    if node is None or not datacenter_matches(node.datacenter, job.datacenters):
        return False
    return pool_matches(node.node_pool, job.node_pool) and not failed_check(node, checks)


class UpdateKinds:
    """Answers for the allocations of one job, each comparison made once.

    version: a job version by number, None where it is no longer kept.
    """

    def __init__(self, job: Job, version: Callable[[int], Job | None]) -> None:
        self._job = job
        self._version = version
        self._restarts: dict[tuple[int, str], bool] = {}

    def needs_restart(self, version: int, group_name: str) -> bool:
        """Whether an allocation of an earlier version has to be replaced."""
        key = version, group_name
        if key not in self._restarts:
            old = self._version(version)
            self._restarts[key] = old is None or needs_restart(old, self._job, group_name)
        return self._restarts[key]
