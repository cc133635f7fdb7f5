"""The table of fingerprinters, and what they find together. A new one is one function and one row."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from lepa.client.fingerprint import cloud, host, networks
from lepa.client.fingerprint.facts import Facts, HostFacts, merge
from lepa.client.node_options import allowed
from lepa.client.settings import ClientSettings
from lepa.client.storage.host_plugins import find_plugins
from lepa.drivers.protocol import Driver
from lepa.kit.durations import rfc3339
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.model.node import DriverInfo
from lepa.model.resources import NetworkResource

log = logging.getLogger(__name__)

DRIVER_S = 10.0

FINGERPRINTERS: Mapping[str, Callable[[ClientSettings], Facts]] = {
    "cpu": host.cpu,
    "memory": host.memory,
    "storage": host.storage,
    "kernel": host.kernel,
    "network": host.network,
    "cni": host.cni_plugins,
    "lepa": host.lepa,
    "cloud": lambda settings: cloud.aws(settings.cloud_metadata_url) if settings.cloud_metadata_url else Facts(),
}


class Fingerprint:
    """Looks at this host and its drivers."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def host(self) -> HostFacts:
        """Everything about the host. A fingerprinter that fails is logged and left out."""
        found = await asyncio.gather(*(asyncio.to_thread(self._one, name) for name in self._wanted()))
        facts = merge([*found])
        resources = await asyncio.to_thread(host.resources, self._settings)
        modes = await asyncio.to_thread(networks.offered, self._settings)
        resources = replace(resources, networks=(*resources.networks, *modes))
        plugins = await self._volume_plugins()
        facts = merge([facts, plugins])
        return HostFacts(facts.attributes, facts.links, resources, host.CGROUP)

    async def networks(self) -> tuple[tuple[NetworkResource, ...], dict[str, str]]:
        """Networks of their own that groups can have here, and attributes of the plugins that make them."""
        modes = await asyncio.to_thread(networks.offered, self._settings)
        found = await asyncio.to_thread(self._one, "cni") if "cni" in self._wanted() else Facts()
        return modes, dict(found.attributes)

    def _wanted(self) -> list[str]:
        return [name for name in FINGERPRINTERS if allowed(self._settings.options, "fingerprint", name)]

    async def _volume_plugins(self) -> Facts:
        """Plugins that make volumes, each with its version; one that does not work is logged and left out."""
        settings = self._settings
        found = find_plugins(settings.host_volume_plugin_dir, settings.host_volumes_dir, "", settings.node_pool)
        attributes = {}
        for name, plugin in found.items():
            try:
                attributes[f"plugins.host_volume.{name}.version"] = await plugin.version()
            except LepaError as error:
                log.warning("host volume plugin does not work plugin=%s error=%s", name, error.message)
        return Facts(attributes)

    def _one(self, name: str) -> Facts:
        try:
            return FINGERPRINTERS[name](self._settings)
        except (OSError, ValueError, LepaError) as error:
            log.warning("fingerprint failed name=%s error=%s", name, error)
            return Facts()

    async def drivers(self, drivers: Mapping[str, Driver]) -> dict[str, DriverInfo]:
        """What each driver says of itself; one that does not answer in time is unhealthy."""
        found = await asyncio.gather(*(self._driver(driver) for driver in drivers.values()))
        return dict(zip(drivers, found, strict=True))

    async def _driver(self, driver: Driver) -> DriverInfo:
        try:
            async with asyncio.timeout(DRIVER_S):
                return await driver.fingerprint()
        except TimeoutError:
            text = f"no answer within {DRIVER_S:g} s"
        except LepaError as error:
            text = error.message
        return DriverInfo(health_description=text, update_time=rfc3339(self._clock.now_ns()))
