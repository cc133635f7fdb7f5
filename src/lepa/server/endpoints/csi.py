"""CSI volumes, snapshots and plugins: what storage does is asked of the nodes that run its plugins."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lepa.model import wire
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.volume import CSIClaim, CSIPlugin, CSISnapshot, CSITopology, CSIVolume, CSIVolumeExternalStub
from lepa.model.volume_change import changed, must_expand
from lepa.rpc import methods as m
from lepa.rpc import volume_requests as v
from lepa.rpc.requests import ReadRequest, Reply
from lepa.server import csi_views as views
from lepa.server.csi_release import release
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, namespace_of, table
from lepa.server.node_desk import ask
from lepa.server.pages import Page, in_namespace, page_of, since
from lepa.state.commands import csi as commands
from lepa.state.commands import nodes
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

ATTACH_S: Final = 120.0
"""How long storage may take for one thing."""


def list_volumes(snapshot: Snapshot, request: v.VolumeListRequest) -> Page:
    """CSI volumes by namespace and id."""
    mine = in_namespace(request)

    def wanted(volume: CSIVolume) -> bool:
        here = not request.node_id or any(
            claim.node_id == request.node_id for claim in snapshot.csi_claims(volume.namespace, volume.id)
        )
        return (
            here
            and mine(volume)
            and volume.id.startswith(request.prefix)
            and request.plugin_id in ("", volume.plugin_id)
        )

    def token(volume: CSIVolume) -> str:
        return f"{volume.namespace}.{volume.id}"

    rows = since(snapshot.csi_volumes(), request, token)
    return page_of(
        rows, request, token=token, where=wanted, stub=lambda each: views.volume_stub(views.volume(snapshot, each))
    )


def get_volume(snapshot: Snapshot, request: ReadRequest) -> CSIVolume | None:
    """One volume."""
    stored = snapshot.csi_volume(namespace_of(request), request.id)
    return views.volume(snapshot, stored) if stored is not None else None


def list_plugins(snapshot: Snapshot, request: ReadRequest) -> Page:
    """CSI plugins by id."""
    found = (views.plugin(snapshot, name) for name in views.plugin_ids(snapshot))
    rows = since((each for each in found if each is not None), request, lambda each: each.id)
    return page_of(rows, request, token=lambda each: each.id, stub=views.plugin_stub)


def get_plugin(snapshot: Snapshot, request: ReadRequest) -> CSIPlugin | None:
    """One plugin."""
    return views.plugin(snapshot, request.id)


_VOLUME_TABLES = table("csi_volumes", "csi_claims", "nodes")
QUERIES: Answerable = {
    m.CSI_VOLUME_LIST: Query(_VOLUME_TABLES, list_volumes),
    m.CSI_VOLUME_GET: Query(_VOLUME_TABLES, get_volume),
    m.CSI_PLUGIN_LIST: Query(table("nodes"), list_plugins),
    m.CSI_PLUGIN_GET: Query(table("nodes"), get_plugin),
}


class CsiEndpoints:
    """Writes about CSI volumes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def _snapshot(self) -> Snapshot:
        return self._context.parts.replica.snapshot

    async def register(self, request: v.CSIVolumeWriteRequest) -> Reply[v.CSIVolumesWritten]:
        """Register volumes that the storage has, or change those that are registered."""
        for given in self._checked(request, create=False):
            wanted = await self._changed(given)
            if self._plugin(wanted.plugin_id).controller_required:
                await self._ask(wanted.plugin_id, "csi.validate", wire.to_builtins(wanted))
            await self._store(wanted)
        return Reply(value=v.CSIVolumesWritten(), index=self._snapshot.index)

    async def create(self, request: v.CSIVolumeWriteRequest) -> Reply[v.CSIVolumesWritten]:
        """Let the storage make volumes, and register them; those that are registered are changed."""
        written = []
        for wanted in self._checked(request, create=True):
            known = self._known(wanted) is not None
            volume = await self._changed(wanted) if known else await self._made(wanted)
            await self._store(volume)
            written.append(replace(volume, secrets={}))
        return Reply(value=v.CSIVolumesWritten(volumes=tuple(written)), index=self._snapshot.index)

    def _known(self, wanted: CSIVolume) -> CSIVolume | None:
        return self._snapshot.csi_volume(wanted.namespace, wanted.id)

    async def _made(self, wanted: CSIVolume) -> CSIVolume:
        made = await self._ask(wanted.plugin_id, "csi.create", wire.to_builtins(wanted))
        return replace(
            wanted,
            external_id=str(made["ExternalID"]),
            capacity=int(made.get("Capacity") or 0),
            context={**wanted.context, **(made.get("Context") or {})},
            topologies=tuple(msgspec.convert(each, CSITopology) for each in made.get("Topologies") or ()),
        )

    async def _changed(self, wanted: CSIVolume) -> CSIVolume:
        """A volume as somebody wants it from now on, with the room that it asks for. Raises LepaError."""
        present = self._known(wanted)
        if present is None:
            return wanted
        claims = self._snapshot.csi_claims(present.namespace, present.id)
        volume = changed(present, wanted, claims)
        return await self._expanded(volume, claims) if must_expand(present, volume) else volume

    async def _expanded(self, volume: CSIVolume, claims: Sequence[CSIClaim]) -> CSIVolume:
        """Let the storage give a volume more room, then the nodes that have it mounted use it, one after the other.

        When one of them fails, nothing is written down: whoever asks again has all of it done again, which CSI demands
        to be harmless.
        """
        controllers = self._plugin(volume.plugin_id).controllers.values()
        if not any(each.controller_info is not None and each.controller_info.supports_expand for each in controllers):
            raise LepaError("unsupported", "expand is not implemented by this controller plugin", http_status=500)
        use = claims[0] if claims else CSIClaim()
        used = replace(volume, access_mode=use.access_mode, attachment_mode=use.attachment_mode)
        try:
            answer = await self._ask(volume.plugin_id, "csi.expand", wire.to_builtins(used))
            for claim in claims if answer["NodeExpansionRequired"] else ():
                body = {
                    "VolumeID": claim.volume_id,
                    "Namespace": claim.namespace,
                    "AllocID": claim.alloc_id,
                    "AccessMode": claim.access_mode,
                    "AttachmentMode": claim.attachment_mode,
                    "CapacityMin": volume.requested_capacity_min,
                    "CapacityMax": volume.requested_capacity_max,
                }
                await ask(self._context, claim.node_id, "csi.node-expand", body, ATTACH_S)
        except LepaError as error:
            raise LepaError(error.code, f"unable to expand volume: {error.message}", http_status=500) from error
        return replace(volume, capacity=int(answer["Capacity"]))

    def _checked(self, request: v.CSIVolumeWriteRequest, *, create: bool) -> list[CSIVolume]:
        found = []
        for given in request.volumes:
            wanted = replace(given, namespace=request.namespace or "default")
            if problems := commands.csi_problems(wanted, create=create, known=self._known(wanted) is not None):
                raise invalid("; ".join(problems))
            found.append(wanted)
        return found

    async def _store(self, volume: CSIVolume) -> None:
        await self._context.write(lambda draft: commands.store_csi_volume(draft, volume))

    def _plugin(self, plugin_id: str) -> CSIPlugin:
        found = views.plugin(self._snapshot, plugin_id)
        if found is None:
            known = ", ".join(views.plugin_ids(self._snapshot)) or "none"
            raise LepaError(
                "not_found", f"no CSI plugin named: {plugin_id} could be found; known: {known}", http_status=500
            )
        return found

    async def _ask(self, plugin_id: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a controller of a plugin. Raises LepaError."""
        self._plugin(plugin_id)
        node = views.controller_node(self._snapshot, plugin_id)
        if node is None:
            raise LepaError("timeout", f"no healthy controller of CSI plugin {plugin_id}", http_status=500)
        return await ask(self._context, node.id, kind, body | {"PluginID": plugin_id}, ATTACH_S)

    async def deregister(self, request: v.VolumeRequest) -> Reply[None]:
        """Forget a volume; what is stored stays."""
        namespace = request.namespace or "default"
        written = await self._context.write(
            lambda draft: commands.forget_csi_volume(draft, namespace, request.id, force=request.force)
        )
        return Reply(value=None, index=written.revision)

    async def delete(self, request: v.VolumeRequest) -> Reply[None]:
        """Let the storage remove a volume that nobody holds, and forget it."""
        volume = self._existing(request)
        if self._snapshot.csi_claims(volume.namespace, volume.id):
            raise LepaError("conflict", f"volume in use: {volume.id}", http_status=500)
        body = {"ExternalID": volume.external_id, "Secrets": {**volume.secrets, **request.secrets}}
        await self._ask(volume.plugin_id, "csi.delete", body)
        return await self.deregister(replace(request, force=False))

    def _existing(self, request: v.VolumeRequest) -> CSIVolume:
        volume = self._snapshot.csi_volume(request.namespace or "default", request.id)
        if volume is None:
            raise not_found(commands.VOLUME_NOT_FOUND)
        return volume

    async def detach(self, request: v.VolumeRequest) -> Reply[None]:
        """Take a volume off a node, whatever uses it there."""
        volume = self._existing(request)
        claims = self._snapshot.csi_claims(volume.namespace, volume.id)
        chosen = [claim for claim in claims if claim.node_id.startswith(request.node)]
        if not chosen:
            raise not_found(f"volume {volume.id} is not attached to a node {request.node}")
        for claim in chosen:
            await release(self._context, claim)
        return Reply(value=None, index=self._snapshot.index)

    # Nodes

    async def claim(self, request: v.CSIClaimRequest) -> Reply[v.CSIClaimed]:
        """A node wants to mount a volume for an allocation."""
        wanted = CSIClaim(
            namespace=request.namespace or "default",
            volume_id=request.volume_id,
            alloc_id=request.alloc_id,
            node_id=request.node_id,
        )

        def command(draft: Draft) -> tuple[CSIVolume, CSIClaim]:
            nodes.check_secret(draft, request.node_id, request.secret_id)
            claim = commands.claim_volume(draft, wanted)
            return commands.existing_csi_volume(draft, wanted.namespace, wanted.volume_id), claim

        volume, claim = (await self._context.write(command)).value
        plugin = self._plugin(volume.plugin_id)
        info = plugin.nodes.get(request.node_id)
        attaches = any(
            each.controller_info is not None and each.controller_info.supports_attach_detach
            for each in plugin.controllers.values()
        )
        if attaches and not claim.external_node:
            claim = await self._attach(volume, claim, info.node_info.id if info and info.node_info else "")
        return Reply(value=v.CSIClaimed(volume=volume, publish_context=claim.context), index=self._snapshot.index)

    async def _attach(self, volume: CSIVolume, claim: CSIClaim, external_node: str) -> CSIClaim:
        """Let the storage attach a volume to a node; a claim of which that fails is given back."""
        body = {
            "ExternalID": volume.external_id,
            "ExternalNode": external_node,
            "AccessMode": claim.access_mode,
            "AttachmentMode": claim.attachment_mode,
            "MountOptions": wire.to_builtins(volume.mount_options) if volume.mount_options else None,
            "ReadOnly": claim.mode == "read",
            "Secrets": volume.secrets,
            "Context": volume.context,
        }
        try:
            answer = await self._ask(volume.plugin_id, "csi.attach", body)
        except LepaError:
            await self._context.write(lambda draft: commands.free_claim(draft, claim))
            raise
        context = answer.get("Context") or {}
        return (await self._context.write(lambda draft: commands.attached(draft, claim, external_node, context))).value

    async def release(self, request: v.CSIReleaseRequest) -> Reply[None]:
        """A node has taken a volume off: the storage may let go of it too."""
        namespace = request.namespace or "default"
        await self._context.write(lambda draft: nodes.check_secret(draft, request.node_id, request.secret_id))
        claims = self._snapshot.csi_claims_of_allocation(request.alloc_id)
        for claim in claims:
            if (claim.namespace, claim.volume_id, claim.node_id) == (namespace, request.volume_id, request.node_id):
                await release(self._context, claim)
        return Reply(value=None, index=self._snapshot.index)

    # Storage

    async def list_external(self, request: v.CSIExternalRequest) -> Reply[v.CSIExternalVolumes]:
        """Volumes as the storage knows them."""
        answer = await self._ask(request.plugin_id, "csi.list", self._page(request))
        found = tuple(wire.from_builtins(each, CSIVolumeExternalStub) for each in answer.get("Volumes") or ())
        value = v.CSIExternalVolumes(volumes=found, next_token=str(answer.get("NextToken") or ""))
        return Reply(value=value, index=self._snapshot.index)

    async def list_snapshots(self, request: v.CSIExternalRequest) -> Reply[v.CSISnapshots]:
        """Snapshots as the storage knows them."""
        answer = await self._ask(request.plugin_id, "csi.snapshot-list", self._page(request))
        found = tuple(wire.from_builtins(each, CSISnapshot) for each in answer.get("Snapshots") or ())
        value = v.CSISnapshots(snapshots=found, next_token=str(answer.get("NextToken") or ""))
        return Reply(value=value, index=self._snapshot.index)

    @staticmethod
    def _page(request: v.CSIExternalRequest) -> dict[str, Any]:
        return {"PerPage": request.per_page, "NextToken": request.next_token, "Secrets": request.secrets}

    async def create_snapshots(self, request: v.CSISnapshotRequest) -> Reply[v.CSISnapshots]:
        """Make snapshots of registered volumes."""
        made = []
        for wanted in request.snapshots:
            namespace = request.namespace or "default"
            volume = self._snapshot.csi_volume(namespace, wanted.source_volume_id)
            if volume is None:
                raise not_found(commands.VOLUME_NOT_FOUND)
            body = wire.to_builtins(wanted) | {
                "ExternalID": volume.external_id,
                "Secrets": {**volume.secrets, **wanted.secrets},
            }
            answer = await self._ask(volume.plugin_id, "csi.snapshot-create", body)
            snapshot = wire.from_builtins(answer["Snapshot"], CSISnapshot)
            made.append(replace(snapshot, source_volume_id=volume.id, plugin_id=volume.plugin_id, name=wanted.name))
        return Reply(value=v.CSISnapshots(snapshots=tuple(made)), index=self._snapshot.index)

    async def delete_snapshot(self, request: v.CSISnapshotRequest) -> Reply[None]:
        """Remove a snapshot."""
        body = {"SnapshotID": request.snapshot_id, "Secrets": request.secrets}
        await self._ask(request.plugin_id, "csi.snapshot-delete", body)
        return Reply(value=None, index=self._snapshot.index)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Any = {
            m.CSI_VOLUME_REGISTER: self.register,
            m.CSI_VOLUME_CREATE: self.create,
            m.CSI_VOLUME_DEREGISTER: self.deregister,
            m.CSI_VOLUME_DELETE: self.delete,
            m.CSI_VOLUME_DETACH: self.detach,
            m.CSI_VOLUME_CLAIM: self.claim,
            m.CSI_VOLUME_RELEASE: self.release,
            m.CSI_VOLUME_EXTERNAL: self.list_external,
            m.CSI_SNAPSHOT_CREATE: self.create_snapshots,
            m.CSI_SNAPSHOT_DELETE: self.delete_snapshot,
            m.CSI_SNAPSHOT_LIST: self.list_snapshots,
        }
        return {**queries.answers(QUERIES), **writes}
