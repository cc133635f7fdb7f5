"""Pure: what a submitted job has to pass before it is stored or planned."""

from typing import NamedTuple

from msgspec.structs import replace

from lepa.model.errors import LepaError, invalid
from lepa.model.job import Job
from lepa.model.job_rules import Problems, implied_constraints, validate
from lepa.model.job_views import JobSubmission
from lepa.server.settings import ServerSettings
from lepa.state.snapshot import Snapshot

REGISTRATION_REJECTED = "Job registration, dispatch, and scale are disabled by the scheduler configuration"


class Admitted(NamedTuple):
    """A job as it will be stored, and what was found about it."""

    job: Job
    problems: Problems


def examine(snapshot: Snapshot, job: Job, settings: ServerSettings) -> Admitted:
    """The job with what its blocks imply, and everything that is wrong with it.

    A submitter does not say whose child a job is: only dispatching and periodic launches make children.
    """
    existing = snapshot.job(job.namespace, job.id)
    parent_id = existing.parent_id if existing is not None else ""
    priority = job.priority or settings.job_default_priority
    admitted = implied_constraints(replace(job, parent_id=parent_id, priority=priority))
    problems = validate(
        admitted,
        existing=existing,
        max_priority=settings.job_max_priority,
        max_count=settings.job_max_count,
        memory_oversubscription=snapshot.scheduler_configuration().memory_oversubscription_enabled,
    )
    places = tuple(_place_problems(snapshot, admitted))
    return Admitted(admitted, replace_errors(problems, places))


def replace_errors(problems: Problems, more: tuple[str, ...]) -> Problems:
    """The same problems and some more errors."""
    return problems._replace(errors=(*problems.errors, *more))


def admit(snapshot: Snapshot, job: Job | None, settings: ServerSettings) -> Admitted:
    """Like `examine`, but raises what is wrong as LepaError(invalid)."""
    if job is None:
        raise invalid("Job must be specified")
    admitted = examine(snapshot, job, settings)
    if admitted.problems.errors:
        raise invalid(admitted.problems.error_text)
    return admitted


def check_registration_allowed(snapshot: Snapshot) -> None:
    """Raise LepaError(denied) while operators keep new work out."""
    if snapshot.scheduler_configuration().reject_job_registration:
        raise LepaError("denied", REGISTRATION_REJECTED)


def bounded_submission(submission: JobSubmission | None, bytes_max: int) -> tuple[JobSubmission | None, str]:
    """The text to keep beside a job, and a warning when it is too large to be kept."""
    if submission is None or not submission.source:
        return None, ""
    size = len(submission.source.encode()) + len(submission.variables.encode())
    if size > bytes_max:
        return None, f"job source size of {size} B exceeds maximum of {bytes_max} B and will be discarded"
    return submission, ""


def _place_problems(snapshot: Snapshot, job: Job) -> list[str]:
    found = []
    namespace = snapshot.namespace(job.namespace)
    if namespace is None:
        found.append(f'job "{job.id}" is in nonexistent namespace "{job.namespace}"')
    if snapshot.node_pool(job.node_pool) is None:
        found.append(f'job "{job.id}" is in nonexistent node pool "{job.node_pool}"')
    capabilities = namespace.capabilities if namespace is not None else None
    if capabilities is not None:
        enabled, disabled = capabilities.enabled_task_drivers, capabilities.disabled_task_drivers
        for driver in sorted({task.driver for group in job.task_groups for task in group.tasks}):
            if driver in disabled or (enabled and driver not in enabled):
                found.append(f'used task driver "{driver}" is not allowed in namespace "{job.namespace}"')
    return found
