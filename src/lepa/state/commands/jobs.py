"""Pure: what registering, stopping, scaling and reverting a job writes.

The newest version of a job is stored under its id, and every version that is kept also under its number. Versions grow
by one with each change of what the author wrote; registering the same again only asks for another look.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from lepa.model.errors import conflict, invalid, not_found
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.job_rules import spec_changed, strip_server_fields
from lepa.model.job_views import JobSubmission, ScalingEvent
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_job, places
from lepa.state.gates import holds_new_version
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES

VERSIONS_KEPT: Final = 6
SCALING_EVENTS_KEPT: Final = 20

JOB_NOT_FOUND: Final = "job not found"


class JobWritten(NamedTuple):
    """What became of a job. evaluation None: nothing has to be placed. changed: it is a new version."""

    job: Job | None
    evaluation: Evaluation | None
    changed: bool


def register_job(
    draft: Draft,
    job: Job,
    *,
    submission: JobSubmission | None = None,
    enforce_index: int | None = None,
    preserve_counts: bool = False,
    preserve_resources: bool = False,
    eval_priority: int = 0,
    trigger: str = "job-register",
    versions_kept: int = VERSIONS_KEPT,
) -> JobWritten:
    """Store a job in canonical form and ask for a look at it.

    enforce_index: the job_modify_index that the caller saw, 0 for "not there"; None when it does not matter.
    preserve_counts, preserve_resources: groups and tasks that exist keep theirs.
    """
    present = draft.job(job.namespace, job.id)
    if enforce_index is not None:
        _enforce_index(present, enforce_index)
    if present is not None:
        job = _preserve(present, job, counts=preserve_counts, resources=preserve_resources)
    written, changed = _store(draft, present, job, versions_kept)
    if changed and submission is not None and submission.source:
        _store_submission(draft, written, submission)
    facts: dict[str, Any] = {"priority": eval_priority} if eval_priority else {}
    ready = places(written) and not (changed and holds_new_version(draft.snapshot, written))
    evaluation = evaluate_job(draft, written, trigger, **_this_version(changed), **facts) if ready else None
    return JobWritten(written, evaluation, changed)


def deregister_job(
    draft: Draft, namespace: str, job_id: str, *, purge: bool, eval_priority: int = 0, no_shutdown_delay: bool = False
) -> JobWritten:
    """Stop a job, or (purge) forget it. A job that is not there is stopped already."""
    present = draft.job(namespace, job_id)
    if present is None:
        return JobWritten(None, None, False)
    written, changed = present, True
    if purge:
        forget_job(draft, present)
    else:
        written, changed = _store(draft, present, replace(present, stop=True), VERSIONS_KEPT)
    if no_shutdown_delay:
        _skip_shutdown_delays(draft, namespace, job_id)
    facts: dict[str, Any] = {"priority": eval_priority} if eval_priority else {}
    index = {} if purge else _this_version(changed)
    evaluation = evaluate_job(draft, written, "job-deregister", **index, **facts) if places(written) else None
    return JobWritten(written, evaluation, changed)


def forget_job(draft: Draft, job: Job) -> None:
    """Remove a job with its versions, submissions, scaling events and claims to volumes."""
    for claim in draft.snapshot.all_volume_claims():
        if (claim.namespace, claim.job_id) == (job.namespace, job.id):
            draft.erase(keys.volume_claim_key(claim.id))
    draft.delete(keys.job_key(job.namespace, job.id), draft.snapshot.job(job.namespace, job.id))
    for version in draft.snapshot.job_versions(job.namespace, job.id):
        draft.erase(keys.job_version_key(job.namespace, job.id, version.version))
    for submission in draft.snapshot.job_submissions(job.namespace, job.id):
        draft.erase(keys.job_submission_key(job.namespace, job.id, submission.version))
    for group in {
        group.name
        for version in (job, *draft.snapshot.job_versions(job.namespace, job.id))
        for group in version.task_groups
    }:
        for event in draft.snapshot.scaling_events(job.namespace, job.id, group):
            draft.erase(keys.scaling_event_key(job.namespace, job.id, group, event.time))


def revert_job(
    draft: Draft, namespace: str, job_id: str, version: int, *, enforce_prior_version: int | None = None
) -> JobWritten:
    """Register an earlier version again, as a new version."""
    present = existing_job(draft, namespace, job_id)
    if present.version == version:
        raise invalid("can't revert to current version")
    if enforce_prior_version is not None and present.version != enforce_prior_version:
        raise conflict(f"Current job has version {present.version}; enforcing version {enforce_prior_version}")
    earlier = draft.snapshot.job_version(namespace, job_id, version)
    if earlier is None:
        raise not_found(f'job "{job_id}" in namespace "{namespace}" at version {version} not found')
    return register_job(draft, replace(earlier, stop=False, version_tag=None))


def mark_stable(draft: Draft, namespace: str, job_id: str, version: int, *, stable: bool) -> None:
    """Say whether a version works: the newest stable one is what a failed deployment goes back to."""
    kept = draft.snapshot.job_version(namespace, job_id, version)
    if kept is None:
        raise not_found(f'job "{job_id}" in namespace "{namespace}" at version {version} not found')
    if kept.stable != stable:
        draft.put(keys.job_version_key(namespace, job_id, version), replace(kept, stable=stable), kept)
    present = draft.job(namespace, job_id)
    if present is not None and present.version == version and present.stable != stable:
        draft.put(keys.job_key(namespace, job_id), replace(present, stable=stable), _base(draft, present))


def scale_job(
    draft: Draft,
    namespace: str,
    job_id: str,
    group_name: str,
    count: int | None,
    *,
    message: str = "",
    error: bool = False,
    meta: dict[str, Any] | None = None,
    enforce_index: int | None = None,
) -> JobWritten:
    """Set a group's count, or (count None) only note an event."""
    present = draft.job(namespace, job_id)
    if present is None:
        raise not_found(f'job "{job_id}" not found')
    if enforce_index is not None:
        _enforce_index(present, enforce_index)
    group = next((group for group in present.task_groups if group.name == group_name), None)
    if group is None:
        raise invalid(f'task group "{group_name}" specified for scaling does not exist in job')
    if error and count is not None:
        raise invalid("scaling action should not contain count if error is true")
    if count is None:
        written = JobWritten(present, None, False)
    else:
        _check_count(draft, present, group, count)
        groups = tuple(
            replace(other, count=count) if other.name == group_name else other for other in present.task_groups
        )
        written = register_job(draft, replace(present, task_groups=groups), trigger="job-scaling")
    _note_scaling(
        draft,
        present,
        group_name,
        ScalingEvent(
            time=draft.now_ns,
            count=count,
            previous_count=group.count,
            message=message,
            error=error,
            meta=meta or {},
            eval_id=written.evaluation.id if written.evaluation else None,
        ),
    )
    return written


