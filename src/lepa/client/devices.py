"""The devices of this node: what its plugins find, and what a task gets of those that the scheduler gave it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from lepa.drivers.devices.protocol import DevicePlugin, Reservation
from lepa.model.errors import LepaError, not_found
from lepa.model.node import NodeDeviceResource
from lepa.model.resources import AllocatedTaskResources

log = logging.getLogger(__name__)

ANSWER_S = 10.0


class Devices:
    """All plugins together. A group of devices belongs to the plugin that found it last."""

    def __init__(self, plugins: Sequence[DevicePlugin] = ()) -> None:
        self._plugins = plugins
        self._owners: dict[tuple[str, str, str], DevicePlugin] = {}

    async def fingerprint(self) -> tuple[NodeDeviceResource, ...]:
        """Every group of devices; a plugin that fails or does not answer has none."""
        found = await asyncio.gather(*(self._of(plugin) for plugin in self._plugins))
        self._owners = {
            (group.vendor, group.type, group.name): plugin
            for plugin, groups in zip(self._plugins, found, strict=True)
            for group in groups
        }
        return tuple(group for groups in found for group in groups)

    async def _of(self, plugin: DevicePlugin) -> Sequence[NodeDeviceResource]:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await plugin.fingerprint()
        except Exception as error:  # a plugin is somebody else's code
            log.warning("devices not found plugin=%s reason=%s", plugin.name, error)
            return ()

    async def reserve(self, resources: AllocatedTaskResources | None) -> Reservation:
        """What a task needs to use the devices it was given. Raises LepaError when one is not there any more."""
        reserved = Reservation()
        for given in resources.devices if resources is not None else ():
            owner = self._owners.get((given.vendor, given.type, given.name))
            if owner is None:
                raise not_found(f"device {given.vendor}/{given.type}/{given.name} is not on this node any more")
            try:
                async with asyncio.timeout(ANSWER_S):
                    reserved = reserved.and_also(await owner.reserve(given))
            except TimeoutError as error:
                raise LepaError(
                    "timeout", f"device plugin {owner.name} gave no answer within {ANSWER_S:g} s"
                ) from error
        return reserved

    async def stats(self) -> tuple[dict[str, Any], ...]:
        """Present use of all devices."""
        found: list[dict[str, Any]] = []
        for plugin in self._plugins:
            try:
                async with asyncio.timeout(ANSWER_S):
                    found += await plugin.stats()
            except Exception as error:  # a plugin is somebody else's code
                log.warning("devices not measured plugin=%s reason=%s", plugin.name, error)
        return tuple(found)

    async def close(self) -> None:
        """Let go of everything."""
        for plugin in self._plugins:
            await plugin.close()
