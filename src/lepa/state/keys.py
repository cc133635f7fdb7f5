"""Pure: where each object lives in the store: `TABLE/PART/PART…`, values are msgpack of the model's Structs.

    jobs/NS/ID                  job_versions/NS/ID/VERSION      job_submissions/NS/ID/VERSION
    evals/ID                    allocs/ID                       deployments/ID
    nodes/ID                    node_pools/NAME                 namespaces/NAME
    services/NS/NAME/ID         scaling_events/NS/JOB/GROUP/TIME
    kv/KEY  kv_delays/KEY       sessions/ID                     overlays/NAME/SUBNET
    variables/NS/PATH           variable_leases/NS/PATH         keyring/ID
    acl_policies/NAME           acl_tokens/ACCESSOR             acl_roles/ID
    acl_auth_methods/NAME       acl_binding_rules/ID            acl_one_time/ID                 acl_bootstrap/first
    host_volumes/NS/ID          csi_volumes/NS/ID               csi_claims/NS/VOLUME/ALLOC
    volume_claims/ID            node_work/NODE/ID
    config/scheduler            autopilot/configuration
    leader (who leads; not part of a snapshot)

A `/` or `%` inside a part is written `%2F`, `%25`, so that a part never spills into the next. Numbers are padded to
20 digits, so that the order of keys is the order of numbers.

**Indexes.** create_index and modify_index are not read from the stored value: the reader fills them from the store's
revisions. Where another field has to hold the revision of the very commit that writes it, which nobody knows before,
the writer stores THIS_REVISION and the reader puts the revision in its place. Later writers carry the number on, so
`alloc_modify_index` moves only when a server changes an allocation and not when a client reports on it. For
Job.job_modify_index and Allocation.alloc_modify_index 0 means the same as THIS_REVISION.
"""

from typing import Final

from msgspec.structs import replace

from lepa.model.acl import (
    AclBootstrap,
    AclPolicy,
    AclRole,
    AclToken,
    AuthMethod,
    BindingRule,
    OneTimeToken,
    RootKey,
    Variable,
    VariableLease,
)
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.job_views import JobSubmission, ScalingEvent
from lepa.model.kv import KvDelay, KvEntry, Session
from lepa.model.node import Node
from lepa.model.node_work import NodeWork
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.overlay import OverlayLease
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.model.volume import CSIClaim, CSIVolume, HostVolume, TaskGroupHostVolumeClaim
from lepa.model.wire import Wire, to_msgpack
from lepa.store.protocol import Put

THIS_REVISION: Final = -1

LEADER: Final = "leader"

KINDS: Final[dict[str, type[Wire]]] = {
    "jobs": Job,
    "job_versions": Job,
    "job_submissions": JobSubmission,
    "evals": Evaluation,
    "allocs": Allocation,
    "deployments": Deployment,
    "nodes": Node,
    "node_pools": NodePool,
    "namespaces": Namespace,
    "services": ServiceRegistration,
    "scaling_events": ScalingEvent,
    "config": SchedulerConfiguration,
    "autopilot": AutopilotConfiguration,
    "kv": KvEntry,
    "kv_delays": KvDelay,
    "sessions": Session,
    "overlays": OverlayLease,
    "variables": Variable,
    "variable_leases": VariableLease,
    "keyring": RootKey,
    "acl_policies": AclPolicy,
    "acl_tokens": AclToken,
    "acl_roles": AclRole,
    "acl_auth_methods": AuthMethod,
    "acl_binding_rules": BindingRule,
    "acl_one_time": OneTimeToken,
    "acl_bootstrap": AclBootstrap,
    "host_volumes": HostVolume,
    "volume_claims": TaskGroupHostVolumeClaim,
    "csi_volumes": CSIVolume,
    "csi_claims": CSIClaim,
    "node_work": NodeWork,
}
"""Every table of the state and what its values are. Keys of other tables are not part of a snapshot."""


def job_key(namespace: str, job_id: str) -> str:
    """The newest version of a job."""
    return join("jobs", namespace, job_id)


