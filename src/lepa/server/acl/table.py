"""Pure: what each call needs: the one table of rights.

Every method of `lepa.rpc.methods` has a row, and so has every door of an agent: what is answered without asking the
servers (files, logs, commands in tasks, figures, the agent itself). A call without a row is for management tokens only.
The table follows the column "ACL required" of Nomad's API documentation; rows of calls that Nomad does not have say
what they are compared with.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from lepa.rpc import methods as m
from lepa.rpc.acl_requests import AuthorizeRequest
from lepa.rpc.methods import Method
from lepa.server.acl.access import Access
from lepa.server.events import may_follow
from lepa.state.snapshot import Snapshot

Kind = Literal["anyone", "somebody", "own", "secret", "server", "management", "namespace", "list", "scope", "pool"]
# anyone: no token is needed. somebody: any token that is known. own: the answer holds only what the caller may see.
# secret: the call proves itself by a node's secret. server: only other servers of the region. namespace: a capability
# in the namespaces concerned. list: the same, and for all namespaces at once the answer holds those where it is
# granted. scope: agent, node, operator, plugin.

Concerned = Callable[[Snapshot, Any], Iterable[str]]
Also = Callable[[Access, Snapshot, Any], bool]


class Need(NamedTuple):
    """What a call needs.

    any_of: capabilities, one of which is enough; for a scope the scope comes first. concerned: the namespaces that the
    call is about, in each of which it is needed. also: what is needed besides. always: a list is filtered also when it
    is about one namespace, because it may hold others. workload: a task may do it in its own namespace.
    """

    kind: Kind
    any_of: tuple[str, ...] = ()
    concerned: Concerned = lambda snapshot, request: (request.namespace or "default",)
    also: Also | None = None
    always: bool = False
    workload: bool = False

    def allows(self, access: Access, snapshot: Snapshot, request: Any) -> bool:
        """Whether the caller may call."""
        return (access.management and self.kind != "server") or (
            _KINDS[self.kind](self, access, snapshot, request)
            and (self.also is None or self.also(access, snapshot, request))
        )

    def in_namespace(self, access: Access, namespace: str) -> bool:
        """Whether one of the capabilities is granted in a namespace."""
        own = access.workload
        return access.namespace(namespace, *self.any_of) or (
            self.workload and own is not None and own.namespace == namespace
        )

    def visible(self, access: Access, snapshot: Snapshot, request: Any) -> frozenset[str] | None:
        """The namespaces that an answer may hold; None for all."""
        if access.management or self.kind != "list" or not (self.always or request.namespace == "*"):
            return None
        return frozenset(one.name for one in snapshot.namespaces() if self.in_namespace(access, one.name))

    @property
    def said(self) -> str:
        """In words, for documents."""
        joined = " or ".join(f"`{one}`" for one in self.any_of)
        words = {
            "anyone": "nothing",
            "somebody": "any valid token",
            "own": "answers only what the token may see",
            "secret": "the node's secret",
            "server": "only servers of the region",
            "management": "a management token",
            "namespace": f"namespace {joined}",
            "list": f"namespace {joined}; `*` shows those where it is granted",
            "scope": f"`{self.any_of[0]}` {' or '.join(self.any_of[1:])}" if self.any_of else "",
            "pool": f"node pool {joined}",
        }
        return words[self.kind]


def _each_namespace(need: Need, access: Access, snapshot: Snapshot, request: Any) -> bool:
    return all(need.in_namespace(access, namespace) for namespace in need.concerned(snapshot, request))


def _listed(need: Need, access: Access, snapshot: Snapshot, request: Any) -> bool:
    return request.namespace == "*" or _each_namespace(need, access, snapshot, request)


def _scope(need: Need, access: Access, snapshot: Snapshot, request: Any) -> bool:
    scope, *any_of = need.any_of
    return any(access.scope(scope, capability) for capability in any_of)


def _pool(need: Need, access: Access, snapshot: Snapshot, request: Any) -> bool:
    value = getattr(request, "value", None)
    names = {name for name in (getattr(request, "name", ""), value.name if value is not None else "") if name}
    names |= {request.id} if getattr(request, "id", "") else set()
    return bool(names) and all(access.node_pool(name, one) for name in names for one in need.any_of)


def _somebody(need: Need, access: Access, snapshot: Snapshot, request: Any) -> bool:
    return bool(access.accessor_id or access.node_id or access.workload is not None)


_KINDS: Final[Mapping[Kind, Callable[[Need, Access, Snapshot, Any], bool]]] = {
    "anyone": lambda need, access, snapshot, request: True,
    "own": lambda need, access, snapshot, request: True,
    "secret": lambda need, access, snapshot, request: True,
    "somebody": _somebody,
    "server": lambda need, access, snapshot, request: access.server,
    "management": lambda need, access, snapshot, request: False,
    "namespace": _each_namespace,
    "list": _listed,
    "scope": _scope,
    "pool": _pool,
}

# Which namespaces a call is about


def _namespace_of(table: str) -> Concerned:
    """The namespace of the object with the request's id, whatever namespace the request says."""

    def concerned(snapshot: Snapshot, request: Any) -> Iterable[str]:
        row = snapshot.tables[table].get(request.id)
        return (row.namespace if row is not None else request.namespace or "default",)

    return concerned


