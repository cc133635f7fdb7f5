"""Pure: every call: its name, its types, and who answers it.

One table serves the HTTP edge, the internal port, the SDK and the documents. A `Caller` carries a call to the one who
answers, in the same process or over the internal port.
"""

from collections.abc import AsyncIterator
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from lepa.model.allocation import Allocation, AllocListStub
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.explanation import JobExplanation
from lepa.model.job import Job
from lepa.model.job_views import (
    JobListStub,
    JobScaleStatus,
    JobStatusesJob,
    JobSubmission,
    JobSummary,
    ScalingPolicyListStub,
)
from lepa.model.kv import KvEntry, Session
from lepa.model.node import Node, NodeListStub
from lepa.model.operator import SchedulerConfiguration
from lepa.model.overlay import OverlayLease
from lepa.model.plan import PlanResult
from lepa.model.policies import ScalingPolicy
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.rpc import kv_requests as k
from lepa.rpc import requests as r
from lepa.rpc import server_requests as s
from lepa.rpc.overlay_requests import OverlayLeaseRequest

Q = TypeVar("Q", bound=r.Request)
A = TypeVar("A")

Kind = Literal["read", "write", "stream"]
# read: any server may answer when it is stale, else the leader. write: the leader. stream: the server that is asked.


class Method(NamedTuple, Generic[Q, A]):
    """One call: `Method("Job.Register", JobRegisterRequest, JobRegisterResponse, "write")`."""

    name: str
    request: type[Q]
    answer: Any
    kind: Kind


class Caller(Protocol):
    """Carries calls to whoever answers them."""

    async def call(self, method: Method[Q, A], request: Q) -> r.Reply[A]:
        """The answer. Raises LepaError as the answering side raised it; no_leader or timeout when nobody answers."""

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        """Answers as they come, until the caller stops."""


