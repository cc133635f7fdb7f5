"""One task from its first start to its end.

    hooks prepare -> the driver starts it -> it runs -> it ends, is killed or restarted -> the restart policy decides

The runner is told what to do by `kill`, `restart` and `signal`, which only leave a note; the loop in `run` acts on it.
After an agent restart, a runner that is given the task's record takes the running task up again instead of starting it.
"""

import asyncio
import contextlib
import logging
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from lepa.client import task_env, task_events
from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import HookError, Setup, TaskHook
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.restart_tracker import RestartTracker, Verdict
from lepa.client.task_env import Directories, Place
from lepa.drivers.protocol import Driver, DriverError, ExitResult, Mount, Started, TaskConfig, TaskHandle
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.allocation import TaskEvent
from lepa.model.errors import LepaError, invalid
from lepa.model.task import Task

log = logging.getLogger(__name__)

KILL_TIMEOUT_MAX_S = 30.0
DESTROY_S = 10.0
IMAGE_DIRECTORIES = Directories("/alloc", "/local", "/secrets")


@dataclass(frozen=True)
class Surroundings:
    """What the runner works with. host_env: the agent's environment, for drivers without an image."""

    driver: Driver
    directory: AllocDir
    state: LocalState
    clock: Clock
    random: Random
    host_env: Mapping[str, str]
    hooks: Sequence[TaskHook] = ()
    mounts: tuple[Mount, ...] = ()
    kill_timeout_max_s: float = KILL_TIMEOUT_MAX_S


