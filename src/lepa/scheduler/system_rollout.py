"""Pure: how the groups of a system job take part in deployments.

A deployment begins with the first allocations of a version, or with the first that has to give way to it. It wants one
healthy allocation on every node that may run the group, and that number follows the nodes that come and go. At most
`max_parallel` allocations that are not proven healthy run at a time. `canary` is the share of those nodes, in percent
and rounded up, that get a new version first: a node runs one allocation of the group, so its canary takes the place of
the older one; the others wait for the promotion. An allocation that fails while its deployment goes on is left alone:
the deployment fails, and goes back where the job says so. `max_parallel = 0` replaces everything at once, without a
deployment.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.policies import UpdateStrategy
from lepa.model.usage import has_ended, is_stopped
from lepa.scheduler.alloc_sets import ACTIVE_DEPLOYMENTS, HELD
from lepa.scheduler.group_step import is_healthy
from lepa.scheduler.rollout import has_started, new_deployment


class SystemRollout:
    """The deployment of a system job's present version during one evaluation. deployment: the one there is."""

    def __init__(
        self,
        job: Job,
        evaluation: Evaluation,
        deployment: Deployment | None,
        new_id: Callable[[], str],
        now_ns: int,
    ) -> None:
        self.job, self.deployment = job, deployment
        self._evaluation, self._new_id, self._now_ns = evaluation, new_id, now_ns
        self._id = deployment.id if deployment is not None else ""
        self._states: dict[str, DeploymentState] = {}

    @property
    def active(self) -> bool:
        """Whether the deployment that is there goes on."""
        return self.deployment is not None and self.deployment.status in ACTIVE_DEPLOYMENTS

    def of(self, group: TaskGroup, allocs: Sequence[Allocation], gone: Collection[str]) -> "GroupRollout":
        """The part of one group. allocs: all that it has. gone: ids of those that end with this evaluation."""
        return GroupRollout(self, group, allocs, gone)

    def put(self, group: str, state: DeploymentState) -> str:
        """Let a group take part so; the deployment's id."""
        self._id = self._id or self._new_id()
        self._states[group] = state
        return self._id

    def written(self) -> Deployment | None:
        """The deployment to store: one that begins, or that wants another number of allocations than before."""
        if not self._states:
            return None
        if self.deployment is None:
            return new_deployment(self._id, self.job, self._evaluation, self._states, self._now_ns)
        states = self.deployment.task_groups | self._states
        changed = states != self.deployment.task_groups
        return msgspec.structs.replace(self.deployment, task_groups=states) if changed else None


class GroupRollout:
    """One group's part. deployment_id: what its new allocations belong to, "" without a deployment."""

    def __init__(
        self, rollout: SystemRollout, group: TaskGroup, allocs: Sequence[Allocation], gone: Collection[str]
    ) -> None:
        self._rollout, self._group, self._allocs, self._gone = rollout, group, allocs, gone
        deployment = rollout.deployment
        self._state = deployment.task_groups.get(group.name) if deployment is not None else None
        self.deployment_id = deployment.id if deployment is not None and self._state and rollout.active else ""

    @property
    def canarying(self) -> bool:
        """Whether nodes beyond the canaries wait for a promotion."""
        return self._state is not None and self._state.desired_canaries > 0 and not self._state.promoted

    def tries_again(self, alloc: Allocation) -> bool:
        """Whether an allocation that ended is started again where it was, by this evaluation."""
        ours = bool(self.deployment_id) and alloc.deployment_id == self.deployment_id
        transition = alloc.desired_transition
        return not ours or bool(transition.reschedule or transition.force_reschedule)

    def open(self, nodes: Collection[str], outdated: Sequence[Allocation], in_place: Sequence[Allocation]) -> None:
        """Take part in a new deployment where one is due, or let the present one want what the nodes now are."""
        strategy = self._strategy()
        if strategy is None or not nodes:
            return
        if self._rollout.deployment is None:
            if has_started(self._rollout.job, self._allocs) and not outdated and not in_place:
                return
            self._state = DeploymentState(
                auto_revert=strategy.auto_revert,
                auto_promote=strategy.auto_promote,
                progress_deadline=strategy.progress_deadline,
                desired_canaries=_share(strategy.canary, len(nodes)) if outdated else 0,
                desired_total=len(nodes),
            )
            self.deployment_id = self._rollout.put(self._group.name, self._state)
        elif self.deployment_id and self._state is not None:
            possible = len(self._canaries()) + len(outdated)
            canaries = (
                self._state.desired_canaries if self._state.promoted else min(self._state.desired_canaries, possible)
            )
            wanted = msgspec.structs.replace(self._state, desired_total=len(nodes), desired_canaries=canaries)
            if wanted != self._state:
                self._state = wanted
                self._rollout.put(self._group.name, wanted)

    def step(self, outdated: Sequence[Allocation]) -> tuple[int, bool]:
        """How many of the outdated allocations may be replaced now, and whether by canaries."""
        strategy, deployment = self._strategy(), self._rollout.deployment
        if strategy is None:
            return len(outdated), False
        if deployment is not None and deployment.status in HELD:
            return 0, False
        unproven = sum(has_ended(alloc) or not is_healthy(alloc, self.deployment_id) for alloc in self._ours())
        limit = max(0, strategy.max_parallel - unproven)
        if not self.canarying or self._state is None:
            return limit, False
        return min(limit, max(0, self._state.desired_canaries - len(self._canaries()))), True

    def _ours(self) -> list[Allocation]:
        """What belongs to the deployment and was not replaced."""
        ours = [a for a in self._allocs if self.deployment_id and a.deployment_id == self.deployment_id]
        return [a for a in ours if not is_stopped(a) and not a.next_allocation and a.id not in self._gone]

    def _canaries(self) -> list[Allocation]:
        return [a for a in self._ours() if a.deployment_status is not None and a.deployment_status.canary]

    def in_place(self) -> Mapping[str, object]:
        """What an allocation takes over that goes on as it is."""
        return {"deployment_id": self.deployment_id, "deployment_status": None} if self.deployment_id else {}

    def is_done(self, nodes: Collection[str], kept: Sequence[Allocation]) -> bool:
        """Whether every node has a healthy allocation of the deployment."""
        healthy = {a.node_id for a in kept if is_healthy(a, self.deployment_id) and not has_ended(a)}
        return all(node_id in healthy for node_id in nodes)

    def _strategy(self) -> UpdateStrategy | None:
        """How to roll out; None where everything changes at once and no deployment is made."""
        job = self._rollout.job
        strategy = self._group.update or job.update
        rolls = job.type == "system" and strategy is not None and strategy.max_parallel > 0
        return strategy if rolls else None


def _share(percent: int, nodes: int) -> int:
    """Nodes that are so many percent of all, rounded up."""
    return min(nodes, -(-nodes * percent // 100))
