"""Pure: evaluations of system and sysbatch jobs: one allocation of each group on every node that may run it.

A node that fails a constraint is no failure: only nodes that may run the group and have no room for it are reported. A
node that became ineligible keeps what it has. Groups of a system job take part in deployments
(`lepa.scheduler.system_rollout`): a new version rolls over the nodes as its allocations become healthy.
"""

from collections.abc import Sequence

import msgspec

from lepa.model.allocation import Allocation
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
from lepa.scheduler.rollout import complete_when_done, current_deployment
from lepa.scheduler.system_rollout import GroupRollout, SystemRollout
from lepa.scheduler.updates import UpdateKinds, find_group, may_stay


def process_system(context: Context) -> Outcome:
    """What to do about a system or sysbatch job."""
    context.columns.refresh(context.view)
    changes = _SystemStep(context).decide()
    config = context.view.scheduler_configuration().preemption_config
    sysbatch = context.evaluation.type == "sysbatch"
    may_preempt = config.sys_batch_scheduler_enabled if sysbatch else config.system_scheduler_enabled
    placed = place_changes(context, changes, may_preempt=may_preempt)
    return finish(context, plan_of(context, changes, placed), placed, changes.followups)


class _SystemStep:
    """One look at a system job."""

    def __init__(self, context: Context) -> None:
        self._evaluation, self._view, self._columns = context.evaluation, context.view, context.columns
        self._now_ns, self._new_id = context.now_ns, context.new_id
        job = context.job
        self._job = job if job is not None and not job.stop else None
        self._changes = Changes()
        self._deployment = current_deployment(self._evaluation, self._view, self._job, self._changes)

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
            rollout = SystemRollout(job, self._evaluation, self._deployment, self._new_id, self._now_ns)
            done: dict[str, bool] = {}
            for group in job.task_groups:
                allocs = by_group.get(group.name, [])
                sets = sorter.sort(group, allocs)
                gone = {alloc.id for alloc in (*sets.lost, *(a for a, _ in sets.lost_later), *sets.migrating)}
                part = rollout.of(group, allocs, gone)
                done[group.name] = self._group(job, group, sets, kinds, part)
            self._changes.deployment = rollout.written()
            complete_when_done(self._deployment, self._changes, lambda name, _: done.get(name, True))
        return self._changes

    def _group(self, job: Job, group: TaskGroup, sets: AllocSets, kinds: UpdateKinds, rollout: GroupRollout) -> bool:
        """Everything that a group needs; whether its part of the deployment is done when that is nothing."""
        count = dict.fromkeys(DesiredUpdates.__struct_fields__, 0)
        self._put_statuses_right(job, sets)
        self._changes.stop(sets.migrating, TAINTED)
        ended = sets.settled + sets.failed
        again = [alloc for alloc in ended if rollout.tries_again(alloc)] if job.type == "system" else []
        settled = [alloc for alloc in ended if alloc not in again]
        kept, outdated, in_place = self._sort_live(job, group, sets, kinds)
        count["stop"] = len(sets.live) - len(kept) - len(outdated) - len(in_place)
        candidates = self._candidates(job, group)
        rollout.open(candidates, outdated, in_place)
        for alloc in in_place:
            self._changes.updates[alloc.id] = msgspec.structs.replace(
                alloc, job_version=job.version, eval_id=self._evaluation.id, **rollout.in_place()
            )
        limit, canary = rollout.step(outdated)
        replaced = outdated[:limit]
        for alloc in replaced:
            self._place(job, group, alloc.node_id, alloc, UPDATING, rollout, canary=canary)
        count["destructive_update"], count["in_place_update"] = len(replaced), len(in_place)
        count["migrate"], count["stop"] = len(sets.migrating), count["stop"] + len(sets.lost)
        taken = {a.node_id for a in (*kept, *in_place, *outdated, *settled, *sets.away, *sets.unknown)}
        held = self._version_meanwhile(job, group, outdated) if rollout.canarying else (job, group)
        count["place"] = self._fill(*held, [node_id for node_id in candidates if node_id not in taken], again, rollout)
        count["ignore"] = len(kept) + len(outdated) - len(replaced)
        self._changes.desired[group.name] = DesiredUpdates(**count)
        return rollout.is_done(candidates, kept)

    def _sort_live(
        self, job: Job, group: TaskGroup, sets: AllocSets, kinds: UpdateKinds
    ) -> tuple[list[Allocation], list[Allocation], list[Allocation]]:
        """Allocations to keep, to replace and to update as they are; those where the job may not be are stopped."""
        checks = group_checks(job, group)
        kept: list[Allocation] = []
        outdated: list[Allocation] = []
        in_place: list[Allocation] = []
        for alloc in sets.live:
            if not group.count or not may_stay(self._view.node(alloc.node_id), job, checks):
                self._changes.stop([alloc], NOT_NEEDED)
            elif alloc.job_version == job.version or not self._takes_work(alloc.node_id):
                kept.append(alloc)
            elif kinds.needs_restart(alloc.job_version, group.name):
                outdated.append(alloc)
            else:
                in_place.append(alloc)
        return kept, outdated, in_place

    def _version_meanwhile(self, job: Job, group: TaskGroup, outdated: Sequence[Allocation]) -> tuple[Job, TaskGroup]:
        """What a node gets that joins while canaries wait for their promotion: what the others still run."""
        newest = max((alloc.job_version for alloc in outdated), default=job.version)
        older = self._view.job_version(job.namespace, job.id, newest) or job
        return older, find_group(older, group.name) or group

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

    def _candidates(self, job: Job, group: TaskGroup) -> list[str]:
        """Nodes that should have the group, by id."""
        if not group.count:
            return []
        rows = find_candidates(self._columns, job, group).feasible.nonzero()[0].tolist()
        return sorted(self._columns.node(row).id for row in rows)

    def _fill(
        self, job: Job, group: TaskGroup, nodes: Sequence[str], again: Sequence[Allocation], rollout: GroupRollout
    ) -> int:
        """Place one on each of some nodes. again: failed ones, replaced where they were."""
        failed_on = {alloc.node_id: alloc for alloc in again}
        for node_id in nodes:
            self._place(job, group, node_id, failed_on.get(node_id), RESCHEDULED, rollout)
        return len(nodes)

    def _place(
        self,
        job: Job,
        group: TaskGroup,
        node_id: str,
        previous: Allocation | None,
        description: str,
        rollout: GroupRollout,
        *,
        canary: bool = False,
    ) -> None:
        name = name_of(job.id, group.name, 0)
        replaces = stop_of(previous, description) if previous is not None else None
        deployment_id = rollout.deployment_id if job == self._job else ""
        placement = Placement(name, job, group, previous, False, canary, deployment_id, replaces, node_id)
        self._changes.placements.append(placement)