@dataclass
class _Wishes:
    """What others asked for since the loop last looked."""

    kill: str = ""
    kill_failed: bool = False
    kill_event: TaskEvent | None = None
    restart: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class TaskRunner:
    """Runs one task. `state` is always current; `changed` is called after each change of it."""

    def __init__(
        self, place: Place, around: Surroundings, changed: Callable[[], None], record: TaskRecord | None = None
    ) -> None:
        self.place = place
        self._around = around
        self._changed = changed
        self._record = record or TaskRecord(driver=place.task.driver)
        self._wishes = _Wishes()
        self.state = self._record.state
        self.handle: TaskHandle | None = self._record.handle
        self.env: dict[str, str] = {}
        self._tracker = RestartTracker(
            place.task.restart_policy or place.group.restart_policy,
            service=place.job.type in {"service", "system"},
            now=around.clock.now(),
        )
        if not self.state.events:
            self._tell(task_events.received(around.clock.now_ns()))

    @property
    def task(self) -> Task:
        """The task as its job declares it."""
        return self.place.task

    # What others may ask

    def kill(self, reason: str, *, failed: bool = False, told: TaskEvent | None = None) -> None:
        """End the task for good. told: an event to record first."""
        if not self._wishes.kill:
            self._wishes.kill, self._wishes.kill_failed, self._wishes.kill_event = reason, failed, told
            self._wishes.changed.set()

    def restart(self, reason: str) -> None:
        """End the task and start it again, outside its restart policy."""
        if self.state.state != "running":
            raise invalid("Task not running", http_status=500)
        self._wishes.restart = reason
        self._wishes.changed.set()

    async def signal(self, name: str, reason: str) -> None:
        """Send a signal to the running task."""
        if self.handle is None or self.state.state != "running":
            raise invalid("Task not running", http_status=500)
        now_ns = self._around.clock.now_ns()
        text = f"Task being sent signal {name}: {reason}"
        self._tell(task_events.event("Signaling", text, now_ns, task_signal=name, task_signal_reason=reason))
        await self._around.driver.signal(self.handle.task_id, name)

    def replace_place(self, place: Place) -> None:
        """Take in a newer form of the allocation; it counts from the next start on."""
        self.place = place

    # The loop

    async def run(self) -> None:
        """Return when the task is dead."""
        if self.state.state == "dead":
            return
        verdict = Verdict("stop")
        try:
            while not self._wishes.kill:
                verdict = await self._one_life()
                if verdict.action != "restart":
                    break
                if not await self._wait_before_restart(verdict):
                    break
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("task runner failed alloc_id=%s task=%s", self.place.alloc.id, self.task.name)
            verdict = Verdict("kill", reason=f"internal error: {error}", failed=True)
        await self._end(verdict)

    async def _one_life(self) -> Verdict:
        """From start, or recovery, to what the restart policy says about the end."""
        clock = self._around.clock
        try:
            started = await self._recovered() or await self._start()
        except (HookError, DriverError) as error:
            kind = error.event if isinstance(error, HookError) else "Driver Failure"
            self._tell(task_events.event(kind, error.message, clock.now_ns(), message=error.message))
            await self._hooks_exited()
            return self._tracker.start_failed(error.recoverable, clock.now(), self._chance())
        if started is None:
            return Verdict("stop")
        result, asked = await self._until_end(started)
        self._tell(task_events.terminated(result, clock.now_ns()))
        await self._hooks_exited()
        await self._destroy(started.task_id)
        if asked == "kill":
            self._tell(task_events.killed(clock.now_ns()))
            return Verdict("stop", failed=self._wishes.kill_failed)
        if asked == "restart":
            return self._tracker.killed_for_restart()
        return self._tracker.exited(result, clock.now(), self._chance())

    def _chance(self) -> float:
        return self._around.random.uniform(0.0, 1.0)

    async def _recovered(self) -> TaskHandle | None:
        """The running task of an earlier agent, or None when there is none to take up."""
        task_id = self._record.task_id
        if not task_id:
            return None
        handle = self._record.handle or TaskHandle(driver=self.task.driver, task_id=task_id)
        self._record = replace(self._record, task_id="", handle=None)
        config, setup = self._configure(handle.task_id)
        try:
            await self._around.driver.recover(config, handle)
        except LepaError as error:
            if self.handle is not None:
                now_ns = self._around.clock.now_ns()
                self._tell(task_events.event("Failed Restoring Task", error.message, now_ns, message=error.message))
            self.handle = None
            return None
        self.handle = handle
        self._enter_running(handle)
        for hook in self._around.hooks:
            await hook.poststart(setup, None)
        return handle

    async def _start(self) -> TaskHandle | None:
        """Prepare and start; None when a kill came first."""
        now_ns = self._around.clock.now_ns()
        if not any(told.type == "Task Setup" for told in self.state.events):
            self._tell(task_events.event("Task Setup", "Building Task Directory", now_ns))
        if problems := self._around.driver.problems(self.task.config):
            text = f"failed to parse config: {'; '.join(problems)}"
            raise HookError(text, recoverable=False, event="Failed Validation")
        added = await self._prestart()
        if self._wishes.kill:
            return None
        task_id = f"{self.place.alloc.id}-{self.task.name}-{self._around.random.uuid()[:8]}"
        config, setup = self._configure(task_id, added)
        self._own_secrets(config.user)
        await self._remember(TaskRecord(driver=self.task.driver, task_id=task_id, state=self.state))
        outcome: Started = await self._around.driver.start(config)
        self.handle = outcome.handle
        self._tell(task_events.started(self._around.clock.now_ns()), quiet=True)
        self.state = task_events.running(self.state, self._around.clock.now_ns())
        self._enter_running(outcome.handle)
        for hook in self._around.hooks:
            await hook.poststart(setup, outcome.network)
        return outcome.handle

    async def _prestart(self) -> dict[str, str]:
        added: dict[str, str] = {}
        for hook in self._around.hooks:
            _, setup = self._configure("", added)
            added |= await hook.prestart(setup)
        return added

    def _configure(self, task_id: str, added: Mapping[str, str] | None = None) -> tuple[TaskConfig, Setup]:
        """The driver's configuration with every text interpolated, and what hooks see."""
        directories = self._directories()
        place = self.place._replace(directories=directories)
        isolated = self._around.driver.capabilities.isolation
        host = self._around.host_env if isolated != "image" else {}
        self.env = task_env.build(place, host, added or {})
        targets = task_env.references(place, self.env)
        config = _config_of(place, self._around, task_id, self.env, targets)
        return config, Setup(place, self.env, self.note)

    def _directories(self) -> Directories:
        if self._around.driver.capabilities.isolation == "none":
            dirs = self._around.directory.task(self.task.name)
            return Directories(str(self._around.directory.shared), str(dirs.local), str(dirs.secrets))
        return IMAGE_DIRECTORIES

    def _own_secrets(self, user: str) -> None:
        with contextlib.suppress(KeyError, OSError):
            entry = pwd.getpwnam(user) if user else None
            if entry is not None:
                self._around.directory.give_secrets(self.task.name, entry.pw_uid, entry.pw_gid)

    def _enter_running(self, handle: TaskHandle) -> None:
        record = TaskRecord(driver=self.task.driver, task_id=handle.task_id, handle=handle, state=self.state)
        self._around.state.note_task(self.place.alloc.id, self.task.name, record)
        self._changed()

    async def _until_end(self, handle: TaskHandle) -> tuple[ExitResult, str]:
        """How the task ended, and whether somebody asked for it: "kill", "restart" or ""."""
        async with Tasks("client.task") as tasks:
            ended = tasks.start(f"wait.{handle.task_id}", self._around.driver.wait(handle.task_id))
            while not ended.done():
                self._wishes.changed.clear()
                if asked := "kill" if self._wishes.kill else "restart" if self._wishes.restart else "":
                    await self._stop(handle.task_id, asked)
                    return await ended, asked
                noticed = tasks.start("wishes", self._wishes.changed.wait())
                await asyncio.wait([ended, noticed], return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
            return ended.result(), ""

    async def _stop(self, task_id: str, asked: str) -> None:
        """Deregister, wait the shutdown delay, send the kill signal, kill what is left after the timeout."""
        reason = self._wishes.kill if asked == "kill" else self._wishes.restart
        self._wishes.restart = ""
        now_ns = self._around.clock.now_ns()
        if asked == "kill" and self._wishes.kill_event is not None:
            self._tell(self._wishes.kill_event)
        if asked == "restart":
            told = task_events.event("Restart Signaled", reason, now_ns, restart_reason=reason)
            self._tell(told)
        for hook in reversed(self._around.hooks):
            await hook.stopping()
        if self.task.shutdown_delay > 0:
            text = f"Waiting for shutdown_delay of {self.task.shutdown_delay / SECOND:g}s before killing the task."
            self._tell(task_events.event("Waiting for shutdown delay", text, now_ns))
            await self._around.clock.sleep(self.task.shutdown_delay / SECOND)
        timeout_s = min(self.task.kill_timeout / SECOND, self._around.kill_timeout_max_s)
        self._tell(task_events.killing(reason, int(timeout_s * SECOND), now_ns))
        with contextlib.suppress(LepaError):
            await self._around.driver.stop(task_id, self.task.kill_signal, timeout_s)

    async def _hooks_exited(self) -> None:
        for hook in reversed(self._around.hooks):
            await hook.exited()

    async def _destroy(self, task_id: str) -> None:
        with contextlib.suppress(LepaError, TimeoutError):
            await asyncio.wait_for(self._around.driver.destroy(task_id), DESTROY_S)
        self.handle = None

    async def _wait_before_restart(self, verdict: Verdict) -> bool:
        """Wait the restart's delay; False when a kill came meanwhile."""
        now_ns = self._around.clock.now_ns()
        self._tell(task_events.restarting(verdict.reason, verdict.delay_s, now_ns), quiet=True)
        self.state = task_events.waiting(self.state, now_ns)
        await self._remember(TaskRecord(driver=self.task.driver, state=self.state))
        self._changed()
        self._wishes.changed.clear()
        if not self._wishes.kill and verdict.delay_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wishes.changed.wait(), verdict.delay_s)
        self._wishes.restart = ""
        return not self._wishes.kill

    async def _end(self, verdict: Verdict) -> None:
        now_ns = self._around.clock.now_ns()
        failed = verdict.failed or (self._wishes.kill_failed and bool(self._wishes.kill))
        if verdict.action == "kill":
            self._tell(task_events.not_restarting(verdict.reason, now_ns, failed=failed), quiet=True)
        elif (
            self._wishes.kill
            and self._wishes.kill_event is not None
            and self._wishes.kill_event not in self.state.events
        ):
            self._tell(self._wishes.kill_event, quiet=True)
        self.state = task_events.dead(self.state, now_ns, failed=failed)
        await self._remember(TaskRecord(driver=self.task.driver, state=self.state))
        self._changed()

    async def _remember(self, record: TaskRecord) -> None:
        await self._around.state.save_task(self.place.alloc.id, self.task.name, record)

    def note(self, kind: str, message: str) -> None:
        """Add an event of type `kind` to the task."""
        self._tell(task_events.event(kind, message, self._around.clock.now_ns(), message=message))

    def _tell(self, told: TaskEvent, *, quiet: bool = False) -> None:
        self.state = task_events.with_event(self.state, told)
        if not quiet:
            self._changed()


