"""Pure: what the API shows beside a job: list stubs, summaries, statuses, submissions, scaling."""

from typing import Any

from lepa.model.policies import Multiregion
from lepa.model.wire import Wire


class TaskGroupSummary(Wire, frozen=True):
    """How many allocations of a group are in each state."""

    queued: int = 0
    complete: int = 0
    failed: int = 0
    running: int = 0
    starting: int = 0
    lost: int = 0
    unknown: int = 0


class JobChildrenSummary(Wire, frozen=True):
    """How many children of a periodic or parameterized job are in each state."""

    pending: int = 0
    running: int = 0
    dead: int = 0


class JobSummary(Wire, frozen=True):
    """State of a job's allocations by group."""

    job_id: str = ""
    namespace: str = ""
    summary: dict[str, TaskGroupSummary] = {}
    children: JobChildrenSummary | None = None
    create_index: int = 0
    modify_index: int = 0


class JobListStub(Wire, frozen=True):
    """A job in a list."""

    id: str = ""
    parent_id: str = ""
    name: str = ""
    namespace: str = ""
    datacenters: tuple[str, ...] = ()
    node_pool: str = ""
    multiregion: Multiregion | None = None
    type: str = ""
    priority: int = 0
    periodic: bool = False
    parameterized_job: bool = False
    stop: bool = False
    status: str = ""
    status_description: str = ""
    job_summary: JobSummary | None = None
    create_index: int = 0
    modify_index: int = 0
    job_modify_index: int = 0
    submit_time: int = 0
    meta: dict[str, str] = {}


class JobStatusesLatestDeployment(Wire, frozen=True):
    """The newest deployment in a job status."""

    id: str = ""
    is_active: bool = False
    job_version: int = 0
    status: str = ""
    status_description: str = ""
    all_auto_promote: bool = False
    requires_promotion: bool = False


class JobStatusesAlloc(Wire, frozen=True):
    """An allocation in a job status."""

    id: str = ""
    group: str = ""
    client_status: str = ""
    node_id: str = ""
    deployment_status: dict[str, Any] = {}
    job_version: int = 0
    followup_eval_id: str = ""
    has_paused_task: bool = False


class JobStatusesJob(Wire, frozen=True):
    """A job with its allocations, as status pages show it."""

    id: str = ""
    namespace: str = ""
    name: str = ""
    type: str = ""
    node_pool: str = ""
    datacenters: tuple[str, ...] = ()
    priority: int = 0
    version: int = 0
    submit_time: int = 0
    modify_index: int = 0
    allocs: tuple[JobStatusesAlloc, ...] = ()
    group_count_sum: int = 0
    child_statuses: tuple[str, ...] = ()
    parent_id: str = ""
    latest_deployment: JobStatusesLatestDeployment | None = None
    stop: bool = False
    is_pack: bool = False
    status: str = ""


class JobSubmission(Wire, frozen=True):
    """The text a job was submitted as."""

    source: str = ""
    format: str = ""
    variable_flags: dict[str, str] = {}
    variables: str = ""
    namespace: str = ""
    job_id: str = ""
    version: int = 0
    job_modify_index: int = 0


class ScalingEvent(Wire, frozen=True):
    """A change of a group's count, or a note about one."""

    time: int = 0
    count: int | None = None
    previous_count: int = 0
    message: str = ""
    error: bool = False
    meta: dict[str, Any] = {}
    eval_id: str | None = None
    create_index: int = 0


class TaskGroupScaleStatus(Wire, frozen=True):
    """Counts of a group, wanted and real."""

    desired: int = 0
    placed: int = 0
    running: int = 0
    healthy: int = 0
    unhealthy: int = 0
    events: tuple[ScalingEvent, ...] = ()


class JobScaleStatus(Wire, frozen=True):
    """Counts of all groups of a job."""

    job_id: str = ""
    namespace: str = ""
    job_create_index: int = 0
    job_modify_index: int = 0
    job_stopped: bool = False
    task_groups: dict[str, TaskGroupScaleStatus] = {}


class ScalingPolicyListStub(Wire, frozen=True):
    """A scaling policy in a list."""

    id: str = ""
    enabled: bool = False
    type: str = ""
    target: dict[str, str] = {}
    create_index: int = 0
    modify_index: int = 0
