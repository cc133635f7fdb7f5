"""CSI volumes of allocations: claimed from the servers, staged and published by the node's plugin, and given back.

    claim -> (the storage attaches it to the node) -> stage, once for each node and way of use -> publish, for each
    allocation -> the tasks mount it -> unpublish -> unstage with its last user -> release

What is mounted is remembered on disk before the plugin is asked, without secrets, so that a later agent finds and
unmounts whatever an earlier one had begun. All of these calls may be repeated, as CSI demands.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from lepa.client.csi import messages as csi
from lepa.client.csi.messages import message
from lepa.client.csi.plugins import CsiPlugins, Running
from lepa.client.local_state import LocalState
from lepa.client.server_link import ServerLink
from lepa.kit.sources import Clock
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.job import CSIMountOptions, TaskGroup
from lepa.model.volume import CSIVolume
from lepa.model.volume_use import Use, uses
from lepa.model.wire import Wire, from_json, to_json
from lepa.rpc import methods as m
from lepa.rpc.volume_requests import CSIClaimed, CSIClaimRequest, CSIReleaseRequest

log = logging.getLogger(__name__)

FACT: Final = "csi-mount:"
CLAIM_S: Final = 300.0
"""How long an allocation waits for a volume that another holds: its predecessor may still be shutting down."""
CLAIM_PAUSE_S: Final = 1.0
CALL_S: Final = 150.0
RELEASE_TRIES: Final = 3


class Mounted(Wire, frozen=True):
    """A volume that is, or may be, mounted for an allocation. staging: "" when the plugin does not stage."""

    namespace: str = ""
    volume_id: str = ""
    alloc_id: str = ""
    label: str = ""
    plugin_id: str = ""
    external_id: str = ""
    staging: str = ""
    target: str = ""
    block: bool = False


class CsiMounts:
    """Volumes of this node's allocations."""

    def __init__(self, plugins: CsiPlugins, state: LocalState, link: ServerLink, clock: Clock) -> None:
        self._plugins = plugins
        self._state = state
        self._link = link
        self._clock = clock
        self._turns: dict[str, asyncio.Lock] = {}
        facts = state.facts().items()
        found = [from_json(text.encode(), Mounted) for name, text in facts if name.startswith(FACT)]
        self._mounted = {(each.alloc_id, each.label): each for each in found}

    async def mount(self, alloc: Allocation, group: TaskGroup, stopping: Callable[[], bool]) -> dict[str, str]:
        """Mount the volumes of an allocation; host paths by the label of their block. Raises LepaError.

        What an earlier agent mounted is taken as it is. stopping: whether nobody wants the allocation any more.
        """
        found = {}
        for use in uses(group, alloc.name, "csi"):
            known = self._mounted.get((alloc.id, use.label))
            if known is None or not await asyncio.to_thread(_exists, Path(known.target)):
                known = await self._mount(alloc, use, stopping)
            found[use.label] = known.target
        return found

    async def _mount(self, alloc: Allocation, use: Use, stopping: Callable[[], bool]) -> Mounted:
        claimed = await self._claim(alloc, use, stopping)
        volume = claimed.volume
        running, info = await self._plugins.find(volume.plugin_id)
        host = self._plugins.volumes_of(volume.plugin_id)
        way = f"{'rw' if use.writes else 'ro'}-{use.request.attachment_mode}-{use.request.access_mode}"
        stages = info.node_info is not None and info.node_info.requires_node_stage_volume
        staging = host / "staging" / volume.namespace / volume.id / way
        target = host / "per-alloc" / alloc.id / volume.id / way
        mounted = Mounted(
            namespace=volume.namespace,
            volume_id=volume.id,
            alloc_id=alloc.id,
            label=use.label,
            plugin_id=volume.plugin_id,
            external_id=volume.external_id,
            staging=str(staging) if stages else "",
            target=str(target),
            block=use.request.attachment_mode == "block-device",
        )
        await self._remember(mounted)
        async with self._turn(mounted):
            await asyncio.to_thread(_make_directories, staging if stages else None, target.parent)
            await self._stage_and_publish(running, host, mounted, claimed, use)
        return mounted

    async def _stage_and_publish(
        self, running: Running, host: Path, mounted: Mounted, claimed: CSIClaimed, use: Use
    ) -> None:
        volume, options = claimed.volume, _options(claimed.volume, use)
        capability = csi.capability(
            use.request.access_mode, use.request.attachment_mode, options.fs_type, options.mount_flags
        )
        inside = _Inside(host, running.inside)
        if mounted.staging:
            stage = message("NodeStageVolumeRequest")(
                volume_id=volume.external_id,
                publish_context=claimed.publish_context,
                staging_target_path=inside(mounted.staging),
                volume_capability=capability,
                secrets=volume.secrets,
                volume_context=volume.context,
            )
            await running.client.call("Node/NodeStageVolume", stage)
        publish = message("NodePublishVolumeRequest")(
            volume_id=volume.external_id,
            publish_context=claimed.publish_context,
            staging_target_path=inside(mounted.staging) if mounted.staging else "",
            target_path=inside(mounted.target),
            volume_capability=capability,
            readonly=not use.writes,
            secrets=volume.secrets,
            volume_context=volume.context,
        )
        await running.client.call("Node/NodePublishVolume", publish)

    async def _claim(self, alloc: Allocation, use: Use, stopping: Callable[[], bool]) -> CSIClaimed:
        """Ask until the volume is free, as long as somebody wants the allocation. Raises LepaError."""
        node, deadline = self._link.node, self._clock.now() + CLAIM_S
        wanted = CSIClaimRequest(
            namespace=alloc.namespace,
            volume_id=use.source,
            alloc_id=alloc.id,
            node_id=node.id,
            secret_id=node.secret_id,
        )
        told = False
        while True:
            try:
                claimed: CSIClaimed = (await self._link.call(m.CSI_VOLUME_CLAIM, wanted, CALL_S)).value
                return claimed
            except LepaError as error:
                waits = error.code in ("conflict", "timeout", "no_leader")
                if not waits or self._clock.now() >= deadline or stopping():
                    raise
                if not told:
                    log.info(
                        "volume is waited for volume=%s alloc_id=%s reason=%s", use.source, alloc.id, error.message
                    )
                    told = True
            await self._clock.sleep(CLAIM_PAUSE_S)

    def _turn(self, mounted: Mounted) -> asyncio.Lock:
        """One change of a volume on this node at a time: staging is shared."""
        return self._turns.setdefault(f"{mounted.namespace}/{mounted.volume_id}", asyncio.Lock())

    # Giving back

    async def unmount(self, alloc_id: str) -> None:
        """Take the volumes of an allocation off the node, and tell the servers. What fails is left to the servers."""
        for mounted in [each for each in self._mounted.values() if each.alloc_id == alloc_id]:
            try:
                await self._unmount(mounted)
            except LepaError as error:
                log.warning("volume was not unmounted volume=%s error=%s", mounted.volume_id, error.message)
                continue
            await self._release(mounted)

    async def detach(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The servers want an allocation's volume off this node. Raises LepaError."""
        for mounted in self._named(body):
            await self._unmount(mounted)
        return {}

    def _named(self, body: Mapping[str, Any]) -> list[Mounted]:
        wanted = (body["AllocID"], body["Namespace"], body["VolumeID"])
        return [each for each in self._mounted.values() if (each.alloc_id, each.namespace, each.volume_id) == wanted]

    async def expand(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The storage gave an allocation's volume more room, and the node has to make it usable. Raises LepaError."""
        for mounted in self._named(body):
            running, info = await self._plugins.find(mounted.plugin_id)
            if info.node_info is None or not info.node_info.supports_expand:
                raise LepaError("unsupported", f"CSI plugin {mounted.plugin_id} cannot expand volumes on nodes")
            inside = _Inside(self._plugins.volumes_of(mounted.plugin_id), running.inside)
            request = message("NodeExpandVolumeRequest")(
                volume_id=mounted.external_id,
                volume_path=inside(mounted.target),
                staging_target_path=inside(mounted.staging) if mounted.staging else "",
                volume_capability=csi.capability(body["AccessMode"], body["AttachmentMode"]),
            )
            request.capacity_range.required_bytes = body["CapacityMin"]
            request.capacity_range.limit_bytes = body["CapacityMax"]
            async with self._turn(mounted):
                await running.client.call("Node/NodeExpandVolume", request)
        return {}

    async def _unmount(self, mounted: Mounted) -> None:
        running, _ = await self._plugins.find(mounted.plugin_id)
        host = self._plugins.volumes_of(mounted.plugin_id)
        inside = _Inside(host, running.inside)
        async with self._turn(mounted):
            unpublish = message("NodeUnpublishVolumeRequest")(
                volume_id=mounted.external_id, target_path=inside(mounted.target)
            )
            await _unless_gone(running.client.call("Node/NodeUnpublishVolume", unpublish))
            if mounted.staging and not self._shares_staging(mounted):
                unstage = message("NodeUnstageVolumeRequest")(
                    volume_id=mounted.external_id, staging_target_path=inside(mounted.staging)
                )
                await _unless_gone(running.client.call("Node/NodeUnstageVolume", unstage))
                await asyncio.to_thread(_remove_directories, Path(mounted.staging), host / "staging")
            await asyncio.to_thread(_remove_directories, Path(mounted.target), host / "per-alloc")
        self._mounted.pop((mounted.alloc_id, mounted.label), None)
        await self._state.drop_facts([_fact(mounted)])

    def _shares_staging(self, mounted: Mounted) -> bool:
        return any(
            each.staging == mounted.staging and each.alloc_id != mounted.alloc_id for each in self._mounted.values()
        )

    async def _release(self, mounted: Mounted) -> None:
        node = self._link.node
        told = CSIReleaseRequest(
            namespace=mounted.namespace,
            volume_id=mounted.volume_id,
            alloc_id=mounted.alloc_id,
            node_id=node.id,
            secret_id=node.secret_id,
        )
        for _ in range(RELEASE_TRIES):
            try:
                await self._link.call(m.CSI_VOLUME_RELEASE, told, CALL_S)
                return
            except LepaError as error:
                log.info("volume is released later volume=%s error=%s", mounted.volume_id, error.message)
                await self._clock.sleep(CLAIM_PAUSE_S)

    async def _remember(self, mounted: Mounted) -> None:
        self._mounted[mounted.alloc_id, mounted.label] = mounted
        await self._state.save_facts({_fact(mounted): to_json(mounted).decode()})


class _Inside:
    """Host paths as the plugin sees them."""

    def __init__(self, host: Path, inside: str) -> None:
        self._host, self._inside = host, inside

    def __call__(self, path: str) -> str:
        return str(Path(self._inside) / Path(path).relative_to(self._host))


async def _unless_gone(call: Coroutine[Any, Any, Any]) -> None:
    """A volume that the plugin does not know is not mounted either. Raises LepaError for anything else."""
    try:
        await call
    except LepaError as error:
        if error.code != "not_found":
            raise


def _fact(mounted: Mounted) -> str:
    return f"{FACT}{json.dumps([mounted.alloc_id, mounted.label])}"


def _options(volume: CSIVolume, use: Use) -> CSIMountOptions:
    """The job's options before those of the volume."""
    own, given = use.request.mount_options or CSIMountOptions(), volume.mount_options or CSIMountOptions()
    return CSIMountOptions(fs_type=own.fs_type or given.fs_type, mount_flags=own.mount_flags or given.mount_flags)


def _exists(path: Path) -> bool:
    return path.exists()


def _make_directories(staging: Path | None, target_parent: Path) -> None:
    for path in filter(None, (staging, target_parent)):
        path.mkdir(parents=True, exist_ok=True)


def _remove_directories(path: Path, root: Path) -> None:
    """Remove an empty directory, and those above it that are empty then. Nothing that holds something is removed."""
    while path != root and path.is_relative_to(root):
        try:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
        except OSError:
            return
        path = path.parent
