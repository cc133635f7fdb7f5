"""Host volumes: made and removed by the nodes that have them, and kept by instances of groups."""

from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from lepa.model import wire
from lepa.model.errors import LepaError
from lepa.model.volume import HostVolume, HostVolumeStub, TaskGroupHostVolumeClaim
from lepa.model.wire import shortened
from lepa.rpc import methods as m
from lepa.rpc import volume_requests as v
from lepa.rpc.requests import ReadRequest, Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.nodes import check_secret
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, group, namespace_of, table
from lepa.server.endpoints.stubs import alloc_stub
from lepa.server.node_desk import ask
from lepa.server.pages import Page, in_namespace, page_of, since
from lepa.server.volume_placement import choose_node
from lepa.state.commands import node_work, nodes
from lepa.state.commands import volumes as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

MAKE_S: Final = 120.0
"""How long a node may take to make or remove a volume."""


def shown(snapshot: Snapshot, volume: HostVolume) -> HostVolume:
    """The volume with its true state: that of a node which is away cannot be had."""
    node = snapshot.node(volume.node_id)
    away = node is None or node.status != "ready"
    return replace(volume, state="unavailable") if away and volume.state == "ready" else volume


def token(volume: HostVolume) -> str:
    """Of pages."""
    return f"{volume.namespace}.{volume.id}"


def list_volumes(snapshot: Snapshot, request: v.VolumeListRequest) -> Page:
    """Host volumes by namespace and id."""
    mine = in_namespace(request)

    def wanted(volume: HostVolume) -> bool:
        return (
            mine(volume)
            and volume.id.startswith(request.prefix)
            and request.node_id in ("", volume.node_id)
            and request.node_pool in ("", volume.node_pool)
            and request.plugin_id in ("", volume.plugin_id)
        )

    rows = (shown(snapshot, volume) for volume in snapshot.host_volumes())
    return page_of(since(rows, request, token), request, token=token, stub=_stub, where=wanted)


def _stub(volume: HostVolume) -> HostVolumeStub:
    return shortened(volume, HostVolumeStub)


def get_volume(snapshot: Snapshot, request: ReadRequest) -> HostVolume | None:
    """One volume with the allocations that mount it."""
    volume = snapshot.host_volume(namespace_of(request), request.id)
    if volume is None:
        return None
    users = commands.users_of(snapshot, volume)
    return replace(
        shown(snapshot, volume),
        allocations=tuple(alloc_stub(snapshot, alloc) for alloc in users),
    )


def list_claims(snapshot: Snapshot, request: v.ClaimListRequest) -> Page:
    """What instances of groups keep."""
    mine = in_namespace(request)

    def wanted(claim: TaskGroupHostVolumeClaim) -> bool:
        return (
            mine(claim)
            and claim.id.startswith(request.prefix)
            and request.job_id in ("", claim.job_id)
            and request.task_group in ("", claim.task_group_name)
            and request.volume_name in ("", claim.volume_name)
        )

    rows = since(snapshot.all_volume_claims(), request, lambda claim: claim.id)
    return page_of(rows, request, token=lambda claim: claim.id, where=wanted)


def waiting_work(snapshot: Snapshot, request: v.NodeWorkRequest) -> v.NodeWorkList:
    """What a node is asked to do."""
    check_secret(snapshot, request.id, request.secret_id)
    return v.NodeWorkList(work=snapshot.node_work(request.id))


def _watched(request: ReadRequest) -> tuple[Watch, ...]:
    return (Watch("host_volumes", "id", (namespace_of(request), request.id)), Watch("allocs"))


QUERIES: Answerable = {
    m.HOST_VOLUME_LIST: Query(table("host_volumes", "nodes"), list_volumes),
    m.HOST_VOLUME_GET: Query(_watched, get_volume),
    m.VOLUME_CLAIM_LIST: Query(table("volume_claims"), list_claims),
    m.NODE_WORK: Query(group("node_work", "node"), waiting_work),
}


class VolumeEndpoints:
    """Writes about host volumes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def create(self, request: v.HostVolumeWriteRequest) -> Reply[v.HostVolumeWritten]:
        """Choose a node, and let its plugin make the volume."""
        return await self._make(request, register=False)

    async def register(self, request: v.HostVolumeWriteRequest) -> Reply[v.HostVolumeWritten]:
        """Offer a directory that is there already."""
        return await self._make(request, register=True)

    async def _make(self, request: v.HostVolumeWriteRequest, *, register: bool) -> Reply[v.HostVolumeWritten]:
        wanted = replace(request.volume, namespace=request.namespace or "default")
        choose = partial(choose_node, register=register)
        fresh = not wanted.id
        written = await self._context.write(
            lambda draft: commands.place_host_volume(draft, wanted, choose, register=register)
        )
        volume = written.value
        kind = "host-volume.register" if register else "host-volume.create"
        try:
            made = await ask(self._context, volume.node_id, kind, wire.to_builtins(volume), MAKE_S)
        except LepaError:
            await self._context.write(lambda draft: self._take_back(draft, volume, fresh=fresh))
            raise
        path, capacity = str(made.get("path") or volume.host_path), int(made.get("bytes") or 0)
        done = await self._context.write(
            lambda draft: commands.set_host_volume(draft, volume, state="ready", path=path, capacity=capacity)
        )
        answer = v.HostVolumeWritten(volume=replace(done.value, modify_index=done.revision), index=done.revision)
        return Reply(value=answer, index=done.revision)

    @staticmethod
    def _take_back(draft: Draft, volume: HostVolume, *, fresh: bool) -> None:
        if fresh:
            commands.forget_host_volume(draft, volume.namespace, volume.id)
        elif draft.snapshot.host_volume(volume.namespace, volume.id) is not None:
            commands.set_host_volume(draft, volume, state="ready")

    async def delete(self, request: v.VolumeRequest) -> Reply[None]:
        """Let the node remove the volume; force: forget it though its node is away for good."""
        namespace = request.namespace or "default"
        volume = (await self._context.write(lambda draft: commands.begin_deletion(draft, namespace, request.id))).value
        try:
            await ask(self._context, volume.node_id, "host-volume.delete", wire.to_builtins(volume), MAKE_S)
        except LepaError as error:
            if not request.force:
                await self._context.write(lambda draft: commands.set_host_volume(draft, volume, state="ready"))
                raise LepaError(
                    error.code, f"volume {volume.id} was not deleted: {error.message}", http_status=500
                ) from error
        written = await self._context.write(lambda draft: commands.forget_host_volume(draft, namespace, volume.id))
        return Reply(value=None, index=written.revision)

    async def delete_claim(self, request: v.VolumeRequest) -> Reply[None]:
        """Let the next instance of a group have any volume of the name."""
        written = await self._context.write(lambda draft: commands.delete_claim(draft, request.id))
        return Reply(value=None, index=written.revision)

    async def work_done(self, request: v.NodeWorkDone) -> Reply[None]:
        """A node answers what it was asked."""

        def command(draft: Draft) -> None:
            nodes.check_secret(draft, request.node_id, request.secret_id)
            node_work.answer_work(draft, request.node_id, request.work_id, error=request.error, answer=request.answer)

        return Reply(value=None, index=(await self._context.write(command)).revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Any = {
            m.HOST_VOLUME_CREATE: self.create,
            m.HOST_VOLUME_REGISTER: self.register,
            m.HOST_VOLUME_DELETE: self.delete,
            m.VOLUME_CLAIM_DELETE: self.delete_claim,
            m.NODE_WORK_DONE: self.work_done,
        }
        return {**queries.answers(QUERIES), **writes}
