"""Pure: every call: its name, its types, and who answers it.

One table serves the HTTP edge, the internal port, the SDK and the documents. A `Caller` carries a call to the one who
answers, in the same process or over the internal port.
"""

from collections.abc import AsyncIterator
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from lepa.model.acl import (
    AclPolicy,
    AclPolicyListStub,
    AclRole,
    AclToken,
    AclTokenListStub,
    AuthMethod,
    AuthMethodStub,
    BindingRule,
    BindingRuleStub,
    RootKeyMeta,
)
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
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.overlay import OverlayLease
from lepa.model.plan import PlanResult
from lepa.model.policies import ScalingPolicy
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.model.volume import (
    CSIPlugin,
    CSIPluginListStub,
    CSIVolListStub,
    CSIVolume,
    HostVolume,
    HostVolumeStub,
    TaskGroupHostVolumeClaim,
)
from lepa.rpc import acl_requests as a
from lepa.rpc import kv_requests as k
from lepa.rpc import requests as r
from lepa.rpc import server_requests as s
from lepa.rpc import volume_requests as v
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

# Volumes, and what servers ask nodes to do
HOST_VOLUME_LIST: Method[v.VolumeListRequest, tuple[HostVolumeStub, ...]] = Method(
    "HostVolume.List", v.VolumeListRequest, tuple[HostVolumeStub, ...], "read"
)
HOST_VOLUME_GET: Method[r.ReadRequest, HostVolume | None] = Method(
    "HostVolume.Get", r.ReadRequest, HostVolume | None, "read"
)
HOST_VOLUME_CREATE: Method[v.HostVolumeWriteRequest, v.HostVolumeWritten] = Method(
    "HostVolume.Create", v.HostVolumeWriteRequest, v.HostVolumeWritten, "write"
)
HOST_VOLUME_REGISTER: Method[v.HostVolumeWriteRequest, v.HostVolumeWritten] = Method(
    "HostVolume.Register", v.HostVolumeWriteRequest, v.HostVolumeWritten, "write"
)
HOST_VOLUME_DELETE: Method[v.VolumeRequest, None] = Method("HostVolume.Delete", v.VolumeRequest, None, "write")
VOLUME_CLAIM_LIST: Method[v.ClaimListRequest, tuple[TaskGroupHostVolumeClaim, ...]] = Method(
    "TaskGroupHostVolumeClaim.List", v.ClaimListRequest, tuple[TaskGroupHostVolumeClaim, ...], "read"
)
VOLUME_CLAIM_DELETE: Method[v.VolumeRequest, None] = Method(
    "TaskGroupHostVolumeClaim.Delete", v.VolumeRequest, None, "write"
)
CSI_VOLUME_LIST: Method[v.VolumeListRequest, tuple[CSIVolListStub, ...]] = Method(
    "CSIVolume.List", v.VolumeListRequest, tuple[CSIVolListStub, ...], "read"
)
CSI_VOLUME_GET: Method[r.ReadRequest, CSIVolume | None] = Method(
    "CSIVolume.Get", r.ReadRequest, CSIVolume | None, "read"
)
CSI_VOLUME_REGISTER: Method[v.CSIVolumeWriteRequest, v.CSIVolumesWritten] = Method(
    "CSIVolume.Register", v.CSIVolumeWriteRequest, v.CSIVolumesWritten, "write"
)
CSI_VOLUME_CREATE: Method[v.CSIVolumeWriteRequest, v.CSIVolumesWritten] = Method(
    "CSIVolume.Create", v.CSIVolumeWriteRequest, v.CSIVolumesWritten, "write"
)
CSI_VOLUME_DEREGISTER: Method[v.VolumeRequest, None] = Method("CSIVolume.Deregister", v.VolumeRequest, None, "write")
CSI_VOLUME_DELETE: Method[v.VolumeRequest, None] = Method("CSIVolume.Delete", v.VolumeRequest, None, "write")
CSI_VOLUME_DETACH: Method[v.VolumeRequest, None] = Method("CSIVolume.Detach", v.VolumeRequest, None, "write")
CSI_VOLUME_CLAIM: Method[v.CSIClaimRequest, v.CSIClaimed] = Method(
    "CSIVolume.Claim", v.CSIClaimRequest, v.CSIClaimed, "write"
)
CSI_VOLUME_RELEASE: Method[v.CSIReleaseRequest, None] = Method("CSIVolume.Release", v.CSIReleaseRequest, None, "write")
CSI_VOLUME_EXTERNAL: Method[v.CSIExternalRequest, v.CSIExternalVolumes] = Method(
    "CSIVolume.ListExternal", v.CSIExternalRequest, v.CSIExternalVolumes, "write"
)
CSI_SNAPSHOT_CREATE: Method[v.CSISnapshotRequest, v.CSISnapshots] = Method(
    "CSIVolume.CreateSnapshot", v.CSISnapshotRequest, v.CSISnapshots, "write"
)
CSI_SNAPSHOT_DELETE: Method[v.CSISnapshotRequest, None] = Method(
    "CSIVolume.DeleteSnapshot", v.CSISnapshotRequest, None, "write"
)
CSI_SNAPSHOT_LIST: Method[v.CSIExternalRequest, v.CSISnapshots] = Method(
    "CSIVolume.ListSnapshots", v.CSIExternalRequest, v.CSISnapshots, "write"
)
CSI_PLUGIN_LIST: Method[r.ReadRequest, tuple[CSIPluginListStub, ...]] = Method(
    "CSIPlugin.List", r.ReadRequest, tuple[CSIPluginListStub, ...], "read"
)
CSI_PLUGIN_GET: Method[r.ReadRequest, CSIPlugin | None] = Method(
    "CSIPlugin.Get", r.ReadRequest, CSIPlugin | None, "read"
)
NODE_WORK: Method[v.NodeWorkRequest, v.NodeWorkList] = Method("Node.Work", v.NodeWorkRequest, v.NodeWorkList, "read")
NODE_WORK_DONE: Method[v.NodeWorkDone, None] = Method("Node.WorkDone", v.NodeWorkDone, None, "write")

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