def _of_job(snapshot: Snapshot, request: Any) -> Iterable[str]:
    """Where the job says it is, and where the request says it is."""
    job = request.job
    return {namespace for namespace in (job.namespace if job is not None else "", request.namespace) if namespace} or {
        "default"
    }


def _of_service(snapshot: Snapshot, request: Any) -> Iterable[str]:
    return {one for one in (request.service.namespace, request.namespace) if one} or {"default"}


def _of_allocation(snapshot: Snapshot, request: AuthorizeRequest) -> Iterable[str]:
    alloc = snapshot.allocation(request.alloc_id)
    return (alloc.namespace if alloc is not None else request.namespace or "default",)


def _of_policy(snapshot: Snapshot, request: Any) -> Iterable[str]:
    """The namespace of the job that a scaling policy belongs to."""
    for job in snapshot.jobs():
        if any(group.scaling is not None and group.scaling.id == request.id for group in job.task_groups):
            return (job.namespace,)
    return (request.namespace or "default",)


# What is needed besides


def _volumes(access: Access, snapshot: Snapshot, request: Any) -> bool:
    """A job that mounts volumes of the host needs their right too."""
    groups = request.job.task_groups if request.job is not None else ()
    wanted = [volume for group in groups for volume in group.volumes.values()]
    return all(
        access.host_volume(volume.source, "mount-readonly" if volume.read_only else "mount-readwrite")
        for volume in wanted
        if volume.type == "host"
    ) and all(access.namespace(request.job.namespace, "csi-mount-volume") for volume in wanted if volume.type == "csi")


def _other_namespaces(access: Access, snapshot: Snapshot, request: Any) -> bool:
    """A job that waits for one of another namespace tells, by waiting, whether that is there and how it does."""
    if request.job is None:
        return True
    others = {one.namespace for one in request.job.after} - {"", request.job.namespace}
    return all(access.namespace(namespace, "read-job") for namespace in others)


def _registers(access: Access, snapshot: Snapshot, request: Any) -> bool:
    return _volumes(access, snapshot, request) and _other_namespaces(access, snapshot, request)


def _deregisters(access: Access, snapshot: Snapshot, request: Any) -> bool:
    namespace = request.namespace or "default"
    return not request.purge or access.namespace(namespace, "submit-job", "purge-job")


def _runs_on_node(access: Access, snapshot: Snapshot, request: AuthorizeRequest) -> bool:
    """A command in a task that nothing isolates runs on the node itself."""
    alloc = snapshot.allocation(request.alloc_id)
    job = snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version) if alloc is not None else None
    if alloc is None or job is None:
        return True
    tasks = [task for group in job.task_groups if group.name == alloc.task_group for task in group.tasks]
    bare = any(task.driver == "raw_exec" for task in tasks if request.task in ("", task.name))
    return not bare or access.namespace(alloc.namespace, "alloc-node-exec")


def _follows(access: Access, snapshot: Snapshot, request: AuthorizeRequest) -> bool:
    return may_follow(request.topics or {"*": ("*",)}, request.namespace or "default", access)


def _works_on_jobs(access: Access, snapshot: Snapshot, request: Any) -> bool:
    """A job that is sent is worked on before its namespace is known: not for those who may send none anywhere."""
    return access.somewhere("read-job", "submit-job", "register-job", "plan-job")


def _reads_nodes(access: Access, snapshot: Snapshot, request: Any) -> bool:
    return access.scope("node", "read")


ANYONE: Final = Need("anyone")
SOMEBODY: Final = Need("somebody")
OWN: Final = Need("own")
SECRET: Final = Need("secret")
MANAGEMENT: Final = Need("management")
SERVER: Final = Need("server")


def _needs(*any_of: str, of: Concerned | None = None, also: Also | None = None) -> Need:
    return Need("namespace", any_of, also=also) if of is None else Need("namespace", any_of, of, also)


