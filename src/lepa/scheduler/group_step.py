"""Pure: what one group of a service or batch job needs changed.

A group goes through the same steps each time:

1. sort its allocations (`lepa.scheduler.alloc_sets`), canaries apart;
2. put statuses right: lost, unknown, back again;
3. stop what is above the count;
4. replace what is lost, moved or failed, and make what is missing;
5. update what runs an older version: in place where its tasks need not notice, else by replacement, at most as many at
   a time as the update strategy allows, and after the canaries were promoted;
6. take part in a new deployment.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import msgspec

from lepa.kit.durations import SECOND
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.plan import AllocationStop, DesiredUpdates
from lepa.model.policies import UpdateStrategy
from lepa.model.usage import has_ended, is_stopped
from lepa.scheduler.alloc_sets import (
    ACTIVE_DEPLOYMENTS,
    HELD,
    AllocSets,
    AllocSorter,
    NameIndex,
    index_of,
    surplus_first,
    with_client_status,
)
from lepa.scheduler.changes import (
    LOST,
    MIGRATING,
    NOT_NEEDED,
    NOT_NEEDED_RECONNECT,
    RESCHEDULED,
    UNKNOWN,
    UPDATING,
    Changes,
    Placement,
    followup_evaluation,
    stop_of,
)
from lepa.scheduler.feasible import group_checks
from lepa.scheduler.reconnect import original_wins
from lepa.scheduler.rollout import has_started
from lepa.scheduler.updates import UpdateKinds, find_group, may_stay
from lepa.scheduler.view import View

FOLLOWUP_WINDOW_NS = 5 * SECOND
"""Moves due within this time of each other share one evaluation."""


class JobNow:
    """A job at the moment of an evaluation, with the answers all its groups ask for."""

    def __init__(
        self, job: Job, evaluation: Evaluation, view: View, deployment: Deployment | None, now_ns: int
    ) -> None:
        self.job, self.evaluation, self.view, self.now_ns = job, evaluation, view, now_ns
        self.sorter = AllocSorter(job, view.node, deployment, evaluation.id, now_ns)
        self.kinds = UpdateKinds(job, self.version)

    def version(self, version: int) -> Job | None:
        """One version of the job."""
        if version == self.job.version:
            return self.job
        return self.view.job_version(self.job.namespace, self.job.id, version)


class GroupStep:
    """One group, once. The methods stand in the order in which `run` calls them."""

    def __init__(
        self,
        now: JobNow,
        group: TaskGroup,
        allocs: Sequence[Allocation],
        changes: Changes,
        deployment: Deployment | None,
        deployment_id: str,
        new_id: Callable[[], str],
    ) -> None:
        self._now, self._job, self._group, self._allocs = now, now.job, group, allocs
        self._changes, self._deployment, self._new_id = changes, deployment, new_id
        self.deployment_id = deployment_id
        self.opened: DeploymentState | None = None
        self._count = dict.fromkeys(DesiredUpdates.__struct_fields__, 0)
        self._strategy = self._update_strategy()
        self._state = deployment.task_groups.get(group.name) if deployment else None
        self._successors = {a.previous_allocation: a for a in allocs if not is_stopped(a) and a.previous_allocation}
        self._placed: list[Placement] = []

    def run(self) -> None:
        """Add what the group needs to the changes."""
        canary_allocs = [alloc for alloc in self._allocs if self._is_canary(alloc) and not is_stopped(alloc)]
        canary_ids = {alloc.id for alloc in canary_allocs}
        sets = self._now.sorter.sort(self._group, [a for a in self._allocs if a.id not in canary_ids])
        self._put_statuses_right(sets)
        self._settle_reconnected(sets)
        counted = self._stop_surplus(sets)
        destructive, in_place = self._sort_updates(sets, counted)
        canarying = self._reconcile_canaries(canary_allocs, destructive)
        self._replace_and_add(sets, counted, canarying)
        self._ask_for_later(sets, counted)
        limit = self._destructive_limit(destructive, canarying)
        self._open_state(destructive, in_place, canarying)
        self._update_in_place(in_place)
        self._update_by_replacing(destructive[:limit])
        self._finish(counted)

    # Canaries and strategy.

    def _update_strategy(self) -> UpdateStrategy | None:
        """How to roll out, or None where everything changes at once and no deployment is made."""
        strategy = self._group.update or self._job.update
        rolls = self._job.type == "service" and strategy is not None and strategy.max_parallel > 0
        return strategy if rolls else None

    def _is_canary(self, alloc: Allocation) -> bool:
        """Whether an allocation is a canary that was not promoted."""
        status = alloc.deployment_status
        if status is None or not status.canary:
            return False
        ours = self._deployment is not None and alloc.deployment_id == self._deployment.id
        return not (ours and self._state is not None and self._state.promoted)

    def _reconcile_canaries(self, allocs: Sequence[Allocation], destructive: Sequence[Allocation]) -> bool:
        """Keep as many canaries as wanted, and stop those of other or failed deployments.

        Returns whether the group waits for a promotion.
        """
        deployment, state = self._deployment, self._state
        failed = deployment is not None and deployment.status == "failed"
        ours = [a for a in allocs if deployment is not None and a.deployment_id == deployment.id and not failed]
        ours_ids = {alloc.id for alloc in ours}
        self._changes.stop([a for a in allocs if a.id not in ours_ids and not has_ended(a)], NOT_NEEDED)
        if self._strategy is None or (deployment is not None and deployment.status in ("successful", "cancelled")):
            return False
        if state is not None:
            wanted = 0 if state.promoted else state.desired_canaries
        else:
            wanted = self._strategy.canary if destructive and deployment is None else 0
        if not wanted:
            return False
        if not failed and (deployment is None or deployment.status not in HELD):
            self._keep_canaries(ours, wanted, destructive)
        return True

    def _keep_canaries(self, ours: Sequence[Allocation], wanted: int, destructive: Sequence[Allocation]) -> None:
        sets = self._now.sorter.sort(self._group, ours)
        self._put_statuses_right(sets)
        for alloc in sets.reconnecting:
            self._changes.updates[alloc.id] = with_client_status(alloc, alloc.client_status, self._now.now_ns)
            sets.live.append(alloc)
        self._ask_for_later(sets, sets.named())
        self._move(sets.migrating, canary=True)
        self._reschedule(sets.failed, canary=True)
        for alloc in [a for a in (*sets.lost, *sets.unknown) if a.id not in self._successors]:
            self._place(alloc.name, self._job, previous=alloc, canary=True)
        have = len(sets.named()) + len(sets.lost) + len(sets.unknown)
        names = NameIndex(self._job.id, self._group.name, [alloc.name for alloc in ours])
        beside = [alloc.name for alloc in sorted(destructive, key=lambda a: index_of(a.name))]
        for _ in range(wanted - have):
            name = next((name for name in beside if names.claim(name)), "") or names.take()
            self._place(name, self._job, canary=True)
            self._count["canary"] += 1

    # Statuses.

    def _put_statuses_right(self, sets: AllocSets) -> None:
        self._changes.stop([*sets.lost, *sets.lost_stopped], LOST, "lost")
        self._count["stop"] += len(sets.lost)
        for alloc, due in sets.lost_later:
            followup = self._followup(due, "alloc-failure")
            self._changes.updates[alloc.id] = msgspec.structs.replace(
                with_client_status(alloc, "lost", self._now.now_ns),
                desired_status="stop",
                desired_description=LOST,
                followup_eval_id=followup,
            )
        for alloc, due in sets.newly_disconnected:
            followup = self._followup(due, "max-disconnect-timeout")
            self._changes.updates[alloc.id] = msgspec.structs.replace(
                with_client_status(alloc, "unknown", self._now.now_ns),
                client_description=UNKNOWN,
                followup_eval_id=followup,
            )
            self._count["disconnect"] += 1

    def _settle_reconnected(self, sets: AllocSets) -> None:
        """Of an allocation that came back and its replacement, keep the one that the group's strategy wants."""
        for alloc in sets.reconnecting:
            rivals = [a for a in sets.live if a.id != alloc.id and a.name == alloc.name and _follows(a, alloc)]
            strategy = self._group.disconnect.reconcile if self._group.disconnect else "best_score"
            if rivals and not original_wins(alloc, rivals[0], strategy):
                self._stop([alloc], NOT_NEEDED_RECONNECT)
                continue
            self._stop(rivals, NOT_NEEDED_RECONNECT)
            gone = {rival.id for rival in rivals}
            back = msgspec.structs.replace(
                with_client_status(alloc, alloc.client_status, self._now.now_ns), followup_eval_id=""
            )
            sets.live = [a for a in sets.live if a.id not in gone] + [back]
            self._changes.updates[alloc.id] = back
            self._count["reconnect"] += 1

    # Count.

    def _stop_surplus(self, sets: AllocSets) -> list[Allocation]:
        """Stop what is above the count. Returns what still counts.

        A canary that was promoted has taken the place of the older one of its name, also where more are wanted now, or
        where a still newer version wants more of them.
        """
        version, named = self._job.version, sets.named()
        newest: dict[str, int] = {}
        for alloc in named:
            newest[alloc.name] = max(alloc.job_version, newest.get(alloc.name, 0))
        replaced = {alloc.id for alloc in named if alloc.job_version < newest[alloc.name]}
        self._stop([alloc for alloc in named if alloc.id in replaced and not has_ended(alloc)], NOT_NEEDED)
        counted = [alloc for alloc in named if alloc.id not in replaced]
        surplus = len(counted) - self._group.count
        if surplus <= 0:
            return counted
        preferred = {alloc.id for alloc in (*sets.migrating, *sets.failed)}
        candidates = [alloc for alloc in counted if alloc.client_status != "complete"]
        gone = surplus_first(candidates, version, preferred)[:surplus]
        self._stop(gone, NOT_NEEDED)
        gone_ids = {alloc.id for alloc in gone}
        return [alloc for alloc in counted if alloc.id not in gone_ids]

    def _sort_updates(
        self, sets: AllocSets, counted: Sequence[Allocation]
    ) -> tuple[list[Allocation], list[Allocation]]:
        """Allocations of other versions: those to replace and those to update as they are.

        A failure that waits, or that has no tries left, is replaced by a version that starts its tasks anew.
        """
        kept = {alloc.id for alloc in counted}
        checks = group_checks(self._job, self._group)
        destructive, in_place = [], []
        waiting = [alloc for alloc, _ in sets.failed_later]
        for alloc in [*sets.live, *waiting, *sets.settled]:
            if alloc.id not in kept or alloc.job_version == self._job.version or alloc.client_status == "lost":
                continue
            stays = may_stay(self._now.view.node(alloc.node_id), self._job, checks)
            if not stays or self._now.kinds.needs_restart(alloc.job_version, self._group.name):
                destructive.append(alloc)
            else:
                in_place.append(alloc)
        return sorted(destructive, key=_least_useful_first), in_place

    # Replacements.

    def _replace_and_add(self, sets: AllocSets, counted: Sequence[Allocation], canarying: bool) -> None:
        kept = {alloc.id for alloc in counted}
        names = NameIndex(self._job.id, self._group.name, [alloc.name for alloc in counted])
        self._move([a for a in sets.migrating if a.id in kept], older=canarying)
        self._reschedule([a for a in sets.failed if a.id in kept], older=canarying)
        missing = self._group.count - len(counted)
        waiting = [alloc for alloc in (*sets.lost, *sets.unknown) if alloc.id not in self._successors]
        for alloc in waiting[: max(0, missing)]:
            name = alloc.name if names.claim(alloc.name) else names.take()
            self._place(name, self._older_job(alloc, canarying), previous=alloc)
            missing -= 1
        ready = not canarying and (self._deployment is None or self._deployment.status not in HELD)
        orphans = self._orphans()
        for _ in range(missing):
            name = names.take()
            orphan = orphans.get(name)
            if orphan is not None:
                self._place(name, self._older_job(orphan, canarying), previous=orphan)
            elif ready:
                self._place(name, self._job)

    def _orphans(self) -> dict[str, Allocation]:
        """Stopped allocations that should have been replaced and were not, by name; canaries are kept apart."""
        followed = {alloc.previous_allocation for alloc in self._allocs}
        found = {}
        for alloc in self._allocs:
            displaced = alloc.desired_status == "evict" or alloc.desired_description in (LOST, MIGRATING)
            if is_stopped(alloc) and displaced and alloc.id not in followed and not self._is_canary(alloc):
                found[alloc.name] = alloc
        return found

    def _move(self, allocs: Iterable[Allocation], *, canary: bool = False, older: bool = False) -> None:
        for alloc in allocs:
            self._changes.stop([alloc], MIGRATING)
            if alloc.desired_transition.migrate_disable_placement:
                self._count["stop"] += 1
                continue
            self._count["migrate"] += 1
            self._place(alloc.name, self._older_job(alloc, older), previous=alloc, canary=canary)

    def _reschedule(self, allocs: Iterable[Allocation], *, canary: bool = False, older: bool = False) -> None:
        for alloc in allocs:
            job = self._older_job(alloc, older)
            replaces = stop_of(alloc, RESCHEDULED)
            self._place(alloc.name, job, previous=alloc, canary=canary, rescheduled=True, replaces=replaces)
            self._count["reschedule_now"] += 1

    def _older_job(self, alloc: Allocation, older: bool) -> Job:
        """The version an allocation runs, where the newest has to wait for its canaries."""
        return (self._now.version(alloc.job_version) if older else None) or self._job

    def _ask_for_later(self, sets: AllocSets, counted: Sequence[Allocation]) -> None:
        """Evaluations at the times at which failed allocations may move, near ones together."""
        kept = {alloc.id for alloc in counted}
        waiting = sorted((item for item in sets.failed_later if item[0].id in kept), key=lambda item: item[1])
        followup, followup_until = "", 0
        for alloc, due in waiting:
            if not followup or due > followup_until:
                followup = self._followup(due, "alloc-failure")
                followup_until = due + FOLLOWUP_WINDOW_NS
            self._changes.updates[alloc.id] = msgspec.structs.replace(alloc, followup_eval_id=followup)
            self._count["reschedule_later"] += 1

    def _followup(self, due: int, trigger: str) -> str:
        evaluation = followup_evaluation(
            self._job, self._now.evaluation, self._new_id(), self._now.now_ns, due, trigger
        )
        self._changes.followups.append(evaluation)
        return evaluation.id

    # Updates.

    def _destructive_limit(self, destructive: Sequence[Allocation], canarying: bool) -> int:
        """How many allocations may be replaced now: new ones that are not healthy yet count against the limit."""
        if self._strategy is None:
            return len(destructive)
        deployment = self._deployment
        if canarying or (deployment is not None and deployment.status in HELD):
            return 0
        unproven = 0
        if deployment is not None and deployment.status in ACTIVE_DEPLOYMENTS:
            ours = [a for a in self._allocs if a.deployment_id == deployment.id and not is_stopped(a)]
            unproven = sum(not is_healthy(alloc, deployment.id) for alloc in ours)
        return max(0, self._strategy.max_parallel - unproven - len(self._placed))

    def _open_state(self, destructive: Sequence[Allocation], in_place: Sequence[Allocation], canarying: bool) -> None:
        """Let the group take part in a new deployment when it changes version or starts for the first time."""
        strategy = self._strategy
        if strategy is None or self._deployment is not None or not self._group.count:
            return
        if has_started(self._job, self._allocs) and not destructive and not in_place:
            return
        self.deployment_id = self.deployment_id or self._new_id()
        self.opened = DeploymentState(
            auto_revert=strategy.auto_revert,
            auto_promote=strategy.auto_promote,
            progress_deadline=strategy.progress_deadline,
            desired_canaries=strategy.canary if canarying else 0,
            desired_total=self._group.count,
        )

    def _update_in_place(self, allocs: Iterable[Allocation]) -> None:
        for alloc in allocs:
            current = self._changes.updates.get(alloc.id, alloc)
            changes: dict[str, object] = {"job_version": self._job.version, "eval_id": self._now.evaluation.id}
            if self._in_deployment():
                changes |= {"deployment_id": self.deployment_id, "deployment_status": None}
            self._changes.updates[alloc.id] = msgspec.structs.replace(current, **changes)
            self._count["in_place_update"] += 1

    def _update_by_replacing(self, allocs: Iterable[Allocation]) -> None:
        for alloc in allocs:
            self._changes.updates.pop(alloc.id, None)
            self._place(alloc.name, self._job, previous=alloc, replaces=stop_of(alloc, UPDATING))
            self._count["destructive_update"] += 1

    # Results.

    def _in_deployment(self) -> bool:
        """Whether what is made now belongs to a deployment that is open."""
        return self.opened is not None or (
            self._state is not None and self._deployment is not None and self._deployment.status in ACTIVE_DEPLOYMENTS
        )

    def _stop(self, allocs: Sequence[Allocation], description: str) -> None:
        self._changes.stop(allocs, description)
        self._count["stop"] += len(allocs)

    def _place(
        self,
        name: str,
        job: Job,
        *,
        previous: Allocation | None = None,
        canary: bool = False,
        rescheduled: bool = False,
        replaces: AllocationStop | None = None,
    ) -> None:
        group = find_group(job, self._group.name) or self._group
        self._placed.append(Placement(name, job, group, previous, rescheduled, canary, "", replaces))

    def _finish(self, counted: Sequence[Allocation]) -> None:
        in_deployment = self._in_deployment()
        for placement in self._placed:
            joins = in_deployment and placement.job.version == self._job.version
            self._changes.placements.append(
                replace(placement, deployment_id=self.deployment_id) if joins else placement
            )
        replaced = sum(placement.replaces is not None for placement in self._placed)
        self._count["place"] = len(self._placed) - replaced - self._count["canary"] - self._count["migrate"]
        changed = self._count["migrate"] + replaced + self._count["in_place_update"]
        self._count["ignore"] = max(0, len(counted) - changed)
        self._changes.desired[self._group.name] = DesiredUpdates(**self._count)


def is_healthy(alloc: Allocation, deployment_id: str) -> bool:
    """Whether an allocation was reported healthy for a deployment."""
    status = alloc.deployment_status
    return alloc.deployment_id == deployment_id and status is not None and status.healthy is True


def _follows(alloc: Allocation, earlier: Allocation) -> bool:
    """Whether an allocation was made in place of an earlier one of its name."""
    return alloc.previous_allocation == earlier.id or alloc.create_index >= earlier.create_index


def _least_useful_first(alloc: Allocation) -> tuple[bool, int]:
    return alloc.client_status == "running", index_of(alloc.name)