# Jobs
JOB_LIST: Method[r.JobListRequest, tuple[JobListStub, ...]] = Method(
    "Job.List", r.JobListRequest, tuple[JobListStub, ...], "read"
)
JOB_STATUSES: Method[r.JobStatusesRequest, tuple[JobStatusesJob, ...]] = Method(
    "Job.Statuses", r.JobStatusesRequest, tuple[JobStatusesJob, ...], "read"
)
JOB_GET: Method[r.JobReadRequest, Job | None] = Method("Job.Get", r.JobReadRequest, Job | None, "read")
JOB_VERSIONS: Method[r.JobReadRequest, r.JobVersions] = Method("Job.Versions", r.JobReadRequest, r.JobVersions, "read")
JOB_SUBMISSION: Method[r.JobReadRequest, JobSubmission | None] = Method(
    "Job.Submission", r.JobReadRequest, JobSubmission | None, "read"
)
JOB_SUMMARY: Method[r.JobReadRequest, JobSummary | None] = Method(
    "Job.Summary", r.JobReadRequest, JobSummary | None, "read"
)
JOB_ALLOCATIONS: Method[r.JobReadRequest, tuple[AllocListStub, ...]] = Method(
    "Job.Allocations", r.JobReadRequest, tuple[AllocListStub, ...], "read"
)
JOB_EVALUATIONS: Method[r.JobReadRequest, tuple[Evaluation, ...]] = Method(
    "Job.Evaluations", r.JobReadRequest, tuple[Evaluation, ...], "read"
)
JOB_DEPLOYMENTS: Method[r.JobReadRequest, tuple[Deployment, ...]] = Method(
    "Job.Deployments", r.JobReadRequest, tuple[Deployment, ...], "read"
)
JOB_LATEST_DEPLOYMENT: Method[r.JobReadRequest, Deployment | None] = Method(
    "Job.LatestDeployment", r.JobReadRequest, Deployment | None, "read"
)
JOB_SERVICES: Method[r.JobReadRequest, tuple[ServiceRegistration, ...]] = Method(
    "Job.Services", r.JobReadRequest, tuple[ServiceRegistration, ...], "read"
)
JOB_SCALE_STATUS: Method[r.JobReadRequest, JobScaleStatus | None] = Method(
    "Job.ScaleStatus", r.JobReadRequest, JobScaleStatus | None, "read"
)
JOB_PLAN: Method[r.JobPlanRequest, r.JobPlanResponse] = Method("Job.Plan", r.JobPlanRequest, r.JobPlanResponse, "write")
JOB_VALIDATE: Method[r.JobPlanRequest, r.JobValidateResponse] = Method(
    "Job.Validate", r.JobPlanRequest, r.JobValidateResponse, "write"
)
JOB_REGISTER: Method[r.JobRegisterRequest, r.JobRegisterResponse] = Method(
    "Job.Register", r.JobRegisterRequest, r.JobRegisterResponse, "write"
)
JOB_DEREGISTER: Method[r.JobDeregisterRequest, r.JobRegisterResponse] = Method(
    "Job.Deregister", r.JobDeregisterRequest, r.JobRegisterResponse, "write"
)
JOB_EVALUATE: Method[r.JobEvaluateRequest, r.JobRegisterResponse] = Method(
    "Job.Evaluate", r.JobEvaluateRequest, r.JobRegisterResponse, "write"
)
JOB_REVERT: Method[r.JobRevertRequest, r.JobRegisterResponse] = Method(
    "Job.Revert", r.JobRevertRequest, r.JobRegisterResponse, "write"
)
JOB_STABLE: Method[r.JobStabilityRequest, None] = Method("Job.Stable", r.JobStabilityRequest, None, "write")
JOB_SCALE: Method[r.JobScaleRequest, r.JobRegisterResponse] = Method(
    "Job.Scale", r.JobScaleRequest, r.JobRegisterResponse, "write"
)
JOB_DISPATCH: Method[r.JobDispatchRequest, r.JobDispatchResponse] = Method(
    "Job.Dispatch", r.JobDispatchRequest, r.JobDispatchResponse, "write"
)
JOB_EXPLAIN: Method[r.JobExplainRequest, JobExplanation | None] = Method(
    "Job.Explain", r.JobExplainRequest, JobExplanation | None, "read"
)
JOB_TAG: Method[r.JobTagRequest, r.JobTagResponse] = Method("Job.Tag", r.JobTagRequest, r.JobTagResponse, "write")
JOB_PERIODIC_FORCE: Method[r.JobEvaluateRequest, r.JobRegisterResponse] = Method(
    "Job.PeriodicForce", r.JobEvaluateRequest, r.JobRegisterResponse, "write"
)

