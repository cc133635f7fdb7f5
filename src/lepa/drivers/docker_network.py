"""A group's network for Docker: the container that stands for it, whose network tasks join.

Docker joins the network of another container, not a network namespace by its path. So one small container a group is
made, whose only process enters the group's namespace and then sleeps (nsenter and sleep of the host, mounted
read-only into an image that holds nothing): what joins that container is in the group's network, and has its host name.
Such a container needs no registry.
"""

import asyncio
import logging
import os
import tarfile
from io import BytesIO
from typing import Any

from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.docker_config import ALLOC_ID_LABEL
from lepa.drivers.protocol import DriverError, TaskConfig

log = logging.getLogger(__name__)

REPOSITORY, TAG = "lepa/network", "1"
NAMESPACE = "/netns"
HOST_FOLDERS = ("/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr")
ENTER_S, LOOK_S = 10.0, 0.01


class GroupNetworks:
    """The standing containers of this driver, one for each allocation with a network namespace."""

    def __init__(self, api: DockerApi, image: str, owner: dict[str, str]) -> None:
        self._api = api
        self._image = image
        self._owner = owner
        self._users: dict[str, set[str]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def join(self, task: TaskConfig) -> str:
        """The network mode for a task's container. Raises DockerError or DriverError."""
        name = infra_name(task.alloc_id)
        async with self._locks.setdefault(task.alloc_id, asyncio.Lock()):
            self.use(task)
            state = await self._inspect(name)
            if state is None or not state["State"].get("Running"):
                if state is not None:
                    await self._api.remove(name)
                await self._make(task, name)
            await self._entered(name, task.network_namespace)
        return f"container:{name}"

    def use(self, task: TaskConfig) -> None:
        """A task is in its group's network, from an earlier agent's time perhaps."""
        self._users.setdefault(task.alloc_id, set()).add(task.id)

    async def leave(self, task: TaskConfig) -> None:
        """A task is gone; with the last one of its group the standing container goes."""
        users = self._users.get(task.alloc_id)
        if users is None:
            return
        users.discard(task.id)
        if not users:
            self._users.pop(task.alloc_id, None)
            self._locks.pop(task.alloc_id, None)
            await self._api.remove(infra_name(task.alloc_id))

    async def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.inspect(name)
        except DockerError as error:
            if error.status == 404:
                return None
            raise

    async def _make(self, task: TaskConfig, name: str) -> None:
        image = self._image or await self._empty_image()
        binds = [f"{os.path.realpath(path)}:{path}:ro" for path in HOST_FOLDERS if os.path.isdir(path)]
        body = {
            "Image": image,
            "Hostname": task.hostname,
            "Entrypoint": ["/usr/bin/nsenter", f"--net={NAMESPACE}", "/bin/sleep", "2147483647"],
            "Labels": {ALLOC_ID_LABEL: task.alloc_id, **self._owner},
            "HostConfig": {
                "NetworkMode": "host",
                "Binds": [*binds, f"{task.network_namespace}:{NAMESPACE}:ro"],
                "CapDrop": ["ALL"],
                "CapAdd": ["SYS_ADMIN"],
                "ReadonlyRootfs": True,
                "RestartPolicy": {"Name": "unless-stopped"},
                "LogConfig": {"Type": "none"},
            },
        }
        number = await self._api.create(name, body)
        await self._api.start(number)
        log.info("group network made alloc_id=%s container=%s", task.alloc_id, number[:12])

    async def _empty_image(self) -> str:
        image = f"{REPOSITORY}:{TAG}"
        if not await self._api.has_image(image):
            await self._api.import_image(empty_root(), REPOSITORY, TAG)
        return image

    async def _entered(self, name: str, namespace: str) -> None:
        """Wait until the container's process is in the namespace: before, whoever joins it would be on the host's."""
        wanted = os.stat(namespace).st_ino
        try:
            async with asyncio.timeout(ENTER_S):
                while True:
                    state = await self._inspect(name)
                    if state is not None and _namespace_of(int(state["State"]["Pid"])) == wanted:
                        return
                    if state is None or not state["State"].get("Running") or state.get("RestartCount"):
                        raise DriverError(f"the group's network could not be entered: container {name} ended")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError as error:
            raise DriverError(f"container {name} did not enter {namespace} within {ENTER_S:g} s") from error


def infra_name(alloc_id: str) -> str:
    """The name of an allocation's standing container."""
    return f"lepa_network-{alloc_id}"


def empty_root() -> bytes:
    """A tar archive of the folders into which the host's are mounted, and nothing else."""
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for folder in (*HOST_FOLDERS, "/proc", "/sys", "/dev", "/etc"):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        entry = tarfile.TarInfo(NAMESPACE.lstrip("/"))
        archive.addfile(entry, BytesIO(b""))
    return out.getvalue()


def _namespace_of(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return 0
