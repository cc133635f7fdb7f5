"""Pure: what a job becomes when it is taken in: canonical form, validity, what counts as a change.

    raw API keys  --canonicalise-->  Job  --validate-->  Problems
                                     Job  --implied_constraints-->  Job

The defaults are in `job_defaults`, the checks in `job_checks`; this module is their door.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from lepa.model import job_checks, job_defaults
from lepa.model.constraint import Constraint
from lepa.model.errors import invalid
from lepa.model.job import Job, TaskGroup
from lepa.model.policies import MigrateStrategy, ReschedulePolicy, RestartPolicy
from lepa.model.task import Task
from lepa.model.wire import normalise

_INHERITED: Mapping[str, type] = {
    "Reschedule": ReschedulePolicy,
    "Migrate": MigrateStrategy,
    "Restart": RestartPolicy,
}
"""Job-level blocks that only serve as defaults of the groups and are never stored."""

_BRIDGE_PLUGINS = ("bridge", "firewall", "host-local", "loopback", "portmap")

SERVER_FIELDS: Mapping[str, Any] = {
    name: getattr(Job(), name)
    for name in (
        "status",
        "status_description",
        "stable",
        "version",
        "submit_time",
        "create_index",
        "modify_index",
        "job_modify_index",
        "nomad_token_id",
        "version_tag",
    )
}
"""What the server writes into a job, with the values a job has before."""


def canonicalise(
    raw: Mapping[str, Any],
    *,
    region: str = "global",
    namespace: str = "default",
    node_pool: str = "default",
    priority: int = 50,
) -> Job:
    """The job that a JSON body or a parsed job file means, with every default filled in.

    Keys may be in any case, null means absent, unknown keys are ignored, durations are nanoseconds. region, namespace,
    node_pool, priority: used where the job names none. Raises LepaError(invalid) that names the field of a wrong type.
    """
    given = normalise(dict(raw), Job)
    inherited = {
        key: normalise(value, _INHERITED[key])
        for key, value in ((str(key).capitalize(), value) for key, value in raw.items())
        if key in _INHERITED and value is not None
    }
    _convert(given, Job, "Job")
    for key, block in inherited.items():
        _convert(block, _INHERITED[key], f"Job.{key}")
    filled = job_defaults.fill_job(
        given, inherited, region=region, namespace=namespace, node_pool=node_pool, priority=priority
    )
    job: Job = _convert(filled, Job, "Job")
    return job


def _convert(value: Any, kind: Any, place: str) -> Any:
    """Raises LepaError(invalid) such as "Job.TaskGroups[0].Count: expected `int`, got `str`"."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        path = where.strip("`").removeprefix("$")
        raise invalid(f"{place}{path}: {what[:1].lower()}{what[1:]}") from error


def strip_server_fields(job: Job) -> Job:
    """The job as its author wrote it: without versions, indexes, status, times and the ids of scaling policies."""
    return replace(job, task_groups=tuple(map(_strip_scaling, job.task_groups)), **SERVER_FIELDS)


def _strip_scaling(group: TaskGroup) -> TaskGroup:
    if group.scaling is None:
        return group
    return replace(group, scaling=replace(group.scaling, id="", create_index=0, modify_index=0))


def spec_changed(old: Job, new: Job) -> bool:
    """Whether registering `new` makes a new version of `old`."""
    return strip_server_fields(old) != strip_server_fields(new)


class Problems(NamedTuple):
    """What is wrong with a job, and what is merely odd. Each message names its group and task."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def error_text(self) -> str:
        """All errors as one text, as the API answers them; empty when there are none."""
        if not self.errors:
            return ""
        noun = "error" if len(self.errors) == 1 else "errors"
        return f"{len(self.errors)} {noun} occurred:\n" + "".join(f"\t* {error}\n" for error in self.errors) + "\n"

    @property
    def warning_text(self) -> str:
        """All warnings as one text, as the API answers them; empty when there are none."""
        if not self.warnings:
            return ""
        return f"{len(self.warnings)} warning(s):\n" + "".join(f"\n* {warning}" for warning in self.warnings)


def validate(
    job: Job,
    *,
    existing: Job | None = None,
    max_priority: int = 100,
    max_count: int = 50_000,
    memory_oversubscription: bool = False,
) -> Problems:
    """Everything that is wrong with a canonical job that somebody submits, at once.

    existing: the stored job of the same id. max_priority, max_count, memory_oversubscription: the server's settings.
    """
    errors = [*job_checks.submission_refusals(job), *job_checks.job_problems(job, max_priority, max_count)]
    if existing is not None:
        errors += job_checks.update_refusals(existing, job)
    return Problems(tuple(errors), tuple(job_checks.job_warnings(job, memory_oversubscription)))


def implied_constraints(job: Job) -> Job:
    """The job with the constraints that its blocks imply, on groups that have none on the same attribute.

    Services of either provider live in the cluster's own catalog, so the Consul provider implies nothing of a node.
    """
    return replace(job, task_groups=tuple(map(_with_implied, job.task_groups)))


def _with_implied(group: TaskGroup) -> TaskGroup:
    constrained = {constraint.ltarget for constraint in group.constraints}
    added = tuple(constraint for constraint in _implied(group) if constraint.ltarget not in constrained)
    return replace(group, constraints=group.constraints + added) if added else group


def _implied(group: TaskGroup) -> Iterator[Constraint]:
    if any(task.vault is not None for task in group.tasks):
        yield _attribute("vault.version", "semver", ">= 0.6.1")
    services = [*group.services, *(service for task in group.tasks for service in task.services)]
    native = [service for service in services if service.provider == "nomad"]
    if native:
        yield _attribute("nomad.service_discovery", "=", "true")
    if any(service.checks for service in native):
        yield _attribute("nomad.version", "semver", ">= 1.4.0")
    if any(network.mode == "bridge" for network in group.networks):
        for plugin in _BRIDGE_PLUGINS:
            yield _attribute(f"plugins.cni.version.{plugin}", "semver", ">= 0.4.0")
    signals = sorted({signal for task in group.tasks for signal in _signals(task)})
    if signals:
        yield _attribute("os.signals", "set_contains", ",".join(signals))
    for provider in sorted({secret.provider for task in group.tasks for secret in task.secrets}):
        yield _attribute(f"plugins.secrets.{provider}.version", "is_set", "")


def _attribute(name: str, operand: str, value: str) -> Constraint:
    return Constraint(ltarget=f"${{attr.{name}}}", operand=operand, rtarget=value)


def _signals(task: Task) -> Iterator[str]:
    """Signals that the node must be able to send."""
    if task.kill_signal:
        yield task.kill_signal
    if task.vault is not None and task.vault.change_mode == "signal":
        yield task.vault.change_signal
    yield from (template.change_signal for template in task.templates if template.change_mode == "signal")
    yield from (identity.change_signal for identity in task.identities if identity.change_mode == "signal")
