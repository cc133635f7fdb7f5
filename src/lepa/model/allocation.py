"""Pure: a task group placed on a node, with the states of its tasks.."""

from msgspec import field

from lepa.kit.durations import ZERO_TIME
from lepa.model.evaluation import AllocMetric
from lepa.model.job import Job
from lepa.model.resources import AllocatedResources, DNSConfig
from lepa.model.wire import OmitEmpty, Wire


class TaskEvent(Wire, frozen=True):
    """Something that happened to a task. time is Unix nanoseconds; details holds the facts."""

    type: str = ""
    time: int = 0
    message: str = ""
    display_message: str = ""
    details: dict[str, str] = {}
    fails_task: bool = False
    restart_reason: str = ""
    setup_error: str = ""
    driver_error: str = ""
    exit_code: int = 0
    signal: int = 0
    kill_timeout: int = 0
    kill_error: str = ""
    kill_reason: str = ""
    start_delay: int = 0
    download_error: str = ""
    validation_error: str = ""
    disk_limit: int = 0
    failed_sibling: str = ""
    vault_error: str = ""
    task_signal_reason: str = ""
    task_signal: str = ""
    driver_message: str = ""
    generic_source: str = ""


class TaskState(Wire, frozen=True):
    """Where a task is in its life."""

    state: str = "pending"
    failed: bool = False
    restarts: int = 0
    last_restart: str = ZERO_TIME
    started_at: str = ZERO_TIME
    finished_at: str = ZERO_TIME
    events: tuple[TaskEvent, ...] = ()
    paused: str = ""


class DesiredTransition(Wire, frozen=True):
    """What an operator or the server asks of an allocation; None leaves it as it is."""

    migrate: bool | None = None
    reschedule: bool | None = None
    force_reschedule: bool | None = None
    no_shutdown_delay: bool | None = None
    migrate_disable_placement: bool | None = None


class AllocDeploymentStatus(Wire, frozen=True):
    """Health of an allocation within its deployment; None while not known."""

    healthy: bool | None = None
    timestamp: str = ZERO_TIME
    canary: bool = False
    modify_index: int = 0


class RescheduleEvent(Wire, frozen=True):
    """One earlier move. reschedule_time is Unix nanoseconds, delay nanoseconds."""

    reschedule_time: int = 0
    prev_alloc_id: str = ""
    prev_node_id: str = ""
    delay: int = 0


class RescheduleTracker(Wire, frozen=True):
    """Earlier moves of an allocation, oldest first."""

    events: tuple[RescheduleEvent, ...] = ()
    last_reschedule: str = ""


class AllocState(Wire, frozen=True):
    """A change of a client status that scheduling has to remember."""

    field: int = 0
    value: str = ""
    time: str = ZERO_TIME


class AllocNetworkStatus(Wire, frozen=True):
    """The allocation's own address, where it has one."""

    interface_name: str = ""
    address: str = ""
    address_ipv6: str = field(default="", name="AddressIPv6")
    dns: DNSConfig | None = None


class Allocation(OmitEmpty, frozen=True, omit_defaults=True):
    """A task group placed on a node. The job is stored by id and version and filled in when the API answers."""

    id: str = ""
    namespace: str = ""
    eval_id: str = ""
    name: str = ""
    node_id: str = ""
    node_name: str = ""
    job_id: str = ""
    job: Job | None = None
    job_version: int = 0
    task_group: str = ""
    allocated_resources: AllocatedResources = AllocatedResources()
    metrics: AllocMetric | None = None
    desired_status: str = ""
    desired_description: str = ""
    desired_transition: DesiredTransition = DesiredTransition()
    client_status: str = ""
    client_description: str = ""
    task_states: dict[str, TaskState] = {}
    alloc_states: tuple[AllocState, ...] = ()
    previous_allocation: str = ""
    next_allocation: str = ""
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    reschedule_tracker: RescheduleTracker | None = None
    network_status: AllocNetworkStatus | None = None
    followup_eval_id: str = ""
    preempted_allocations: tuple[str, ...] = ()
    preempted_by_allocation: str = ""
    signing_key_id: str = ""
    create_index: int = 0
    modify_index: int = 0
    alloc_modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


class AllocListStub(Wire, frozen=True):
    """An allocation in a list."""

    id: str = ""
    eval_id: str = ""
    name: str = ""
    namespace: str = ""
    node_id: str = ""
    node_name: str = ""
    job_id: str = ""
    job_type: str = ""
    job_version: int = 0
    task_group: str = ""
    allocated_resources: AllocatedResources | None = None
    desired_status: str = ""
    desired_description: str = ""
    client_status: str = ""
    client_description: str = ""
    desired_transition: DesiredTransition = DesiredTransition()
    task_states: dict[str, TaskState] = {}
    deployment_status: AllocDeploymentStatus | None = None
    followup_eval_id: str = ""
    next_allocation: str = ""
    reschedule_tracker: RescheduleTracker | None = None
    preempted_allocations: tuple[str, ...] = ()
    preempted_by_allocation: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0
