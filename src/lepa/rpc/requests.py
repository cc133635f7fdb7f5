"""Pure: request and reply types of `lepa.rpc.methods`.

A read's request is a `ReadRequest`: it may block until the data's index is greater than `index`. Every answer travels
in a `Reply` that says how fresh it is. Where a body exists in the HTTP API, the type has the same keys.
"""

from typing import Any, Generic, TypeVar

from msgspec import field

from lepa.model.allocation import Allocation, AllocListStub
from lepa.model.evaluation import AllocMetric, Evaluation
from lepa.model.job import Job
from lepa.model.job_views import JobSubmission
from lepa.model.migration import MigrateSource
from lepa.model.node import DrainSpec, Node, NodeEvent
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.plan import DesiredUpdates
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.model.wire import Wire

T = TypeVar("T")

PER_PAGE_MAX = 1_000_000
WAIT_MAX_NS = 300_000_000_000


class Reply(Wire, Generic[T], frozen=True):
    """An answer, and how fresh it is.

    index: revision of the data (reads) or of the write. last_contact_ms: age of what the answering server knows of the
    leader. next_token: where the next page begins, "" on the last one.
    """

    value: T
    index: int = 0
    known_leader: bool = True
    last_contact_ms: int = 0
    next_token: str = ""


class Request(Wire, frozen=True):
    """What every request carries. region "" is the answering server's own; namespace "" is "default".

    visible: the namespaces that the caller may see, None for all. The answering server sets it, whatever came in.
    """

    region: str = ""
    namespace: str = ""
    auth_token: str = ""
    visible: frozenset[str] | None = None


class ReadRequest(Request, frozen=True):
    """A read. index > 0: wait up to wait_ns until the data is newer. id: what is asked for, where one thing is.

    prefix, filter, per_page, next_token, reverse: for lists. stale: any server may answer from what it has.
    """

    id: str = ""
    index: int = 0
    wait_ns: int = WAIT_MAX_NS
    stale: bool = False
    prefix: str = ""
    filter: str = ""
    per_page: int = 0
    next_token: str = ""
    reverse: bool = False


# Jobs


class JobListRequest(ReadRequest, frozen=True):
    """List jobs; meta adds their meta."""

    meta: bool = False


class JobReadRequest(ReadRequest, frozen=True):
    """Something of one job. all: also of earlier jobs that had its id. version: where one version is asked for."""

    all: bool = False
    version: int = 0
    diffs: bool = False
    diff_version: int | None = None
    diff_tag: str = ""


class JobStatusesRequest(ReadRequest, frozen=True):
    """Jobs with their allocations. jobs: only these, as (namespace, id) pairs; empty for all."""

    jobs: tuple[tuple[str, str], ...] = ()
    include_children: bool = False


class JobRegisterRequest(Request, frozen=True):
    """Register a job in canonical form. enforce_index: only when its job_modify_index is this (0: must not exist).

    regional: the job is the copy that one region of several gets.
    """

    job: Job | None = None
    regional: bool = False
    submission: JobSubmission | None = None
    enforce_index: bool = False
    job_modify_index: int = 0
    preserve_counts: bool = False
    preserve_resources: bool = False
    policy_override: bool = False
    eval_priority: int = 0


class JobRegisterResponse(Wire, frozen=True):
    """The evaluation that will place the job; eval_id "" for periodic and parameterized jobs."""

    eval_id: str = ""
    eval_create_index: int = 0
    job_modify_index: int = 0
    warnings: str = ""
    index: int = 0
    last_contact: int = 0
    known_leader: bool = False
    next_token: str = ""


class JobPlanRequest(Request, frozen=True):
    """What would registering this job do?"""

    job: Job | None = None
    diff: bool = False
    policy_override: bool = False


class PlanAnnotations(Wire, frozen=True):
    """Counts by group, and what would be evicted."""

    desired_tg_updates: dict[str, DesiredUpdates] = field(default_factory=dict, name="DesiredTGUpdates")
    preempted_allocs: tuple[AllocListStub, ...] = ()


