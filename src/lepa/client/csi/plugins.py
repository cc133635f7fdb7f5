"""CSI plugins that run on this node as tasks: found by their sockets, watched, and told of to the servers.

A task with a `csi_plugin` block gets a directory for its socket (CSI_ENDPOINT says where), a plugin for nodes also one
below which it mounts volumes. Whoever runs a plugin without a root of its own (`raw_exec`) sees the same paths as the
host; for others they are mounted.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from lepa.client.csi.plugin_client import PluginClient
from lepa.client.hooks.protocol import QuietHook, Setup
from lepa.client.task_env import Place
from lepa.drivers.protocol import Mount, TaskNetwork
from lepa.kit.durations import rfc3339
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.node import Node
from lepa.model.volume import CSIInfo

log = logging.getLogger(__name__)

SOCKET: Final = "csi.sock"
LOOK_S: Final = 0.25
WATCH_S: Final = 15.0
WAIT_S: Final = 60.0
"""How long an allocation waits for the plugin of its volume."""


class Running(NamedTuple):
    """A plugin that runs here. inside: the directory of its volumes as the plugin sees it."""

    plugin_id: str
    alloc_id: str
    kind: str
    client: PluginClient
    inside: str


class CsiPlugins:
    """Plugins of this node. changed: called when what they say has changed."""

    def __init__(self, directory: Path, clock: Clock, changed: Callable[[], None]) -> None:
        self._directory = directory / "csi"
        self._clock = clock
        self._changed = changed
        self._tasks = Tasks("client.csi")
        self._watching: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._running: dict[str, Running] = {}
        self._infos: dict[str, tuple[str, CSIInfo]] = {}
        self._news = asyncio.Event()

    # What others need

    def of_node(self, node: Node) -> Node:
        """The node with its plugins."""
        controllers = {p: info for p, (kind, info) in self._infos.items() if kind in ("controller", "monolith")}
        nodes = {p: info for p, (kind, info) in self._infos.items() if kind in ("node", "monolith")}
        return replace(node, csi_controller_plugins=controllers, csi_node_plugins=nodes)

    async def find(self, plugin_id: str) -> tuple[Running, CSIInfo]:
        """A plugin that works, waited for. Raises LepaError(timeout)."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not (plugin_id in self._running and self._infos[plugin_id][1].healthy):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise LepaError("timeout", f"CSI plugin {plugin_id} does not work on this node") from error
        return self._running[plugin_id], self._infos[plugin_id][1]

    def volumes_of(self, plugin_id: str) -> Path:
        """Where a plugin mounts its volumes, on the host."""
        return self._directory / "volumes" / plugin_id

    # Tasks that are plugins

    def mounts(self, place: Place) -> list[Mount]:
        """What the task of a plugin needs mounted."""
        wanted = place.task.csi_plugin_config
        if wanted is None:
            return []
        found = [Mount(host_path=str(self._socket_dir(place)), task_path=wanted.mount_dir)]
        if wanted.type != "controller":
            volumes = str(self.volumes_of(wanted.id))
            found.append(Mount(host_path=volumes, task_path=wanted.stage_publish_base_dir, propagation="rshared"))
            found.append(Mount(host_path="/dev", task_path="/dev", propagation="rprivate"))
        return found

    def prepare(self, place: Place, *, isolated: bool) -> dict[str, str]:
        """Make the directories of a plugin; the variables that tell it of them."""
        wanted = place.task.csi_plugin_config
        assert wanted is not None
        directory = self._socket_dir(place)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SOCKET).unlink(missing_ok=True)
        self.volumes_of(wanted.id).mkdir(parents=True, exist_ok=True)
        inside = wanted.mount_dir if isolated else str(directory)
        return {"CSI_ENDPOINT": f"unix://{inside}/{SOCKET}"}

    def _socket_dir(self, place: Place) -> Path:
        return self._directory / "sockets" / place.alloc.id[:8]

    def begin(self, place: Place, *, isolated: bool) -> None:
        """A plugin's task runs: look for its socket."""
        wanted = place.task.csi_plugin_config
        assert wanted is not None
        key = (place.alloc.id, place.task.name)
        if key not in self._watching:
            inside = wanted.stage_publish_base_dir if isolated else str(self.volumes_of(wanted.id))
            client = PluginClient(self._socket_dir(place) / SOCKET)
            running = Running(wanted.id, place.alloc.id, wanted.type or "monolith", client, inside)
            self._watching[key] = self._tasks.start(f"csi.{wanted.id}", self._watch(running))

    def end(self, place: Place) -> None:
        """A plugin's task has ended."""
        watching = self._watching.pop((place.alloc.id, place.task.name), None)
        if watching is not None:
            watching.cancel()
        shutil.rmtree(self._socket_dir(place), ignore_errors=True)

    async def _watch(self, running: Running) -> None:
        controller, node = running.kind != "node", running.kind != "controller"
        try:
            while True:
                try:
                    info = await running.client.fingerprint(
                        running.plugin_id, running.alloc_id, controller=controller, node=node
                    )
                except LepaError as error:
                    info = replace(self._known(running), healthy=False, health_description=error.message)
                self._note(running, info)
                await self._clock.sleep(WATCH_S if info.healthy else LOOK_S)
        finally:
            running.client.close()
            present = self._running.get(running.plugin_id)
            if present is not None and present.alloc_id == running.alloc_id:
                del self._running[running.plugin_id], self._infos[running.plugin_id]
                self._changed()

    def _known(self, running: Running) -> CSIInfo:
        known = self._infos.get(running.plugin_id)
        return known[1] if known is not None else CSIInfo(plugin_id=running.plugin_id, alloc_id=running.alloc_id)

    def _note(self, running: Running, info: CSIInfo) -> None:
        before = self._infos.get(running.plugin_id)
        if before is not None and not info.healthy and before[1].alloc_id != running.alloc_id:
            return  # another allocation's plugin works
        same = before is not None and replace(before[1], update_time="") == replace(info, update_time="")
        if same and running.plugin_id in self._running:
            return
        if before is None and not info.healthy:
            return
        log.info("CSI plugin plugin=%s healthy=%s %s", running.plugin_id, info.healthy, info.health_description)
        self._running[running.plugin_id] = running
        self._infos[running.plugin_id] = (running.kind, replace(info, update_time=rfc3339(self._clock.now_ns())))
        self._news.set()
        self._changed()

    async def close(self) -> None:
        """Let go; the plugins go on."""
        await self._tasks.close()


class CsiPluginHook(QuietHook):
    """Of a task that is a plugin."""

    name = "csi_plugin"

    def __init__(self, plugins: CsiPlugins, place: Place, *, isolated: bool) -> None:
        self._plugins = plugins
        self._place = place
        self._isolated = isolated

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Directories, and where they are."""
        return await asyncio.to_thread(self._plugins.prepare, self._place, isolated=self._isolated)

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """It runs, or was taken up again."""
        self._plugins.begin(self._place, isolated=self._isolated)

    async def exited(self) -> None:
        """It has ended."""
        self._plugins.end(self._place)