# Allocations, evaluations, deployments
ALLOCATION_LIST: Method[r.AllocationListRequest, tuple[AllocListStub, ...]] = Method(
    "Allocation.List", r.AllocationListRequest, tuple[AllocListStub, ...], "read"
)
ALLOCATION_GET: Method[r.ReadRequest, Allocation | None] = Method(
    "Allocation.Get", r.ReadRequest, Allocation | None, "read"
)
ALLOCATION_SERVICES: Method[r.ReadRequest, tuple[ServiceRegistration, ...]] = Method(
    "Allocation.Services", r.ReadRequest, tuple[ServiceRegistration, ...], "read"
)
ALLOCATION_STOP: Method[r.AllocationStopRequest, r.AllocationStopResponse] = Method(
    "Allocation.Stop", r.AllocationStopRequest, r.AllocationStopResponse, "write"
)
EVALUATION_LIST: Method[r.EvaluationListRequest, tuple[Evaluation, ...]] = Method(
    "Evaluation.List", r.EvaluationListRequest, tuple[Evaluation, ...], "read"
)
EVALUATION_COUNT: Method[r.EvaluationListRequest, int] = Method(
    "Evaluation.Count", r.EvaluationListRequest, int, "read"
)
EVALUATION_GET: Method[r.EvaluationListRequest, Evaluation | None] = Method(
    "Evaluation.Get", r.EvaluationListRequest, Evaluation | None, "read"
)
EVALUATION_ALLOCATIONS: Method[r.ReadRequest, tuple[AllocListStub, ...]] = Method(
    "Evaluation.Allocations", r.ReadRequest, tuple[AllocListStub, ...], "read"
)
EVALUATION_DELETE: Method[r.EvaluationDeleteRequest, r.EvaluationDeleteResponse] = Method(
    "Evaluation.Delete", r.EvaluationDeleteRequest, r.EvaluationDeleteResponse, "write"
)
DEPLOYMENT_LIST: Method[r.ReadRequest, tuple[Deployment, ...]] = Method(
    "Deployment.List", r.ReadRequest, tuple[Deployment, ...], "read"
)
DEPLOYMENT_GET: Method[r.ReadRequest, Deployment | None] = Method(
    "Deployment.Get", r.ReadRequest, Deployment | None, "read"
)
DEPLOYMENT_ALLOCATIONS: Method[r.ReadRequest, tuple[AllocListStub, ...]] = Method(
    "Deployment.Allocations", r.ReadRequest, tuple[AllocListStub, ...], "read"
)
DEPLOYMENT_FAIL: Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.Fail", r.DeploymentUpdateRequest, r.DeploymentUpdateResponse, "write"
)
DEPLOYMENT_PAUSE: Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.Pause", r.DeploymentUpdateRequest, r.DeploymentUpdateResponse, "write"
)
DEPLOYMENT_PROMOTE: Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.Promote", r.DeploymentUpdateRequest, r.DeploymentUpdateResponse, "write"
)
DEPLOYMENT_UNBLOCK: Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.Unblock", r.DeploymentUpdateRequest, r.DeploymentUpdateResponse, "write"
)
DEPLOYMENT_STEP: Method[r.DeploymentStepRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.Step", r.DeploymentStepRequest, r.DeploymentUpdateResponse, "write"
)
DEPLOYMENT_SET_HEALTH: Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse] = Method(
    "Deployment.SetAllocHealth", r.DeploymentUpdateRequest, r.DeploymentUpdateResponse, "write"
)

# Nodes
NODE_LIST: Method[r.NodeListRequest, tuple[NodeListStub, ...]] = Method(
    "Node.List", r.NodeListRequest, tuple[NodeListStub, ...], "read"
)
NODE_GET: Method[r.ReadRequest, Node | None] = Method("Node.Get", r.ReadRequest, Node | None, "read")
NODE_ALLOCATIONS: Method[r.ReadRequest, tuple[Allocation, ...]] = Method(
    "Node.Allocations", r.ReadRequest, tuple[Allocation, ...], "read"
)
NODE_EVALUATE: Method[r.NodeWriteRequest, r.NodeUpdateResponse] = Method(
    "Node.Evaluate", r.NodeWriteRequest, r.NodeUpdateResponse, "write"
)
NODE_PURGE: Method[r.NodeWriteRequest, r.NodeUpdateResponse] = Method(
    "Node.Purge", r.NodeWriteRequest, r.NodeUpdateResponse, "write"
)
NODE_DRAIN: Method[r.NodeDrainRequest, r.NodeUpdateResponse] = Method(
    "Node.Drain", r.NodeDrainRequest, r.NodeUpdateResponse, "write"
)
NODE_ELIGIBILITY: Method[r.NodeEligibilityRequest, r.NodeUpdateResponse] = Method(
    "Node.Eligibility", r.NodeEligibilityRequest, r.NodeUpdateResponse, "write"
)
NODE_REGISTER: Method[r.NodeRegisterRequest, r.NodeUpdateResponse] = Method(
    "Node.Register", r.NodeRegisterRequest, r.NodeUpdateResponse, "write"
)
NODE_HEARTBEAT: Method[r.NodeHeartbeatRequest, r.NodeUpdateResponse] = Method(
    "Node.Heartbeat", r.NodeHeartbeatRequest, r.NodeUpdateResponse, "write"
)
NODE_FOLLOW: Method[r.NodeAllocationsRequest, r.NodeAllocations] = Method(
    "Node.Follow", r.NodeAllocationsRequest, r.NodeAllocations, "read"
)
NODE_UPDATE_ALLOCATIONS: Method[r.NodeAllocationUpdatesRequest, None] = Method(
    "Node.UpdateAllocations", r.NodeAllocationUpdatesRequest, None, "write"
)
NODE_EVENTS: Method[r.NodeEventsRequest, None] = Method("Node.Events", r.NodeEventsRequest, None, "write")

