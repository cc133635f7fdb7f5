"""`mock_driver`: no process at all; a task does what its `config` says. For tests and for trying schedules out."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from lepa.drivers import options
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
from lepa.kit.durations import parse_duration
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.node import DriverInfo
from lepa.model.stats import MemoryStats, ResourceUsage, TaskCPUStats, TaskResourceUsage

DURATIONS = (
    "run_for",
    "start_block_for",
    "kill_after",
    "plugin_exit_after",
    "stdout_repeat_duration",
    "stderr_repeat_duration",
)

OPTIONS = options.Options(
    "mock_driver",
    {
        **dict.fromkeys(DURATIONS, "text"),
        "exit_code": "number",
        "exit_signal": "number",
        "exit_err_msg": "text",
        "signal_error": "text",
        "start_error": "text",
        "start_error_recoverable": "bool",
        "driver_ip": "text",
        "driver_advertise": "bool",
        "driver_port_map": "text",
        "stdout_string": "text",
        "stdout_repeat": "number",
        "stderr_string": "text",
        "stderr_repeat": "number",
        "exec_command": "block",
    },
)


class MockDriver:
    """Driver "mock_driver".

    run_for: how long the task runs, 0 ends at once. kill_after: how long a stopped task still lives. start_block_for:
    how long the start takes. plugin_exit_after: when the driver loses sight of the task. Recovered tasks run on for
    what is left of run_for.
    """

    name = "mock_driver"
    capabilities = Capabilities(isolation="none")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, _MockTask] = {}
        self._tasks = Tasks(self.name)

    async def fingerprint(self) -> DriverInfo:
        """Always there."""
        return DriverInfo(
            attributes={"driver.mock_driver": "1"}, detected=True, healthy=True, health_description="Healthy"
        )

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        found = OPTIONS.problems(config)
        for name in DURATIONS:
            try:
                _seconds(config, name)
            except ValueError as error:
                found.append(f"{name}: {error}")
        return found

    async def start(self, task: TaskConfig) -> Started:
        """Start, or fail to, as the config says."""
        if found := self.problems(task.config):
            raise DriverError("; ".join(found))
        await self._clock.sleep(_seconds(task.config, "start_block_for"))
        if reason := options.text(task.config, "start_error"):
            raise DriverError(reason, recoverable=options.flag(task.config, "start_error_recoverable"))
        started_at = self._clock.now_ns()
        self._begin(task, task.id, _seconds(task.config, "run_for"), output=True)
        handle = TaskHandle(driver=self.name, task_id=task.id, started_at=started_at)
        return Started(handle=handle, network=_network(task.config))

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Run on for what is left."""
        ran_s = (self._clock.now_ns() - handle.started_at) / 1e9
        self._begin(task, handle.task_id, max(0.0, _seconds(task.config, "run_for") - ran_s), output=False)

    async def wait(self, task_id: str) -> ExitResult:
        """Return when the task has ended."""
        return await asyncio.shield(self._known(task_id).ended)

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """End the task after its kill_after, at most after `timeout_s`."""
        task = self._known(task_id)
        number = signal_number(signal or task.config.kill_signal)
        kill_after = _seconds(task.config.config, "kill_after")
        if not task.ended.done():
            await self._clock.sleep(min(kill_after, timeout_s))
            number = 9 if kill_after > timeout_s else number
            self._end(task, ExitResult(exit_code=128 + number, signal=number, finished_at=self._clock.now_ns()))

    async def signal(self, task_id: str, signal: str) -> None:
        """Take a signal, or refuse it as the config says."""
        task = self._known(task_id)
        signal_number(signal)
        if reason := options.text(task.config.config, "signal_error"):
            raise LepaError("internal", reason)

    async def destroy(self, task_id: str) -> None:
        """Forget the task."""
        task = self._known(task_id)
        self._end(task, ExitResult(exit_code=137, signal=9, finished_at=self._clock.now_ns()))
        del self._running[task_id]

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """No use of anything."""
        self._known(task_id)
        usage = ResourceUsage(memory_stats=MemoryStats(), cpu_stats=TaskCPUStats())
        return TaskResourceUsage(resource_usage=usage, timestamp=self._clock.now_ns())

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Pretend to run a command, as the config's exec_command says."""
        plan = options.block(self._known(task_id).config.config, "exec_command")
        if not plan:
            raise invalid("this mock task has no exec_command")
        return MockSession(plan, self._clock, tty=tty)

    async def close(self) -> None:
        """End all timers."""
        await self._tasks.close()

    def _begin(self, task: TaskConfig, task_id: str, run_for_s: float, *, output: bool) -> None:
        running = _MockTask(task, asyncio.get_running_loop().create_future())
        self._running[task_id] = running
        running.timer = self._tasks.start("run", self._run(running, run_for_s))
        for stream, path in (("stdout", task.stdout_path), ("stderr", task.stderr_path)) if output else ():
            if options.text(task.config, f"{stream}_string") and path:
                self._tasks.start("write", self._write(running, stream, path))

    async def _run(self, task: "_MockTask", run_for_s: float) -> None:
        config = task.config.config
        sight_s = _seconds(config, "plugin_exit_after")
        if 0 < sight_s < run_for_s:
            await self._clock.sleep(sight_s)
            self._end(task, ExitResult(exit_code=-1, error="lost sight of the task", finished_at=self._clock.now_ns()))
        await self._clock.sleep(run_for_s)
        number = options.number(config, "exit_signal")
        code = options.number(config, "exit_code") or (128 + number if number else 0)
        error = options.text(config, "exit_err_msg")
        result = ExitResult(exit_code=code, signal=number, error=error, finished_at=self._clock.now_ns())
        if not task.ended.done():
            task.ended.set_result(result)

    async def _write(self, task: "_MockTask", stream: str, path: str) -> None:
        config = task.config.config
        for turn in range(1 + options.number(config, f"{stream}_repeat")):
            if turn:
                await self._clock.sleep(_seconds(config, f"{stream}_repeat_duration"))
            if task.ended.done() and turn:
                return
            with contextlib.suppress(OSError):
                _append(path + ".0", options.text(config, f"{stream}_string").encode())

    def _end(self, task: "_MockTask", result: ExitResult) -> None:
        if not task.ended.done():
            task.ended.set_result(result)
        if task.timer is not None:
            task.timer.cancel()

    def _known(self, task_id: str) -> "_MockTask":
        task = self._running.get(task_id)
        if task is None:
            raise not_found(f"driver {self.name} has no task {task_id!r}")
        return task


