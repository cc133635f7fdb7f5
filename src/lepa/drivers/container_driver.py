"""What drivers have in common whose tasks are containers of a daemon with Docker's API: everything but what a container
is made of and where its image comes from.

The daemon keeps containers alive without the agent; labels and names lead back to them. Output is copied from the
daemon into the task's log files (see docker_logs).
"""

import asyncio
import contextlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lepa.drivers import docker_figures, options, usage
from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.docker_config import TASK_ID_LABEL, container_name
from lepa.drivers.docker_logs import DockerLogs
from lepa.drivers.docker_session import DockerSession
from lepa.drivers.protocol import (
    Capabilities,
    DriverError,
    ExecSession,
    ExitResult,
    Started,
    TaskConfig,
    TaskHandle,
    TaskNetwork,
)
from lepa.drivers.signals import signal_number
from lepa.drivers.supervised import log_files
from lepa.drivers.supervisor.messages import LogFiles
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.stats import TaskResourceUsage

log = logging.getLogger(__name__)

RETRY_S = 1.0
KILL_WAIT_S = 10.0
"""How long a killed container may take to be gone before the daemon is asked again."""
LOG_DRAIN_S = 5.0
"""How long the end of a container's output may come after its end."""
NAME_TAKEN = 409


class Container:
    """A container of ours, and what goes on beside it."""

    def __init__(self, task: TaskConfig, number: str) -> None:
        self.task = task
        self.number = number
        self.ended: asyncio.Future[ExitResult] = asyncio.get_running_loop().create_future()
        self.logs: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.cpu: usage.CpuTime | None = None
        self.stopped = False