def _list(*any_of: str, always: bool = False, workload: bool = False) -> Need:
    return Need("list", any_of, always=always, workload=workload)


def _has(scope: str, *any_of: str) -> Need:
    return Need("scope", (scope, *any_of))


def _changes_deployment(capability: str) -> Need:
    return _needs("submit-job", capability, of=_namespace_of("deployments"))


_ROWS: Final[Mapping[Method[Any, Any], Need]] = {
    m.JOB_LIST: _list("list-jobs"),
    m.JOB_STATUSES: _list("read-job", always=True),
    m.JOB_GET: _needs("read-job"),
    m.JOB_VERSIONS: _needs("read-job"),
    m.JOB_SUBMISSION: _needs("read-job"),
    m.JOB_SUMMARY: _needs("read-job"),
    m.JOB_ALLOCATIONS: _needs("read-job"),
    m.JOB_EVALUATIONS: _needs("read-job"),
    m.JOB_DEPLOYMENTS: _needs("read-job"),
    m.JOB_LATEST_DEPLOYMENT: _needs("read-job"),
    m.JOB_SERVICES: _needs("read-job"),
    m.JOB_SCALE_STATUS: _needs("read-job-scaling", "read-job"),
    m.JOB_PLAN: _needs("submit-job", "plan-job", of=_of_job, also=_other_namespaces),
    m.JOB_VALIDATE: _needs("read-job", "submit-job", of=_of_job),
    m.JOB_REGISTER: _needs("submit-job", "register-job", of=_of_job, also=_registers),
    m.JOB_DEREGISTER: _needs("submit-job", "deregister-job", "purge-job", also=_deregisters),
    m.JOB_EVALUATE: _needs("submit-job", "evaluate-job"),
    m.JOB_REVERT: _needs("submit-job", "revert-job"),
    m.JOB_STABLE: _needs("submit-job", "stable-job"),
    m.JOB_SCALE: _needs("scale-job", "submit-job"),
    m.JOB_DISPATCH: _needs("dispatch-job"),
    m.JOB_PERIODIC_FORCE: _needs("dispatch-job", "submit-job", "force-periodic-job"),
    m.JOB_TAG: _needs("submit-job", "tag-job-version"),
    m.JOB_EXPLAIN: _needs("read-job", also=_reads_nodes),
    m.ALLOCATION_LIST: _list("read-job"),
    m.ALLOCATION_GET: _needs("read-job", of=_namespace_of("allocs")),
    m.ALLOCATION_SERVICES: _needs("read-job", of=_namespace_of("allocs")),
    m.ALLOCATION_STOP: _needs("alloc-lifecycle", of=_namespace_of("allocs")),
    m.EVALUATION_LIST: _list("read-job"),
    m.EVALUATION_COUNT: _list("read-job"),
    m.EVALUATION_GET: _needs("read-job", of=_namespace_of("evals")),
    m.EVALUATION_ALLOCATIONS: _needs("read-job", of=_namespace_of("evals")),
    m.EVALUATION_DELETE: MANAGEMENT,
    m.EVAL_DEQUEUE: SERVER,
    m.EVAL_DONE: SERVER,
    m.EVAL_CLOSE: SERVER,
    m.PLAN_SUBMIT: SERVER,
    m.SERVER_PULSE: SERVER,
    m.DEPLOYMENT_STEP: SERVER,
    m.DEPLOYMENT_LIST: _list("read-job"),
    m.DEPLOYMENT_GET: _needs("read-job", of=_namespace_of("deployments")),
    m.DEPLOYMENT_ALLOCATIONS: _needs("read-job", of=_namespace_of("deployments")),
    m.DEPLOYMENT_FAIL: _changes_deployment("fail-deployment"),
    m.DEPLOYMENT_PAUSE: _changes_deployment("pause-deployment"),
    m.DEPLOYMENT_PROMOTE: _changes_deployment("promote-deployment"),
    m.DEPLOYMENT_UNBLOCK: _changes_deployment("unblock-deployment"),
    m.DEPLOYMENT_SET_HEALTH: _changes_deployment("set-alloc-health-deployment"),
    m.NODE_LIST: _has("node", "read"),
    m.NODE_GET: _has("node", "read"),
    m.NODE_ALLOCATIONS: Need("list", ("read-job",), lambda snapshot, request: (), _reads_nodes, always=True),
    m.NODE_EVALUATE: _has("node", "write"),
    m.NODE_PURGE: _has("node", "write"),
    m.NODE_DRAIN: _has("node", "write"),
    m.NODE_ELIGIBILITY: _has("node", "write"),
    m.NODE_REGISTER: SECRET,
    m.NODE_HEARTBEAT: SECRET,
    m.NODE_FOLLOW: SECRET,
    m.NODE_UPDATE_ALLOCATIONS: SECRET,
    m.NODE_EVENTS: SECRET,
    m.IDENTITY_SIGN: SECRET,
    m.OVERLAY_LEASE: SECRET,
    m.OVERLAY_LEASES: _has("node", "read"),
    m.NODE_WORK: SECRET,
    m.NODE_WORK_DONE: SECRET,
    m.HOST_VOLUME_LIST: _list("host-volume-read"),
    m.HOST_VOLUME_GET: _needs("host-volume-read"),
    m.HOST_VOLUME_CREATE: _needs("host-volume-create", "host-volume-write"),
    m.HOST_VOLUME_REGISTER: _needs("host-volume-register", "host-volume-write"),
    m.HOST_VOLUME_DELETE: _needs("host-volume-delete", "host-volume-write"),
    m.VOLUME_CLAIM_LIST: _list("host-volume-read"),
    m.VOLUME_CLAIM_DELETE: _needs("host-volume-delete", "host-volume-write", of=_namespace_of("volume_claims")),
    m.CSI_VOLUME_LIST: _list("csi-list-volume"),
    m.CSI_VOLUME_GET: _needs("csi-read-volume"),
    m.CSI_VOLUME_REGISTER: _needs("csi-write-volume"),
    m.CSI_VOLUME_CREATE: _needs("csi-write-volume"),
    m.CSI_VOLUME_DEREGISTER: _needs("csi-write-volume"),
    m.CSI_VOLUME_DELETE: _needs("csi-write-volume"),
    m.CSI_VOLUME_DETACH: _needs("csi-write-volume"),
    m.CSI_VOLUME_CLAIM: SECRET,
    m.CSI_VOLUME_RELEASE: SECRET,
    m.CSI_VOLUME_EXTERNAL: _needs("csi-list-volume"),
    m.CSI_SNAPSHOT_LIST: _needs("csi-list-volume"),
    m.CSI_SNAPSHOT_CREATE: _needs("csi-write-volume"),
    m.CSI_SNAPSHOT_DELETE: _needs("csi-write-volume"),
    m.CSI_PLUGIN_LIST: _has("plugin", "list"),
    m.CSI_PLUGIN_GET: _has("plugin", "read"),
    m.SERVICE_LIST: _list("read-job", workload=True),
    m.SERVICE_GET: _list("read-job", workload=True),
    m.SERVICE_UPSERT: SECRET,
    m.SERVICE_REGISTER: _needs("submit-job", of=_of_service),
    m.SERVICE_DELETE: Need(
        "namespace",
        ("submit-job", "delete-service-registration"),
        lambda snapshot, request: () if request.node_id else (request.namespace or "default",),
    ),
    # Keys belong to no namespace; Nomad has none. They are compared with its operators' settings.
    m.KV_GET: _has("operator", "read"),
    m.KV_LIST: _has("operator", "read"),
    m.KV_APPLY: _has("operator", "write"),
    m.SESSION_LIST: _has("operator", "read"),
    m.SESSION_GET: _has("operator", "read"),
    m.SESSION_CREATE: _has("operator", "write"),
    m.SESSION_RENEW: _has("operator", "write"),
    m.SESSION_DESTROY: _has("operator", "write"),
    m.VARIABLE_LIST: OWN,
    m.VARIABLE_GET: OWN,
    m.VARIABLE_APPLY: OWN,
    m.KEYRING_LIST: _has("operator", "keyring-read"),
    m.KEYRING_ROTATE: _has("operator", "keyring-rotate"),
    m.KEYRING_DELETE: _has("operator", "keyring-delete"),
    m.KEYRING_PUBLIC: ANYONE,
    m.ACL_AUTHORIZE: OWN,
    m.ACL_BOOTSTRAP: ANYONE,
    m.ACL_POLICY_LIST: OWN,
    m.ACL_POLICY_SELF: SOMEBODY,
    m.ACL_POLICY_GET: OWN,
    m.ACL_POLICY_UPSERT: MANAGEMENT,
    m.ACL_POLICY_DELETE: MANAGEMENT,
    m.ACL_TOKEN_LIST: MANAGEMENT,
    m.ACL_TOKEN_SELF: OWN,
    m.ACL_TOKEN_GET: OWN,
    m.ACL_TOKEN_UPSERT: MANAGEMENT,
    m.ACL_TOKEN_DELETE: MANAGEMENT,
    m.ACL_ONE_TIME_CREATE: SOMEBODY,
    m.ACL_ONE_TIME_EXCHANGE: ANYONE,
    m.ACL_ROLE_LIST: OWN,
    m.ACL_ROLE_GET: OWN,
    m.ACL_ROLE_BY_NAME: OWN,
    m.ACL_ROLE_UPSERT: MANAGEMENT,
    m.ACL_ROLE_DELETE: MANAGEMENT,
    m.ACL_AUTH_METHOD_LIST: ANYONE,
    m.ACL_AUTH_METHOD_GET: MANAGEMENT,
    m.ACL_AUTH_METHOD_UPSERT: MANAGEMENT,
    m.ACL_AUTH_METHOD_DELETE: MANAGEMENT,
    m.ACL_BINDING_RULE_LIST: MANAGEMENT,
    m.ACL_BINDING_RULE_GET: MANAGEMENT,
    m.ACL_BINDING_RULE_UPSERT: MANAGEMENT,
    m.ACL_BINDING_RULE_DELETE: MANAGEMENT,
    m.ACL_OIDC_AUTH_URL: ANYONE,
    m.ACL_OIDC_COMPLETE: ANYONE,
    m.ACL_LOGIN: ANYONE,
    m.NAMESPACE_LIST: OWN,
    m.NAMESPACE_GET: OWN,
    m.NAMESPACE_UPSERT: MANAGEMENT,
    m.NAMESPACE_DELETE: MANAGEMENT,
    m.NODE_POOL_LIST: OWN,
    m.NODE_POOL_GET: Need("pool", ("read",)),
    m.NODE_POOL_UPSERT: Need("pool", ("write",)),
    m.NODE_POOL_DELETE: Need("pool", ("delete",)),
    m.SCALING_POLICY_LIST: _list("list-scaling-policies"),
    m.SCALING_POLICY_GET: _needs("read-scaling-policy", of=_of_policy),
    m.SEARCH_PREFIX: OWN,
    m.SEARCH_FUZZY: OWN,
    m.SCHEDULER_CONFIGURATION_GET: _has("operator", "read"),
    m.SCHEDULER_CONFIGURATION_SET: _has("operator", "write"),
    m.AUTOPILOT_GET: _has("operator", "read"),
    m.AUTOPILOT_SET: _has("operator", "write"),
    m.SYSTEM_GC: MANAGEMENT,
    m.SYSTEM_RECONCILE_SUMMARIES: MANAGEMENT,
    m.STATUS_LEADER: ANYONE,
    m.STATUS_PEERS: ANYONE,
    m.STATUS_MEMBERS: ANYONE,
    m.STATUS_REGIONS: ANYONE,
    m.STATUS_SERVERS: ANYONE,
    m.EVENT_STREAM: OWN,
}