def _config_of(
    place: Place, around: Surroundings, task_id: str, env: dict[str, str], targets: Mapping[str, str]
) -> TaskConfig:
    task, alloc, directory = place.task, place.alloc, around.directory
    resources = alloc.allocated_resources.tasks.get(task.name)
    network = place.group.networks[0] if place.group.networks else None
    dirs = directory.task(task.name)
    config = TaskConfig(
        id=task_id,
        alloc_id=alloc.id,
        job_id=place.job.id,
        job_name=place.job.name,
        namespace=alloc.namespace,
        group_name=place.group.name,
        task_name=task.name,
        config=task_env.interpolate_all(task.config, targets),
        env=env,
        user=task_env.interpolate(task.user, targets),
        kill_signal=task.kill_signal,
        ports=alloc.allocated_resources.shared.ports,
        alloc_dir=str(directory.shared),
        task_dir=str(dirs.root),
        local_dir=str(dirs.local),
        secrets_dir=str(dirs.secrets),
        stdout_path=str(directory.logs / f"{task.name}.stdout"),
        stderr_path=str(directory.logs / f"{task.name}.stderr"),
        logs=task.log_config,
        mounts=around.mounts,
        hostname=task_env.interpolate(network.hostname, targets) if network else "",
        dns=network.dns if network else None,
    )
    if resources is None:
        return config
    return replace(
        config, resources=resources, memory_mb=resources.memory.memory_mb, cpu_shares=resources.cpu.cpu_shares
    )
