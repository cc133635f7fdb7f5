"""Volumes that plugins of this node have made: kept over restarts of the agent, offered to jobs, removed when asked.

What is there is remembered in the node's own state before the servers hear of it, so an agent that starts offers its
volumes, and its tasks their mounts, before any server answers.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from lepa.client.local_state import LocalState
from lepa.client.storage.host_plugins import Plugin
from lepa.model.errors import LepaError, invalid
from lepa.model.node import ClientHostVolumeConfig
from lepa.model.volume import HostVolume
from lepa.model.wire import from_builtins, from_json, to_json

log = logging.getLogger(__name__)

FACT: Final = "host-volume:"


class HostVolumes:
    """This node's volumes beyond those of its settings. changed: called when what is offered has changed."""

    def __init__(self, state: LocalState, plugins: Mapping[str, Plugin], changed: Callable[[], None]) -> None:
        self._state = state
        self._plugins = plugins
        self._changed = changed
        self._turn = asyncio.Lock()
        facts = state.facts().items()
        found = [from_json(text.encode(), HostVolume) for name, text in facts if name.startswith(FACT)]
        self._volumes = {volume.id: volume for volume in found}

    def offered(self) -> dict[str, ClientHostVolumeConfig]:
        """By name, as the node tells of them."""
        return {
            volume.name: ClientHostVolumeConfig(
                name=volume.name,
                path=volume.host_path,
                id=volume.id,
                namespace=volume.namespace,
                access_modes=tuple(dict.fromkeys(each.access_mode for each in volume.requested_capabilities)),
                attachment_modes=tuple(dict.fromkeys(each.attachment_mode for each in volume.requested_capabilities)),
            )
            for volume in self._volumes.values()
        }

    async def restore(self) -> None:
        """Make sure that what was made is still there: a restart of the host may have taken mounts away."""
        for volume in list(self._volumes.values()):
            plugin = self._plugins.get(volume.plugin_id)
            if plugin is None:
                continue
            try:
                made = await plugin.create(volume)
            except LepaError as error:
                log.error("volume cannot be restored volume=%s error=%s", volume.name, error.message)
                continue
            if made.path != volume.host_path:
                await self._remember(_at(volume, made.path))

    async def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a volume. Raises LepaError."""
        volume = from_builtins(dict(body), HostVolume)
        async with self._turn:
            made = await self._plugin(volume).create(volume)
            await self._remember(_at(volume, made.path))
        return {"path": made.path, "bytes": made.bytes}

    async def register(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Offer a directory that is there. Raises LepaError."""
        volume = from_builtins(dict(body), HostVolume)
        if not await asyncio.to_thread(Path(volume.host_path).is_dir):
            raise invalid(f"{volume.host_path} is no directory of this node")
        async with self._turn:
            await self._remember(volume)
        return {"path": volume.host_path, "bytes": volume.capacity_bytes}

    async def delete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Remove a volume; one that was registered is only offered no longer. Raises LepaError."""
        volume = from_builtins(dict(body), HostVolume)
        async with self._turn:
            known = self._volumes.get(volume.id, volume)
            if known.plugin_id and known.plugin_id in self._plugins:
                await self._plugins[known.plugin_id].delete(known)
            elif known.plugin_id and known.id in self._volumes:
                raise invalid(f'this node has no host volume plugin "{known.plugin_id}" any more to remove it with')
            if self._volumes.pop(volume.id, None) is not None:
                await self._state.drop_facts([FACT + volume.id])
                self._changed()
        return {}

    def _plugin(self, volume: HostVolume) -> Plugin:
        if volume.plugin_id not in self._plugins:
            known = ", ".join(sorted(self._plugins))
            raise invalid(f'this node has no host volume plugin "{volume.plugin_id}"; known: {known}')
        return self._plugins[volume.plugin_id]

    async def _remember(self, volume: HostVolume) -> None:
        self._volumes[volume.id] = volume
        await self._state.save_facts({FACT + volume.id: to_json(volume).decode()})
        self._changed()


def _at(volume: HostVolume, path: str) -> HostVolume:
    """The volume with where it is."""
    fields = {name: getattr(volume, name) for name in volume.__struct_fields__}
    return HostVolume(**(fields | {"host_path": path}))
