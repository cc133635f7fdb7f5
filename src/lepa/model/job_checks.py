"""Pure: everything that is wrong with a job, at once, each problem naming its group and task, in Nomad's words."""

from collections import Counter
from collections.abc import Iterator

from lepa.model.job import Job, TaskGroup, VolumeRequest
from lepa.model.placement_checks import placement_problems
from lepa.model.policy_checks import (
    disconnect_problems,
    migrate_problems,
    multiregion_problems,
    parameterized_problems,
    periodic_problems,
    reschedule_problems,
    restart_problems,
    scaling_problems,
    update_problems,
)
from lepa.model.service_checks import network_problems, service_problems
from lepa.model.task_checks import task_problems, task_warnings

JOB_TYPES = ("service", "batch", "system", "sysbatch")
DISK_MIN_MB = 10
DESCRIPTION_LENGTH_MAX = 1_000

_ON_ALL_NODES = ("system", "sysbatch")
_CSI_ACCESS_MODES = (
    "single-node-reader-only",
    "single-node-writer",
    "multi-node-reader-only",
    "multi-node-single-writer",
    "multi-node-multi-writer",
)
_HOST_ACCESS_MODES = (
    "",
    "single-node-writer",
    "single-node-reader-only",
    "single-node-single-writer",
    "single-node-multi-writer",
)
AFTER_MAX = 16
AFTER_STATUSES = ("complete", "running", "dead")
_ATTACHMENT_MODES = ("file-system", "block-device")


def job_problems(job: Job, max_priority: int, max_count: int) -> Iterator[str]:
    """Everything that keeps the job from being registered."""
    yield from _identity_of(job)
    if job.type == "_core":
        yield "job type cannot be core"
    elif not job.type:
        yield "Missing job type"
    elif job.type not in JOB_TYPES:
        yield f'Invalid job type: "{job.type}", must be one of {", ".join(JOB_TYPES)}'
    if not 1 <= job.priority <= max_priority:
        yield f"job priority must be between [1, {max_priority}]"
    if not job.datacenters:
        yield "Missing job datacenters"
    if "" in job.datacenters:
        yield "Job datacenter must be non-empty string"
    if job.multiregion is not None:
        yield from multiregion_problems(job.multiregion)
    if job.ui is not None and len(job.ui.description) > DESCRIPTION_LENGTH_MAX:
        yield f"UI description must be under {DESCRIPTION_LENGTH_MAX} characters"
    yield from placement_problems(job.constraints, job.affinities, job.spreads, of_system_job=job.type in _ON_ALL_NODES)
    if job.periodic is not None:
        yield from periodic_problems(job.periodic, job.type)
    if job.parameterized_job is not None:
        yield from parameterized_problems(job.parameterized_job, job.type)
    yield from _after(job)
    yield from _groups(job, max_count)


def _after(job: Job) -> Iterator[str]:
    """What is wrong with the jobs that a job waits for."""
    if job.after and job.type not in ("service", "batch"):
        yield f"after can only be used with service and batch jobs, not with a {job.type} job"
    if len(job.after) > AFTER_MAX:
        yield f"after: a job waits for at most {AFTER_MAX} others, not {len(job.after)}"
    for number, dependency in enumerate(job.after, 1):
        if not dependency.job:
            yield f"after {number} has no job: name the one to wait for"
        elif (dependency.namespace or job.namespace, dependency.job) == (job.namespace, job.id):
            yield f"after {number}: a job cannot wait for itself"
        if dependency.status not in AFTER_STATUSES:
            yield f'after {number}: status is one of {", ".join(AFTER_STATUSES)}, not "{dependency.status}"'
    for kind, limits in (("parameterized", job.parameterized_job), ("periodic", job.periodic)):
        if limits is not None and limits.max_running < 0:
            yield f"{kind}: max_running can not be less than zero: {limits.max_running} < 0"


