"""Nodes: what nodes say and follow, what operators ask of them, and node pools."""

from msgspec.structs import replace

from lepa.kit.durations import SECOND
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.evaluation import Evaluation
from lepa.model.migration import MigrateSource, migrate_token
from lepa.model.node import Node, NodeListStub
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.acl.access import Access
from lepa.server.endpoints.context import Answers, Context, eval_ids
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, group, row, table
from lepa.server.pages import Page, page_of, since, visible
from lepa.state.commands import nodes as commands
from lepa.state.commands import tenancy
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_node
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

HEARTBEAT_SPREAD = 0.1


# Reads


def list_nodes(snapshot: Snapshot, request: r.NodeListRequest) -> Page:
    """Nodes by id."""
    pool = request.node_pool
    rows = since(snapshot.nodes_by_prefix(request.prefix), request, lambda node: node.id)
    return page_of(
        rows,
        request,
        token=lambda node: node.id,
        stub=lambda node: node_stub(node, resources=request.resources, os=request.os),
        where=lambda node: pool in ("", "all", node.node_pool),
    )


def node_stub(node: Node, *, resources: bool = False, os: bool = False) -> NodeListStub:
    """A node in a list."""
    return NodeListStub(
        address=node.http_addr.rpartition(":")[0],
        id=node.id,
        attributes={"os.name": node.attributes.get("os.name", "")} if os else {},
        datacenter=node.datacenter,
        name=node.name,
        node_pool=node.node_pool,
        node_class=node.node_class,
        version=node.attributes.get("nomad.version", ""),
        drain=node.drain_strategy is not None,
        scheduling_eligibility=node.scheduling_eligibility,
        status=node.status,
        status_description=node.status_description,
        drivers=node.drivers,
        host_volumes=node.host_volumes,
        node_resources=node.node_resources if resources else None,
        reserved_resources=node.reserved_resources if resources else None,
        last_drain=node.last_drain,
        create_index=node.create_index,
        modify_index=node.modify_index,
    )


def get_node(snapshot: Snapshot, request: r.ReadRequest) -> Node | None:
    """One node; its secret is nobody's business."""
    node = snapshot.node(request.id)
    return replace(node, secret_id="") if node is not None else None


def node_allocations(snapshot: Snapshot, request: r.ReadRequest) -> tuple[Allocation, ...]:
    """A node's allocations with their jobs, as far as the caller may see them."""
    seen = visible(request)
    found = snapshot.node_allocations(request.id)
    return tuple(with_job(snapshot, alloc) for alloc in found if seen(alloc.namespace))


def with_job(snapshot: Snapshot, alloc: Allocation) -> Allocation:
    """The allocation with the version of its job that it runs, as far as that is kept."""
    return replace(alloc, job=snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version))


def follow(snapshot: Snapshot, request: r.NodeAllocationsRequest) -> r.NodeAllocations:
    """What a node has to run, and in full what servers changed since the index that it has."""
    check_secret(snapshot, request.node_id, request.secret_id)
    allocs = snapshot.node_allocations(request.node_id)
    changed = [with_job(snapshot, alloc) for alloc in allocs if alloc.alloc_modify_index > request.index]
    sources = {alloc.id: migrate_source(snapshot, alloc) for alloc in changed if alloc.client_status == "pending"}
    return r.NodeAllocations(
        indexes={alloc.id: alloc.alloc_modify_index for alloc in allocs},
        allocations=tuple(changed),
        migrate={alloc_id: source for alloc_id, source in sources.items() if source is not None},
    )


def has_news(found: r.NodeAllocations, request: r.NodeAllocationsRequest) -> bool:
    """Whether an answer tells a node something: its own reports change its allocations too, and it knows of those."""
    return bool(found.allocations) or len(found.indexes) != request.known


