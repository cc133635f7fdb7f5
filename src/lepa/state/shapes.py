"""Pure: the tables of the state: how their rows are named, and by what else they are found.

A new kind of row needs a line here, one in `keys`, and readers in `snapshot`.
"""

from collections.abc import Mapping
from typing import Any, Final

from lepa.model.acl import AclPolicy, digest
from lepa.model.job import Job
from lepa.state.job_tally import JobKey
from lepa.state.tables import Key, Shape


def _id(parts: tuple[str, ...]) -> str:
    return parts[0]


def _numbered(parts: tuple[str, ...]) -> Key:
    return (*parts[:-1], int(parts[-1]))


def _job_of(row: Any) -> JobKey:
    return row.namespace, row.job_id


def _policy_job(policy: AclPolicy) -> JobKey | None:
    """The job whose workloads a policy is attached to."""
    return (policy.job_acl.namespace or "default", policy.job_acl.job_id) if policy.job_acl is not None else None


def _parent_of(job: Job) -> JobKey | None:
    return (job.namespace, job.parent_id) if job.parent_id else None


def _limits_children(job: Job) -> bool:
    return any(role is not None and role.max_running > 0 for role in (job.periodic, job.parameterized_job))


SHAPES: Final[Mapping[str, Shape]] = {
    shape.name: shape
    for shape in (
        Shape(
            "jobs",
            tuple,
            {
                "parent": _parent_of,
                "periodic": lambda job: job.periodic is not None or None,
                "dependent": lambda job: bool(job.after) or None,
                "limiting": lambda job: _limits_children(job) or None,
            },
        ),
        Shape("job_versions", _numbered),
        Shape("job_submissions", _numbered),
        Shape("evals", _id, {"job": _job_of}, by_creation=True),
        Shape(
            "allocs",
            _id,
            {
                "job": _job_of,
                "node": lambda alloc: alloc.node_id or None,
                "eval": lambda alloc: alloc.eval_id or None,
                "deployment": lambda alloc: alloc.deployment_id or None,
            },
            by_creation=True,
        ),
        Shape("deployments", _id, {"job": _job_of}, by_creation=True),
        Shape(
            "nodes",
            _id,
            {
                "pool": lambda node: node.node_pool,
                "secret": lambda node: digest(node.secret_id) if node.secret_id else None,
            },
        ),
        Shape("node_pools", _id),
        Shape("namespaces", _id),
        Shape(
            "services",
            tuple,
            {
                "name": lambda service: (service.namespace, service.service_name),
                "alloc": lambda service: service.alloc_id or None,
                "node": lambda service: service.node_id or None,
                "job": _job_of,
            },
        ),
        Shape("scaling_events", _numbered),
        Shape("config", _id),
        Shape("autopilot", _id),
        Shape("kv", _id, {"session": lambda entry: entry.session or None}),
        Shape("kv_delays", _id),
        Shape("sessions", _id),
        Shape(
            "host_volumes",
            tuple,
            {"node": lambda volume: volume.node_id or None},
        ),
        Shape("volume_claims", _id, {"group": lambda claim: (claim.namespace, claim.job_id, claim.task_group_name)}),
        Shape("csi_volumes", tuple),
        Shape(
            "csi_claims",
            tuple,
            {
                "volume": lambda claim: (claim.namespace, claim.volume_id),
                "alloc": lambda claim: claim.alloc_id,
                "node": lambda claim: claim.node_id,
            },
        ),
        Shape("node_work", tuple, {"node": lambda work: None if work.done else work.node_id}),
        Shape("overlays", tuple, {"name": lambda lease: lease.overlay, "node": lambda lease: lease.node_id}),
        Shape("variables", tuple),
        Shape("variable_leases", tuple),
        Shape("keyring", _id),
        Shape("acl_policies", _id, {"job": _policy_job}),
        Shape("acl_tokens", _id, {"secret": lambda token: digest(token.secret_id)}, by_creation=True),
        Shape("acl_roles", _id, {"name": lambda role: role.name}),
        Shape("acl_auth_methods", _id),
        Shape("acl_binding_rules", _id, {"method": lambda rule: rule.auth_method}),
        Shape("acl_one_time", _id),
        Shape("acl_bootstrap", _id),
    )
}
"""Every table, with the groupings that a Watch can name."""