# Overlay networks
OVERLAY_LEASE: Method[OverlayLeaseRequest, OverlayLease] = Method(
    "Overlay.Lease", OverlayLeaseRequest, OverlayLease, "write"
)
OVERLAY_LEASES: Method[r.ReadRequest, tuple[OverlayLease, ...]] = Method(
    "Overlay.Leases", r.ReadRequest, tuple[OverlayLease, ...], "read"
)

# Services
SERVICE_LIST: Method[r.ReadRequest, tuple[r.NamespaceServices, ...]] = Method(
    "Service.List", r.ReadRequest, tuple[r.NamespaceServices, ...], "read"
)
SERVICE_GET: Method[r.ServiceReadRequest, tuple[ServiceRegistration, ...]] = Method(
    "Service.Get", r.ServiceReadRequest, tuple[ServiceRegistration, ...], "read"
)
SERVICE_UPSERT: Method[r.ServiceUpsertRequest, None] = Method("Service.Upsert", r.ServiceUpsertRequest, None, "write")
SERVICE_REGISTER: Method[r.ServiceRegisterRequest, None] = Method(
    "Service.Register", r.ServiceRegisterRequest, None, "write"
)
SERVICE_DELETE: Method[r.ServiceDeleteRequest, None] = Method("Service.Delete", r.ServiceDeleteRequest, None, "write")

# Keys and sessions
KV_GET: Method[r.ReadRequest, KvEntry | None] = Method("Kv.Get", r.ReadRequest, KvEntry | None, "read")
KV_LIST: Method[r.ReadRequest, tuple[KvEntry, ...]] = Method("Kv.List", r.ReadRequest, tuple[KvEntry, ...], "read")
KV_APPLY: Method[k.KvApplyRequest, k.KvApplied] = Method("Kv.Apply", k.KvApplyRequest, k.KvApplied, "write")
SESSION_LIST: Method[r.ReadRequest, tuple[Session, ...]] = Method(
    "Session.List", r.ReadRequest, tuple[Session, ...], "read"
)
SESSION_GET: Method[r.ReadRequest, Session | None] = Method("Session.Get", r.ReadRequest, Session | None, "read")
SESSION_CREATE: Method[k.SessionCreateRequest, str] = Method("Session.Create", k.SessionCreateRequest, str, "write")
SESSION_RENEW: Method[k.SessionRequest, Session] = Method("Session.Renew", k.SessionRequest, Session, "write")
SESSION_DESTROY: Method[k.SessionRequest, None] = Method("Session.Destroy", k.SessionRequest, None, "write")

# Namespaces, node pools, scaling
NAMESPACE_LIST: Method[r.ReadRequest, tuple[Namespace, ...]] = Method(
    "Namespace.List", r.ReadRequest, tuple[Namespace, ...], "read"
)
NAMESPACE_GET: Method[r.ReadRequest, Namespace | None] = Method(
    "Namespace.Get", r.ReadRequest, Namespace | None, "read"
)
NAMESPACE_UPSERT: Method[r.NamespaceWriteRequest, None] = Method(
    "Namespace.Upsert", r.NamespaceWriteRequest, None, "write"
)
NAMESPACE_DELETE: Method[r.NamespaceWriteRequest, None] = Method(
    "Namespace.Delete", r.NamespaceWriteRequest, None, "write"
)
NODE_POOL_LIST: Method[r.ReadRequest, tuple[NodePool, ...]] = Method(
    "NodePool.List", r.ReadRequest, tuple[NodePool, ...], "read"
)
NODE_POOL_GET: Method[r.ReadRequest, NodePool | None] = Method("NodePool.Get", r.ReadRequest, NodePool | None, "read")
NODE_POOL_UPSERT: Method[r.NodePoolWriteRequest, None] = Method(
    "NodePool.Upsert", r.NodePoolWriteRequest, None, "write"
)
NODE_POOL_DELETE: Method[r.NodePoolWriteRequest, None] = Method(
    "NodePool.Delete", r.NodePoolWriteRequest, None, "write"
)
SCALING_POLICY_LIST: Method[r.ScalingPolicyListRequest, tuple[ScalingPolicyListStub, ...]] = Method(
    "ScalingPolicy.List", r.ScalingPolicyListRequest, tuple[ScalingPolicyListStub, ...], "read"
)
SCALING_POLICY_GET: Method[r.ReadRequest, ScalingPolicy | None] = Method(
    "ScalingPolicy.Get", r.ReadRequest, ScalingPolicy | None, "read"
)

