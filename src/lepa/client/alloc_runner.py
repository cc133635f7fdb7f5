"""One allocation: its directories, its tasks in life-cycle order, its services, its health.

Whenever something changes, `_consider` asks `task_lifecycle.decide` what may start and what has to end, and carries
that out. The runner never talks to the servers: `report` tells the client that the allocation has news.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import aiohttp
from msgspec.structs import replace

from lepa.client import instances, task_env, task_events, task_lifecycle
from lepa.client.alloc_dir import AllocDir
from lepa.client.alloc_health import AllocHealth
from lepa.client.alloc_services import GROUP, AllocServices, checks_count
from lepa.client.checks import Checks
from lepa.client.csi.mounts import CsiMounts
from lepa.client.csi.plugins import CsiPluginHook, CsiPlugins
from lepa.client.devices import Devices
from lepa.client.ephemeral_disk import DiskParts, EphemeralDisk
from lepa.client.hooks.protocol import HookError, QuietHook, Setup, TaskHook
from lepa.client.instances import Check, Source
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.network.networks import HOST_NETWORK, Networks
from lepa.client.service_sync import ServiceSync
from lepa.client.task_env import Directories, Place
from lepa.client.task_lifecycle import PENDING, RUNNING
from lepa.client.task_runner import Surroundings, TaskRunner
from lepa.client.waiting import happens
from lepa.drivers.absent import AbsentDriver
from lepa.drivers.protocol import Driver, TaskNetwork
from lepa.kit.durations import SECOND, parse_rfc3339, rfc3339
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation, AllocDeploymentStatus, TaskEvent, TaskState
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.task import Task

Hooks = Callable[[AllocDir, Place], list[TaskHook]]
"""Makes the hooks of one task, in their order."""

OVERTIME = "allocation exceeded max_run_duration"


@dataclass(frozen=True)
class NodeParts:
    """What all allocations of a node share.

    may_start: set once the servers have been asked what should run here. earlier: allocations on this node that have
    to end before a new one starts.
    """

    node: Callable[[], Node]
    region: str
    drivers: Mapping[str, Driver]
    state: LocalState
    services: ServiceSync
    http: aiohttp.ClientSession
    clock: Clock
    random: Random
    host_env: Mapping[str, str]
    hooks: Hooks
    may_start: asyncio.Event
    earlier: "Callable[[Allocation], list[AllocRunner]]"
    disk: DiskParts
    networks: Networks
    volumes: CsiMounts
    csi_plugins: CsiPlugins
    kill_timeout_max_s: float = 30.0
    options: Mapping[str, str] = field(default_factory=dict)
    devices: Devices = field(default_factory=Devices)


class AllocRunner:
    """Runs one allocation until all its tasks are dead. records: what an earlier agent left of its tasks."""

    def __init__(
        self,
        alloc: Allocation,
        directory: AllocDir,
        parts: NodeParts,
        report: Callable[[str], None],
        records: Mapping[str, TaskRecord] | None = None,
    ) -> None:
        self.alloc = alloc
        self.directory = directory
        self.finished = asyncio.Event()
        self._parts = parts
        self._report = report
        self._job, self._group = job_and_group(alloc)
        self._news = asyncio.Event()
        self._stopping = alloc.desired_status in {"stop", "evict"}
        self._destroying = False
        self._rerunning = False
        self._overtime = False
        self._services_left = False
        self._tasks = Tasks(f"alloc.{alloc.id[:8]}")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._networks: dict[str, TaskNetwork | None] = {}
        self._network = HOST_NETWORK
        self._csi_volumes: dict[str, str] = {}
        self._services = AllocServices(parts.services, restored=records is not None)
        self.checks = Checks(
            parts.http, parts.clock, parts.random, self._checked, self._check_restart, self._run_script
        )
        self._services.follow_checks(self.checks)
        self.runners = {task.name: self._runner(task, (records or {}).get(task.name)) for task in self._group.tasks}
        self._health = self._health_watch()
        if not self._resumable() and task_lifecycle.finished(self._group, self.states()):
            self.finished.set()

    def _runner(self, task: Task, record: TaskRecord | None) -> TaskRunner:
        node = self._parts.node()
        place = Place(node, self._parts.region, self._job, self._group, task, self.alloc, Directories("", "", ""))
        place = place._replace(
            namespace=self._network.namespace, hosts=self._network.hosts, csi_volumes=self._csi_volumes
        )
        around = Surroundings(
            driver=self._parts.drivers.get(task.driver) or AbsentDriver(task.driver),
            directory=self.directory,
            state=self._parts.state,
            clock=self._parts.clock,
            random=self._parts.random,
            host_env=self._parts.host_env,
            may_start=self._parts.may_start,
            devices=self._parts.devices,
            options=self._parts.options,
            hooks=[*self._parts.hooks(self.directory, place), *self._csi_hooks(place), _ServicesHook(self, task.name)],
            more_mounts=self._parts.csi_plugins.mounts,
            kill_timeout_max_s=self._parts.kill_timeout_max_s,
        )
        return TaskRunner(place, around, self._changed, record)

    def _csi_hooks(self, place: Place) -> list[TaskHook]:
        if place.task.csi_plugin_config is None:
            return []
        driver = self._parts.drivers.get(place.task.driver)
        isolated = driver is not None and driver.capabilities.isolation != "none"
        return [CsiPluginHook(self._parts.csi_plugins, place, isolated=isolated)]

    def _health_watch(self) -> AllocHealth | None:
        status, now = self.alloc.deployment_status, self._parts.clock.now()
        if status is not None and status.healthy is not None:
            return None
        if self.alloc.deployment_id and self._group.update is not None:
            return AllocHealth(self._group, self._group.update, now)
        if self._group.migrate is not None and self._job.type == "service":
            return AllocHealth(self._group, self._group.migrate, now)
        return None

    def _resumable(self) -> list[str]:
        return [name for name, runner in self.runners.items() if runner.resumable]

    # What is known

    @property
    def job(self) -> Job:
        """The job as this allocation runs it."""
        return self._job

    @property
    def stopping(self) -> bool:
        """Whether the allocation was told to end."""
        return self._stopping

    @property
    def sticky(self) -> bool:
        """Whether the data of its disk go to the allocation that replaces it."""
        return self._group.ephemeral_disk.sticky

    @property
    def stop_after_disconnect_s(self) -> float | None:
        """How long it may go on without the servers; None for as long as it likes."""
        rule = self._group.disconnect
        return None if rule is None or rule.stop_on_client_after is None else rule.stop_on_client_after / SECOND

    def states(self) -> dict[str, TaskState]:
        """States of all tasks."""
        return {name: runner.state for name, runner in self.runners.items()}

    def status(self) -> tuple[str, str]:
        """The client status and its description."""
        status, description = task_lifecycle.client_status(self._group, self.states())
        return status, OVERTIME if self._overtime and status == "complete" else description

    # What others ask

    def stop(self, *, destroy: bool = False) -> None:
        """End the allocation. destroy: nobody wants it any more, its poststop tasks neither."""
        self._stopping = True
        self._destroying = self._destroying or destroy
        self._changed()

    def update(self, alloc: Allocation) -> None:
        """Take in a newer form of the allocation from the servers."""
        before = self.alloc
        self.alloc = replace(
            alloc, deployment_status=_merged_health(before, alloc), network_status=before.network_status
        )
        changed_job = alloc.job is not None and alloc.job.version != self._job.version
        if changed_job:
            self._job, self._group = job_and_group(alloc)
        if changed_job or _is_canary(before) != _is_canary(self.alloc):
            self._replace_places()
        if alloc.deployment_id != before.deployment_id:
            self._health = self._health_watch()
        if alloc.desired_status in {"stop", "evict"}:
            self.stop()
        self._changed()

    def _replace_places(self) -> None:
        """An in-place update or a promotion: the same tasks, with other services, meta, tags or policies."""
        by_name = {task.name: task for task in self._group.tasks}
        for name, runner in self.runners.items():
            task = by_name.get(name, runner.task)
            place = runner.place._replace(job=self._job, group=self._group, task=task, alloc=self.alloc)
            place = place._replace(namespace=self._network.namespace, hosts=self._network.hosts)
            runner.replace_place(place._replace(csi_volumes=self._csi_volumes))
        for owner in [GROUP, *self.runners]:
            if self._services.offers(owner):
                self.offer(owner)

    def restart(self, task: str, *, all_tasks: bool = False) -> None:
        """Restart one task, or those that run; all_tasks: begin the allocation again, ended tasks included."""
        if all_tasks:
            self._require_unfinished()
            self._rerunning = True
            self._changed()
            return
        for runner in self._chosen(task):
            runner.restart("User requested restart")

    async def signal(self, task: str, name: str) -> None:
        """Signal one task, or those that run."""
        for runner in self._chosen(task):
            await runner.signal(name, "User requested signal")

    def _require_unfinished(self) -> None:
        if self.finished.is_set() or self._stopping:
            raise invalid("allocation is not running", http_status=500)

    def _chosen(self, task: str) -> list[TaskRunner]:
        if task and task not in self.runners:
            raise not_found(f'Could not find task runner for task: "{task}"', http_status=500)
        chosen = [self.runners[task]] if task else [r for r in self.runners.values() if r.state.state == RUNNING]
        if not chosen:
            raise invalid("no task of the allocation is running", http_status=500)
        return chosen

    # The loop

    async def run(self) -> None:
        """Return when all tasks are dead, their remains removed, and the services gone."""
        if self.finished.is_set():
            return
        try:
            if await self._prepare():
                self._offer_group()
            for name in self._resumable():
                self._begin(name)
            while self._running or not task_lifecycle.finished(self._group, self.states()):
                self._news.clear()
                await self._consider()
                self._watch_health()
                await happens(self._news, self._parts.clock, self._next_look_s())
        finally:
            await self.checks.close()
        self._withdraw([GROUP, *self.runners])
        await self._parts.volumes.unmount(self.alloc.id)
        await self._parts.networks.detach(self.alloc.id)
        await asyncio.to_thread(self.directory.drop_secrets)
        self.finished.set()
        self._report(self.alloc.id)

    async def _prepare(self) -> bool:
        """Set up the disk, the network and the volumes, in this order; False when that failed."""
        return await self._make_disk() and await self._attach() and await self._mount_volumes()

    async def _make_disk(self) -> bool:
        """Make or take up the directories, with the data of the allocation before; False when that failed."""
        disk = EphemeralDisk(
            self.alloc,
            self._group,
            self.directory,
            self._parts.disk,
            stopping=lambda: self._stopping,
            news=self._news,
        )
        try:
            told = await disk.prepare(self._parts.earlier(self.alloc) if disk.fresh else [])
        except LepaError as error:
            self._setup_failed(error.message)
            return False
        if told:
            for runner in self.runners.values():
                runner.note("Task hook message", told)
        return True

    async def _attach(self) -> bool:
        """Make or take up the group's network; False when that failed."""
        try:
            self._network = await self._parts.networks.attach(self.alloc, self._job, self._group)
        except LepaError as error:
            self._setup_failed(f"cannot set up the network: {error.message}")
            return False
        if self._network.status is not None:
            self.alloc = replace(self.alloc, network_status=self._network.status)
            self._replace_places()
        return True

    async def _mount_volumes(self) -> bool:
        """Mount the group's CSI volumes, or take up those that are mounted; False when that failed."""
        try:
            found = await self._parts.volumes.mount(self.alloc, self._group, lambda: self._stopping)
        except LepaError as error:
            self._setup_failed(f"cannot mount volumes: {error.message}")
            return False
        if found:
            self._csi_volumes = found
            self._replace_places()
        return True

    def _setup_failed(self, reason: str) -> None:
        for runner in self.runners.values():
            told = task_events.start_failed("Setup Failure", reason, self._parts.clock.now_ns())
            runner.kill("setup failed", failed=True, told=told)

    def _next_look_s(self) -> float | None:
        """When time alone may change something, in seconds from now."""
        wishes = [self._health.wake_at() if self._health is not None else None, self._overtime_at()]
        times = [wish for wish in wishes if wish is not None]
        return max(0.0, min(times) - self._parts.clock.now()) if times else None

    def _changed(self) -> None:
        self._news.set()
        self._report(self.alloc.id)

    async def _consider(self) -> None:
        """Start what may start, end what has to end."""
        if (over := self._overtime_at()) is not None and self._parts.clock.now() >= over:
            self._overtime = self._stopping = True
        if self._rerunning and not self._stopping and self._end_all():
            return
        orders = task_lifecycle.decide(self._group, self.states(), stopping=self._stopping, destroying=self._destroying)
        if orders.kill_reason and not self._services_left:
            await self._leave_services()
        for name in sorted(orders.kill):
            self.runners[name].kill(orders.kill_reason, told=self._reason_event(orders.kill_reason))
        for name in sorted(orders.start | orders.kill):
            self._begin(name)

    def _begin(self, name: str) -> None:
        if name not in self._running:
            task = self._tasks.start(f"task.{name}", self.runners[name].run())
            self._running[name] = task
            task.add_done_callback(lambda _: self._over(name))

    def _over(self, name: str) -> None:
        self._running.pop(name, None)
        self._news.set()

    def _end_all(self) -> bool:
        """`restart -all-tasks`: everything has to be pending before it begins again; whether that takes longer."""
        ending = [
            name for name, runner in self.runners.items() if runner.state.state != PENDING or name in self._running
        ]
        for name in ending:
            self.runners[name].rerun()
            self._begin(name)
        self._rerunning = bool(ending)
        return self._rerunning

    def _reason_event(self, reason: str) -> TaskEvent | None:
        """Why a task ends although nobody told the allocation to stop."""
        now_ns = self._parts.clock.now_ns()
        if reason == task_lifecycle.LEADER_ENDED:
            return task_events.event("Leader Task Dead", "Leader Task in Group dead", now_ns)
        if reason == task_lifecycle.MAIN_ENDED:
            return task_events.event("Main Tasks Dead", "Main tasks in the group died", now_ns)
        if reason.startswith(task_lifecycle.SIBLING_FAILED):
            return task_events.sibling_failed(reason.removeprefix(task_lifecycle.SIBLING_FAILED), now_ns)
        return None

    def _overtime_at(self) -> float | None:
        """When the allocation has run for too long (monotonic seconds), None when it may run for ever."""
        starts = [ns for state in self.states().values() if (ns := parse_rfc3339(state.started_at))]
        if self._group.max_run_duration is None or not starts or self._stopping:
            return None
        ran_s = (self._parts.clock.now_ns() - min(starts)) / SECOND
        return self._parts.clock.now() + self._group.max_run_duration / SECOND - ran_s

    async def _leave_services(self) -> None:
        """Deregister before anything is killed, and wait the group's shutdown delay."""
        self._services_left = True
        if not self._stopping:
            self._withdraw([GROUP])
            return
        running = any(runner.state.state == RUNNING for runner in self.runners.values())
        gone = self._withdraw([GROUP, *self.runners])
        if not running:
            return
        await self._services.gone(gone)
        if self._group.shutdown_delay > 0 and not self.alloc.desired_transition.no_shutdown_delay:
            await self._parts.clock.sleep(self._group.shutdown_delay / SECOND)

    # Health

    def _watch_health(self) -> None:
        if self._health is None or self._health.verdict is not None:
            return
        passing = self.checks.healthy(checks_count(self._group))
        verdict = self._health.observe(self.states(), passing, self._parts.clock.now())
        if verdict is None:
            return
        before = self.alloc.deployment_status or AllocDeploymentStatus()
        health = replace(before, healthy=verdict, timestamp=rfc3339(self._parts.clock.now_ns()))
        self.alloc = replace(self.alloc, deployment_status=health)
        if not verdict:
            for runner in self.runners.values():
                runner.note("Alloc Unhealthy", self._health.reason)
        self._report(self.alloc.id)

    # Services

    def _offer_group(self) -> None:
        if not self._stopping:
            self.offer(GROUP)

    def task_runs(self, name: str, network: TaskNetwork | None) -> None:
        """A task runs: its services are there."""
        self._networks[name] = network
        if not self._stopping:
            self.offer(name)

    def offer(self, owner: str) -> None:
        """Register the instances of the group or of one task, and begin their checks."""
        self._services.offer(owner, *self._source(owner))
        self._news.set()

    def unknown_ports(self, name: str) -> list[str]:
        """What is wrong with the ports that the services of the group and of one task name."""
        source, task = self._source(name)
        return instances.unknown_ports(source, task) if task else []

    def withdraw(self, owner: str) -> list[str]:
        """Remove the instances of the group or of one task; returns their ids."""
        return self._services.withdraw(owner, *self._source(owner))

    async def task_stops(self, name: str) -> None:
        """A task is about to be killed: its services are gone first."""
        await self._services.gone(self.withdraw(name))

    def _withdraw(self, owners: Iterable[str]) -> list[str]:
        return [service_id for owner in owners for service_id in self.withdraw(owner)]

    def _source(self, owner: str) -> tuple[Source, Task | None]:
        """What instances are made of; the group's see what no single task adds."""
        if owner:
            runner = self.runners[owner]
            place, env, task = runner.place, runner.env, runner.task
        else:
            place, task = next(iter(self.runners.values())).place, None
            env = task_env.group_environment(place)
        network = self._networks.get(owner)
        return Source(place.node, self._job, self._group, self.alloc, env, network), task

    def _checked(self, service_id: str, status: str) -> None:
        self._services.checked(service_id, status)
        self._news.set()

    def _check_restart(self, task: str, reason: str) -> None:
        for runner in [self.runners[task]] if task in self.runners else self.runners.values():
            with contextlib.suppress(LepaError):
                runner.restart(f"healthcheck: {reason}")

    async def _run_script(self, check: Check) -> tuple[int, bytes]:
        runner = self.runners.get(check.task) or next(iter(self.runners.values()))
        return await runner.run_command([check.spec.command, *check.spec.args])

    async def close(self) -> None:
        """Let go without ending the tasks: the agent stops, the tasks go on."""
        await self._tasks.close()
        await self.checks.close()