# Variables, access control, identities
VARIABLE_LIST: Method[r.ReadRequest, tuple[a.VariableView, ...]] = Method(
    "Variable.List", r.ReadRequest, tuple[a.VariableView, ...], "read"
)
VARIABLE_GET: Method[r.ReadRequest, a.VariableView | None] = Method(
    "Variable.Get", r.ReadRequest, a.VariableView | None, "read"
)
VARIABLE_APPLY: Method[a.VariableApplyRequest, a.VariableApplied] = Method(
    "Variable.Apply", a.VariableApplyRequest, a.VariableApplied, "write"
)
KEYRING_LIST: Method[r.ReadRequest, tuple[RootKeyMeta, ...]] = Method(
    "Keyring.List", r.ReadRequest, tuple[RootKeyMeta, ...], "read"
)
KEYRING_ROTATE: Method[a.KeyringRotateRequest, a.KeyringRotated] = Method(
    "Keyring.Rotate", a.KeyringRotateRequest, a.KeyringRotated, "write"
)
KEYRING_DELETE: Method[a.KeyringDeleteRequest, None] = Method("Keyring.Delete", a.KeyringDeleteRequest, None, "write")
KEYRING_PUBLIC: Method[r.ReadRequest, a.PublicKeys] = Method("Keyring.Public", r.ReadRequest, a.PublicKeys, "read")
IDENTITY_SIGN: Method[a.SignIdentitiesRequest, tuple[a.SignedIdentity, ...]] = Method(
    "Identity.Sign", a.SignIdentitiesRequest, tuple[a.SignedIdentity, ...], "write"
)
ACL_AUTHORIZE: Method[a.AuthorizeRequest, a.Authorized] = Method(
    "ACL.Authorize", a.AuthorizeRequest, a.Authorized, "read"
)
ACL_BOOTSTRAP: Method[a.BootstrapRequest, AclToken] = Method("ACL.Bootstrap", a.BootstrapRequest, AclToken, "write")
ACL_POLICY_LIST: Method[r.ReadRequest, tuple[AclPolicyListStub, ...]] = Method(
    "ACL.ListPolicies", r.ReadRequest, tuple[AclPolicyListStub, ...], "read"
)
ACL_POLICY_SELF: Method[r.ReadRequest, tuple[AclPolicyListStub, ...]] = Method(
    "ACL.OwnPolicies", r.ReadRequest, tuple[AclPolicyListStub, ...], "read"
)
ACL_POLICY_GET: Method[r.ReadRequest, AclPolicy | None] = Method(
    "ACL.GetPolicy", r.ReadRequest, AclPolicy | None, "read"
)
ACL_POLICY_UPSERT: Method[a.PolicyWriteRequest, None] = Method("ACL.UpsertPolicy", a.PolicyWriteRequest, None, "write")
ACL_POLICY_DELETE: Method[a.PolicyWriteRequest, None] = Method("ACL.DeletePolicy", a.PolicyWriteRequest, None, "write")
ACL_TOKEN_LIST: Method[a.TokenListRequest, tuple[AclTokenListStub, ...]] = Method(
    "ACL.ListTokens", a.TokenListRequest, tuple[AclTokenListStub, ...], "read"
)
ACL_TOKEN_SELF: Method[r.ReadRequest, AclToken] = Method("ACL.OwnToken", r.ReadRequest, AclToken, "read")
ACL_TOKEN_GET: Method[r.ReadRequest, AclToken | None] = Method("ACL.GetToken", r.ReadRequest, AclToken | None, "read")
ACL_TOKEN_UPSERT: Method[a.TokenWriteRequest, AclToken] = Method(
    "ACL.UpsertToken", a.TokenWriteRequest, AclToken, "write"
)
ACL_TOKEN_DELETE: Method[a.TokenWriteRequest, None] = Method("ACL.DeleteToken", a.TokenWriteRequest, None, "write")
ACL_ONE_TIME_CREATE: Method[r.Request, a.OneTimeAnswer] = Method(
    "ACL.CreateOneTimeToken", r.Request, a.OneTimeAnswer, "write"
)
ACL_ONE_TIME_EXCHANGE: Method[a.OneTimeExchangeRequest, AclToken] = Method(
    "ACL.ExchangeOneTimeToken", a.OneTimeExchangeRequest, AclToken, "write"
)
ACL_ROLE_LIST: Method[r.ReadRequest, tuple[AclRole, ...]] = Method(
    "ACL.ListRoles", r.ReadRequest, tuple[AclRole, ...], "read"
)
ACL_ROLE_GET: Method[r.ReadRequest, AclRole | None] = Method("ACL.GetRole", r.ReadRequest, AclRole | None, "read")
ACL_ROLE_BY_NAME: Method[r.ReadRequest, AclRole | None] = Method(
    "ACL.GetRoleByName", r.ReadRequest, AclRole | None, "read"
)
ACL_ROLE_UPSERT: Method[a.RoleWriteRequest, AclRole] = Method("ACL.UpsertRole", a.RoleWriteRequest, AclRole, "write")
ACL_ROLE_DELETE: Method[a.RoleWriteRequest, None] = Method("ACL.DeleteRole", a.RoleWriteRequest, None, "write")
ACL_AUTH_METHOD_LIST: Method[r.ReadRequest, tuple[AuthMethodStub, ...]] = Method(
    "ACL.ListAuthMethods", r.ReadRequest, tuple[AuthMethodStub, ...], "read"
)
ACL_AUTH_METHOD_GET: Method[r.ReadRequest, AuthMethod | None] = Method(
    "ACL.GetAuthMethod", r.ReadRequest, AuthMethod | None, "read"
)
ACL_AUTH_METHOD_UPSERT: Method[a.AuthMethodWriteRequest, AuthMethod] = Method(
    "ACL.UpsertAuthMethod", a.AuthMethodWriteRequest, AuthMethod, "write"
)
ACL_AUTH_METHOD_DELETE: Method[a.AuthMethodWriteRequest, None] = Method(
    "ACL.DeleteAuthMethod", a.AuthMethodWriteRequest, None, "write"
)
ACL_BINDING_RULE_LIST: Method[r.ReadRequest, tuple[BindingRuleStub, ...]] = Method(
    "ACL.ListBindingRules", r.ReadRequest, tuple[BindingRuleStub, ...], "read"
)
ACL_BINDING_RULE_GET: Method[r.ReadRequest, BindingRule | None] = Method(
    "ACL.GetBindingRule", r.ReadRequest, BindingRule | None, "read"
)
ACL_BINDING_RULE_UPSERT: Method[a.BindingRuleWriteRequest, BindingRule] = Method(
    "ACL.UpsertBindingRule", a.BindingRuleWriteRequest, BindingRule, "write"
)
ACL_BINDING_RULE_DELETE: Method[a.BindingRuleWriteRequest, None] = Method(
    "ACL.DeleteBindingRule", a.BindingRuleWriteRequest, None, "write"
)
ACL_OIDC_AUTH_URL: Method[a.OidcAuthUrlRequest, str] = Method("ACL.OIDCAuthURL", a.OidcAuthUrlRequest, str, "write")
ACL_OIDC_COMPLETE: Method[a.OidcCompleteRequest, AclToken] = Method(
    "ACL.OIDCCompleteAuth", a.OidcCompleteRequest, AclToken, "write"
)
ACL_LOGIN: Method[a.LoginRequest, AclToken] = Method("ACL.Login", a.LoginRequest, AclToken, "write")

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
AUTOPILOT_GET: Method[r.ReadRequest, AutopilotConfiguration] = Method(
    "Operator.Autopilot", r.ReadRequest, AutopilotConfiguration, "read"
)
AUTOPILOT_SET: Method[r.AutopilotRequest, bool] = Method("Operator.SetAutopilot", r.AutopilotRequest, bool, "write")
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