def job_version_key(namespace: str, job_id: str, version: int) -> str:
    """One version of a job; the newest is kept here too."""
    return join("job_versions", namespace, job_id, number(version))


def job_submission_key(namespace: str, job_id: str, version: int) -> str:
    """The text that one version of a job was submitted as."""
    return join("job_submissions", namespace, job_id, number(version))


def eval_key(eval_id: str) -> str:
    """One evaluation."""
    return join("evals", eval_id)


def alloc_key(alloc_id: str) -> str:
    """One allocation; it is stored without its job."""
    return join("allocs", alloc_id)


def deployment_key(deployment_id: str) -> str:
    """One deployment."""
    return join("deployments", deployment_id)


def node_key(node_id: str) -> str:
    """One node."""
    return join("nodes", node_id)


def node_pool_key(name: str) -> str:
    """One node pool."""
    return join("node_pools", name)


def namespace_key(name: str) -> str:
    """One namespace."""
    return join("namespaces", name)


def service_key(namespace: str, name: str, service_id: str) -> str:
    """One instance of a service."""
    return join("services", namespace, name, service_id)


def scaling_event_key(namespace: str, job_id: str, group: str, time_ns: int) -> str:
    """One change of a group's count. time_ns: Unix nanoseconds."""
    return join("scaling_events", namespace, job_id, group, number(time_ns))


def kv_key(key: str) -> str:
    """One key of users; its slashes do not part it."""
    return join("kv", key)


def kv_delay_key(key: str) -> str:
    """Until when a key may not be locked."""
    return join("kv_delays", key)


def session_key(session_id: str) -> str:
    """One session."""
    return join("sessions", session_id)


def overlay_key(name: str, subnet: str) -> str:
    """One node's share of an overlay network."""
    return join("overlays", name, subnet)


def variable_key(namespace: str, path: str) -> str:
    """One variable."""
    return join("variables", namespace, path)


def variable_lease_key(namespace: str, path: str) -> str:
    """When a variable's lock was renewed."""
    return join("variable_leases", namespace, path)


def root_key(key_id: str) -> str:
    """One key of the keyring."""
    return join("keyring", key_id)


def acl_key(kind: str, name: str) -> str:
    """An object of access control. kind: the table without `acl_`, such as "policies"."""
    return join(f"acl_{kind}", name)


def host_volume_key(namespace: str, volume_id: str) -> str:
    """One host volume."""
    return join("host_volumes", namespace, volume_id)


def volume_claim_key(claim_id: str) -> str:
    """The volume that an instance of a group keeps."""
    return join("volume_claims", claim_id)


def csi_volume_key(namespace: str, volume_id: str) -> str:
    """One CSI volume."""
    return join("csi_volumes", namespace, volume_id)


def csi_claim_key(namespace: str, volume_id: str, alloc_id: str) -> str:
    """An allocation's hold on a CSI volume."""
    return join("csi_claims", namespace, volume_id, alloc_id)


def node_work_key(node_id: str, work_id: str) -> str:
    """Something that a node is asked to do."""
    return join("node_work", node_id, work_id)


def scheduler_configuration_key() -> str:
    """The scheduler's settings."""
    return "config/scheduler"


def autopilot_key() -> str:
    """How servers look after each other."""
    return "autopilot/configuration"


def put(key: str, value: Wire, lease: int = 0) -> Put:
    """The operation that stores `value`; an allocation is stored without its job."""
    if isinstance(value, Allocation) and value.job is not None:
        value = replace(value, job=None)
    return Put(key, to_msgpack(value), lease)


def join(table: str, *parts: str) -> str:
    """The key of an object, its parts escaped."""
    return "/".join((table, *map(_escape, parts)))


def split(key: str) -> tuple[str, tuple[str, ...]]:
    """Table and parts of a key: the inverse of `join`."""
    table, *parts = key.split("/")
    return table, tuple(map(_unescape, parts) if "%" in key else parts)


def number(value: int) -> str:
    """A number as a part of a key; the order of texts is the order of numbers."""
    return f"{value:020d}"


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F") if "/" in part or "%" in part else part


def _unescape(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")