class JobPlanResponse(Wire, frozen=True):
    """What a plan would change. diff is a `lepa.model.job_diff.JobDiff` in builtins. job_modify_index 0: a new job."""

    annotations: PlanAnnotations = PlanAnnotations()
    failed_tg_allocs: dict[str, AllocMetric] = field(default_factory=dict, name="FailedTGAllocs")
    job_modify_index: int = 0
    created_evals: tuple[Evaluation, ...] = ()
    diff: dict[str, Any] | None = None
    next_periodic_launch: str = "0001-01-01T00:00:00Z"
    warnings: str = ""
    index: int = 0


class JobValidateResponse(Wire, frozen=True):
    """Everything wrong with a job at once."""

    driver_config_validated: bool = True
    validation_errors: tuple[str, ...] = ()
    error: str = ""
    warnings: str = ""


class JobDeregisterRequest(Request, frozen=True):
    """Stop a job; purge forgets it at once. everywhere: in all regions of a job of several."""

    id: str = ""
    purge: bool = False
    everywhere: bool = False
    eval_priority: int = 0
    no_shutdown_delay: bool = False


class JobEvaluateRequest(Request, frozen=True):
    """Look at a job again. force_reschedule: failed allocations move now, whatever their policy says."""

    id: str = ""
    force_reschedule: bool = False


class JobRevertRequest(Request, frozen=True):
    """Register an earlier version again."""

    id: str = ""
    job_version: int = 0
    enforce_prior_version: int | None = None


class JobStabilityRequest(Request, frozen=True):
    """Mark a version as stable or not."""

    id: str = ""
    job_version: int = 0
    stable: bool = False


class JobScaleRequest(Request, frozen=True):
    """Set a group's count; count None only records an event."""

    id: str = ""
    group: str = ""
    count: int | None = None
    message: str = ""
    error: bool = False
    meta: dict[str, Any] = {}
    policy_override: bool = False
    enforce_index: bool = False
    job_modify_index: int = 0


class JobDispatchRequest(Request, frozen=True):
    """Make a child of a parameterized job."""

    id: str = ""
    payload: bytes = b""
    meta: dict[str, str] = {}
    id_prefix_template: str = ""
    idempotency_token: str = ""
    priority: int = 0


class JobDispatchResponse(Wire, frozen=True):
    """The child and its evaluation."""

    dispatched_job_id: str = ""
    eval_id: str = ""
    eval_create_index: int = 0
    job_create_index: int = 0
    index: int = 0


class JobTagRequest(Request, frozen=True):
    """Name a version of a job (version None: the newest), or with `remove` take the name away."""

    id: str = ""
    name: str = ""
    version: int | None = None
    description: str = ""
    remove: bool = False


class JobTagResponse(Wire, frozen=True):
    """The tag as it is kept, or as it was. tagged_time is Unix nanoseconds."""

    name: str = ""
    description: str = ""
    tagged_time: int = 0
    index: int = 0


class JobExplainRequest(ReadRequest, frozen=True):
    """Why a job's allocations are where they are. group: only this one. nodes_max: nodes shown of each group."""

    group: str = ""
    nodes_max: int = 200


class ScalingPolicyListRequest(ReadRequest, frozen=True):
    """List scaling policies, optionally of one job or type."""

    job: str = ""
    type: str = ""


class JobVersions(Wire, frozen=True):
    """Versions newest first, and the differences between neighbours when asked for."""

    versions: tuple[Job, ...] = ()
    diffs: tuple[dict[str, Any], ...] = ()


# Allocations, evaluations, deployments


class AllocationListRequest(ReadRequest, frozen=True):
    """List allocations."""

    resources: bool = False
    task_states: bool = True


class AllocationStopRequest(Request, frozen=True):
    """Stop an allocation and let its job replace it."""

    id: str = ""
    no_shutdown_delay: bool = False
    reschedule: bool = False


class AllocationStopResponse(Wire, frozen=True):
    """The evaluation that replaces the allocation."""

    eval_id: str = ""
    index: int = 0


