"""Pure: one immutable view of the whole state at one index.

A Snapshot answers from memory and never changes, so whoever holds one may take their time. The reducer makes the next
from the one before and shares with it all that stayed the same.

Rows are complete Structs: indexes are filled in and a job's status is true for this snapshot. Allocations do not hold
their job; `job_version` finds it. Lists come oldest first, or by key where they say so.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from immutables import Map

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
    digest,
)
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.job_views import JobChildrenSummary, JobSubmission, JobSummary, ScalingEvent
from lepa.model.kv import KvDelay, KvEntry, Session
from lepa.model.node import Node
from lepa.model.node_work import NodeWork
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.overlay import OverlayLease
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.model.usage import NodeUsage
from lepa.model.volume import CSIClaim, CSIVolume, HostVolume, TaskGroupHostVolumeClaim
from lepa.state.job_tally import JobKey, JobTally, group_summaries
from lepa.state.shapes import SHAPES
from lepa.state.tables import Table, TableEdit, Watch

TOUCHES_MAX: Final = 1_024
"""Batches that `touched_nodes` remembers."""

JOB_SUMMARY: Final = "job_summary"
"""Not a table: a watch on it (or on `id` and (namespace, job id)) fires when counts or the status of a job change."""

_UNUSED: Final = NodeUsage()


class Touch(NamedTuple):
    """Nodes that one batch of changes, ending at index `at`, concerned."""

    at: int
    nodes: frozenset[str]


class Snapshot:
    """The state at `index`, the revision of the newest change in it."""

    __slots__ = (
        "_summaries",
        "children_counts",
        "forgotten",
        "index",
        "summary_index",
        "tables",
        "tallies",
        "touches",
        "usages",
    )

    def __init__(
        self,
        index: int,
        tables: Mapping[str, Table[Any]],
        tallies: "Map[JobKey, JobTally]",
        children_counts: "Map[JobKey, JobChildrenSummary]",
        summary_index: int = 0,
        touches: tuple[Touch, ...] = (),
        forgotten: int = 0,
        usages: "Map[str, NodeUsage] | None" = None,
    ) -> None:
        """summary_index: of JOB_SUMMARY as a whole. touches: oldest first; those up to `forgotten` are not kept.

        usages: by node id, without those that are not used.
        """
        self.index = index
        self.tables = tables
        self.tallies = tallies
        self.children_counts = children_counts
        self.summary_index = summary_index
        self.touches = touches
        self.forgotten = forgotten
        self.usages: Map[str, NodeUsage] = Map() if usages is None else usages
        self._summaries: dict[JobKey, JobSummary] = {}

    # Indexes

    def table_index(self, *tables: str) -> int:
        """When any of the tables last changed."""
        return max(self.index_of(Watch(table)) for table in tables)

    def index_of(self, watch: Watch) -> int:
        """When what is watched last changed: what X-Nomad-Index says, and what a blocking query waits to grow."""
        if watch.table != JOB_SUMMARY:
            return self.tables[watch.table].index_of(watch)
        tally = self.tallies.get(watch.key) if watch.grouping else None
        return tally.changed if tally else self.summary_index

    def touched_nodes(self, since: int) -> frozenset[str] | None:
        """Ids of nodes that changed, appeared or vanished, or whose allocations did, after index `since`.

        None when that is too long ago to tell.
        """
        if since < self.forgotten:
            return None
        recent = self.touches[bisect_right(self.touches, since, key=lambda touch: touch.at) :]
        return frozenset().union(*(touch.nodes for touch in recent))

    # Jobs

    def job(self, namespace: str, job_id: str) -> Job | None:
        """The newest version of a job, with its status."""
        return self.tables["jobs"].get((namespace, job_id))

    def jobs(self, start: JobKey | None = None, *, reverse: bool = False) -> Iterator[Job]:
        """All jobs by namespace and id, from `start` on."""
        return self.tables["jobs"].in_order(start, reverse=reverse)

    def jobs_in(self, namespace: str) -> Iterator[Job]:
        """Jobs of one namespace, by id."""
        return self.tables["jobs"].within(namespace)

    def children(self, namespace: str, job_id: str) -> tuple[Job, ...]:
        """Jobs launched by a periodic or parameterized job, oldest first."""
        return self.tables["jobs"].group("parent", (namespace, job_id))

    def periodic_jobs(self) -> tuple[Job, ...]:
        """Jobs that are launched by time, oldest first."""
        return self.tables["jobs"].group("periodic", True)

    def dependent_jobs(self) -> tuple[Job, ...]:
        """Jobs that begin after another one, oldest first."""
        return self.tables["jobs"].group("dependent", True)

    def limiting_jobs(self) -> tuple[Job, ...]:
        """Jobs of which only so many children may run at once, oldest first."""
        return self.tables["jobs"].group("limiting", True)

    def job_version(self, namespace: str, job_id: str, version: int) -> Job | None:
        """One version of a job, as far back as versions are kept. Its status is not filled in."""
        return self.tables["job_versions"].get((namespace, job_id, version))

    def job_versions(self, namespace: str, job_id: str) -> tuple[Job, ...]:
        """The versions kept, newest first."""
        return tuple(self.tables["job_versions"].within(namespace, job_id))[::-1]

    def job_submission(self, namespace: str, job_id: str, version: int) -> JobSubmission | None:
        """The text that a version was submitted as."""
        return self.tables["job_submissions"].get((namespace, job_id, version))

    def job_submissions(self, namespace: str, job_id: str) -> tuple[JobSubmission, ...]:
        """The submissions kept, oldest version first."""
        return tuple(self.tables["job_submissions"].within(namespace, job_id))

    def job_allocations(self, namespace: str, job_id: str) -> tuple[Allocation, ...]:
        """All allocations of a job, of every version and status, oldest first."""
        return self.tables["allocs"].group("job", (namespace, job_id))

    def job_evaluations(self, namespace: str, job_id: str) -> tuple[Evaluation, ...]:
        """All evaluations of a job, oldest first."""
        return self.tables["evals"].group("job", (namespace, job_id))

    def job_deployments(self, namespace: str, job_id: str) -> tuple[Deployment, ...]:
        """All deployments of a job, oldest first."""
        return self.tables["deployments"].group("job", (namespace, job_id))

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        """The newest deployment of a job, whatever its status."""
        deployments = self.job_deployments(namespace, job_id)
        return deployments[-1] if deployments else None

    def scaling_events(self, namespace: str, job_id: str, group: str) -> tuple[ScalingEvent, ...]:
        """Changes of a group's count that are kept, oldest first."""
        return tuple(self.tables["scaling_events"].within(namespace, job_id, group))

    def job_summary(self, namespace: str, job_id: str) -> JobSummary | None:
        """Counts of a job's allocations by group and of its children by status; None without such a job."""
        key = (namespace, job_id)
        job = self.job(*key)
        if job is None:
            return None
        if key not in self._summaries:
            self._summaries[key] = self._summarise(job)
        return self._summaries[key]

    def _summarise(self, job: Job) -> JobSummary:
        key = (job.namespace, job.id)
        tally = self.tallies.get(key, JobTally())
        return JobSummary(
            job_id=job.id,
            namespace=job.namespace,
            summary=group_summaries(job, tally, self._queued(job)),
            children=self.children_counts.get(key, JobChildrenSummary()),
            create_index=job.create_index,
            modify_index=max(tally.changed, job.create_index),
        )

    def _queued(self, job: Job) -> Mapping[str, int]:
        """What could not be placed, by the evaluation that saw the newest state; one that is cancelled saw none."""
        told = (e for e in self.job_evaluations(job.namespace, job.id) if e.queued_allocations)
        newest = max(told, key=lambda e: (e.snapshot_index, e.modify_index, e.id), default=None)
        return newest.queued_allocations if newest else {}

    # Allocations

    def allocation(self, alloc_id: str) -> Allocation | None:
        """One allocation."""
        return self.tables["allocs"].get(alloc_id)

    def allocations(self, start: tuple[int, str] | None = None, *, reverse: bool = False) -> Iterator[Allocation]:
        """All allocations by (create_index, id), from `start` on."""
        return self.tables["allocs"].by_creation(start, reverse=reverse)

    def allocations_by_prefix(self, prefix: str) -> Iterator[Allocation]:
        """Allocations whose id starts with `prefix`, by id."""
        return self.tables["allocs"].with_prefix(prefix)

    def node_allocations(self, node_id: str) -> tuple[Allocation, ...]:
        """All allocations on a node, of every status, oldest first."""
        return self.tables["allocs"].group("node", node_id)

    def node_usage(self, node_id: str) -> NodeUsage:
        """What the allocations on a node occupy together."""
        return self.usages.get(node_id, _UNUSED)

    def evaluation_allocations(self, eval_id: str) -> tuple[Allocation, ...]:
        """Allocations that an evaluation placed or changed last."""
        return self.tables["allocs"].group("eval", eval_id)

    def deployment_allocations(self, deployment_id: str) -> tuple[Allocation, ...]:
        """Allocations that belong to a deployment, oldest first."""
        return self.tables["allocs"].group("deployment", deployment_id)

    # Evaluations and deployments

    def evaluation(self, eval_id: str) -> Evaluation | None:
        """One evaluation."""
        return self.tables["evals"].get(eval_id)

    def evaluations(self, start: tuple[int, str] | None = None, *, reverse: bool = False) -> Iterator[Evaluation]:
        """All evaluations by (create_index, id), from `start` on."""
        return self.tables["evals"].by_creation(start, reverse=reverse)

    def evaluations_by_prefix(self, prefix: str) -> Iterator[Evaluation]:
        """Evaluations whose id starts with `prefix`, by id."""
        return self.tables["evals"].with_prefix(prefix)

    def deployment(self, deployment_id: str) -> Deployment | None:
        """One deployment."""
        return self.tables["deployments"].get(deployment_id)

    def deployments(self, start: tuple[int, str] | None = None, *, reverse: bool = False) -> Iterator[Deployment]:
        """All deployments by (create_index, id), from `start` on."""
        return self.tables["deployments"].by_creation(start, reverse=reverse)

    def deployments_by_prefix(self, prefix: str) -> Iterator[Deployment]:
        """Deployments whose id starts with `prefix`, by id."""
        return self.tables["deployments"].with_prefix(prefix)

    # Nodes, pools, namespaces, services, settings

    def node(self, node_id: str) -> Node | None:
        """One node."""
        return self.tables["nodes"].get(node_id)

    def nodes(self) -> Iterable[Node]:
        """All nodes in no particular order."""
        return self.tables["nodes"].values()

    def nodes_by_prefix(self, prefix: str = "") -> Iterator[Node]:
        """Nodes whose id starts with `prefix`, by id."""
        return self.tables["nodes"].with_prefix(prefix)

    def pool_nodes(self, pool: str) -> tuple[Node, ...]:
        """Nodes of one pool, oldest first. The pool `all` is not a group: it means every node."""
        return self.tables["nodes"].group("pool", pool)

    def node_pool(self, name: str) -> NodePool | None:
        """One node pool; `default` and `all` are always there."""
        return self.tables["node_pools"].get(name)

    def node_pools(self) -> Iterator[NodePool]:
        """All node pools by name."""
        return self.tables["node_pools"].in_order()

    def namespace(self, name: str) -> Namespace | None:
        """One namespace; `default` is always there."""
        return self.tables["namespaces"].get(name)

    def namespaces(self) -> Iterator[Namespace]:
        """All namespaces by name."""
        return self.tables["namespaces"].in_order()

    def services(self) -> Iterator[ServiceRegistration]:
        """All instances by namespace, name and id."""
        return self.tables["services"].in_order()

    def service(self, namespace: str, name: str, service_id: str) -> ServiceRegistration | None:
        """One instance."""
        return self.tables["services"].get((namespace, name, service_id))

    def service_instances(self, namespace: str, name: str) -> tuple[ServiceRegistration, ...]:
        """The instances of one service, oldest first."""
        return self.tables["services"].group("name", (namespace, name))

    def allocation_services(self, alloc_id: str) -> tuple[ServiceRegistration, ...]:
        """Instances that an allocation registered."""
        return self.tables["services"].group("alloc", alloc_id)

    def node_services(self, node_id: str) -> tuple[ServiceRegistration, ...]:
        """Instances on a node."""
        return self.tables["services"].group("node", node_id)

    # Keys and sessions

    def kv_entry(self, key: str) -> KvEntry | None:
        """One key."""
        return self.tables["kv"].get(key)

    def kv_entries(self, prefix: str = "") -> Iterator[KvEntry]:
        """Keys that begin with `prefix`, in order."""
        return self.tables["kv"].with_prefix(prefix)

    def kv_delay(self, key: str) -> KvDelay | None:
        """The lock delay of a key."""
        return self.tables["kv_delays"].get(key)

    def kv_delays(self) -> Iterable[KvDelay]:
        """All lock delays in no particular order."""
        return self.tables["kv_delays"].values()

    def session(self, session_id: str) -> Session | None:
        """One session."""
        return self.tables["sessions"].get(session_id)

    def sessions(self) -> Iterator[Session]:
        """All sessions by id."""
        return self.tables["sessions"].in_order()

    def session_entries(self, session_id: str) -> tuple[KvEntry, ...]:
        """The keys that a session holds."""
        return self.tables["kv"].group("session", session_id)

    def overlay_lease(self, name: str, subnet: str) -> OverlayLease | None:
        """A share of an overlay network."""
        return self.tables["overlays"].get((name, subnet))

    def overlay_leases(self, name: str = "") -> Iterator[OverlayLease]:
        """Shares of one overlay, or of all, by name and subnet."""
        return self.tables["overlays"].within(name) if name else self.tables["overlays"].in_order()

    def overlay_leases_of_node(self, node_id: str) -> tuple[OverlayLease, ...]:
        """Shares that a node holds."""
        return self.tables["overlays"].group("node", node_id)

    # Variables and access control

    def variable(self, namespace: str, path: str) -> Variable | None:
        """One variable, encrypted."""
        return self.tables["variables"].get((namespace, path))

    def variables(self, start: tuple[str, str] | None = None) -> Iterator[Variable]:
        """All variables by namespace and path, from `start` on."""
        return self.tables["variables"].in_order(start)

    def variables_in(self, namespace: str) -> Iterator[Variable]:
        """Variables of one namespace, by path."""
        return self.tables["variables"].within(namespace)

    def variable_lease(self, namespace: str, path: str) -> VariableLease | None:
        """When the lock of a variable was renewed."""
        return self.tables["variable_leases"].get((namespace, path))

    def variable_leases(self) -> Iterable[VariableLease]:
        """All of them, in no particular order."""
        return self.tables["variable_leases"].values()

    def root_key(self, key_id: str) -> RootKey | None:
        """One key of the keyring."""
        return self.tables["keyring"].get(key_id)

    def root_keys(self) -> Iterator[RootKey]:
        """The keyring, by id."""
        return self.tables["keyring"].in_order()

    def policy(self, name: str) -> AclPolicy | None:
        """One policy."""
        return self.tables["acl_policies"].get(name)

    def policies(self) -> Iterator[AclPolicy]:
        """All policies by name."""
        return self.tables["acl_policies"].in_order()

    def policies_of_job(self, namespace: str, job_id: str) -> tuple[AclPolicy, ...]:
        """Policies that are attached to workloads of a job."""
        return self.tables["acl_policies"].group("job", (namespace, job_id))

    def token(self, accessor_id: str) -> AclToken | None:
        """One token by its accessor."""
        return self.tables["acl_tokens"].get(accessor_id)

    def token_by_secret(self, secret_id: str) -> AclToken | None:
        """One token by its secret."""
        return next(iter(self.tables["acl_tokens"].group("secret", digest(secret_id))), None)

    def node_by_secret(self, secret_id: str) -> Node | None:
        """The node that has a secret."""
        return next(iter(self.tables["nodes"].group("secret", digest(secret_id))), None)

    def tokens(self, start: tuple[int, str] | None = None, *, reverse: bool = False) -> Iterator[AclToken]:
        """All tokens by (create_index, accessor), from `start` on."""
        return self.tables["acl_tokens"].by_creation(start, reverse=reverse)

    def role(self, role_id: str) -> AclRole | None:
        """One role."""
        return self.tables["acl_roles"].get(role_id)

    def role_by_name(self, name: str) -> AclRole | None:
        """One role by its name."""
        return next(iter(self.tables["acl_roles"].group("name", name)), None)

    def roles(self) -> Iterator[AclRole]:
        """All roles by id."""
        return self.tables["acl_roles"].in_order()

    def auth_method(self, name: str) -> AuthMethod | None:
        """One auth method."""
        return self.tables["acl_auth_methods"].get(name)

    def auth_methods(self) -> Iterator[AuthMethod]:
        """All auth methods by name."""
        return self.tables["acl_auth_methods"].in_order()

    def binding_rule(self, rule_id: str) -> BindingRule | None:
        """One binding rule."""
        return self.tables["acl_binding_rules"].get(rule_id)

    def binding_rules(self) -> Iterator[BindingRule]:
        """All binding rules by id."""
        return self.tables["acl_binding_rules"].in_order()

    def binding_rules_of(self, method: str) -> tuple[BindingRule, ...]:
        """Binding rules of one auth method, oldest first."""
        return self.tables["acl_binding_rules"].group("method", method)

    def one_time_token(self, secret_id: str) -> OneTimeToken | None:
        """A token that is exchanged once; it is stored under its secret's digest."""
        return self.tables["acl_one_time"].get(digest(secret_id))

    def one_time_tokens(self) -> Iterable[OneTimeToken]:
        """All of them, in no particular order."""
        return self.tables["acl_one_time"].values()

    def bootstrap(self) -> AclBootstrap | None:
        """Whether and when the first management token was made."""
        return self.tables["acl_bootstrap"].get("first")

    # Storage

    def host_volume(self, namespace: str, volume_id: str) -> HostVolume | None:
        """One host volume."""
        return self.tables["host_volumes"].get((namespace, volume_id))

    def host_volumes(self) -> Iterator[HostVolume]:
        """All host volumes by namespace and id."""
        return self.tables["host_volumes"].in_order()

    def node_host_volumes(self, node_id: str) -> tuple[HostVolume, ...]:
        """The host volumes of a node."""
        return self.tables["host_volumes"].group("node", node_id)

    def volume_claim(self, claim_id: str) -> TaskGroupHostVolumeClaim | None:
        """The volume that an instance of a group keeps."""
        return self.tables["volume_claims"].get(claim_id)

    def all_volume_claims(self) -> Iterator[TaskGroupHostVolumeClaim]:
        """All of them by id."""
        return self.tables["volume_claims"].in_order()

    def volume_claims(self, namespace: str, job_id: str, group: str) -> tuple[TaskGroupHostVolumeClaim, ...]:
        """Those of one group, oldest first."""
        return self.tables["volume_claims"].group("group", (namespace, job_id, group))

    def csi_volume(self, namespace: str, volume_id: str) -> CSIVolume | None:
        """One CSI volume."""
        return self.tables["csi_volumes"].get((namespace, volume_id))

    def csi_volumes(self) -> Iterator[CSIVolume]:
        """All CSI volumes by namespace and id."""
        return self.tables["csi_volumes"].in_order()

    def csi_claims(self, namespace: str, volume_id: str) -> tuple[CSIClaim, ...]:
        """Who holds a CSI volume, oldest first."""
        return self.tables["csi_claims"].group("volume", (namespace, volume_id))

    def all_csi_claims(self) -> Iterator[CSIClaim]:
        """Who holds any CSI volume."""
        return self.tables["csi_claims"].in_order()

    def csi_claims_of_allocation(self, alloc_id: str) -> tuple[CSIClaim, ...]:
        """The CSI volumes that an allocation holds."""
        return self.tables["csi_claims"].group("alloc", alloc_id)

    def node_work(self, node_id: str) -> tuple[NodeWork, ...]:
        """What a node is asked to do and has not answered, oldest first."""
        return self.tables["node_work"].group("node", node_id)

    def work(self, node_id: str, work_id: str) -> NodeWork | None:
        """One piece of it, answered or not."""
        return self.tables["node_work"].get((node_id, work_id))

    def all_work(self) -> Iterator[NodeWork]:
        """All of it, answered or not."""
        return self.tables["node_work"].in_order()

    def scheduler_configuration(self) -> SchedulerConfiguration:
        """The settings in force."""
        return self.tables["config"].get("scheduler") or SchedulerConfiguration()

    def autopilot(self) -> AutopilotConfiguration:
        """How servers look after each other."""
        return self.tables["autopilot"].get("configuration") or AutopilotConfiguration()


def empty_snapshot() -> Snapshot:
    """The state before anything was stored: only what is always there."""
    tables = {name: Table[Any](shape) for name, shape in SHAPES.items()}
    for table, row in _BUILT_IN:
        edit = TableEdit(tables[table])
        edit.put(row.name, row, row.modify_index)
        tables[table], _ = edit.finish()
    return Snapshot(0, tables, Map(), Map())


_BUILT_IN: Final[tuple[tuple[str, Namespace | NodePool], ...]] = (
    (
        "namespaces",
        Namespace(name="default", description="Default shared namespace", create_index=1, modify_index=1),
    ),
    (
        "node_pools",
        NodePool(name="all", description="Node pool with all nodes in the cluster.", create_index=1, modify_index=1),
    ),
    ("node_pools", NodePool(name="default", description="Default node pool.", create_index=1, modify_index=1)),
)
