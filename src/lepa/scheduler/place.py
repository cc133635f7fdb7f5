"""Pure: makes the allocations that a reconciler asked for: chooses nodes, ports, devices and cores.

Placements of one group and version share one ranking of nodes. Allocations of a group whose resources do not differ
(no ports, devices or cores) share one object for them, so that a thousand cost little more than their ids.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from lepa.model.allocation import Allocation, AllocDeploymentStatus, RescheduleTracker
from lepa.model.evaluation import AllocMetric
from lepa.model.job import Job, TaskGroup
from lepa.model.plan import AllocationStop
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedDeviceResource,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
)
from lepa.model.task import Task
from lepa.model.usage import core_mhz, free_core_ids, occupies
from lepa.scheduler.chance import mix
from lepa.scheduler.changes import Placement
from lepa.scheduler.columns import Proposal
from lepa.scheduler.context import Context
from lepa.scheduler.cores import choose_cores
from lepa.scheduler.devices import assign_devices, devices_in_use
from lepa.scheduler.ports import NodePorts, PortsGiven
from lepa.scheduler.preempt import Preemptor, Victims
from lepa.scheduler.rank import GroupRanking
from lepa.scheduler.reschedule import failed_nodes, moved_tracker
from lepa.scheduler.view import View
from lepa.scheduler.volumes import bind, collision, given_volumes, own_key

OWN_METRICS_MAX = 100
"""Allocations of a group in one plan that carry the score of their own node; later ones share one metric."""


@dataclass
class Placed:
    """What came of the placements. failures: by group, why it could not be placed and how often."""

    allocations: list[Allocation] = field(default_factory=list)
    stops: list[AllocationStop] = field(default_factory=list)
    failures: dict[str, AllocMetric] = field(default_factory=dict)
    failed_counts: dict[str, int] = field(default_factory=dict)
    rankings: list[tuple[TaskGroup, GroupRanking]] = field(default_factory=list)


class Placer:
    """Places the allocations of one evaluation; `proposal` holds the plan so far and is kept up to date.

    may_preempt: whether lower priorities may be evicted.
    """

    def __init__(self, context: Context, proposal: Proposal, *, may_preempt: bool = False) -> None:
        self._context, self._proposal, self._may_preempt = context, proposal, may_preempt
        self._result = Placed()
        evaluation = context.evaluation
        siblings = context.view.job_allocations(evaluation.namespace, evaluation.job_id)
        self._siblings = {alloc.id: alloc for alloc in siblings}
        self._given_volumes: list[str] = []

    def place(self, placements: Iterable[Placement]) -> Placed:
        """Try all placements: first those that make room by what they replace."""
        by_group: dict[tuple[int, str, str], list[Placement]] = {}
        for placement in sorted(placements, key=lambda p: p.replaces is None):
            own = own_key(placement.group, placement.name, placement.previous.id if placement.previous else "")
            by_group.setdefault((placement.job.version, placement.group.name, own), []).append(placement)
        for group_placements in by_group.values():
            self._place_group(group_placements)
        return self._result

    def _place_group(self, placements: Sequence[Placement]) -> None:
        first = placements[0]
        job, group = first.job, self._with_volumes(first)
        preempting = self._result.stops if self._may_preempt else None
        step = GroupPlacer(self._context, self._proposal, job, group, self._running_siblings(), preempting)
        self._result.rankings.append((group, step.ranking))
        out_of_room = False
        failed: list[Placement] = []
        for placement in placements:
            if (out_of_room and placement.replaces is None) or not self._place_one(step, placement):
                failed.append(placement)
                out_of_room = out_of_room or not (placement.replaces or placement.node_id)
        if failed:
            nodes = [placement.node_id for placement in failed if placement.node_id]
            row_of = self._context.columns.row_of
            rows = [row_of[node] for node in nodes if node in row_of]
            counts = self._result.failed_counts
            counts[group.name] = counts.get(group.name, 0) + len(failed)
            self._result.failures.setdefault(group.name, step.ranking.failure_metric(rows))

    def _with_volumes(self, placement: Placement) -> TaskGroup:
        """The group with the volumes that its allocation, or all of these allocations, have."""
        previous = placement.previous.id if placement.previous else ""
        return bind(self._context.view, placement.job, placement.group, placement.name, previous, self._given_volumes)

    def _place_one(self, step: "GroupPlacer", placement: Placement) -> bool:
        """Stop what the placement replaces, place it, and if that fails let the replaced one run on."""
        replaced = self._siblings.get(placement.replaces.alloc_id) if placement.replaces else None
        if replaced is not None and occupies(replaced):
            self._proposal.put(_stopped(replaced), replaced)
            step.released(replaced.node_id)
        alloc = step.place(placement)
        if alloc is not None:
            self._result.allocations.append(alloc)
            self._given_volumes += given_volumes(placement.group, alloc.name, self._context.view.node(alloc.node_id))
            self._result.stops += [placement.replaces] if placement.replaces else []
            return True
        if replaced is not None and occupies(replaced):
            self._proposal.put(replaced, _stopped(replaced))
            step.restored(replaced.node_id)
        return False

    def _running_siblings(self) -> list[Allocation]:
        """The job's allocations that run on, with those placed so far."""
        kept = [a for a in self._siblings.values() if occupies(self._proposal.current(a))]
        return [*kept, *self._result.allocations]