class EvaluationListRequest(ReadRequest, frozen=True):
    """List evaluations, optionally of one status or job."""

    status: str = ""
    job: str = ""
    related: bool = False


class EvaluationDeleteRequest(Request, frozen=True):
    """Delete evaluations: these ids, or all that a filter names."""

    eval_ids: tuple[str, ...] = ()
    filter: str = ""


class EvaluationDeleteResponse(Wire, frozen=True):
    """How many were deleted."""

    count: int = 0
    index: int = 0


class DeploymentUpdateRequest(Request, frozen=True):
    """Change a deployment. Each method reads the fields that it names in the HTTP API."""

    id: str = ""
    pause: bool = False
    all: bool = False
    groups: tuple[str, ...] = ()
    healthy_allocation_ids: tuple[str, ...] = ()
    unhealthy_allocation_ids: tuple[str, ...] = ()


class DeploymentStepRequest(Request, frozen=True):
    """What other regions mean for a deployment. act: start, fail or succeed (`lepa.model.multiregion`)."""

    id: str = ""
    act: str = ""


class DeploymentUpdateResponse(Wire, frozen=True):
    """The evaluation that carries the change out."""

    eval_id: str = ""
    eval_create_index: int = 0
    deployment_modify_index: int = 0
    reverted_job_version: int | None = None
    index: int = 0


# Nodes


class NodeListRequest(ReadRequest, frozen=True):
    """List nodes."""

    resources: bool = False
    os: bool = False
    node_pool: str = ""


class NodeRegisterRequest(Request, frozen=True):
    """A node says what it is. The first secret_id given for an id is kept and has to match later."""

    node: Node | None = None


class NodeHeartbeatRequest(Request, frozen=True):
    """A node says that it lives, or that its status is now `status`."""

    node_id: str = ""
    secret_id: str = ""
    status: str = "ready"


class NodeUpdateResponse(Wire, frozen=True):
    """When the next heartbeat is due, and what the write caused. heartbeat_ttl is nanoseconds."""

    heartbeat_ttl: int = 0
    eval_ids: tuple[str, ...] = ()
    eval_create_index: int = 0
    node_modify_index: int = 0
    leader_rpc_addr: str = field(default="", name="LeaderRPCAddr")
    num_nodes: int = 0
    servers: tuple[str, ...] = ()
    scheduling_eligibility: str = "eligible"
    index: int = 0


class NodeAllocationsRequest(ReadRequest, frozen=True):
    """A node follows its allocations: answers with those whose alloc_modify_index is newer than what it has.

    known: how many allocations the node was told of last. Then what only the node itself has changed ends no wait.
    """

    node_id: str = ""
    secret_id: str = ""
    known: int = -1


class NodeAllocations(Wire, frozen=True):
    """All allocations of a node by id with their alloc_modify_index; those asked for in full, with their jobs.

    migrate: by id, where the data of the one before are, for those whose disk moves with them.
    """

    indexes: dict[str, int] = {}
    allocations: tuple[Allocation, ...] = ()
    migrate: dict[str, MigrateSource] = {}


class NodeAllocationUpdatesRequest(Request, frozen=True):
    """Client status, task states, deployment health and network status of allocations, as the node sees them.

    seen: the index up to which the node knows what servers want. It may be ahead of the server that takes the report,
    which then waits until it knows the allocations too.
    """

    node_id: str = ""
    secret_id: str = ""
    seen: int = 0
    allocations: tuple[Allocation, ...] = ()


class NodeEventsRequest(Request, frozen=True):
    """Things that happened to nodes, to keep with them."""

    node_id: str = ""
    secret_id: str = ""
    events: tuple[NodeEvent, ...] = ()


class NodeDrainRequest(Request, frozen=True):
    """Start, change or cancel (spec None) a drain."""

    id: str = ""
    drain_spec: DrainSpec | None = None
    mark_eligible: bool = False
    meta: dict[str, str] = {}


class NodeEligibilityRequest(Request, frozen=True):
    """May the node get new allocations?"""

    id: str = ""
    eligibility: str = ""


