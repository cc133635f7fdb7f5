"""Pure: changes of the state as events of Nomad's event stream.

The state knows what changed, not which call did it; an event's type is read off the difference. One revision makes one
batch, and what is not about a topic makes none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from lepa.model.acl import Variable, without_secrets
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.wire import to_builtins
from lepa.rpc.requests import Event
from lepa.server.acl.access import ALL, Access
from lepa.state.reducer import RowChange


class Topic(NamedTuple):
    """How the changes of one table become events.

    kind: from before and after, "" where what else the revision tells says it. key: of an object. filter_keys: what
    else finds it. payload: the name of the object.
    """

    name: str
    kind: Callable[[Any, Any], str]
    key: Callable[[Any], str]
    filter_keys: Callable[[Any], tuple[str, ...]] = lambda row: ()
    shown: Callable[[Any], Any] = lambda row: row
    payload: str = ""
    seen: Callable[[Any, Any], bool] = lambda access, row: access.namespace(row.namespace, "read-job")


def events_of(changes: Sequence[RowChange], wanted: "Wanted") -> tuple[Event, ...]:
    """Events of one revision that are wanted."""
    found = []
    for change in changes:
        topic = TOPICS.get(change.table)
        row = change.after if change.after is not None else change.before
        if topic is None or row is None or not wanted.takes(topic, row):
            continue
        kind = topic.kind(change.before, change.after) or _cause(changes)
        found.append(_event(topic, kind, change, row))
    return tuple(found)


def _cause(changes: Iterable[RowChange]) -> str:
    """The type of what else a revision tells that gave a job another status: of its allocations, else of its
    evaluations."""
    kinds = (_allocation_kind(change.before, change.after) for change in changes if change.table == "allocs")
    return next(kinds, "EvaluationUpdated")


class Wanted(NamedTuple):
    """What a subscriber asked for: topics with keys ("*" for all), and a namespace ("*" for all)."""

    topics: Mapping[str, Sequence[str]]
    namespace: str
    access: Access = ALL

    def takes(self, topic: Topic, row: Any) -> bool:
        """Whether this object is asked for, and may be seen."""
        if not self.access.management and not topic.seen(self.access, row):
            return False
        namespace = getattr(row, "namespace", "")
        if namespace and self.namespace not in ("*", namespace):
            return False
        keys = {*self.topics.get(topic.name, ()), *self.topics.get("*", ())}
        return "*" in keys or topic.key(row) in keys or not keys.isdisjoint(topic.filter_keys(row))


def may_follow(topics: Mapping[str, Sequence[str]], namespace: str, access: Access) -> bool:
    """Whether the caller may see anything of each topic. Of everything at once they get what they may see."""
    if access.management:
        return True
    jobs = access.somewhere("read-job") if namespace == "*" else access.namespace(namespace, "read-job")
    for name in topics:
        allowed = {
            "*": jobs or access.scope("node", "read") or access.any_variable(namespace),
            "Node": access.scope("node", "read"),
            "Variable": access.any_variable(namespace),
        }.get(name, jobs and name in ("Job", "Evaluation", "Allocation", "Deployment", "Service"))
        if not allowed:
            return False
    return True


def _event(topic: Topic, kind: str, change: RowChange, row: Any) -> Event:
    payload: dict[str, Any] = {topic.payload or topic.name: to_builtins(topic.shown(row))}
    if change.after is None and topic.name in ("Job", "Variable"):
        payload["Deleted"] = True
    return Event(
        topic=topic.name,
        type=kind,
        key=topic.key(row),
        namespace=getattr(row, "namespace", ""),
        filter_keys=tuple(key for key in topic.filter_keys(row) if key),
        index=change.revision,
        payload=payload,
    )


def _job_kind(before: Job | None, after: Job | None) -> str:
    if before is not None and after is not None and before.status != after.status and _same_job(before, after):
        return ""
    stopped = after is None or (after.stop and not (before is not None and before.stop))
    return "JobDeregistered" if stopped else "JobRegistered"


def _same_job(before: Job, after: Job) -> bool:
    return (before.job_modify_index, before.stop) == (after.job_modify_index, after.stop)


def _allocation_kind(before: Allocation | None, after: Allocation | None) -> str:
    if before is None or after is None or after.alloc_modify_index != before.alloc_modify_index:
        return "PlanResult"
    if before.desired_transition != after.desired_transition:
        return "AllocationUpdateDesiredStatus"
    return "AllocationUpdated"


def _deployment_kind(before: Deployment | None, after: Deployment | None) -> str:
    if before is None or after is None:
        return "PlanResult"
    if before.status != after.status:
        return "DeploymentStatusUpdate"
    if _promoted(before) != _promoted(after):
        return "DeploymentPromotion"
    return "DeploymentAllocHealth"


def _promoted(deployment: Deployment) -> set[str]:
    return {name for name, state in deployment.task_groups.items() if state.promoted}


def _node_kind(before: Node | None, after: Node | None) -> str:
    if before is None:
        return "NodeRegistration"
    if after is None:
        return "NodeDeregistration"
    if before.drain_strategy != after.drain_strategy:
        return "NodeDrain"
    if before.scheduling_eligibility != after.scheduling_eligibility:
        return "NodeEligibility"
    if before.status != after.status or before.events != after.events:
        return "NodeStreamEvent"
    return "NodeRegistration"


def _either(put: str, deleted: str) -> Callable[[Any, Any], str]:
    return lambda before, after: deleted if after is None else put


def _id(row: Any) -> str:
    return str(row.id)


def _reads_nodes(access: Access, row: Any) -> bool:
    return access.scope("node", "read")


def _for_management(access: Access, row: Any) -> bool:
    return False


def _variable_metadata(row: Variable) -> dict[str, Any]:
    """A variable without its items, and without the id that proves who holds its lock."""
    lock = {"TTL": row.lock.ttl, "LockDelay": row.lock.lock_delay} if row.lock is not None else None
    found = {
        "Namespace": row.namespace,
        "Path": row.path,
        "CreateIndex": row.create_index,
        "CreateTime": row.create_time,
        "ModifyIndex": row.modify_index,
        "ModifyTime": row.modify_time,
    }
    return found | ({"Lock": lock} if lock is not None else {})


TOPICS: Final[Mapping[str, Topic]] = {
    "jobs": Topic("Job", _job_kind, _id),
    "evals": Topic(
        "Evaluation", lambda before, after: "EvaluationUpdated", _id, lambda row: (row.job_id, row.deployment_id)
    ),
    "allocs": Topic(
        "Allocation",
        _allocation_kind,
        _id,
        lambda row: (row.job_id, row.deployment_id),
        shown=lambda row: replace(row, job=None),
    ),
    "deployments": Topic("Deployment", _deployment_kind, _id, lambda row: (row.job_id,)),
    "services": Topic(
        "Service",
        _either("ServiceRegistration", "ServiceDeregistration"),
        _id,
        lambda row: (row.job_id, row.service_name),
    ),
    "nodes": Topic("Node", _node_kind, _id, shown=lambda row: replace(row, secret_id=""), seen=_reads_nodes),
    "node_pools": Topic(
        "NodePool", _either("NodePoolUpserted", "NodePoolDeleted"), lambda row: str(row.name), seen=_for_management
    ),
    "variables": Topic(
        "Variable",
        _either("VariableUpdated", "VariableDeleted"),
        lambda row: str(row.path),
        shown=_variable_metadata,
        payload="Metadata",
        seen=lambda access, row: access.variable(row.namespace, row.path, "list"),
    ),
    "acl_policies": Topic(
        "ACLPolicy",
        _either("ACLPolicyUpserted", "ACLPolicyDeleted"),
        lambda row: str(row.name),
        seen=_for_management,
    ),
    "acl_tokens": Topic(
        "ACLToken",
        _either("ACLTokenUpserted", "ACLTokenDeleted"),
        lambda row: str(row.accessor_id),
        shown=lambda row: replace(row, secret_id=""),
        seen=_for_management,
    ),
    "acl_roles": Topic(
        "ACLRole",
        _either("ACLRoleUpserted", "ACLRoleDeleted"),
        _id,
        lambda row: (row.name,),
        seen=_for_management,
    ),
    "acl_auth_methods": Topic(
        "ACLAuthMethod",
        _either("ACLAuthMethodUpserted", "ACLAuthMethodDeleted"),
        lambda row: str(row.name),
        shown=without_secrets,
        seen=_for_management,
    ),
    "acl_binding_rules": Topic(
        "ACLBindingRule",
        _either("ACLBindingRuleUpserted", "ACLBindingRuleDeleted"),
        _id,
        lambda row: (row.auth_method,),
        seen=_for_management,
    ),
}
"""By table."""