# Cluster
SEARCH_PREFIX: Method[r.SearchRequest, r.SearchResponse] = Method(
    "Search.Prefix", r.SearchRequest, r.SearchResponse, "read"
)
SEARCH_FUZZY: Method[r.SearchRequest, r.SearchResponse] = Method(
    "Search.Fuzzy", r.SearchRequest, r.SearchResponse, "read"
)
SCHEDULER_CONFIGURATION_GET: Method[r.ReadRequest, SchedulerConfiguration] = Method(
    "Operator.SchedulerConfiguration", r.ReadRequest, SchedulerConfiguration, "read"
)
SCHEDULER_CONFIGURATION_SET: Method[r.SchedulerConfigurationRequest, r.SchedulerConfigurationWritten] = Method(
    "Operator.SetSchedulerConfiguration", r.SchedulerConfigurationRequest, r.SchedulerConfigurationWritten, "write"
)
SYSTEM_GC: Method[r.Request, None] = Method("System.GC", r.Request, None, "write")
SYSTEM_RECONCILE_SUMMARIES: Method[r.Request, None] = Method("System.ReconcileSummaries", r.Request, None, "write")
STATUS_LEADER: Method[r.ReadRequest, str] = Method("Status.Leader", r.ReadRequest, str, "read")
STATUS_PEERS: Method[r.ReadRequest, tuple[str, ...]] = Method("Status.Peers", r.ReadRequest, tuple[str, ...], "read")
STATUS_MEMBERS: Method[r.ReadRequest, r.Members] = Method("Status.Members", r.ReadRequest, r.Members, "read")
STATUS_SERVERS: Method[r.ReadRequest, tuple[s.ServerRecord, ...]] = Method(
    "Status.Servers", r.ReadRequest, tuple[s.ServerRecord, ...], "read"
)
STATUS_REGIONS: Method[r.ReadRequest, tuple[str, ...]] = Method(
    "Status.Regions", r.ReadRequest, tuple[str, ...], "read"
)
EVENT_STREAM: Method[r.EventStreamRequest, r.EventBatch] = Method(
    "Event.Stream", r.EventStreamRequest, r.EventBatch, "stream"
)

# Between servers
SERVER_PULSE: Method[s.PulseRequest, s.Pulse] = Method("Server.Pulse", s.PulseRequest, s.Pulse, "write")
EVAL_DEQUEUE: Method[s.EvalDequeueRequest, tuple[s.EvalDelivery, ...]] = Method(
    "Eval.Dequeue", s.EvalDequeueRequest, tuple[s.EvalDelivery, ...], "write"
)
EVAL_DONE: Method[s.EvalDoneRequest, None] = Method("Eval.Done", s.EvalDoneRequest, None, "write")
EVAL_CLOSE: Method[s.EvalCloseRequest, None] = Method("Eval.Close", s.EvalCloseRequest, None, "write")
PLAN_SUBMIT: Method[s.PlanSubmitRequest, PlanResult] = Method("Plan.Submit", s.PlanSubmitRequest, PlanResult, "write")

METHODS: dict[str, Method[Any, Any]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Method)
}
"""Every method by its name."""
