"""Pure: does a plan still fit the newest state, node by node.

Several workers plan at once from snapshots that grow old. Whoever commits plans asks here, one plan at a time, with the
newest snapshot: what still fits on a node is taken as a whole, what does not is refused for that node alone, and a
refused plan carries the index at which to look again. An eviction is taken only together with the placement it makes
room for. A plan that is `all_at_once` is taken whole or not at all.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.plan import AllocationStop, Plan, PlanResult
from lepa.model.usage import NodeUsage, has_ended, node_capacity, occupies
from lepa.scheduler.devices import devices_in_use
from lepa.scheduler.feasible import is_ready
from lepa.scheduler.ports import held_ports, holds_ports_against
from lepa.scheduler.view import View
from lepa.scheduler.volumes import collisions as volumes_collide


def check_plan(plan: Plan, view: View) -> PlanResult:
    """What of a plan may be committed on top of `view`."""
    by_node: dict[str, list[Allocation]] = {}
    for alloc in plan.updates:
        by_node.setdefault(alloc.node_id, []).append(alloc)
    stops = {stop.alloc_id: stop for stop in plan.stops}
    runs = _job_still_runs(plan, view)
    rejected = [node for node in by_node if not _node_accepts(by_node[node], stops, runs, plan, view, node)]
    if not rejected:
        return PlanResult(updates=plan.updates, stops=plan.stops, deployment=plan.deployment)
    if plan.all_at_once:
        return PlanResult(refresh_index=view.index, rejected_nodes=tuple(sorted(rejected)))
    refused = {alloc.id for node in rejected for alloc in by_node[node]}
    return PlanResult(
        refresh_index=view.index,
        updates=tuple(alloc for alloc in plan.updates if alloc.id not in refused),
        stops=tuple(stop for stop in plan.stops if stop.preempted_by not in refused),
        rejected_nodes=tuple(sorted(rejected)),
        deployment=plan.deployment,
    )


def check_stands(plan: Plan, before: View, after: View) -> bool:
    """Whether what was found of a plan `before` still holds `after`, if only plans known to the check came between.

    That is so while its job and its nodes are the same. Room can only have grown: nothing but plans takes it.
    """
    if plan.job is not None:
        job = plan.job.namespace, plan.job.id
        if _modified(before.job(*job)) != _modified(after.job(*job)):
            return False
    return all(
        _modified(before.node(node_id)) == _modified(after.node(node_id))
        for node_id in {alloc.node_id for alloc in plan.updates}
    )


def _modified(row: Job | Node | None) -> int:
    return row.modify_index if row is not None else 0


def plan_parts(plan: Plan, objects_max: int) -> Iterator[Plan]:
    """A plan in parts of at most `objects_max` allocations, each safe to commit alone and in this order.

    What stops comes first, so that a plan broken off anywhere leaves no more allocations than wanted and no node over
    its resources. The deployment travels with the first part. An `all_at_once` plan is one part.
    """
    if plan.all_at_once or len(plan.stops) + len(plan.updates) <= objects_max:
        yield plan
        return
    first = msgspec.structs.replace(plan, updates=(), stops=())
    following = msgspec.structs.replace(first, deployment=None, deployment_updates=())
    for stops in _chunks(plan.stops, objects_max):
        yield msgspec.structs.replace(first, stops=tuple(stops))
        first = following
    for updates in _chunks(plan.updates, objects_max):
        yield msgspec.structs.replace(first, updates=tuple(updates))
        first = following


def _chunks(items: Sequence[Allocation] | Sequence[AllocationStop], size: int) -> Iterator[Sequence[object]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _job_still_runs(plan: Plan, view: View) -> bool:
    """Whether the plan's job has not been stopped or purged since; nothing new may be placed for one that was."""
    if plan.job is None:
        return True
    job = view.job(plan.job.namespace, plan.job.id)
    return job is not None and not job.stop