def existing_job(draft: Draft, namespace: str, job_id: str) -> Job:
    """The job, or LepaError(not_found)."""
    job = draft.job(namespace, job_id)
    if job is None:
        raise not_found(JOB_NOT_FOUND)
    return job


def launch_child(draft: Draft, child: Job, trigger: str) -> JobWritten:
    """Store a child of a periodic or parameterized job, unless there is one of its id already."""
    present = draft.job(child.namespace, child.id)
    if present is not None:
        return JobWritten(present, None, False)
    written, changed = _store(draft, None, child, VERSIONS_KEPT)
    ready = places(written) and not holds_new_version(draft.snapshot, written)
    evaluation = evaluate_job(draft, written, trigger, **_this_version(changed)) if ready else None
    return JobWritten(written, evaluation, True)


# Checks


def _enforce_index(present: Job | None, index: int) -> None:
    if present is None and index:
        raise conflict(f"Enforcing job modify index {index}: job does not exist")
    if present is not None and not index:
        raise conflict(f"Enforcing job modify index {index}: job already exists")
    if present is not None and present.job_modify_index != index:
        found = present.job_modify_index
        raise conflict(f"Enforcing job modify index {index}: job exists with conflicting job modify index: {found}")


def _check_count(draft: Draft, job: Job, group: TaskGroup, count: int) -> None:
    if count < 0:
        raise invalid("scaling action count can't be negative")
    if job.type in ("system", "sysbatch") and count > 1:
        raise invalid(f'jobs of type "{job.type}" can only be scaled between 0 and 1')
    if group.scaling is not None and count < group.scaling.min:
        raise invalid(f"group count was less than scaling policy minimum: {count} < {group.scaling.min}")
    if group.scaling is not None and count > group.scaling.max:
        raise invalid(f"group count was greater than scaling policy maximum: {count} > {group.scaling.max}")
    latest = draft.snapshot.latest_deployment(job.namespace, job.id)
    if latest is not None and latest.status in (
        "running",
        "paused",
        "pending",
        "blocked",
        "unblocking",
        "initializing",
    ):
        raise invalid("job scaling blocked due to active deployment")


# Storing


