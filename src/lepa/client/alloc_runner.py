"""One allocation: its directories, its tasks in life-cycle order, its services, its health.

Whenever something changes, `_consider` asks `task_lifecycle.decide` what may start and what has to end, and carries
that out. The runner never talks to the servers: `report` tells the client that the allocation has news.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
from msgspec.structs import replace

from lepa.client import instances, task_env, task_events, task_lifecycle
from lepa.client.alloc_dir import AllocDir
from lepa.client.alloc_health import AllocHealth
from lepa.client.checks import Checks
from lepa.client.hooks.payload import PayloadHook
from lepa.client.hooks.protocol import QuietHook, Setup, TaskHook
from lepa.client.instances import Check, Instance, Source
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.service_sync import ServiceSync
from lepa.client.task_env import Directories, Place
from lepa.client.task_runner import Surroundings, TaskRunner
from lepa.drivers.protocol import Driver, TaskNetwork
from lepa.kit.durations import SECOND, rfc3339
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation, AllocDeploymentStatus, TaskEvent, TaskState
from lepa.model.errors import LepaError, not_found
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.task import Task

log = logging.getLogger(__name__)

SCRIPT_OUTPUT_MAX = 4096
HEALTH_POLL_S = 1.0


@dataclass(frozen=True)
class NodeParts:
    """What all allocations of a node share."""

    node: Callable[[], Node]
    region: str
    drivers: Mapping[str, Driver]
    state: LocalState
    services: ServiceSync
    http: aiohttp.ClientSession
    clock: Clock
    random: Random
    host_env: Mapping[str, str]
    hooks: Callable[[AllocDir, Place], list[TaskHook]]
    kill_timeout_max_s: float = 30.0


class AllocRunner:
    """Runs one allocation until all its tasks are dead."""

    def __init__(
        self,
        alloc: Allocation,
        directory: AllocDir,
        parts: NodeParts,
        report: Callable[[str], None],
        records: Mapping[str, TaskRecord] | None = None,
    ) -> None:
        job = alloc.job
        group = next((g for g in job.task_groups if g.name == alloc.task_group), None) if job else None
        if job is None or group is None:
            raise not_found(f'allocation {alloc.id} names a task group "{alloc.task_group}" that its job does not have')
        self.alloc = alloc
        self.directory = directory
        self._parts = parts
        self._report = report
        self._job: Job = job
        self._group: TaskGroup = group
        self._news = asyncio.Event()
        self._stopping = alloc.desired_status in {"stop", "evict"}
        self._services_left = False
        self._tasks = Tasks(f"alloc.{alloc.id[:8]}")
        self._started: set[str] = set()
        self._instances: dict[str, list[Instance]] = {}
        self.checks = Checks(
            parts.http, parts.clock, parts.random, parts.services.set_status, self._check_restart, self._run_script
        )
        self.runners = {task.name: self._runner(task, (records or {}).get(task.name)) for task in group.tasks}
        self._health = self._health_watch()
        self.finished = asyncio.Event()
        if task_lifecycle.finished(group, self.states()):
            self.finished.set()

    def _runner(self, task: Task, record: TaskRecord | None) -> TaskRunner:
        place = Place(
            self._parts.node(), self._parts.region, self._job, self._group, task, self.alloc, Directories("", "", "")
        )
        driver = self._parts.drivers.get(task.driver)
        if driver is None:
            raise not_found(f'driver "{task.driver}" of task "{task.name}" is not on this node')
        hooks: list[TaskHook] = [PayloadHook(self.directory), *self._parts.hooks(self.directory, place)]
        hooks.append(_ServicesHook(self, task))
        around = Surroundings(
            driver=driver,
            directory=self.directory,
            state=self._parts.state,
            clock=self._parts.clock,
            random=self._parts.random,
            host_env=self._parts.host_env,
            hooks=hooks,
            kill_timeout_max_s=self._parts.kill_timeout_max_s,
        )
        return TaskRunner(place, around, self._changed, record)

    def _health_watch(self) -> AllocHealth | None:
        decided = self.alloc.deployment_status is not None and self.alloc.deployment_status.healthy is not None
        now = self._parts.clock.now()
        if decided:
            return None
        if self.alloc.deployment_id and self._group.update is not None:
            return AllocHealth(self._group, self._group.update, now)
        if self._group.migrate is not None and self._job.type == "service":
            return AllocHealth(self._group, self._group.migrate, now)
        return None

    # What is known

    @property
    def job(self) -> Job:
        """The job as this allocation runs it."""
        return self._job

    def states(self) -> dict[str, TaskState]:
        """States of all tasks."""
        return {name: runner.state for name, runner in self.runners.items()}

    def present(self) -> Allocation:
        """The allocation as this node sees it now: what the servers are told."""
        states = self.states()
        status, description = task_lifecycle.client_status(self._group, states)
        return replace(self.alloc, job=None, task_states=states, client_status=status, client_description=description)

    # What others ask

    def stop(self) -> None:
        """End the allocation."""
        self._stopping = True
        self._changed()

    def update(self, alloc: Allocation) -> None:
        """Take in a newer form of the allocation from the servers."""
        health = self.alloc.deployment_status
        if alloc.job is None:
            alloc = replace(alloc, job=self._job)
        new_deployment = alloc.deployment_id != self.alloc.deployment_id
        if not new_deployment and health is not None and health.healthy is not None:
            alloc = replace(alloc, deployment_status=health)
        self.alloc = alloc
        if alloc.job is not None and alloc.job.version != self._job.version:
            self._take_job(alloc.job)
        if new_deployment:
            self._health = self._health_watch()
        if alloc.desired_status in {"stop", "evict"}:
            self.stop()
        self._changed()

    def _take_job(self, job: Job) -> None:
        """An in-place update: the same tasks, with other services, meta or policies."""
        group = next((g for g in job.task_groups if g.name == self.alloc.task_group), None)
        if group is None:
            return
        self._job, self._group = job, group
        by_name = {task.name: task for task in group.tasks}
        for name, runner in self.runners.items():
            if name in by_name:
                runner.replace_place(runner.place._replace(job=job, group=group, task=by_name[name], alloc=self.alloc))
        for owner in list(self._instances):
            self.offer(owner, None)

    def restart(self, task: str, *, all_tasks: bool = False) -> None:
        """Restart one task, or those that run."""
        del all_tasks  # dead tasks of a running allocation stay dead: their work is done
        if task and task not in self.runners:
            raise not_found(f'Could not find task runner for task: "{task}"', http_status=500)
        chosen = [self.runners[task]] if task else [r for r in self.runners.values() if r.state.state == "running"]
        if not chosen:
            raise LepaError("invalid", "no task of the allocation is running", http_status=500)
        for runner in chosen:
            runner.restart("User requested restart")

    async def signal(self, task: str, name: str) -> None:
        """Signal one task, or those that run."""
        if task and task not in self.runners:
            raise not_found(f'Could not find task runner for task: "{task}"', http_status=500)
        chosen = [self.runners[task]] if task else [r for r in self.runners.values() if r.state.state == "running"]
        for runner in chosen:
            await runner.signal(name, "User requested signal")

    # The loop

    async def run(self) -> None:
        """Return when all tasks are dead and the services are gone."""
        if self.finished.is_set():
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.directory.build, list(self.runners))
        except OSError as error:
            for runner in self.runners.values():
                told = task_events.event(
                    "Setup Failure", f"cannot make directories: {error}", self._parts.clock.now_ns()
                )
                runner.kill("setup failed", failed=True, told=told)
        try:
            self.offer("", None)
            while not task_lifecycle.finished(self._group, self.states()):
                self._news.clear()
                await self._consider()
                self._watch_health()
                await self._wait_for_news()
        finally:
            await self.checks.close()
            self._withdraw_all()
        self.finished.set()
        self._report(self.alloc.id)

    async def _wait_for_news(self) -> None:
        wake = self._health.wake_at() if self._health is not None else None
        delay = None if wake is None else max(0.0, min(wake - self._parts.clock.now(), HEALTH_POLL_S))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), delay)

    def _changed(self) -> None:
        self._news.set()
        self._report(self.alloc.id)

    async def _consider(self) -> None:
        """Start what may start, end what has to end."""
        orders = task_lifecycle.decide(self._group, self.states(), stopping=self._stopping)
        if self._stopping and not self._services_left:
            await self._leave_services()
        for name in sorted(orders.start - self._started):
            self._started.add(name)
            self._tasks.start(f"task.{name}", self.runners[name].run())
        for name in sorted(orders.kill):
            runner = self.runners[name]
            runner.kill(orders.kill_reason, told=self._reason_event(orders.kill_reason))
            if name not in self._started:
                self._started.add(name)
                self._tasks.start(f"task.{name}", runner.run())

    def _reason_event(self, reason: str) -> TaskEvent | None:
        """Why a task ends although nobody told the allocation to stop."""
        now_ns = self._parts.clock.now_ns()
        if reason.startswith("Failed because of task"):
            sibling = reason.split('"')[1]
            text = f'Task\'s sibling "{sibling}" failed'
            return replace(
                task_events.event("Sibling Task Failed", text, now_ns, failed_sibling=sibling), failed_sibling=sibling
            )
        if reason.startswith("Leader task"):
            return task_events.event("Leader Task Dead", "Leader Task in Group dead", now_ns)
        if reason.startswith("Main tasks"):
            return task_events.event("Main Tasks Dead", "Main tasks in the group died", now_ns)
        return None

    async def _leave_services(self) -> None:
        """Deregister before anything is killed, and wait the group's shutdown delay."""
        self._services_left = True
        self._withdraw_all()
        delay_s = self._group.shutdown_delay / SECOND
        if self.alloc.desired_transition.no_shutdown_delay:
            delay_s = 0.0
        if any(runner.state.state == "running" for runner in self.runners.values()):
            await self._parts.services.settle()
            if delay_s > 0:
                await self._parts.clock.sleep(delay_s)

    def _watch_health(self) -> None:
        if self._health is None or self._health.verdict is not None:
            return
        now = self._parts.clock.now()
        verdict = self._health.observe(self.states(), self.checks.all_passing(), now)
        if verdict is None:
            return
        before = self.alloc.deployment_status or AllocDeploymentStatus()
        health = replace(before, healthy=verdict, timestamp=rfc3339(self._parts.clock.now_ns()))
        self.alloc = replace(self.alloc, deployment_status=health)
        if not verdict:
            told = "Task not running for min_healthy_time or its checks did not pass before the deadline"
            for runner in self.runners.values():
                runner.note("Alloc Unhealthy", told)
        self._report(self.alloc.id)

    # Services

    def offer(self, owner: str, network: TaskNetwork | None) -> None:
        """Register the instances of the group (owner "") or of one task, and begin their checks."""
        if self._stopping:
            return
        place = self.runners[owner].place if owner else next(iter(self.runners.values())).place
        env = self.runners[owner].env if owner else task_env.built_in(place) | task_env.meta(place)
        source = Source(place.node, self._job, self._group, self.alloc, env, network)
        wanted = instances.of_task(source, place.task) if owner else instances.of_group(source)
        self.withdraw(owner, keep={instance.registration.id for instance in wanted})
        self._instances[owner] = wanted
        for instance in wanted:
            self._parts.services.register(instance.registration)
            self.checks.follow(instance)

    def withdraw(self, owner: str, keep: set[str] | None = None) -> None:
        """Remove the instances of the group or of one task from the catalog, except those to keep."""
        for instance in self._instances.pop(owner, []):
            if instance.registration.id not in (keep or ()):
                self.checks.leave(instance.registration.id)
                self._parts.services.deregister(instance.registration.id)

    def _withdraw_all(self) -> None:
        for owner in list(self._instances):
            self.withdraw(owner)

    def _check_restart(self, task: str, reason: str) -> None:
        for runner in [self.runners[task]] if task in self.runners else self.runners.values():
            with contextlib.suppress(LepaError):
                runner.restart(f"healthcheck: {reason}")

    async def _run_script(self, check: Check) -> tuple[int, bytes]:
        runner = self.runners.get(check.task) or next(iter(self.runners.values()))
        if runner.handle is None:
            raise not_found(f'task "{check.task}" is not running')
        driver = self._parts.drivers[runner.task.driver]
        command = [check.spec.command, *check.spec.args]
        targets = task_env.references(runner.place, runner.env)
        session = await driver.exec(runner.handle.task_id, task_env.interpolate_all(command, targets), tty=False)
        output = b""
        try:
            async for _, data in session.output():
                output = (output + data)[:SCRIPT_OUTPUT_MAX]
            return await session.wait(), output
        finally:
            await session.close()

    async def close(self) -> None:
        """Let go without ending the tasks: the agent stops, the tasks go on."""
        await self._tasks.close()
        await self.checks.close()


class _ServicesHook(QuietHook):
    """Registers a task's services once it runs, and removes them before it is killed."""

    name = "services"

    def __init__(self, runner: AllocRunner, task: Task) -> None:
        self._runner = runner
        self._task = task.name

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """The task runs: register."""
        self._runner.offer(self._task, network)

    async def stopping(self) -> None:
        """The task is about to be killed: remove."""
        self._runner.withdraw(self._task)

    async def exited(self) -> None:
        """The task has ended: remove."""
        self._runner.withdraw(self._task)