class GroupPlacer:
    """Places allocations of one group and version. evictions: where to put the stops they need, None: no evictions."""

    def __init__(
        self,
        context: Context,
        proposal: Proposal,
        job: Job,
        group: TaskGroup,
        siblings: Sequence[Allocation],
        evictions: list[AllocationStop] | None,
    ) -> None:
        self._context, self._columns, self._proposal = context, context.columns, proposal
        self._job, self._group, self._evictions = job, group, evictions
        algorithm, self._oversubscribed = _settings(context.view, job)
        self.ranking = GroupRanking(context.columns, proposal, job, group, siblings, algorithm, context.seed)
        self._shared = None if _resources_differ(group) else self._resources(PortsGiven(), {}, {}, {})
        self._preemptor: Preemptor | None = None
        if evictions is not None:
            self._preemptor = Preemptor(context.view, context.columns, proposal, job, self.ranking)
        self._made = 0
        self._running = list(siblings)

    def obstacle(self, row: int) -> str:
        """What a node that has room cannot give besides: ports, devices, cores; or ""."""
        found = self._assign(row)
        return found if isinstance(found, str) else ""

    def released(self, node_id: str) -> None:
        """A sibling on a node was stopped."""
        row = self._columns.row_of.get(node_id)
        if row is not None:
            self.ranking.released(row)

    def restored(self, node_id: str) -> None:
        """A sibling on a node runs on after all."""
        row = self._columns.row_of.get(node_id)
        if row is not None:
            self.ranking.restored(row)

    def place(self, placement: Placement) -> Allocation | None:
        """Place one allocation, evicting others if nothing else helps; None when it cannot be placed."""
        previous = placement.previous
        if placement.node_id:
            return self._place_on_node(placement)
        row = self._preferred_row(placement)
        penalised = frozenset[int]()
        if previous is not None and placement.rescheduled:
            rows = (self._columns.row_of.get(node_id) for node_id in failed_nodes(previous))
            penalised = frozenset(row for row in rows if row is not None)
        row = self.ranking.take(penalised) if row is None else row
        while row is not None:
            resources = self._assign(row)
            if isinstance(resources, AllocatedResources):
                return self._make(placement, row, resources)
            self.ranking.refuse(row, resources)
            row = self.ranking.take(penalised)
        return self._place_by_preemption(placement)

    def _place_on_node(self, placement: Placement) -> Allocation | None:
        row = self._columns.row_of.get(placement.node_id)
        if row is None:
            return None
        if self.ranking.take_row(row):
            resources = self._assign(row)
            if isinstance(resources, AllocatedResources):
                return self._make(placement, row, resources)
            self.ranking.refuse(row, resources)
        victims = self._preemptor.on(row) if self._preemptor is not None and self.ranking.is_open(row) else None
        return self._make_by_eviction(placement, victims) if victims is not None else None

    def _preferred_row(self, placement: Placement) -> int | None:
        """The node of the one before, where a sticky disk waits."""
        previous = placement.previous
        if previous is None or placement.rescheduled or not self._group.ephemeral_disk.sticky:
            return None
        row = self._columns.row_of.get(previous.node_id)
        return row if row is not None and self.ranking.take_row(row) else None

    def _place_by_preemption(self, placement: Placement) -> Allocation | None:
        if self._preemptor is None:
            return None
        while (victims := self._preemptor.take()) is not None:
            alloc = self._make_by_eviction(placement, victims)
            if alloc is not None:
                return alloc
        return None

    def _make_by_eviction(self, placement: Placement, victims: Victims) -> Allocation | None:
        evicted = self._evict(victims)
        resources = self._assign(victims.row)
        if isinstance(resources, AllocatedResources):
            return self._make(placement, victims.row, resources, tuple(victims.allocs))
        for alloc, before in evicted:
            self._proposal.put(before, alloc)
        return None

    def _evict(self, victims: Victims) -> list[tuple[Allocation, Allocation]]:
        evicted = []
        for before in victims.allocs:
            alloc = msgspec.structs.replace(before, desired_status="evict")
            self._proposal.put(alloc, before)
            evicted.append((alloc, before))
        return evicted

    def _make(
        self, placement: Placement, row: int, resources: AllocatedResources, victims: tuple[Allocation, ...] = ()
    ) -> Allocation:
        node = self._columns.node(row)
        previous, ask = placement.previous, self.ranking.ask(row)
        alloc = Allocation(
            id=self._context.new_id(),
            namespace=self._job.namespace,
            eval_id=self._context.evaluation.id,
            name=placement.name,
            node_id=node.id,
            node_name=node.name,
            job_id=self._job.id,
            job_version=self._job.version,
            task_group=self._group.name,
            allocated_resources=resources,
            metrics=self._metric(row),
            desired_status="run",
            client_status="pending",
            previous_allocation=previous.id if previous else "",
            reschedule_tracker=self._tracker(placement),
            deployment_status=AllocDeploymentStatus(canary=True) if placement.canary else None,
            preempted_allocations=tuple(victim.id for victim in victims),
            deployment_id=placement.deployment_id,
            create_time=self._context.now_ns,
            modify_time=self._context.now_ns,
        )
        self._proposal.occupy(row, ask)
        self._proposal.note(alloc)
        self._running.append(alloc)
        self.ranking.placed(row)
        if self._evictions is not None:
            self._evictions += [_eviction(victim, alloc) for victim in victims]
        return alloc

    def _metric(self, row: int) -> AllocMetric:
        self._made += 1
        if self._made > OWN_METRICS_MAX:
            return self.ranking.shared_metric()
        return self.ranking.success_metric(row)

    def _tracker(self, placement: Placement) -> RescheduleTracker | None:
        if placement.previous is None:
            return None
        if placement.rescheduled:
            return moved_tracker(placement.previous, self._group, self._context.now_ns)
        return placement.previous.reschedule_tracker

    def _assign(self, row: int) -> AllocatedResources | str:
        """Everything the group is given on a node, or the dimension that is exhausted."""
        if self._shared is not None:
            return self._shared
        node = self._columns.node(row)
        allocs = self._proposal.node_allocations(node.id)
        ports = NodePorts(node, allocs, (self._job.namespace, self._job.id))
        seed = mix(self._context.seed, self._made)
        shared = ports.assign(self._group.networks, seed)
        if isinstance(shared, str):
            return shared
        kept = [alloc for alloc in self._running if occupies(self._proposal.current(alloc))]
        if refusal := collision(self._context.view, node, self._group, allocs, kept, self._job):
            return refusal
        running = [alloc for alloc in allocs if occupies(alloc)]
        in_use, free_cores = devices_in_use(running), list(free_core_ids(node, running))
        networks: dict[str, tuple[NetworkResource, ...]] = {}
        devices: dict[str, tuple[AllocatedDeviceResource, ...]] = {}
        cores: dict[str, tuple[tuple[int, ...], int]] = {}
        for position, task in enumerate(self._group.tasks):
            own = ports.assign(task.resources.networks, mix(seed, position))
            given = assign_devices(node, in_use, task.resources.devices)
            if isinstance(own, str):
                return own
            if isinstance(given, str):
                return f"devices: {given}"
            networks[task.name], devices[task.name] = own.networks, given
            in_use |= {(d.vendor, d.type, d.name, i) for d in given for i in d.device_ids}
            taken = choose_cores(node, free_cores, task.resources)
            if taken is None:
                return "cores"
            free_cores = [core for core in free_cores if core not in taken]
            cores[task.name] = taken, core_mhz(node) * len(taken)
        return self._resources(shared, networks, devices, cores)

    def _resources(
        self,
        shared: PortsGiven,
        networks: dict[str, tuple[NetworkResource, ...]],
        devices: dict[str, tuple[AllocatedDeviceResource, ...]],
        cores: dict[str, tuple[tuple[int, ...], int]],
    ) -> AllocatedResources:
        tasks = {}
        for task in self._group.tasks:
            ids, mhz = cores.get(task.name, ((), 0))
            tasks[task.name] = AllocatedTaskResources(
                cpu=AllocatedCpuResources(cpu_shares=mhz or task.resources.cpu, reserved_cores=ids),
                memory=self._memory(task),
                networks=networks.get(task.name, ()),
                devices=devices.get(task.name, ()),
            )
        return AllocatedResources(
            tasks=tasks,
            task_lifecycles={task.name: task.lifecycle for task in self._group.tasks},
            shared=AllocatedSharedResources(
                networks=shared.networks, disk_mb=self._group.ephemeral_disk.size_mb, ports=shared.mappings
            ),
        )

    def _memory(self, task: Task) -> AllocatedMemoryResources:
        ceiling = task.resources.memory_max_mb if self._oversubscribed else 0
        return AllocatedMemoryResources(memory_mb=task.resources.memory_mb, memory_max_mb=ceiling)


def _resources_differ(group: TaskGroup) -> bool:
    """Whether what a group is given depends on the node."""
    asked = [task.resources for task in group.tasks]
    return bool(group.networks or group.volumes) or any(r.cores or r.networks or r.devices for r in asked)


def _stopped(alloc: Allocation) -> Allocation:
    return msgspec.structs.replace(alloc, desired_status="stop")


def _eviction(victim: Allocation, successor: Allocation) -> AllocationStop:
    return AllocationStop(
        alloc_id=victim.id,
        description=f"Preempted by alloc ID {successor.id}",
        desired_status="evict",
        preempted_by=successor.id,
    )


def _settings(view: View, job: Job) -> tuple[str, bool]:
    """The scoring algorithm, and whether memory may be oversubscribed: the pool's word before the cluster's."""
    cluster = view.scheduler_configuration()
    pool = view.node_pool(job.node_pool)
    own = pool.scheduler_configuration if pool else None
    algorithm = (own.scheduler_algorithm if own else "") or cluster.scheduler_algorithm
    oversubscribed = own.memory_oversubscription_enabled if own else None
    return algorithm, cluster.memory_oversubscription_enabled if oversubscribed is None else oversubscribed
