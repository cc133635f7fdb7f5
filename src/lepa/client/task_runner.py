"""One task from its first start to its end.

    hooks prepare -> the driver starts it -> it runs -> it ends, is killed or restarted -> the restart policy decides

The runner is told what to do by `kill`, `restart` and `rerun`, which only leave a note; the loop in `run` acts on it.
Given the record that an earlier agent left, it takes the running task up again instead of starting it. What became of a
task is on disk before its remains are removed, so that no crash makes a finished task run twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from lepa.client import task_env, task_events, volumes
from lepa.client.alloc_dir import AllocDir
from lepa.client.devices import Devices
from lepa.client.hooks.protocol import HookError, Setup, TaskHook
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.node_options import user_problem
from lepa.client.restart_tracker import RestartTracker, Verdict
from lepa.client.task_config import CONTAINER_DIRECTORIES, task_config
from lepa.client.task_env import Directories, Place
from lepa.client.task_lifecycle import DEAD, RUNNING, hook_of, is_sidecar
from lepa.client.waiting import happens
from lepa.drivers.devices.protocol import Reservation
from lepa.drivers.protocol import Driver, DriverError, ExitResult, Mount, TaskConfig, TaskHandle, TaskNetwork
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.allocation import TaskEvent
from lepa.model.errors import LepaError, invalid
from lepa.model.task import Task

log = logging.getLogger(__name__)

DESTROY_S = 30.0
COMMAND_OUTPUT_MAX = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class Surroundings:
    """What the runner works with.

    host_env: the agent's environment, for drivers without an image. may_start: set once the servers have been asked
    what should run here; nothing is started before.
    """

    driver: Driver
    directory: AllocDir
    state: LocalState
    clock: Clock
    random: Random
    host_env: Mapping[str, str]
    may_start: asyncio.Event
    hooks: Sequence[TaskHook] = ()
    devices: Devices = field(default_factory=Devices)
    more_mounts: Callable[[Place], Sequence[Mount]] = lambda place: ()
    kill_timeout_max_s: float = 30.0
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Wishes:
    """What others asked for since the loop last looked."""

    kill: str = ""
    kill_failed: bool = False
    kill_event: TaskEvent | None = None
    restart: str = ""
    rerun: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ends(self) -> bool:
        """Whether the task shall run no more in this life of its runner."""
        return bool(self.kill) or self.rerun


class TaskRunner:
    """Runs one task. `state` is always current; `changed` is called after each change of it."""

    def __init__(
        self, place: Place, around: Surroundings, changed: Callable[[], None], record: TaskRecord | None = None
    ) -> None:
        isolated = around.driver.capabilities.isolation != "none"
        self.place = place._replace(
            directories=CONTAINER_DIRECTORIES if isolated else _host_directories(around.directory, place.task.name)
        )
        self._around = around
        self._changed = changed
        self._record = record or TaskRecord(driver=place.task.driver)
        self._wishes = _Wishes()
        self._declared = self._declared_environment()
        self._added: Mapping[str, str] = {}
        self._reserved = Reservation()
        self.state = self._record.state
        self.handle = None if self._record.ended else self._record.handle
        self.env = self._environment()
        self._tracker = self._new_tracker()
        if not self.state.events:
            self._tell(task_events.received(around.clock.now_ns()))

    def _new_tracker(self) -> RestartTracker:
        task, group = self.place.task, self.place.group
        for_ever = self.place.job.type in {"service", "system"} and (hook_of(task) == "main" or is_sidecar(task))
        policy = task.restart_policy or group.restart_policy
        return RestartTracker(policy, for_ever=for_ever, now=self._around.clock.now())

    @property
    def task(self) -> Task:
        """The task as its job declares it."""
        return self.place.task

    @property
    def task_id(self) -> str:
        """What its driver knows it by; "" when nothing is to be found there."""
        return self._record.task_id

    @property
    def resumable(self) -> bool:
        """Whether an earlier agent left something to take up or to remove."""
        return bool(self._record.task_id)

    # What others may ask

    def kill(self, reason: str, *, failed: bool = False, told: TaskEvent | None = None) -> None:
        """End the task for good. told: an event to record first."""
        if not self._wishes.kill:
            self._wishes.kill, self._wishes.kill_failed, self._wishes.kill_event = reason, failed, told
            self._wishes.changed.set()

    def restart(self, reason: str) -> None:
        """End the task and start it again, outside its restart policy."""
        self._require_running()
        self._wishes.restart = reason
        self._wishes.changed.set()

    def rerun(self) -> None:
        """End `run`, whatever the task is doing, with the task pending again: the whole allocation starts over."""
        self._wishes.rerun = True
        self._wishes.changed.set()

    async def signal(self, name: str, reason: str) -> None:
        """Send a signal to the running task."""
        handle = self._require_running()
        text = f"Task being sent signal {name}: {reason}"
        now_ns = self._around.clock.now_ns()
        self._tell(task_events.event("Signaling", text, now_ns, task_signal=name, task_signal_reason=reason))
        await self._around.driver.signal(handle.task_id, name)

    async def run_command(self, command: Sequence[str]) -> tuple[int, bytes]:
        """Run a command inside the task: exit code and the beginning of its output."""
        handle = self._require_running()
        session = await self._around.driver.exec(handle.task_id, command, tty=False)
        output = bytearray()
        try:
            async for _, data in session.output():
                output += data[: COMMAND_OUTPUT_MAX - len(output)]
            return await session.wait(), bytes(output)
        finally:
            await session.close()

    def _require_running(self) -> TaskHandle:
        if self.handle is None or self.state.state != RUNNING:
            raise invalid("Task not running", http_status=500)
        return self.handle

    def replace_place(self, place: Place) -> None:
        """Take in a newer form of the allocation; a running task sees it from its next start on."""
        self.place = place._replace(directories=self.place.directories)
        self._declared = self._declared_environment()
        self.env = self._environment()

    def note(self, kind: str, message: str) -> None:
        """Add an event of type `kind` to the task."""
        self._tell(task_events.event(kind, message, self._around.clock.now_ns(), message=message))

    # The loop

    async def run(self) -> None:
        """Return when the task is dead, or pending again after `rerun`."""
        try:
            verdict = await self._live()
        except Exception as error:  # whatever went wrong here, the allocation must come to an end
            log.exception("task runner failed alloc_id=%s task=%s", self.place.alloc.id, self.task.name)
            verdict = Verdict("kill", reason=f"internal error: {error}", failed=True)
        finally:
            for hook in self._around.hooks:
                await hook.close()
        if self._wishes.rerun and not self._wishes.kill:
            await self._begin_again()
        elif self.state.state != DEAD:
            await self._end(verdict)

    async def _live(self) -> Verdict:
        """One life after the other, for as long as the restart policy says."""
        verdict = Verdict("stop")
        taken_up = await self._take_up()
        while taken_up or not (self._wishes.ends or self.state.state == DEAD):
            verdict = await self._one_life(taken_up)
            taken_up = False
            if verdict.action != "restart" or self._wishes.ends or not await self._wait_before_restart(verdict):
                break
        return verdict

    async def _one_life(self, taken_up: bool) -> Verdict:
        """From start, or from taking up, to what the restart policy says about the end."""
        clock = self._around.clock
        try:
            if not taken_up and not await self._start():
                return Verdict("stop")
        except LepaError as error:
            kind = error.event if isinstance(error, HookError) else "Driver Failure"
            recoverable = error.recoverable if isinstance(error, HookError | DriverError) else False
            self._tell(task_events.start_failed(kind, error.message, clock.now_ns()))
            await self._hooks_exited()
            return self._tracker.start_failed(recoverable, clock.now(), self._chance())
        result, asked = await self._until_end()
        self._tell(task_events.terminated(result, clock.now_ns()))
        await self._hooks_exited()
        if asked == "restart" and not self._wishes.ends:
            return self._tracker.killed_for_restart()
        if asked:
            self._tell(task_events.killed(clock.now_ns()))
            return Verdict("stop", failed=self._wishes.kill_failed)
        return self._tracker.exited(result, clock.now(), self._chance())

    def _chance(self) -> float:
        return self._around.random.uniform(0.0, 1.0)

    # Taking up

    async def _take_up(self) -> bool:
        """Find the task of an earlier agent; False when there is none that could still run or have ended unseen."""
        if not self.resumable:
            return False
        handle = self._record.handle or TaskHandle(driver=self.task.driver, task_id=self._record.task_id)
        setup = self._setup()
        try:
            await self._around.driver.recover(self._config(handle.task_id), handle)
        except LepaError as error:
            await self._cannot_take_up(error)
            return False
        if self._record.ended:
            await self._remove_remains()
            return False
        with contextlib.suppress(HookError):  # it has them already; only commands run beside it would miss the names
            self._added = (await self._reserve_devices()).env
        for hook in self._around.hooks:
            self._added = {**self._added, **await hook.recovered(setup)}
        self.env = self._environment()
        if self.state.state != RUNNING:  # the earlier agent died between the start and its note of it
            now_ns = self._around.clock.now_ns()
            self.state = task_events.running(task_events.with_event(self.state, task_events.started(now_ns)), now_ns)
        await self._enter_running(handle, self._record.network)
        return True

    async def _cannot_take_up(self, error: LepaError) -> None:
        """It is gone, with its host or its supervisor; the next start is a first one."""
        if self._record.handle is not None and not self._record.ended:
            now_ns = self._around.clock.now_ns()
            self._tell(task_events.event("Failed Restoring Task", error.message, now_ns, message=error.message))
        self.handle = None
        if self.state.state == RUNNING:
            self.state = replace(self.state, state="pending")
        await self._remember(TaskRecord(driver=self.task.driver, state=self.state))

    # Starting

    async def _start(self) -> bool:
        """Prepare and start; False when the task was killed first."""
        added = await self._unless_killed(self._prepare())
        if added is None or self._wishes.ends:
            return False
        self._added, self.env = added, self._environment(added)
        config = self._config(f"{self.place.alloc.id}-{self.task.name}-{self._around.random.uuid()[:8]}")
        mounts = (*volumes.mounts(self.place), *self._own_mounts(), *self._reserved.mounts)
        config = replace(config, mounts=mounts, devices=self._reserved.devices)
        if problems := self._around.driver.problems(config.config):
            text = f"failed to parse config: {'; '.join(problems)}"
            raise HookError(text, recoverable=False, event="Failed Validation")
        if problem := user_problem(self._around.options, self.task.driver, config.user):
            raise HookError(problem, recoverable=False, event="Failed Validation")
        isolated = self._around.driver.capabilities.isolation != "none"
        self._around.directory.give_secrets(self.task.name, config.user, isolated=isolated)
        await self._remember(TaskRecord(driver=self.task.driver, task_id=config.id, state=self.state))
        started = await self._around.driver.start(config)
        now_ns = self._around.clock.now_ns()
        self.state = task_events.running(task_events.with_event(self.state, task_events.started(now_ns)), now_ns)
        await self._enter_running(started.handle, started.network)
        return True

    async def _prepare(self) -> Mapping[str, str]:
        """What has to be done before the driver may start the task; the variables that hooks add."""
        await self._around.may_start.wait()
        if not any(told.type == "Task Setup" for told in self.state.events):
            self._tell(task_events.event("Task Setup", "Building Task Directory", self._around.clock.now_ns()))
        self._reserved = await self._reserve_devices()
        added = dict(self._reserved.env)
        for hook in self._around.hooks:
            added |= await hook.prestart(self._setup(added))
        return added

    async def _reserve_devices(self) -> Reservation:
        resources = self.place.alloc.allocated_resources.tasks.get(self.task.name)
        try:
            return await self._around.devices.reserve(resources)
        except LepaError as error:
            raise HookError(f"devices: {error.message}") from error

    async def _unless_killed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None when somebody wants the task to end first: then `work` is cancelled."""
        async with Tasks("client.task") as tasks:
            doing = tasks.start("prepare", _outcome(work))
            while not doing.done():
                self._wishes.changed.clear()
                if self._wishes.ends:
                    return None
                noticed = tasks.start("wishes", self._wishes.changed.wait())
                await asyncio.wait([doing, noticed], return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
        outcome: T | LepaError = doing.result()
        if isinstance(outcome, LepaError):
            raise outcome
        return outcome

    def _setup(self, added: Mapping[str, str] | None = None) -> Setup:
        return Setup(self.place, self._environment(added), self)

    def _environment(self, added: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**self._declared, **(self._added if added is None else added)}

    def _declared_environment(self) -> dict[str, str]:
        """The variables without those that hooks add."""
        host = self._around.host_env if self._around.driver.capabilities.isolation != "image" else {}
        return task_env.build(self.place, host)

    def _own_mounts(self) -> list[Mount]:
        """What the task needs beside its volumes.

        In the group's network a task with a root of its own gets a file of hosts that fits the network.
        """
        found = list(self._around.more_mounts(self.place))
        isolated = self._around.driver.capabilities.isolation != "none"
        if self.place.hosts and isolated and not self.task.config.get("network_mode"):
            found.append(Mount(host_path=self.place.hosts, task_path="/etc/hosts", read_only=True))
        return found

    def _config(self, task_id: str) -> TaskConfig:
        return task_config(self.place, self._around.directory, task_id, self.env)

    async def _enter_running(self, handle: TaskHandle, network: TaskNetwork | None) -> None:
        self.handle = handle
        self._record = TaskRecord(
            driver=self.task.driver, task_id=handle.task_id, handle=handle, network=network, state=self.state
        )
        self._around.state.note_task(self.place.alloc.id, self.task.name, self._record)
        for hook in self._around.hooks:
            await hook.poststart(self._setup(), network)
        self._changed()

    # Ending

    async def _until_end(self) -> tuple[ExitResult, str]:
        """How the task ended, and whether somebody asked for it: "kill", "restart" or ""."""
        assert self.handle is not None
        task_id = self.handle.task_id
        async with Tasks("client.task") as tasks:
            ended = tasks.start(f"wait.{task_id}", self._exit_of(task_id))
            while not ended.done():
                self._wishes.changed.clear()
                if asked := "kill" if self._wishes.ends else "restart" if self._wishes.restart else "":
                    await self._stop(task_id, asked)
                    return await ended, asked
                noticed = tasks.start("wishes", self._wishes.changed.wait())
                await asyncio.wait([ended, noticed], return_when=asyncio.FIRST_COMPLETED)
                noticed.cancel()
            return ended.result(), ""

    async def _exit_of(self, task_id: str) -> ExitResult:
        """How the task ended; a driver that lost sight of it does not make it a success."""
        try:
            return await self._around.driver.wait(task_id)
        except LepaError as error:
            return ExitResult(error=f"the driver lost sight of the task: {error.message}")

    async def _stop(self, task_id: str, asked: str) -> None:
        """Deregister, wait the shutdown delay, send the kill signal, kill what is left after the timeout."""
        clock = self._around.clock
        reason = (self._wishes.kill or "Allocation restarts") if asked == "kill" else self._wishes.restart
        self._wishes.restart = ""
        if asked == "kill" and self._wishes.kill_event is not None:
            self._tell(self._wishes.kill_event)
        if asked == "restart" or not self._wishes.kill:
            self._tell(task_events.event("Restart Signaled", reason, clock.now_ns(), restart_reason=reason))
        for hook in reversed(self._around.hooks):
            await hook.stopping()
        await self._shutdown_delay()
        timeout_s = min(self.task.kill_timeout / SECOND, self._around.kill_timeout_max_s)
        self._tell(task_events.killing(reason, int(timeout_s * SECOND), clock.now_ns()))
        with contextlib.suppress(LepaError):  # it has ended meanwhile
            await self._around.driver.stop(task_id, self.task.kill_signal, timeout_s)

    async def _shutdown_delay(self) -> None:
        delay_s, now_ns = self.task.shutdown_delay / SECOND, self._around.clock.now_ns()
        if delay_s <= 0:
            return
        if self.place.alloc.desired_transition.no_shutdown_delay:
            text = "Skipping shutdown_delay before killing the task."
            self._tell(task_events.event("Skipping shutdown delay", text, now_ns))
            return
        text = f"Waiting for shutdown_delay of {delay_s:g}s before killing the task."
        self._tell(task_events.event("Waiting for shutdown delay", text, now_ns))
        await self._around.clock.sleep(delay_s)

    async def _hooks_exited(self) -> None:
        for hook in reversed(self._around.hooks):
            await hook.exited()

    async def _wait_before_restart(self, verdict: Verdict) -> bool:
        """Wait the restart's delay; False when a kill came meanwhile."""
        clock = self._around.clock
        until = clock.now() + verdict.delay_s
        told = task_events.restarting(verdict.reason, verdict.delay_s, clock.now_ns())
        self.state = task_events.waiting(task_events.with_event(self.state, told), clock.now_ns())
        self._changed()
        await self._remember_end()
        while not self._wishes.ends and clock.now() < until:
            self._wishes.changed.clear()
            await happens(self._wishes.changed, clock, until - clock.now())
        self._wishes.restart = ""
        return not self._wishes.ends

    async def _begin_again(self) -> None:
        """After `rerun`: pending, as if it had never run, with its history."""
        self._wishes = _Wishes()
        self._tracker = self._new_tracker()
        self.state = task_events.again(self.state, self._around.clock.now_ns())
        await self._remember_end()
        self._changed()

    async def _end(self, verdict: Verdict) -> None:
        now_ns = self._around.clock.now_ns()
        told = self._wishes.kill_event
        if verdict.action == "kill":
            told = task_events.not_restarting(verdict.reason, now_ns, failed=verdict.failed)
        if told is not None and told not in self.state.events:
            self.state = task_events.with_event(self.state, told)
        failed = verdict.failed or (self._wishes.kill_failed and bool(self._wishes.kill))
        self.state = task_events.dead(self.state, now_ns, failed=failed)
        self._changed()
        await self._remember_end()

    async def _remember_end(self) -> None:
        """Keep what became of the task, then remove what the driver still has of it."""
        await self._remember(replace(self._record, ended=bool(self._record.task_id), state=self.state))
        await self._remove_remains()

    async def _remove_remains(self) -> None:
        self.handle = None
        if not self._record.task_id:
            return
        try:
            async with asyncio.timeout(DESTROY_S):
                await self._around.driver.destroy(self._record.task_id)
        except (LepaError, TimeoutError) as error:
            if not isinstance(error, LepaError) or error.code != "not_found":
                log.warning("remains of a task were not removed task_id=%s error=%s", self._record.task_id, error)
        self._record = TaskRecord(driver=self.task.driver, state=self.state)
        self._around.state.note_task(self.place.alloc.id, self.task.name, self._record)

    async def _remember(self, record: TaskRecord) -> None:
        self._record = record
        await self._around.state.save_task(self.place.alloc.id, self.task.name, record)

    def _tell(self, told: TaskEvent) -> None:
        self.state = task_events.with_event(self.state, told)
        self._changed()


async def _outcome(work: Coroutine[Any, Any, T]) -> T | LepaError:
    """What `work` returned or raised, as a value: a failure is an expected outcome here."""
    try:
        return await work
    except LepaError as error:
        return error


def _host_directories(directory: AllocDir, task: str) -> Directories:
    dirs = directory.task(task)
    return Directories(str(directory.shared), str(dirs.local), str(dirs.secrets))
