"""Pure: evaluations of system and sysbatch jobs: one allocation of each group on every node that may run it.

A node that fails a constraint is no failure: only nodes that may run the group and have no room for it are reported. A
node that became ineligible keeps what it has. A new version rolls over the nodes `max_parallel` at a time, one step
each `stagger`; allocations of it that have not started yet count against the step.
"""

from collections.abc import Sequence

import msgspec

from lepa.kit.durations import rfc3339
from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.plan import DesiredUpdates
from lepa.scheduler.alloc_sets import AllocSets, AllocSorter, name_of, with_client_status
from lepa.scheduler.candidates import find_candidates
from lepa.scheduler.changes import (
    LOST,
    NOT_NEEDED,
    RESCHEDULED,
    TAINTED,
    UNKNOWN,
    UPDATING,
    Changes,
    Placement,
    followup_evaluation,
    stop_group,
    stop_of,
)
from lepa.scheduler.context import Context
from lepa.scheduler.feasible import group_checks, is_ready
from lepa.scheduler.generic import place_changes, plan_of
from lepa.scheduler.outcome import Outcome, finish
from lepa.scheduler.updates import UpdateKinds, find_group, may_stay


def process_system(context: Context) -> Outcome:
    """What to do about a system or sysbatch job."""
    context.columns.refresh(context.view)
    step = _SystemStep(context)
    changes = step.decide()
    config = context.view.scheduler_configuration().preemption_config
    sysbatch = context.evaluation.type == "sysbatch"
    may_preempt = config.sys_batch_scheduler_enabled if sysbatch else config.system_scheduler_enabled
    placed = place_changes(context, changes, may_preempt=may_preempt)
    outcome = finish(context, plan_of(context, changes, placed), placed, changes.followups)
    if step.next_step is None:
        return outcome
    return msgspec.structs.replace(
        outcome,
        evaluation=msgspec.structs.replace(outcome.evaluation, next_eval=step.next_step.id),
        new_evaluations=(*outcome.new_evaluations, step.next_step),
    )