class _MockTask:
    """A task that runs in name only."""

    def __init__(self, config: TaskConfig, ended: asyncio.Future[ExitResult]) -> None:
        self.config = config
        self.ended = ended
        self.timer: asyncio.Task[None] | None = None


class MockSession:
    """A command that prints what the config says, or what it is sent, and ends."""

    def __init__(self, plan: Mapping[str, Any], clock: Clock, *, tty: bool) -> None:
        self._plan = plan
        self._clock = clock
        self._tty = tty
        self._input: asyncio.Queue[bytes] = asyncio.Queue(maxsize=64)

    async def write(self, data: bytes) -> None:
        """Keep input for `output` to echo, where the config has none of its own."""
        await self._input.put(data)

    async def resize(self, rows: int, columns: int) -> None:
        """Nothing to resize."""

    async def output(self) -> Any:
        """The config's output, or the input sent back."""
        if out := options.text(self._plan, "stdout_string"):
            yield "stdout", out.encode()
        else:
            while data := await self._input.get():
                yield "stdout", data
        if err := options.text(self._plan, "stderr_string"):
            yield "stdout" if self._tty else "stderr", err.encode()
        await self._clock.sleep(_seconds(self._plan, "run_for"))

    async def wait(self) -> int:
        """The config's exit code."""
        return options.number(self._plan, "exit_code")

    async def close(self) -> None:
        """Nothing to let go of."""


def _seconds(config: Mapping[str, Any], name: str) -> float:
    """A duration option in seconds: "1m30s", or a bare number of nanoseconds."""
    value = config.get(name)
    if value is None or value == "":
        return 0.0
    return (int(value) if isinstance(value, int) else parse_duration(str(value))) / 1e9


def _network(config: Mapping[str, Any]) -> TaskNetwork | None:
    ip = options.text(config, "driver_ip")
    if not ip:
        return None
    label, _, port = options.text(config, "driver_port_map").partition(":")
    ports = {label: int(port)} if port.isdigit() else {}
    return TaskNetwork(ip=ip, port_map=ports, auto_advertise=options.flag(config, "driver_advertise"))


def _append(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
