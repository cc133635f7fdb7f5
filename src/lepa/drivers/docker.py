"""Containers of a Docker daemon: `docker`."""

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Sequence
from typing import Any

from lepa.drivers import usage
from lepa.drivers.container_driver import Container, ContainerDriver, resolve
from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.docker_config import container_body, network_mode, published_ports
from lepa.drivers.docker_images import Images
from lepa.drivers.docker_leftovers import OWNER_LABEL, Leftovers
from lepa.drivers.docker_network import GroupNetworks
from lepa.drivers.docker_rules import config_problems
from lepa.drivers.docker_settings import DockerSettings, rules, tls_context
from lepa.drivers.protocol import TaskConfig, TaskHandle, TaskNetwork
from lepa.drivers.supervised import resolv_conf
from lepa.kit.durations import parse_duration
from lepa.kit.sources import Clock
from lepa.model.node import DriverInfo

SECOND_NS = 1_000_000_000
__all__ = ["DockerDriver", "DockerSettings"]

log = logging.getLogger(__name__)


class DockerDriver(ContainerDriver):
    """Driver "docker". Raises ValueError or OSError for an endpoint, duration or certificate that is none."""

    name = "docker"

    def __init__(self, clock: Clock, settings: DockerSettings, state_dir: str) -> None:
        api = DockerApi(settings.endpoint, tls_context(settings.tls))
        logs = not settings.disable_log_collection
        super().__init__(clock, api, state_dir, attempts=settings.container_exists_attempts, logs=logs)
        self._settings = settings
        self._rules = rules(settings, usage.core_mhz())
        self._owner = hashlib.sha256(self._state_dir.encode()).hexdigest()[:16]
        self._images = Images(
            api,
            clock,
            self._tasks,
            settings.auth,
            timeout_s=parse_duration(settings.image_pull_timeout) / SECOND_NS,
            silence_s=parse_duration(settings.pull_activity_timeout) / SECOND_NS,
            delay_s=parse_duration(settings.gc.image_delay) / SECOND_NS if settings.gc.image else None,
        )
        self._networks = GroupNetworks(api, settings.infra_image, {OWNER_LABEL: self._owner})
        self._leftovers = Leftovers(api, clock, settings.gc.dangling_containers, self._owner, self._known_ids)
        self._looking: asyncio.Task[None] | None = None

    async def fingerprint(self) -> DriverInfo:
        """What the daemon says of itself; undetected when it cannot be asked."""
        try:
            version = await self._api.version()
            info = await self._api.info()
        except DockerError as error:
            return DriverInfo(health_description=str(error))
        if self._looking is None and self._settings.gc.dangling_containers.enabled:
            self._looking = self._tasks.start("leftovers", self._leftovers.run())
        attributes = {
            "driver.docker": "1",
            "driver.docker.version": str(version.get("Version", "")),
            "driver.docker.os_type": str(info.get("OSType", "")),
            "driver.docker.runtimes": ",".join(sorted(info.get("Runtimes") or {})),
        }
        if address := await self._bridge_address():
            attributes["driver.docker.bridge_ip"] = address
        for name, wanted in (
            ("volumes.enabled", self._settings.volumes.enabled),
            ("privileged.enabled", self._settings.allow_privileged),
        ):
            if wanted:
                attributes[f"driver.docker.{name}"] = "true"
        if self._settings.pids_limit:
            attributes["driver.docker.pids.limit"] = str(self._settings.pids_limit)
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    async def _bridge_address(self) -> str:
        """The host's address on Docker's own bridge; "" without one."""
        try:
            bridge = await self._api.call("GET", "/networks/bridge")
        except DockerError:
            return ""
        pools = (bridge.get("IPAM") or {}).get("Config") or [{}]
        return str(pools[0].get("Gateway", ""))

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        return config_problems(config, self._rules)

    async def provide_image(self, task: TaskConfig) -> None:
        """By `load`, else by a pull."""
        await self._images.provide(task)

    async def make(self, task: TaskConfig, name: str) -> str:
        """The container, in its group's network where there is one."""
        joined = await self._networks.join(task) if joins_group(task) else ""
        body = container_body(task, self._rules, lambda path: resolve(task, path), joined=joined)
        body["Labels"][OWNER_LABEL] = self._owner
        if joined and (text := resolv_conf(task.dns)):
            body["HostConfig"]["Binds"].append(f"{self._name_servers(task, text)}:/etc/resolv.conf:ro")
        if any(device.host_path.startswith("/dev/nvidia") for device in task.devices):
            body["HostConfig"].setdefault("Runtime", self._settings.nvidia_runtime)
        if cores := self.cores_of(task):
            body["HostConfig"]["CpusetCpus"] = cores
        return await self._api.create(name, body)

    async def hold(self, container: Container, cores: str) -> None:
        """Let a container use these cores and no others."""
        await self._api.update(container.number, {"CpusetCpus": cores})

    def _name_servers(self, task: TaskConfig, text: str) -> str:
        """A file that says whom a task asks: Docker takes no such option for a container in another's network."""
        path = self._name_servers_path(task)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def _name_servers_path(self, task: TaskConfig) -> str:
        return os.path.join(self._state_dir, "resolv", task.id)

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Find the container again."""
        await super().recover(task, handle)
        self._images.use(task)
        if joins_group(task):
            self._networks.use(task)

    async def removed(self, task: TaskConfig) -> None:
        """A task is gone: its image may go, and with the last one of its group the group's network container."""
        self._images.release(task)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name_servers_path(task))
        await self._networks.leave(task)

    async def _remove(self, container: Container) -> None:
        """Where the operator wants to look at ended containers, they stay; their names make room for the next."""
        if self._settings.gc.container:
            await super()._remove(container)
        else:
            await self._api.kill(container.number, "9")
            await self._api.rename(container.number, f"{container.task.task_name}-{container.task.id}")

    def network_of(self, task: TaskConfig, state: dict[str, Any]) -> TaskNetwork | None:
        """The container's own address; a network of one's own is advertised, Docker's bridge is not."""
        mode = network_mode(task)
        networks = state["NetworkSettings"].get("Networks") or {}
        field = "GlobalIPv6Address" if task.config.get("advertise_ipv6_address") else "IPAddress"
        address = next((each[field] for each in networks.values() if each.get(field)), "")
        if not address or mode == "host" or joins_group(task):
            return None
        own = mode not in ("bridge", "default", "nat")
        return TaskNetwork(ip=address, port_map=published_ports(task), auto_advertise=own)

    def _known_ids(self) -> tuple[set[str], set[str]]:
        return set(self._containers), {each.task.alloc_id for each in self._containers.values()}


def joins_group(task: TaskConfig) -> bool:
    """Whether a task is in its group's network: the group has one, and the task does not ask for another."""
    return bool(task.network_namespace) and not task.config.get("network_mode")
