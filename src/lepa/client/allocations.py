"""The allocations of this node: what an earlier agent left, what the servers want, what has ended.

    follow   a long poll tells which allocations changed; alloc_sync says what to fetch, start and forget
    collect  ended allocations stay on disk for those who want to read their logs, within bounds

A server that is behind the others may not know an allocation that runs here. Its answer is recognised by its index and
the leader is asked instead; so nothing is ended because of an old answer.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from lepa.client import alloc_sync, garbage
from lepa.client.alloc_dir import AllocDir
from lepa.client.alloc_runner import AllocRunner, NodeParts
from lepa.client.cores import Cores
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.reports import Reports
from lepa.client.server_link import ServerLink
from lepa.client.settings import ClientSettings
from lepa.client.waiting import happens
from lepa.drivers.protocol import TaskConfig, TaskHandle
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.migration import MigrateSource
from lepa.rpc import methods as m
from lepa.rpc.requests import WAIT_MAX_NS, NodeAllocations, NodeAllocationsRequest

log = logging.getLogger(__name__)

RETRY_S = 1.0
FOLLOW_S = WAIT_MAX_NS / SECOND * 1.2
DISCONNECT_LOOK_S = 1.0
UNKNOWN = "unknown"
"""What servers call an allocation whose node they have not heard of: it has to be told again how it is."""


class Allocations:
    """What runs here, by id. parts and cores are set before anything is started."""

    parts: NodeParts
    cores: Cores

    def __init__(self, settings: ClientSettings, state: LocalState, link: ServerLink, clock: Clock) -> None:
        self._settings = settings
        self._state = state
        self._link = link
        self._clock = clock
        self._root = settings.alloc_dir or settings.directory / "alloc"
        self._tasks = Tasks("client.allocations")
        self._ended: dict[str, None] = {}
        self._refused: dict[str, Allocation] = {}
        self._crowded = asyncio.Event()
        self._unknown: set[str] = set()
        self._follow_from = 0
        self._listed = -1
        self._ask_leader = False
        self.may_start = asyncio.Event()
        self.runners: dict[str, AllocRunner] = {}
        self.migrate_sources: dict[str, MigrateSource] = {}
        self.reports = Reports(link, clock, self.present)

    @property
    def root(self) -> Path:
        """Where allocations have their directories."""
        return self._root

    def runner(self, alloc_id: str) -> AllocRunner:
        """One of them. Raises LepaError(not_found)."""
        if (runner := self.runners.get(alloc_id)) is None:
            raise not_found(f'Unknown allocation "{alloc_id}"')
        return runner

    def present(self, alloc_id: str) -> Allocation | None:
        """What the servers should know of an allocation now."""
        if (runner := self.runners.get(alloc_id)) is None:
            return self._refused.get(alloc_id)
        status, description = runner.status()
        return replace(
            _report(runner.alloc),
            client_status=status,
            client_description=description,
            task_states=runner.states(),
        )

    def tell_everything(self) -> None:
        """The servers may have lost what they knew."""
        self.reports.forget_all()
        for alloc_id in [*self.runners, *self._refused]:
            self.reports.note(alloc_id)

    # Following

    async def follow(self) -> None:
        """Do what the servers want, for as long as the node lives."""
        while True:
            await self._link.registered.wait()
            try:
                complete = await self._look()
            except LepaError as error:
                log.warning("allocations could not be followed error=%s", error.message)
                complete = False
                if error.code == "not_found" and self._ask_leader:
                    self._ask_leader = False
                    self._link.not_known()
                elif error.code == "not_found":
                    self._ask_leader = True  # a server that is behind the others may not know this node yet
                    self._follow_from = 0
                    continue
            if not complete:
                self._follow_from = 0
                await self._clock.sleep(RETRY_S)

    async def _look(self) -> bool:
        """One long poll; False when it has to be asked again from the beginning."""
        query = NodeAllocationsRequest(
            node_id=self._link.node.id,
            secret_id=self._link.node.secret_id,
            index=self._follow_from,
            known=self._listed,
            stale=not self._ask_leader,
        )
        reply = await self._link.wait(m.NODE_FOLLOW, query, FOLLOW_S)
        if reply is None:
            return True
        newest = max((runner.alloc.alloc_modify_index for runner in self.runners.values()), default=0)
        if reply.index < newest and not self._ask_leader:
            log.warning("a server is behind what this node knows; asking the leader index=%d", reply.index)
            self._ask_leader = True
            return False
        self._ask_leader = False
        self._link.seen = max(self._link.seen, reply.index)
        if not await self._take(reply.value):
            return False
        self._follow_from, self._listed = reply.index, len(reply.value.indexes)
        self.may_start.set()
        return True

    async def _take(self, wanted: NodeAllocations) -> bool:
        """Carry out what the servers want; False when allocations are missing from the answer."""
        have = {alloc_id: runner.alloc.alloc_modify_index for alloc_id, runner in self.runners.items()}
        orders = alloc_sync.compare(wanted.indexes, have, self._follow_from)
        given = {alloc.id: alloc for alloc in wanted.allocations}
        self.migrate_sources |= wanted.migrate
        fetched = tuple(given[alloc_id] for alloc_id in orders.fetch if alloc_id in given)
        change = alloc_sync.divide(fetched, self.runners.keys())
        for alloc_id in orders.forget:
            await self._forget(alloc_id)
        for alloc in change.update:
            self._update(self.runners[alloc.id], alloc)
        known = [*change.start, *(self._remembered(self.runners[alloc.id]) for alloc in change.update)]
        await asyncio.gather(*(self._state.save_allocation(alloc) for alloc in known))
        await self._share_cores(change.start)
        for alloc in change.start:
            self._start(alloc)
        return len(fetched) == len(orders.fetch)

    async def _share_cores(self, starting: Sequence[Allocation] = ()) -> None:
        running = [runner.alloc for runner in self.runners.values() if not runner.finished.is_set()]
        cores = self._link.node.node_resources.cpu.reservable_cpu_cores
        await self.cores.share(cores, [*running, *starting])

    def _update(self, runner: AllocRunner, alloc: Allocation) -> None:
        if alloc.client_status == UNKNOWN:
            self.reports.doubt(alloc.id)
        try:
            runner.update(alloc)
        except LepaError as error:
            log.error("allocation cannot be updated alloc_id=%s error=%s", alloc.id, error.message)

    def _remembered(self, runner: AllocRunner) -> Allocation:
        return replace(runner.alloc, job=runner.job)

    # Starting

    async def restore(self) -> None:
        """Take up what an earlier agent left."""
        contents = self._state.load()
        await self._share_cores([remembered.alloc for remembered in contents.allocations])
        for remembered in contents.allocations:
            self._start(*remembered)
        for alloc_id, records in contents.unreadable.items():
            await self._clear_away(alloc_id, records)
        if self.runners:
            log.info("allocations restored count=%d", len(self.runners))

    def _start(self, alloc: Allocation, records: dict[str, TaskRecord] | None = None) -> None:
        directory = AllocDir(self._root, alloc.id)
        try:
            runner = AllocRunner(alloc, directory, self.parts, self.reports.note, records)
        except LepaError as error:
            log.error("allocation cannot run alloc_id=%s error=%s", alloc.id, error.message)
            self._refused[alloc.id] = replace(_report(alloc), client_status="failed", client_description=error.message)
        else:
            self.runners[alloc.id] = runner
            if len(self.runners) > self._settings.gc_allocs_max:
                self._crowded.set()
            if runner.finished.is_set():
                self._ended[alloc.id] = None
            else:
                self._tasks.start(f"run.{alloc.id}", self._run(runner))
        self.reports.note(alloc.id)

    async def _run(self, runner: AllocRunner) -> None:
        alloc_id = runner.alloc.id
        await runner.run()
        await self._share_cores()
        self._ended[alloc_id] = None
        if alloc_id in self._unknown:
            await self._remove(alloc_id)
        else:
            await self._state.save_allocation(self._remembered(runner))

    def earlier(self, alloc: Allocation) -> list[AllocRunner]:
        """Allocations on this node that make room for `alloc` and have not ended yet, or leave it their data."""
        ids = {alloc.previous_allocation, *alloc.preempted_allocations}
        found = [runner for alloc_id in ids if (runner := self.runners.get(alloc_id)) is not None]
        return [runner for runner in found if runner.stopping or runner.finished.is_set()]

    # Ending

    async def _forget(self, alloc_id: str) -> None:
        """The servers no longer know it: end it and remove what it left."""
        runner = self.runners[alloc_id]
        if runner.finished.is_set():
            await self._remove(alloc_id)
        else:
            self._unknown.add(alloc_id)
            runner.stop(destroy=True)

    async def _remove(self, alloc_id: str) -> None:
        """Directories first: what is on disk must always be found through the state."""
        runner = self.runners[alloc_id]
        await asyncio.to_thread(runner.directory.destroy)
        await self._state.forget(alloc_id)
        self._unknown.discard(alloc_id)
        self.migrate_sources.pop(alloc_id, None)
        self._ended.pop(alloc_id, None)
        self.runners.pop(alloc_id, None)
        self.reports.forget(alloc_id)

    async def _clear_away(self, alloc_id: str, records: dict[str, TaskRecord]) -> None:
        """End and remove an allocation of which only the tasks' ids can be read."""
        for record in records.values():
            driver = self.parts.drivers.get(record.driver)
            if driver is None or not record.task_id:
                continue
            handle = record.handle or TaskHandle(driver=record.driver, task_id=record.task_id)
            try:
                await driver.recover(TaskConfig(id=record.task_id, alloc_id=alloc_id), handle)
                await driver.destroy(record.task_id)
            except LepaError as error:
                log.warning("task was not removed task_id=%s error=%s", record.task_id, error.message)
        await self.parts.networks.detach(alloc_id)
        await asyncio.to_thread(AllocDir(self._root, alloc_id).destroy)
        await self._state.forget(alloc_id)

    async def collect(self, alloc_id: str = "") -> None:
        """Remove an ended allocation from the disk, or all of them. Raises LepaError(invalid) for one that runs."""
        if alloc_id and not self.runner(alloc_id).finished.is_set():
            raise invalid("allocation is still running; stop it first", http_status=500)
        for ended in self._collectable([alloc_id] if alloc_id else self._ended):
            await self._remove(ended)

    def _collectable(self, ended: Iterable[str]) -> list[str]:
        """Those whose end the servers know: of any other they would want to see it run again."""
        return [alloc_id for alloc_id in ended if alloc_id in self.runners and self.reports.is_known(alloc_id)]

    async def keep_within_bounds(self) -> None:
        """Collect the oldest ended allocations when there are too many, or the disk is full."""
        settings = self._settings
        limits = garbage.Limits(settings.gc_allocs_max, settings.gc_disk_usage_percent, settings.gc_inode_usage_percent)
        while True:
            self._crowded.clear()
            await happens(self._crowded, self._clock, settings.gc_interval_s)
            collectable, told = self._collectable(self._ended), ""
            while collectable and (reason := garbage.reason(use := await self._use(), limits)):
                if reason != told:
                    log.info("ended allocations are removed reason=%s", reason)
                    told = reason
                size = garbage.batch(use, limits, settings.gc_parallel_destroys)
                chosen, collectable = collectable[:size], collectable[size:]
                await asyncio.gather(*(self._remove(alloc_id) for alloc_id in chosen))

    async def _use(self) -> garbage.Use:
        root = self._root if self._root.exists() else self._root.parent
        usage = await asyncio.to_thread(os.statvfs, root)
        room = usage.f_blocks - usage.f_bfree + usage.f_bavail
        return garbage.Use(
            allocs=len(self.runners),
            disk_percent=(usage.f_blocks - usage.f_bfree) / room * 100 if room else 0.0,
            inodes_percent=(usage.f_files - usage.f_ffree) / usage.f_files * 100 if usage.f_files else 0.0,
        )

    async def watch_disconnection(self) -> None:
        """End allocations that must not go on for so long without servers (`disconnect.stop_on_client_after`)."""
        while True:
            await self._clock.sleep(DISCONNECT_LOOK_S)
            alone_s = self._clock.now() - self._link.last_contact
            for alloc_id, runner in list(self.runners.items()):
                limit_s = runner.stop_after_disconnect_s
                if limit_s is not None and alone_s > limit_s and not runner.stopping:
                    log.warning("allocation is stopped: no server for too long alloc_id=%s", alloc_id)
                    runner.stop()

    async def stop_all(self, within_s: float) -> None:
        """End everything, at most `within_s`: only an agent for development does this when it leaves."""
        running = [runner for runner in self.runners.values() if not runner.finished.is_set()]
        for runner in running:
            runner.stop()
        try:
            async with asyncio.timeout(within_s):
                for runner in running:
                    await runner.finished.wait()
        except TimeoutError:
            log.warning("not all allocations ended in time within_s=%g", within_s)

    async def close(self) -> None:
        """Let go of everything; tasks go on."""
        await self._tasks.close()
        for runner in self.runners.values():
            await runner.close()


def _report(alloc: Allocation) -> Allocation:
    """Of an allocation, only what its node has a say in."""
    return Allocation(
        id=alloc.id,
        namespace=alloc.namespace,
        job_id=alloc.job_id,
        task_group=alloc.task_group,
        node_id=alloc.node_id,
        eval_id=alloc.eval_id,
        deployment_id=alloc.deployment_id,
        client_status=alloc.client_status,
        client_description=alloc.client_description,
        task_states=alloc.task_states,
        deployment_status=alloc.deployment_status,
        network_status=alloc.network_status,
    )