class _SystemStep:
    """One look at a system job. next_step: the evaluation that goes on with a rolling update."""

    def __init__(self, context: Context) -> None:
        self._evaluation, self._view, self._columns = context.evaluation, context.view, context.columns
        self._now_ns, self._new_id = context.now_ns, context.new_id
        job = context.job
        self._job = job if job is not None and not job.stop else None
        self._changes = Changes()
        self.next_step: Evaluation | None = None

    def decide(self) -> Changes:
        """All changes to all groups."""
        by_group: dict[str, list[Allocation]] = {}
        for alloc in self._view.job_allocations(self._evaluation.namespace, self._evaluation.job_id):
            by_group.setdefault(alloc.task_group, []).append(alloc)
        job = self._job
        for name in sorted(by_group):
            if job is None or find_group(job, name) is None:
                stop_group(self._changes, self._view, name, by_group[name])
        if job is not None:
            sorter = AllocSorter(job, self._view.node, None, self._evaluation.id, self._now_ns)
            kinds = UpdateKinds(job, lambda version: self._view.job_version(job.namespace, job.id, version))
            for group in job.task_groups:
                allocs = by_group.get(group.name, [])
                self._group(job, group, sorter.sort(group, allocs), kinds)
        return self._changes

    def _group(self, job: Job, group: TaskGroup, sets: AllocSets, kinds: UpdateKinds) -> None:
        count = dict.fromkeys(DesiredUpdates.__struct_fields__, 0)
        self._put_statuses_right(job, sets)
        self._changes.stop(sets.migrating, TAINTED)
        again = sets.settled + sets.failed if job.type == "system" else []
        settled = [] if job.type == "system" else sets.settled + sets.failed
        checks = group_checks(job, group)
        kept, outdated = [], []
        for alloc in sets.live:
            if not group.count or not may_stay(self._view.node(alloc.node_id), job, checks):
                self._changes.stop([alloc], NOT_NEEDED)
                count["stop"] += 1
            elif alloc.job_version == job.version or not self._takes_work(alloc.node_id):
                kept.append(alloc)
            elif kinds.needs_restart(alloc.job_version, group.name):
                outdated.append(alloc)
            else:
                kept.append(alloc)
                self._changes.updates[alloc.id] = msgspec.structs.replace(
                    alloc, job_version=job.version, eval_id=self._evaluation.id
                )
                count["in_place_update"] += 1
        replaced = outdated[: self._step_size(job, group, kept, outdated)]
        for alloc in replaced:
            self._place(job, group, alloc.node_id, alloc, UPDATING)
        count["destructive_update"] = len(replaced)
        count["migrate"], count["stop"] = len(sets.migrating), count["stop"] + len(sets.lost)
        taken = {alloc.node_id for alloc in (*kept, *outdated, *settled, *sets.away, *sets.unknown)}
        count["place"] = self._fill(job, group, taken, again)
        count["ignore"] = len(kept) - count["in_place_update"] + len(outdated) - len(replaced)
        self._changes.desired[group.name] = DesiredUpdates(**count)

    def _takes_work(self, node_id: str) -> bool:
        node = self._view.node(node_id)
        return node is not None and is_ready(node)

    def _put_statuses_right(self, job: Job, sets: AllocSets) -> None:
        """A node that may come back keeps its allocation; the others lose theirs."""
        self._changes.stop([*sets.lost, *sets.lost_stopped, *(a for a, _ in sets.lost_later)], LOST, "lost")
        for alloc, due in sets.newly_disconnected:
            followup = followup_evaluation(
                job, self._evaluation, self._new_id(), self._now_ns, due, "max-disconnect-timeout"
            )
            self._changes.followups.append(followup)
            unknown = with_client_status(alloc, "unknown", self._now_ns, followup_eval_id=followup.id)
            self._changes.updates[alloc.id] = msgspec.structs.replace(unknown, client_description=UNKNOWN)
        for alloc in sets.reconnecting:
            back = with_client_status(alloc, alloc.client_status, self._now_ns, followup_eval_id="")
            self._changes.updates[alloc.id] = back
            sets.live.append(back)

    def _step_size(self, job: Job, group: TaskGroup, kept: Sequence[Allocation], outdated: Sequence[Allocation]) -> int:
        """How many allocations may be replaced now; asks for the next step when some are left."""
        strategy = group.update or job.update
        if strategy is None or strategy.max_parallel <= 0 or not outdated:
            return len(outdated)
        starting = sum(alloc.client_status == "pending" for alloc in kept)
        size = max(0, strategy.max_parallel - starting)
        if size < len(outdated) and self.next_step is None:
            self.next_step = Evaluation(
                id=self._new_id(),
                namespace=job.namespace,
                priority=self._evaluation.priority,
                type=job.type,
                triggered_by="rolling-update",
                job_id=job.id,
                job_modify_index=job.job_modify_index,
                status="pending",
                previous_eval=self._evaluation.id,
                wait_until=rfc3339(self._now_ns + strategy.stagger),
                create_time=self._now_ns,
                modify_time=self._now_ns,
            )
        return size

    def _fill(self, job: Job, group: TaskGroup, taken: set[str], again: Sequence[Allocation]) -> int:
        """Place one on every candidate that has none. again: failed ones, replaced where they were."""
        if not group.count:
            return 0
        failed_on = {alloc.node_id: alloc for alloc in again}
        placed = 0
        rows = find_candidates(self._columns, job, group).feasible.nonzero()[0].tolist()
        for node_id in sorted(self._columns.node(row).id for row in rows):
            if node_id not in taken:
                self._place(job, group, node_id, failed_on.get(node_id), RESCHEDULED)
                placed += 1
        return placed

    def _place(self, job: Job, group: TaskGroup, node_id: str, previous: Allocation | None, description: str) -> None:
        name = name_of(job.id, group.name, 0)
        replaces = stop_of(previous, description) if previous is not None else None
        placement = Placement(name, job, group, previous, replaces=replaces, node_id=node_id)
        self._changes.placements.append(placement)