def migrate_source(snapshot: Snapshot, alloc: Allocation) -> MigrateSource | None:
    """Where the data are that an allocation, which has its job, takes over from another node; None when it does not."""
    group = next((g for g in alloc.job.task_groups if g.name == alloc.task_group), None) if alloc.job else None
    previous = snapshot.allocation(alloc.previous_allocation)
    if group is None or previous is None or previous.node_id == alloc.node_id:
        return None
    node = snapshot.node(previous.node_id)
    if not (group.ephemeral_disk.sticky and group.ephemeral_disk.migrate) or node is None or node.status == "down":
        return None
    return MigrateSource(address=node.http_addr, token=migrate_token(node.secret_id, previous.id))


def check_secret(snapshot: Snapshot, node_id: str, secret_id: str) -> None:
    """Raises LepaError unless the caller is the node that registered."""
    node = snapshot.node(node_id)
    if node is None:
        raise not_found(commands.NODE_NOT_FOUND, node_id=node_id)
    if node.secret_id and node.secret_id != secret_id:
        raise LepaError("denied", "node secret ID does not match", node_id=node_id)


def list_pools(snapshot: Snapshot, request: r.ReadRequest, access: Access) -> Page:
    """Node pools by name that the caller may read."""
    rows = since(snapshot.node_pools(), request, lambda pool: pool.name)
    return page_of(
        rows,
        request,
        token=lambda pool: pool.name,
        where=lambda pool: pool.name.startswith(request.prefix) and access.node_pool(pool.name, "read"),
    )


def _followed(request: r.NodeAllocationsRequest) -> tuple[Watch, ...]:
    return (Watch("allocs", "node", request.node_id),)


QUERIES: Answerable = {
    m.NODE_LIST: Query(table("nodes"), list_nodes),
    m.NODE_GET: Query(row("nodes"), get_node),
    m.NODE_ALLOCATIONS: Query(group("allocs", "node"), node_allocations),
    m.NODE_FOLLOW: Query(_followed, follow, ends=has_news),
    m.NODE_POOL_GET: Query(row("node_pools"), lambda snapshot, request: snapshot.node_pool(request.id)),
}


# Writes