def _node_accepts(
    updates: Sequence[Allocation],
    stops: dict[str, AllocationStop],
    job_runs: bool,
    plan: Plan,
    view: View,
    node_id: str,
) -> bool:
    if not any(occupies(alloc) for alloc in updates):
        return True
    before = [alloc for alloc in view.node_allocations(node_id) if not has_ended(alloc)]
    known = {alloc.id for alloc in before if occupies(alloc)}
    fresh = [alloc for alloc in updates if occupies(alloc) and alloc.id not in known]
    if fresh and not job_runs:
        return False
    node = view.node(node_id)
    if node is None or (fresh and not is_ready(node)):
        return False
    after = after_plan(before, updates, stops)
    return (
        _resources_fit(node, view.node_usage(node_id), before, after, bool(fresh))
        and not ports_collide(after, updates)
        and not volumes_collide(view, node, after, updates)
        and _devices_are_apart(after, updates)
    )


def after_plan(
    before: Iterable[Allocation], updates: Iterable[Allocation], stops: dict[str, AllocationStop]
) -> list[Allocation]:
    """The allocations of a node that have not ended, as a plan leaves them."""
    after = {}
    for alloc in before:
        stop = stops.get(alloc.id)
        if stop is not None:
            status = stop.client_status or alloc.client_status
            alloc = msgspec.structs.replace(alloc, desired_status=stop.desired_status, client_status=status)
        after[alloc.id] = alloc
    after.update((alloc.id, alloc) for alloc in updates)
    return [alloc for alloc in after.values() if not has_ended(alloc)]


def _resources_fit(
    node: Node, usage: NodeUsage, before: Iterable[Allocation], after: Iterable[Allocation], fresh: bool
) -> bool:
    """Within capacity; a node that is over it already may at least take updates that use no more than before.

    usage: of all that the node has before the plan.
    """
    planned = changed_usage(usage, before, after)
    bounds = zip(planned.used, node_capacity(node), usage.used, strict=True)
    if any(now > room and (fresh or now > was) for now, room, was in bounds):
        return False
    return not node.node_max_allocs or planned.running <= node.node_max_allocs


def changed_usage(usage: NodeUsage, before: Iterable[Allocation], after: Iterable[Allocation]) -> NodeUsage:
    """What a node's allocations occupy `after`, when they occupied `usage` before; looks at the changed ones only."""
    was = {alloc.id: alloc for alloc in before}
    for alloc in after:
        if (present := was.pop(alloc.id, None)) is not alloc:
            usage = usage.changed(present, alloc)
    for gone in was.values():
        usage = usage.changed(gone, None)
    return usage


def ports_collide(after: Iterable[Allocation], updates: Iterable[Allocation]) -> bool:
    """Whether an allocation that a plan changes has a port that another on the node holds."""
    changed = {alloc.id: held_ports(alloc) for alloc in updates if occupies(alloc)}
    if not any(changed.values()):
        return False
    jobs = {(alloc.namespace, alloc.job_id) for alloc in updates}
    held: dict[tuple[str, int], str] = {}
    for alloc in after:
        if all(holds_ports_against(alloc, job) for job in jobs):
            for port in held_ports(alloc):
                if held.setdefault(port, alloc.id) != alloc.id and (alloc.id in changed or held[port] in changed):
                    return True
    return False


def _devices_are_apart(after: Iterable[Allocation], updates: Iterable[Allocation]) -> bool:
    """Whether no device instance and no reserved core of those that a plan gives is given twice."""
    if not any(_devices(alloc) for alloc in updates if occupies(alloc)):
        return True
    given = [device for alloc in after if occupies(alloc) for device in _devices(alloc)]
    return len(given) == len(set(given))


def _devices(alloc: Allocation) -> list[object]:
    """Device instances and numbers of cores that an allocation has to itself."""
    cores = (core for task in alloc.allocated_resources.tasks.values() for core in task.cpu.reserved_cores)
    return [*devices_in_use([alloc]), *cores]