def _identity_of(job: Job) -> Iterator[str]:
    if not job.region:
        yield "Missing job region"
    if not job.id:
        yield "Missing job ID"
    elif " " in job.id:
        yield "Job ID contains a space"
    if "\0" in job.id:
        yield "Job ID contains a null character"
    if not job.name:
        yield "Missing job name"
    elif "\0" in job.name:
        yield "Job Name contains a null character"
    if not job.namespace:
        yield "Job must be in a namespace"


def _groups(job: Job, max_count: int) -> Iterator[str]:
    if not job.task_groups:
        yield "Missing job task groups"
    yield from _repeated("Job task group", "group", [group.name for group in job.task_groups])
    total = sum(group.count for group in job.task_groups)
    if total > max_count:
        yield f"total count was greater than configured job_max_count: {total} > {max_count}"
    for group in job.task_groups:
        if job.type in _ON_ALL_NODES and group.count > 1:
            yield (
                f"Job task group {group.name} has count {group.count}. Count cannot exceed 1 with {job.type} scheduler"
            )
        yield from (f"Task group {group.name} validation failed: {problem}" for problem in _group(group, job))


def _repeated(kind: str, short: str, names: list[str]) -> Iterator[str]:
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if not name:
            yield f"{kind} {number} missing name"
        elif name in first:
            yield f"{kind} {number} redefines '{name}' from {short} {first[name]}"
        first.setdefault(name, number)


def _group(group: TaskGroup, job: Job) -> Iterator[str]:
    if "\0" in group.name:
        yield "Task group name contains a null character"
    if group.count < 0:
        yield "Task group count can't be negative"
    if group.shutdown_delay < 0:
        yield "ShutdownDelay must be a positive value"
    if group.ephemeral_disk.size_mb < DISK_MIN_MB:
        yield f"minimum DiskMB value is {DISK_MIN_MB}; got {group.ephemeral_disk.size_mb}"
    yield from placement_problems(
        group.constraints, group.affinities, group.spreads, of_system_job=job.type in _ON_ALL_NODES
    )
    yield from _policies(group, job.type)
    for label, volume in group.volumes.items():
        problems = _volume(volume, group, job.type)
        yield from (f"Task group volume validation for {label} failed: {problem}" for problem in problems)
    yield from network_problems(group)
    yield from service_problems(group)
    yield from _tasks(group, job)


def _policies(group: TaskGroup, job_type: str) -> Iterator[str]:
    if group.restart_policy is not None:
        yield from restart_problems(group.restart_policy)
    if group.reschedule_policy is not None:
        yield from reschedule_problems(group.reschedule_policy, job_type)
    if group.update is not None:
        if job_type in ("service", "system"):
            yield from update_problems(group.update)
        else:
            yield f'Job type "{job_type}" does not allow update block'
    if group.migrate is not None:
        if job_type == "service":
            yield from migrate_problems(group.migrate)
        else:
            yield f'Job type "{job_type}" does not allow migrate block'
    if group.max_run_duration is not None:
        if job_type not in ("batch", "sysbatch"):
            yield f'Job type "{job_type}" does not allow max_run_duration'
        elif group.max_run_duration <= 0:
            yield "max_run_duration must be greater than zero"
    if group.disconnect is not None:
        yield from disconnect_problems(group.disconnect, job_type)
    if group.scaling is not None:
        yield from scaling_problems(group.scaling, group.count, job_type)


def _volume(volume: VolumeRequest, group: TaskGroup, job_type: str) -> Iterator[str]:
    if volume.type not in ("host", "csi"):
        yield f'volume has unrecognized type {volume.type or "(none)"}, must be "host" or "csi"'
        return
    if not volume.source:
        yield "volume has an empty source"
    if volume.per_alloc and job_type in _ON_ALL_NODES:
        yield "volume cannot be per_alloc for system or sysbatch jobs"
    if volume.per_alloc and group.update is not None and group.update.canary > 0:
        yield "volume cannot be per_alloc when canaries are in use"
    if volume.per_alloc and volume.sticky:
        yield "volume cannot be both per_alloc and sticky"
    if volume.type == "csi":
        yield from _csi_volume(volume)
    else:
        yield from _host_volume(volume)