class NodeWriteRequest(Request, frozen=True):
    """Evaluate or purge a node."""

    id: str = ""


# Services, search, tenancy, operator


class ServiceUpsertRequest(Request, frozen=True):
    """A node registers instances of services. seen: as in NodeAllocationUpdatesRequest."""

    services: tuple[ServiceRegistration, ...] = ()
    seen: int = 0
    node_id: str = ""
    secret_id: str = ""


class ServiceRegisterRequest(Request, frozen=True):
    """Register an instance from outside the jobs, or change it."""

    service: ServiceRegistration = ServiceRegistration()


class ServiceDeleteRequest(Request, frozen=True):
    """Remove one instance by id; or, from a node, all of `ids`."""

    service_name: str = ""
    id: str = ""
    ids: tuple[str, ...] = ()
    node_id: str = ""
    secret_id: str = ""


class ServiceReadRequest(ReadRequest, frozen=True):
    """Instances of one service. choose: "N|key" picks N that stay the same for a key."""

    choose: str = ""


class ServiceListStub(Wire, frozen=True):
    """A service's name and all tags of its instances."""

    service_name: str = ""
    tags: tuple[str, ...] = ()


class NamespaceServices(Wire, frozen=True):
    """Services of one namespace."""

    namespace: str = ""
    services: tuple[ServiceListStub, ...] = ()


class SearchRequest(Request, frozen=True):
    """Ids that begin with a prefix, or (fuzzy) names that contain a text, in one context or all."""

    prefix: str = ""
    text: str = ""
    context: str = ""


class SearchResponse(Wire, frozen=True):
    """Matches by context; truncations tells where more exist."""

    matches: dict[str, Any] = {}
    truncations: dict[str, bool] = {}
    index: int = 0


class NamespaceWriteRequest(Request, frozen=True):
    """Create or change a namespace, or delete it by name."""

    value: Namespace | None = None
    name: str = ""


class NodePoolWriteRequest(Request, frozen=True):
    """Create or change a node pool, or delete it by name."""

    value: NodePool | None = None
    name: str = ""


class SchedulerConfigurationRequest(Request, frozen=True):
    """Set the scheduler's configuration; check_index: only when it was last modified at cas."""

    configuration: SchedulerConfiguration = SchedulerConfiguration()
    check_index: bool = False
    cas: int = 0


class SchedulerConfigurationWritten(Wire, frozen=True):
    """Whether the check held."""

    updated: bool = False
    index: int = 0


class AutopilotRequest(Request, frozen=True):
    """Set how servers look after each other; check_index: only when it was last modified at cas."""

    configuration: AutopilotConfiguration = AutopilotConfiguration()
    check_index: bool = False
    cas: int = 0


class EventStreamRequest(Request, frozen=True):
    """Follow changes. topics: topic -> keys, "*" for all. index: where to begin, 0 for what is buffered."""

    topics: dict[str, tuple[str, ...]] = {}
    index: int = 0


class Event(Wire, frozen=True):
    """One change of one object; payload in builtins."""

    topic: str = ""
    type: str = ""
    key: str = ""
    namespace: str = ""
    filter_keys: tuple[str, ...] = ()
    index: int = 0
    payload: dict[str, Any] = {}


class EventBatch(Wire, frozen=True):
    """All events of one index; a heartbeat when it has none."""

    index: int = 0
    events: tuple[Event, ...] = ()


class Member(Wire, frozen=True):
    """A server as gossip knows it."""

    name: str = ""
    addr: str = ""
    port: int = 0
    tags: dict[str, str] = {}
    status: str = "alive"
    protocol_min: int = 1
    protocol_max: int = 5
    protocol_cur: int = 2
    delegate_min: int = 2
    delegate_max: int = 5
    delegate_cur: int = 4


class Members(Wire, frozen=True):
    """All servers, as one of them sees them."""

    server_name: str = ""
    server_region: str = ""
    server_dc: str = field(default="", name="ServerDC")
    members: tuple[Member, ...] = ()
