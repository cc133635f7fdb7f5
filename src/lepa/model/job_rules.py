"""Pure: what a job becomes when it is taken in: canonical form, validity, what counts as a change.

    raw API keys  --canonicalise-->  Job  --validate-->  Problems
                                     Job  --implied_constraints-->  Job

The defaults are in `job_defaults`, the checks in `job_checks`; this module is their door.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from lepa.model import job_defaults
from lepa.model.errors import invalid
from lepa.model.job import Job, TaskGroup
from lepa.model.policies import MigrateStrategy, ReschedulePolicy, RestartPolicy
from lepa.model.wire import normalise

_INHERITED: Mapping[str, type] = {
    "Reschedule": ReschedulePolicy,
    "Migrate": MigrateStrategy,
    "Restart": RestartPolicy,
}
"""Job-level blocks that only serve as defaults of the groups and are never stored."""

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