def _csi_volume(volume: VolumeRequest) -> Iterator[str]:
    if not volume.attachment_mode:
        yield "CSI volumes must have an attachment mode"
    if not volume.access_mode:
        yield "CSI volumes must have an access mode"
    elif volume.access_mode not in _CSI_ACCESS_MODES:
        yield f"invalid access mode: {volume.access_mode}"
    if volume.sticky:
        yield "CSI volumes cannot be sticky"


def _host_volume(volume: VolumeRequest) -> Iterator[str]:
    if volume.mount_options is not None:
        yield "host volumes cannot have mount options"
    if volume.access_mode not in _HOST_ACCESS_MODES:
        yield f"invalid access mode: {volume.access_mode}"
    if volume.attachment_mode not in ("", *_ATTACHMENT_MODES):
        yield f"invalid attachment mode: {volume.attachment_mode}"


def _tasks(group: TaskGroup, job: Job) -> Iterator[str]:
    if not group.tasks:
        yield f"Missing tasks for task group {group.name}"
        return
    yield from _repeated("Task", "task", [task.name for task in group.tasks])
    if all(task.lifecycle is not None for task in group.tasks):
        yield f"Task group {group.name} must have at least one main task"
    if sum(task.leader for task in group.tasks) > 1:
        yield "Only one task may be marked as leader"
    for task in group.tasks:
        problems = task_problems(task, group, job.type)
        yield from (f"Task {task.name} validation failed: {problem}" for problem in problems)


def job_warnings(job: Job, memory_oversubscription: bool) -> Iterator[str]:
    """What is taken but will surprise, or should be written otherwise."""
    if job.periodic is not None and job.periodic.spec:
        yield "cron is deprecated and may be removed in a future release. Use crons instead"
    promoted = Counter(group.update.auto_promote for group in job.task_groups if group.update and group.update.canary)
    if promoted[True] and promoted[False]:
        yield "auto_promote must be true for all groups to enable automatic promotion"
    for group in job.task_groups:
        yield from (f'Group "{group.name}" has warnings: {warning}' for warning in _group_warnings(group))
        for task in group.tasks:
            warnings = task_warnings(task, memory_oversubscription)
            yield from (f'Task "{task.name}" has warnings: {warning}' for warning in warnings)


def _group_warnings(group: TaskGroup) -> Iterator[str]:
    if group.update is not None and group.update.max_parallel > group.count:
        yield (
            f"Update max parallel count is greater than task group count ({group.update.max_parallel} > "
            f"{group.count}). A destructive change would result in the simultaneous replacement of all allocations."
        )
    if any(network.mbits for network in group.networks) or any(
        network.mbits for task in group.tasks for network in task.resources.networks
    ):
        yield "mbits has been deprecated as of Nomad 0.12.0. Please remove mbits from the network block"
    deprecated = {
        "stop_after_client_disconnect": group.stop_after_client_disconnect,
        "max_client_disconnect": group.max_client_disconnect,
        "prevent_reschedule_on_lost": group.prevent_reschedule_on_lost or None,
    }
    for name, value in deprecated.items():
        if value is not None:
            yield f"{name} is deprecated and has no effect. Use the disconnect block instead"


def update_refusals(old: Job, new: Job) -> Iterator[str]:
    """Why the stored job `old` may not become `new`."""
    if old.type != new.type:
        yield f'cannot update job from type "{old.type}" to "{new.type}"'
    for kind, before, after in (
        ("periodic", old.periodic is not None, new.periodic is not None),
        ("parameterized", old.parameterized_job is not None, new.parameterized_job is not None),
    ):
        if after and not before:
            yield f"cannot update non-{kind} job to being {kind}"
        elif before and not after:
            yield f"cannot update {kind} job to being non-{kind}"
    if old.dispatched != new.dispatched:
        yield "field 'Dispatched' is read-only"


def submission_refusals(job: Job) -> Iterator[str]:
    """What only a server may write into a job."""
    if job.payload:
        yield "job can't be submitted with a payload, only dispatched"
    if job.dispatched:
        yield "job can't be submitted with 'Dispatched' set"
