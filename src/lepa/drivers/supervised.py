"""What drivers have in common whose tasks run under the supervisor: everything but how a task is started."""

import logging
import os
import pwd
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lepa.drivers import usage
from lepa.drivers.protocol import Capabilities, DriverError, ExecSession, ExitResult, Started, TaskConfig, TaskHandle
from lepa.drivers.signals import signal_number
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, Exit, Identity, LogFiles, TaskInfo, TaskSpec
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.resources import DNSConfig
from lepa.model.stats import TaskResourceUsage
from lepa.model.task import LogConfig

log = logging.getLogger(__name__)

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands are looked for when the task's environment has no PATH."""
KILL_SIGNAL = "SIGINT"
"""What tells a task to stop when its job names no signal, as with Nomad's exec family of drivers."""
MIB = 1024 * 1024


class SupervisedDriver(ABC):
    """Tasks as processes of the supervisor. A subclass says what to start and what a command beside a task is."""

    name = ""
    capabilities = Capabilities()

    def __init__(self, supervisor: Supervisor, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._tasks: dict[str, TaskConfig] = {}
        self._cpu_before: dict[str, usage.CpuTime] = {}
        self._core_mhz = usage.core_mhz()
        self._shared_cores: tuple[int, ...] = ()

    @abstractmethod
    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""

    @abstractmethod
    async def prepare(self, task: TaskConfig) -> TaskSpec:
        """Make what the task needs on disk, and say what to start. Raises DriverError."""

    @abstractmethod
    async def command_beside(self, task: TaskConfig, command: Sequence[str], *, tty: bool) -> tuple[Command, bool]:
        """How to run a command where the task runs, and whether it has to join the task's processes."""

    @abstractmethod
    async def remove_leftovers(self, task_id: str) -> None:
        """Remove what `prepare` and the task left beyond processes; called for tasks that have ended."""

    async def start(self, task: TaskConfig) -> Started:
        """Start the task. Raises DriverError."""
        if found := self.problems(task.config):
            raise DriverError("; ".join(found))
        shared = self._shared_cores
        try:
            info = await self._supervisor.start(await self.prepare(task))
        except DriverError:
            await self.remove_leftovers(task.id)
            raise
        except LepaError as error:
            await self.remove_leftovers(task.id)
            raise DriverError(error.message, recoverable=error.code in ("timeout", "conflict")) from error
        self._tasks[task.id] = task
        if self._shared_cores != shared:
            await self._move(task)
        handle = TaskHandle(driver=self.name, task_id=task.id, started_at=info.started_at, state={"pid": info.pid})
        return Started(handle=handle)

    async def share_cores(self, cores: tuple[int, ...]) -> None:
        """Move the tasks that have no cores of their own."""
        self._shared_cores = cores
        for task in list(self._tasks.values()):
            await self._move(task)

    async def _move(self, task: TaskConfig) -> None:
        if task.resources.cpu.reserved_cores:
            return
        try:
            if (await self._supervisor.inspect(task.id)).exit is None:
                await self.hold(task.id, self.cores_of(task))
        except LepaError as error:
            log.warning("task was not moved task_id=%s error=%s", task.id, error.message)

    async def hold(self, task_id: str, cores: str) -> None:
        """Let a running task use these cores and no others. Raises LepaError, but for one that has ended meanwhile."""
        await self._supervisor.hold(task_id, cores)

    def cores_of(self, task: TaskConfig) -> str:
        """The cores a task may run on, as "0,2": its own, else those that nobody has reserved; "" for all."""
        return ",".join(map(str, task.resources.cpu.reserved_cores or self._shared_cores))

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Take up a task that an earlier agent started. Raises LepaError(not_found)."""
        await self._supervisor.inspect(handle.task_id)
        self._tasks[handle.task_id] = task

    async def wait(self, task_id: str) -> ExitResult:
        """Return when the task has ended."""
        self._known(task_id)
        info = await self._supervisor.wait(task_id)
        assert info.exit is not None
        return exit_result(info.exit)

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Signal the task, kill what is left of it after `timeout_s`; return when it has ended."""
        task = self._known(task_id)
        await self._supervisor.stop(task_id, signal_number(signal or task.kill_signal, KILL_SIGNAL), timeout_s)

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal to the task's first process."""
        self._known(task_id)
        await self._supervisor.signal(task_id, signal_number(signal))

    async def destroy(self, task_id: str) -> None:
        """Kill the task if it still runs, and forget it."""
        self._known(task_id)
        info = await self._supervisor.inspect(task_id)
        if info.exit is None:
            await self._supervisor.stop(task_id, signal_number("SIGKILL"), 0)
        await self.remove_leftovers(task_id)
        await self._supervisor.forget(task_id)
        del self._tasks[task_id]
        self._cpu_before.pop(task_id, None)

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """Present use of CPU and memory."""
        self._known(task_id)
        info = await self._supervisor.inspect(task_id)
        directories = self.measured_cgroups(info)
        cpu = usage.cpu_time(directories, info.pid, self._clock.now_ns())
        memory = usage.memory_use(directories, info.pid)
        before, self._cpu_before[task_id] = self._cpu_before.get(task_id), cpu
        return usage.task_usage(cpu, before, memory, self._core_mhz)

    def measured_cgroups(self, info: TaskInfo) -> Sequence[str]:
        """The cgroups whose figures are the task's."""
        return info.cgroups

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Run a command where the task runs."""
        task = self._known(task_id)
        if not command:
            raise invalid("a command to run must be given")
        beside, join_task = await self.command_beside(task, command, tty=tty)
        return await self._supervisor.exec(task_id, beside, terminal=tty, join_task=join_task)

    @abstractmethod
    async def close(self) -> None:
        """Let go of what is the driver's own; the supervisor's connection belongs to the agent."""

    def _known(self, task_id: str) -> TaskConfig:
        task = self._tasks.get(task_id)
        if task is None:
            raise not_found(f"driver {self.name} has no task {task_id!r}")
        return task


def exit_result(exit: Exit) -> ExitResult:
    """The supervisor's word for an end in the drivers' words."""
    return ExitResult(
        exit_code=exit.code,
        signal=exit.signal,
        oom_killed=exit.oom_killed,
        error=exit.error,
        finished_at=exit.finished_at,
    )


def log_files(path: str, logs: LogConfig) -> LogFiles | None:
    """Where a stream goes; None when the job wants no logs. `enabled` is the older name of `disabled`'s opposite."""
    if not path or logs.disabled or logs.enabled is False:
        return None
    return LogFiles(path, max(1, logs.max_files), max(1, logs.max_file_size_mb) * MIB)


def resolv_conf(dns: DNSConfig | None) -> str:
    """The text of a resolv.conf(5) that says what a job says; "" when it says nothing."""
    if dns is None or not (dns.servers or dns.searches or dns.options):
        return ""
    lines = [f"nameserver {server}" for server in dns.servers]
    if dns.searches:
        lines.append("search " + " ".join(dns.searches))
    if dns.options:
        lines.append("options " + " ".join(dns.options))
    return "\n".join(lines) + "\n"


def find_user(name: str) -> Identity:
    """A user by name or number, with the groups it is in. Raises DriverError when there is none."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError as error:
        raise DriverError(f"user {name!r} does not exist on this node") from error
    return Identity(entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)))


def own_identity() -> Identity:
    """Whom a task runs as that names no user."""
    return Identity(os.geteuid(), os.getegid(), tuple(os.getgroups()))


def without_no_change(identity: Identity) -> Identity:
    """An identity as a process must take it: one that is ours already is left alone, which needs no privilege."""
    return Identity() if identity.uid == os.geteuid() else identity