class _ServicesHook(QuietHook):
    """Refuses ports that are none, registers a task's services once it runs, and removes them before it is killed."""

    name = "services"

    def __init__(self, runner: AllocRunner, task: str) -> None:
        self._runner = runner
        self._task = task

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Raises HookError when a service names a port that there is not."""
        if wrong := self._runner.unknown_ports(self._task):
            raise HookError("; ".join(wrong), recoverable=False)
        return {}

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """The task runs: register."""
        self._runner.task_runs(self._task, network)

    async def stopping(self) -> None:
        """The task is about to be killed: remove."""
        await self._runner.task_stops(self._task)

    async def exited(self) -> None:
        """The task has ended: remove."""
        self._runner.withdraw(self._task)


def job_and_group(alloc: Allocation) -> tuple[Job, TaskGroup]:
    """The job of an allocation and its group in it. Raises LepaError(not_found)."""
    job = alloc.job
    group = next((g for g in job.task_groups if g.name == alloc.task_group), None) if job else None
    if job is None or group is None or not group.tasks:
        raise not_found(f'allocation {alloc.id} names a task group "{alloc.task_group}" that its job does not have')
    return job, group


def _is_canary(alloc: Allocation) -> bool:
    return alloc.deployment_status is not None and alloc.deployment_status.canary


def _merged_health(ours: Allocation, theirs: Allocation) -> AllocDeploymentStatus | None:
    """The servers' word on deployment and canary, with the health that this node found and they may not know yet."""
    known, told = ours.deployment_status, theirs.deployment_status
    if known is None or known.healthy is None or ours.deployment_id != theirs.deployment_id:
        return told
    if told is not None and told.healthy is not None:
        return told
    return replace(told or known, healthy=known.healthy, timestamp=known.timestamp)