class NodeEndpoints:
    """Writes about nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts

    async def register(self, request: r.NodeRegisterRequest) -> Reply[r.NodeUpdateResponse]:
        """A node says what it is."""
        node = request.node
        if node is None:
            raise invalid("missing node for client registration")
        written = await self._context.write(lambda draft: commands.register_node(draft, node))
        stored, evaluations = written.value
        return await self._updated(stored, evaluations, written.revision, beats=True)

    async def heartbeat(self, request: r.NodeHeartbeatRequest) -> Reply[r.NodeUpdateResponse]:
        """A node lives; nothing is written unless its status changes."""

        def command(draft: Draft) -> tuple[Node, tuple[Evaluation, ...]]:
            commands.check_secret(draft, request.node_id, request.secret_id)
            return commands.update_node_status(draft, request.node_id, request.status)

        written = await self._context.write(command)
        node, evaluations = written.value
        return await self._updated(node, evaluations, written.revision, beats=True)

    async def update_allocations(self, request: r.NodeAllocationUpdatesRequest) -> Reply[None]:
        """Store what a node reports."""
        await self._context.catch_up(request.seen)
        reports = (await self._context.leading()).reports
        return Reply(value=None, index=await reports.write(request.node_id, request.secret_id, request.allocations))

    async def events(self, request: r.NodeEventsRequest) -> Reply[None]:
        """Keep things that happened on a node."""

        def command(draft: Draft) -> None:
            commands.check_secret(draft, request.node_id, request.secret_id)
            commands.note_node_events(draft, request.node_id, request.events)

        return Reply(value=None, index=(await self._context.write(command)).revision)

    async def evaluate(self, request: r.NodeWriteRequest) -> Reply[r.NodeUpdateResponse]:
        """Look again at the jobs of a node."""

        def command(draft: Draft) -> tuple[Node, tuple[Evaluation, ...]]:
            node = commands.existing_node(draft, request.id)
            return node, evaluate_node(draft, request.id)

        written = await self._context.write(command)
        node, evaluations = written.value
        return await self._updated(node, evaluations, written.revision)

    async def purge(self, request: r.NodeWriteRequest) -> Reply[r.NodeUpdateResponse]:
        """Forget a node."""
        written = await self._context.write(lambda draft: commands.purge_node(draft, request.id))
        (await self._context.leading()).heartbeats.forget(request.id)
        answer = r.NodeUpdateResponse(
            eval_ids=eval_ids(written.value),
            eval_create_index=written.revision if written.value else 0,
            node_modify_index=written.revision,
            index=written.revision,
        )
        return Reply(value=answer, index=written.revision)

    async def drain(self, request: r.NodeDrainRequest) -> Reply[r.NodeUpdateResponse]:
        """Start, change or cancel a drain."""
        written = await self._context.write(
            lambda draft: commands.drain_node(
                draft, request.id, request.drain_spec, mark_eligible=request.mark_eligible, meta=request.meta
            )
        )
        node, evaluations = written.value
        return await self._updated(node, evaluations, written.revision)

    async def eligibility(self, request: r.NodeEligibilityRequest) -> Reply[r.NodeUpdateResponse]:
        """May the node get new allocations? An answer with zero indexes means that nothing changed."""
        written = await self._context.write(
            lambda draft: (
                draft.node(request.id),
                commands.set_eligibility(draft, request.id, request.eligibility),
            )
        )
        before, (node, evaluations) = written.value
        if before == node:
            return Reply(value=r.NodeUpdateResponse(), index=0)
        return await self._updated(node, evaluations, written.revision)

    def list_pools(self, snapshot: Snapshot, request: r.ReadRequest) -> Page:
        """Node pools that the caller may read."""
        return list_pools(snapshot, request, self._parts.guard.access(snapshot, request.auth_token))

    async def upsert_pool(self, request: r.NodePoolWriteRequest) -> Reply[None]:
        """Create or change a node pool."""
        pool = request.value
        if pool is None:
            raise invalid("missing node pool")
        written = await self._context.write(lambda draft: tenancy.upsert_node_pool(draft, pool))
        return Reply(value=None, index=written.revision)

    async def delete_pool(self, request: r.NodePoolWriteRequest) -> Reply[None]:
        """Remove a node pool."""
        written = await self._context.write(lambda draft: tenancy.delete_node_pool(draft, request.name))
        return Reply(value=None, index=written.revision)

    async def _updated(
        self, node: Node, evaluations: tuple[Evaluation, ...], revision: int, *, beats: bool = False
    ) -> Reply[r.NodeUpdateResponse]:
        parts, leading = self._parts, await self._context.leading()
        ttl_s = 0.0
        if beats:
            spread = parts.random.uniform(0, HEARTBEAT_SPREAD)
            ttl_s = leading.heartbeats.beat(node.id, parts.clock.now(), spread)
        answer = r.NodeUpdateResponse(
            heartbeat_ttl=int(ttl_s * SECOND),
            eval_ids=eval_ids(evaluations),
            eval_create_index=revision if evaluations else 0,
            node_modify_index=revision,
            leader_rpc_addr=self._context.leadership.leader_address,
            num_nodes=len(parts.replica.snapshot.tables["nodes"]),
            servers=self._context.contact.addresses(),
            scheduling_eligibility=node.scheduling_eligibility,
            index=revision,
        )
        return Reply(value=answer, index=revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {
            m.NODE_REGISTER: self.register,
            m.NODE_HEARTBEAT: self.heartbeat,
            m.NODE_UPDATE_ALLOCATIONS: self.update_allocations,
            m.NODE_EVENTS: self.events,
            m.NODE_EVALUATE: self.evaluate,
            m.NODE_PURGE: self.purge,
            m.NODE_DRAIN: self.drain,
            m.NODE_ELIGIBILITY: self.eligibility,
            m.NODE_POOL_UPSERT: self.upsert_pool,
            m.NODE_POOL_DELETE: self.delete_pool,
        }
        pools = {m.NODE_POOL_LIST: Query(table("node_pools"), self.list_pools)}
        return {**queries.answers({**QUERIES, **pools}), **writes}
