"""Containers of Podman: `podman`, by the REST API of its service.

Containers are made by Podman's own API, which joins a network namespace by its path; everything else goes through the
part of its API that is Docker's.
"""

import contextlib
import resource
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from lepa.drivers import options, usage
from lepa.drivers.container_driver import Container, ContainerDriver, resolve
from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.docker_config import published_ports
from lepa.drivers.docker_images import Images
from lepa.drivers.docker_settings import AuthSettings
from lepa.drivers.podman_config import (
    DESCRIPTORS_MAX,
    PROCESSES_MAX,
    HostLimits,
    PodmanSettings,
    config_problems,
    container_spec,
    image_name,
    resource_limits,
)
from lepa.drivers.podman_logs import PodmanLogs
from lepa.drivers.protocol import DriverError, TaskConfig, TaskHandle, TaskNetwork
from lepa.drivers.supervisor.messages import LogFiles
from lepa.kit.durations import parse_duration
from lepa.kit.sources import Clock
from lepa.model.node import DriverInfo

LIBPOD = "/v4.0.0/libpod"
"""The oldest version of Podman's own API that has what is used here; newer services speak it too."""
ARCHIVES = ("oci-archive:", "docker-archive:")
SECOND_NS = 1_000_000_000


class PodmanDriver(ContainerDriver):
    """Driver "podman". Raises ValueError for a socket or duration that is none."""

    name = "podman"
    work_dir_option = "working_dir"

    def __init__(self, clock: Clock, settings: PodmanSettings, state_dir: str) -> None:
        path = settings.socket_path
        endpoint = path if "://" in path else f"unix://{path}"
        endpoint = endpoint.replace("unix://run/", "unix:///run/")  # as the plugin's documentation has it
        api = DockerApi(endpoint)
        super().__init__(clock, api, state_dir, logs=not settings.disable_log_collection)
        self._settings = settings
        self._host = HostLimits(
            core_mhz=usage.core_mhz(),
            descriptors=_hard_limit(resource.RLIMIT_NOFILE, DESCRIPTORS_MAX),
            processes=min(_hard_limit(resource.RLIMIT_NPROC, PROCESSES_MAX), _processes_of_host()),
        )
        self._loaded: dict[str, str] = {}
        self._images = Images(
            api,
            clock,
            self._tasks,
            AuthSettings(**settings.auth),
            timeout_s=parse_duration(settings.image_pull_timeout) / SECOND_NS,
            silence_s=None,
            delay_s=None,
        )

    async def fingerprint(self) -> DriverInfo:
        """What the service says of itself; undetected when it cannot be asked."""
        try:
            version = await self._api.version()
            info = await self._api.call("GET", f"{LIBPOD}/info", versioned=False)
        except DockerError as error:
            return DriverInfo(health_description=str(error).replace("Docker at", "Podman at"))
        host = info.get("host") or {}
        attributes = {
            "driver.podman": "1",
            "driver.podman.version": str(version.get("Version", "")),
            "driver.podman.cgroupVersion": str(host.get("cgroupVersion", "")),
            "driver.podman.rootless": str(bool((host.get("security") or {}).get("rootless"))).lower(),
            "driver.podman.ociRuntime": str((host.get("ociRuntime") or {}).get("name", "")),
        }
        if self._settings.volumes.enabled:
            attributes["driver.podman.volumes.enabled"] = "true"
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        return config_problems(config, self._settings)

    async def provide_image(self, task: TaskConfig) -> None:
        """From an archive in the task's directory, else by a pull."""
        image = options.text(task.config, "image")
        if image.startswith(ARCHIVES):
            self._loaded[image] = await self._load(resolve(task, image.partition(":")[2]))
        else:
            await self._images.provide(_plain(task))

    async def _load(self, path: str) -> str:
        """The name of the image in an archive."""
        answer = await self._api.post_file(f"{LIBPOD}/images/load", path)
        names = answer.get("Names") or []
        if not names:
            raise DriverError(f"{path} holds no image")
        return str(names[0])

    async def make(self, task: TaskConfig, name: str) -> str:
        """The container."""
        image = options.text(task.config, "image")
        image = self._loaded.get(image) or image_name(image)
        spec = container_spec(
            task, name, image, self._settings, self._host, lambda path: resolve(task, path), self.cores_of(task)
        )
        answer = await self._api.call("POST", f"{LIBPOD}/containers/create", body=spec, versioned=False)
        return str(answer["Id"])

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Find the container again; one that ended meanwhile is started anew where the operator wants that."""
        await super().recover(task, handle)
        if self._settings.recover_stopped:
            with contextlib.suppress(DockerError):
                state = (await self._api.inspect(self._containers[task.id].number))["State"]
                if not state.get("Running"):
                    await self._api.start(self._containers[task.id].number)

    async def removed(self, task: TaskConfig) -> None:
        """Nothing is shared."""
        self._images.release(_plain(task))

    async def hold(self, container: Container, cores: str) -> None:
        """Let a container use these cores and no others; its other limits would be forgotten if not told again."""
        limits = resource_limits(container.task, self._host, cores)
        path = f"{LIBPOD}/containers/{container.number}/update"
        await self._api.call("POST", path, body=limits, versioned=False)

    async def copy_output(self, container: Container, files: dict[str, LogFiles]) -> None:
        """From Podman's own file where it keeps one; its API cuts time stamps to seconds and loses full files."""
        try:
            path = str((await self._api.inspect(container.number)).get("LogPath") or "")
        except DockerError:
            path = ""
        if not path:
            await super().copy_output(container, files)
            return
        logs = PodmanLogs(path, files, self._position_path(container.task.id), self._clock)
        await logs.run(lambda: container.stopped)

    async def _remove(self, container: Container) -> None:
        """Killed first: removing a running container lets it have ten seconds to stop."""
        with contextlib.suppress(DockerError):
            await self._api.kill(container.number, "9")
        if self._settings.gc.container:
            await super()._remove(container)
        else:
            await self._api.rename(container.number, f"{container.task.task_name}-{container.task.id}")

    def network_of(self, task: TaskConfig, state: dict[str, Any]) -> TaskNetwork | None:
        """The container's own address on a bridge."""
        settings = state.get("NetworkSettings") or {}
        networks = settings.get("Networks") or {}
        address = settings.get("IPAddress") or next(
            (each["IPAddress"] for each in networks.values() if each.get("IPAddress")), ""
        )
        if not address or task.network_namespace:
            return None
        return TaskNetwork(ip=str(address), port_map=published_ports(task), auto_advertise=False)


def _plain(task: TaskConfig) -> TaskConfig:
    """The task with its image named as the service names it."""
    return replace(task, config={**task.config, "image": image_name(options.text(task.config, "image"))})


def _hard_limit(kind: int, unlimited: int) -> int:
    """What a process here may have at most: the service, on the same host, has no more to give."""
    _, hard = resource.getrlimit(kind)
    return hard if hard != resource.RLIM_INFINITY else unlimited


def _processes_of_host() -> int:
    """Podman's service lowers its own limit to the number of process ids there are."""
    try:
        with open("/proc/sys/kernel/pid_max") as file:
            return int(file.read())
    except (OSError, ValueError):
        return PROCESSES_MAX