class ContainerDriver(ABC):
    """Tasks as containers. A subclass says how an image is had, and makes the container."""

    name = ""
    capabilities = Capabilities(isolation="image", network_modes=("host", "bridge", "group"))
    work_dir_option = "work_dir"

    def __init__(self, clock: Clock, api: DockerApi, state_dir: str, *, attempts: int = 5, logs: bool = True) -> None:
        self._clock = clock
        self._api = api
        self._state_dir = os.path.join(os.path.abspath(state_dir), self.name)
        self._attempts = attempts
        self._copies_logs = logs
        self._containers: dict[str, Container] = {}
        self._tasks = Tasks(self.name)
        self._core_mhz = usage.core_mhz()
        self._shared_cores: tuple[int, ...] = ()

    @abstractmethod
    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""

    @abstractmethod
    async def provide_image(self, task: TaskConfig) -> None:
        """Have the task's image on this host. Raises DriverError or DockerError."""

    @abstractmethod
    async def make(self, task: TaskConfig, name: str) -> str:
        """Make the container; its id. Raises DriverError, or DockerError with status 409 when the name is taken."""

    @abstractmethod
    async def hold(self, container: Container, cores: str) -> None:
        """Let a container use these cores and no others. Raises DockerError."""

    @abstractmethod
    def network_of(self, task: TaskConfig, state: dict[str, Any]) -> TaskNetwork | None:
        """An address of the container's own."""

    @abstractmethod
    async def removed(self, task: TaskConfig) -> None:
        """A task's container is gone: let go of what it shared with others."""

    async def start(self, task: TaskConfig) -> Started:
        """Fetch the image where it is missing, make the container, start it."""
        if found := self.problems(task.config):
            raise DriverError("; ".join(found))
        number, shared = "", self._shared_cores
        try:
            await self._api.version()
            await self.provide_image(task)
            number = await self._make(task)
            await self._api.start(number)
            state = await self._api.inspect(number)
        except DockerError as error:
            await self._undo(task, number)
            recoverable = error.status in (0, 409) or error.status >= 500
            raise DriverError(f"{options.text(task.config, 'image')}: {error}", recoverable=recoverable) from error
        except DriverError:
            await self._undo(task, number)
            raise
        container = self._take(task, number)
        self._follow(container)
        if self._shared_cores != shared:
            await self._move(container)
        handle = TaskHandle(
            driver=self.name,
            task_id=task.id,
            started_at=docker_figures.moment(state["State"]["StartedAt"]),
            state={"container_id": number},
        )
        return Started(handle=handle, network=self.network_of(task, state))

    async def _undo(self, task: TaskConfig, number: str) -> None:
        with contextlib.suppress(DockerError):
            if number:
                await self._api.remove(number)
            await self.removed(task)

    async def share_cores(self, cores: tuple[int, ...]) -> None:
        """Move the containers that have no cores of their own."""
        self._shared_cores = cores
        for container in list(self._containers.values()):
            await self._move(container)

    async def _move(self, container: Container) -> None:
        if container.ended.done() or has_cores(container.task):
            return
        try:
            await self.hold(container, self.cores_of(container.task))
        except DockerError as error:
            if not container.stopped:
                log.warning("container was not moved container=%s error=%s", container.number[:12], error)

    def cores_of(self, task: TaskConfig) -> str:
        """The cores a task may run on, as "0,2": its own, else those that nobody has reserved; "" for all."""
        own = options.text(task.config, "cpuset_cpus")
        return own or ",".join(map(str, task.resources.cpu.reserved_cores or self._shared_cores))

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Find the container again and follow its output from where it was left; wait for a daemon that is away."""
        number = str(handle.state.get("container_id", ""))
        try:
            await self._api.version()
            found = await self._api.inspect(number or container_name(task))
            if not number and not _is_started(found, task):
                raise not_found(f"container {container_name(task)} was never started for this task")
            number = number or str(found["Id"])
        except DockerError as error:
            if error.status == 404 or not number:
                raise not_found(f"container {number[:12] or container_name(task)} is gone") from error
            log.warning("container not seen yet container=%s reason=%s", number[:12], error)
        self._follow(self._take(task, number))

    async def wait(self, task_id: str) -> ExitResult:
        """Return when the container has ended and its output has been copied."""
        return await asyncio.shield(self._known(task_id).ended)

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Signal the container, kill it after `timeout_s`; return when it has ended."""
        container = self._known(task_id)
        number = signal_number(signal or container.task.kill_signal)
        await self._kill(container, str(number))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(container.ended)
        except TimeoutError:
            while not container.ended.done():
                await self._kill(container, "9")
                await asyncio.wait({container.ended}, timeout=KILL_WAIT_S)

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        await self._kill(self._known(task_id), str(signal_number(signal)))

    async def destroy(self, task_id: str) -> None:
        """Remove the container with all that is its own."""
        container = self._known(task_id)
        try:
            await self._remove(container)
        except DockerError as error:
            raise LepaError("internal", str(error)) from error
        for work in (container.watch, container.logs):
            if work is not None:
                work.cancel()
        if not container.ended.done():
            container.ended.set_result(docker_figures.killed(self._clock.now_ns()))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._position_path(task_id))
        del self._containers[task_id]
        with contextlib.suppress(DockerError):
            await self.removed(container.task)

    async def _remove(self, container: Container) -> None:
        await self._api.remove(container.number)

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """Present use of CPU and memory, as the daemon measures it."""
        container = self._known(task_id)
        try:
            raw = await self._api.stats(container.number)
        except DockerError as error:
            raise LepaError("internal", str(error)) from error
        cpu, memory = docker_figures.cpu_time(raw, self._clock.now_ns()), docker_figures.memory_use(raw)
        before, container.cpu = container.cpu, cpu
        return usage.task_usage(cpu, before, memory, self._core_mhz)

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Run a command in the container, with its user, directory and environment."""
        container = self._known(task_id)
        if not command:
            raise invalid("a command to run must be given")
        body = {
            "Cmd": list(command),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": tty,
            "Env": ["TERM=xterm"] if tty else [],
            "User": container.task.user,
            "WorkingDir": options.text(container.task.config, self.work_dir_option),
        }
        try:
            number = await self._api.create_exec(container.number, body)
            reader, writer = await self._api.start_exec(number, tty=tty)
        except DockerError as error:
            raise LepaError("conflict" if error.status == 409 else "internal", str(error)) from error
        return DockerSession(self._api, self._clock, number, reader, writer, tty=tty)

    async def close(self) -> None:
        """Let go of the daemon; containers go on."""
        await self._tasks.close()
        await self._api.close()

    # ---- one container

    async def _make(self, task: TaskConfig) -> str:
        """Make the container; one of an earlier start of the same task makes room for it."""
        name = container_name(task)
        attempts = options.number(task.config, "container_exists_attempts", self._attempts)
        for _ in range(max(1, attempts)):
            try:
                return await self.make(task, name)
            except DockerError as error:
                if error.status != NAME_TAKEN and "already in use" not in str(error):
                    raise
            await self._make_room(name, task.id)
        raise DriverError(f"a container named {name} exists already and could not be replaced", recoverable=True)

    async def _make_room(self, name: str, task_id: str) -> None:
        with contextlib.suppress(DockerError):
            old = await self._api.inspect(name)
            if (old["Config"].get("Labels") or {}).get(TASK_ID_LABEL) in self._containers:
                raise DriverError(f"a container named {name} belongs to a task that runs")
            log.info("leftover container removed name=%s task_id=%s", name, task_id)
            await self._api.remove(old["Id"])

    def _take(self, task: TaskConfig, number: str) -> Container:
        container = self._containers[task.id] = Container(task, number)
        return container

    def _follow(self, container: Container) -> None:
        """Copy its output and wait for its end."""
        task = container.task
        files = {
            stream: where
            for stream, path in (("stdout", task.stdout_path), ("stderr", task.stderr_path))
            if (where := log_files(path, task.logs)) is not None
        }
        if files and self._copies_logs:
            container.logs = self._tasks.start("logs", self.copy_output(container, files))
        container.watch = self._tasks.start("wait", self._watch(container))

    async def copy_output(self, container: Container, files: dict[str, LogFiles]) -> None:
        """Copy what the container writes, from where it was left, until its end has been copied."""
        tty = options.flag(container.task.config, "tty")
        logs = DockerLogs(self._api, self._clock, container.number, files, self._position_path(container.task.id))
        await logs.run(lambda: tty, lambda: container.stopped)

    async def _watch(self, container: Container) -> None:
        """Wait for the end, however often the daemon goes away meanwhile."""
        while True:
            try:
                await self._api.wait(container.number)
                state = (await self._api.inspect(container.number))["State"]
                if not state.get("Running"):
                    break
            except DockerError as error:
                if error.status == 404:
                    container.stopped = True
                    self._end(container, ExitResult(exit_code=-1, error="the container was removed by somebody else"))
                    return
                await self._clock.sleep(RETRY_S)
        container.stopped = True
        if container.logs is not None:
            await asyncio.wait({container.logs}, timeout=LOG_DRAIN_S)
        self._end(container, docker_figures.exit_result(state))

    def _end(self, container: Container, result: ExitResult) -> None:
        if not container.ended.done():
            container.ended.set_result(result)

    async def _kill(self, container: Container, signal: str) -> None:
        if container.ended.done():
            return
        try:
            await self._api.kill(container.number, signal)
        except DockerError as error:
            if error.status != 404:
                raise LepaError("internal", str(error)) from error

    def _position_path(self, task_id: str) -> str:
        return os.path.join(self._state_dir, "logs", task_id)

    def _known(self, task_id: str) -> Container:
        container = self._containers.get(task_id)
        if container is None:
            raise not_found(f"driver {self.name} has no task {task_id!r}")
        return container


def has_cores(task: TaskConfig) -> bool:
    """Whether a task runs on cores of its own."""
    return bool(task.resources.cpu.reserved_cores or task.config.get("cpuset_cpus"))


def _is_started(found: dict[str, Any], task: TaskConfig) -> bool:
    """Whether a container that bears a task's name is this start's, and has run."""
    ours = (found["Config"].get("Labels") or {}).get(TASK_ID_LABEL) == task.id
    return ours and found["State"].get("Status") != "created"


def resolve(task: TaskConfig, path: str) -> str:
    """A path a job names: absolute as it is; a relative one below the task's directory, links followed and checked."""
    if os.path.isabs(path):
        return path
    root = os.path.realpath(task.task_dir)
    found = os.path.realpath(os.path.join(root, path))
    if found != root and not found.startswith(root + "/"):
        raise DriverError(f"path {path!r} leads out of the task's directory")
    return found