DOORS: Final[Mapping[str, Need]] = {
    "Agent.Read": _has("agent", "read"),
    "Agent.Write": _has("agent", "write"),
    "Agent.Members": _has("node", "read"),
    "Agent.Debug": MANAGEMENT,
    "Operator.Read": _has("operator", "read"),
    "Operator.Write": _has("operator", "write"),
    "Operator.SnapshotSave": _has("operator", "snapshot-save"),
    "Operator.Management": MANAGEMENT,
    "Jobs.Parse": _needs("parse-job", "submit-job"),
    "Jobs.Body": Need("namespace", concerned=lambda snapshot, request: (), also=_works_on_jobs),
    "Node.Read": _has("node", "read"),
    "Node.Write": _has("node", "write"),
    "Allocation.Read": _needs("read-job", of=_of_allocation),
    "Allocation.Lifecycle": _needs("alloc-lifecycle", of=_of_allocation),
    "Allocation.Collect": _needs("submit-job", "gc-allocation", of=_of_allocation),
    "Allocation.Pause": _needs("alloc-lifecycle", "pause-allocation", of=_of_allocation),
    "Allocation.Exec": _needs("alloc-exec", of=_of_allocation, also=_runs_on_node),
    "Allocation.Files": _needs("read-fs", of=_of_allocation),
    "Allocation.Logs": _needs("read-fs", "read-logs", of=_of_allocation),
    "Events": Need("own", also=_follows),
    "Task.Api": SOMEBODY,
}
"""What is answered by agents without asking the servers, by the name that a route says. Task.Api: the socket of a task,
which wants a known token also while access control is off."""

NEEDS: Final[Mapping[str, Need]] = {**DOORS, **{method.name: need for method, need in _ROWS.items()}}
"""By the name of a method or door."""


def need_of(name: str) -> Need:
    """What a call needs; a call that the table does not know is for management."""
    return NEEDS.get(name, MANAGEMENT)