def _store(draft: Draft, present: Job | None, job: Job, versions_kept: int) -> tuple[Job, bool]:
    """Store a new version when it differs; answers with what is stored and whether it is new."""
    job = _with_policy_ids(draft, present, job)
    if present is not None and not spec_changed(present, job):
        return present, False
    version = present.version + 1 if present is not None else 0
    bare = strip_server_fields(job)
    written = replace(
        bare,
        task_groups=job.task_groups,
        version=version,
        submit_time=draft.now_ns,
        job_modify_index=keys.THIS_REVISION,
    )
    draft.put(keys.job_key(job.namespace, job.id), written, _base(draft, job))
    draft.overwrite(keys.job_version_key(job.namespace, job.id, version), written)
    _forget_old_versions(draft, job.namespace, job.id, versions_kept - 1)
    return written, True


def _base(draft: Draft, job: Job) -> Job | None:
    return draft.snapshot.job(job.namespace, job.id)


def _this_version(changed: bool) -> dict[str, int]:
    """The evaluation of a new version knows the index that the job will have."""
    return {"job_modify_index": keys.THIS_REVISION} if changed else {}


def _forget_old_versions(draft: Draft, namespace: str, job_id: str, kept: int) -> None:
    """Keep the newest versions, every one that has a tag, and those that something still runs."""
    untagged = [job for job in draft.snapshot.job_versions(namespace, job_id) if job.version_tag is None]
    allocs = draft.snapshot.job_allocations(namespace, job_id) if len(untagged) > kept else ()
    running = {alloc.job_version for alloc in allocs if alloc.client_status not in TERMINAL_CLIENT_STATUSES}
    for old in (job for job in untagged[kept:] if job.version not in running):
        draft.erase(keys.job_version_key(namespace, job_id, old.version))
        if draft.snapshot.job_submission(namespace, job_id, old.version) is not None:
            draft.erase(keys.job_submission_key(namespace, job_id, old.version))


def _store_submission(draft: Draft, job: Job, submission: JobSubmission) -> None:
    kept = replace(
        submission,
        namespace=job.namespace,
        job_id=job.id,
        version=job.version,
        job_modify_index=keys.THIS_REVISION,
    )
    draft.overwrite(keys.job_submission_key(job.namespace, job.id, job.version), kept)


def _preserve(present: Job, job: Job, *, counts: bool, resources: bool) -> Job:
    if not counts and not resources:
        return job
    groups = {group.name: group for group in present.task_groups}
    return replace(
        job,
        task_groups=tuple(
            _preserve_group(groups[group.name], group, counts=counts, resources=resources)
            if group.name in groups
            else group
            for group in job.task_groups
        ),
    )


def _preserve_group(present: TaskGroup, group: TaskGroup, *, counts: bool, resources: bool) -> TaskGroup:
    if counts:
        group = replace(group, count=present.count)
    if resources:
        had = {task.name: task.resources for task in present.tasks}
        group = replace(
            group, tasks=tuple(replace(task, resources=had.get(task.name, task.resources)) for task in group.tasks)
        )
    return group


def _with_policy_ids(draft: Draft, present: Job | None, job: Job) -> Job:
    """Scaling policies keep their ids from version to version and name what they scale."""
    if not any(group.scaling for group in job.task_groups):
        return job
    had = {group.name: group.scaling.id for group in present.task_groups if group.scaling} if present else {}
    return replace(job, task_groups=tuple(_with_policy_id(draft, job, group, had) for group in job.task_groups))


def _with_policy_id(draft: Draft, job: Job, group: TaskGroup, had: dict[str, str]) -> TaskGroup:
    if group.scaling is None:
        return group
    target = {"Namespace": job.namespace, "Job": job.id, "Group": group.name}
    policy_id = had.get(group.name) or draft.new_id()
    return replace(group, scaling=replace(group.scaling, id=policy_id, namespace=job.namespace, target=target))


def _skip_shutdown_delays(draft: Draft, namespace: str, job_id: str) -> None:
    for alloc in draft.snapshot.job_allocations(namespace, job_id):
        if alloc.desired_status == "run":
            transition = replace(alloc.desired_transition, no_shutdown_delay=True)
            draft.put_allocation(replace(alloc, desired_transition=transition, modify_time=draft.now_ns))


def _note_scaling(draft: Draft, job: Job, group: str, event: ScalingEvent) -> None:
    draft.overwrite(keys.scaling_event_key(job.namespace, job.id, group, event.time), event)
    for old in _all_but_newest(draft.snapshot.scaling_events(job.namespace, job.id, group), SCALING_EVENTS_KEPT - 1):
        draft.erase(keys.scaling_event_key(job.namespace, job.id, group, old.time))


def _all_but_newest(events: tuple[ScalingEvent, ...], kept: int) -> Iterable[ScalingEvent]:
    return events[: max(0, len(events) - kept)]
