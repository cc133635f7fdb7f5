"""A state that commands change without any store: drafts are reduced as if they had been committed."""

from collections.abc import Callable
from typing import Any, TypeVar

from lepa.kit.durations import SECOND
from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.jobs import register_job
from lepa.state.commands.nodes import register_node
from lepa.state.reducer import reduce
from lepa.state.snapshot import empty_snapshot

R = TypeVar("R")

NOW_NS = 1_770_000_000 * SECOND


class World:
    """A snapshot, a wall clock that tests set, and ids in order: `id-1`, `id-2`."""

    def __init__(self) -> None:
        self.snapshot = empty_snapshot()
        self.now_ns = NOW_NS
        self.revision = 1
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def draft(self) -> Draft:
        return Draft(self.snapshot, self.now_ns, self.new_id)

    def do(self, command: Callable[..., R], *args: Any, **options: Any) -> R:
        """Carry out a command."""
        draft = self.draft()
        value = command(draft, *args, **options)
        self.revision += 1
        self.snapshot = reduce(self.snapshot, draft.changes(self.revision)).snapshot
        return value

    def carry_out(self, orders: Any) -> None:
        """Carry out a decider's orders."""
        for order in orders:
            self.do(order.__class__.apply.__get__(order))

    # Things to begin with

    def job(self, job: Job) -> Job:
        self.do(register_job, job)
        stored = self.snapshot.job(job.namespace, job.id)
        assert stored is not None
        return stored

    def node(self, node: Node) -> Node:
        self.do(register_node, node)
        stored = self.snapshot.node(node.id)
        assert stored is not None
        return stored

    def put_alloc(self, alloc: Allocation) -> Allocation:
        self.do(lambda draft: draft.put_allocation(alloc))
        return self.alloc(alloc.id)

    def put_deployment(self, deployment: Deployment) -> Deployment:
        self.do(lambda draft: draft.put_deployment(deployment))
        return self.deployment(deployment.id)

    def put_eval(self, evaluation: Evaluation) -> Evaluation:
        self.do(lambda draft: draft.put_evaluation(evaluation))
        return self.evaluation(evaluation.id)

    def forget(self, key: str) -> None:
        self.do(lambda draft: draft.erase(key))

    # What is there

    def alloc(self, alloc_id: str) -> Allocation:
        found = self.snapshot.allocation(alloc_id)
        assert found is not None
        return found

    def deployment(self, deployment_id: str) -> Deployment:
        found = self.snapshot.deployment(deployment_id)
        assert found is not None
        return found

    def evaluation(self, eval_id: str) -> Evaluation:
        found = self.snapshot.evaluation(eval_id)
        assert found is not None
        return found

    def evaluations(self, job_id: str) -> list[tuple[str, str]]:
        """(triggered by, status) of a job's evaluations, oldest first."""
        found = self.snapshot.job_evaluations("default", job_id)
        return [(evaluation.triggered_by, evaluation.status) for evaluation in found]


def healthy(value: bool = True, *, canary: bool = False) -> AllocDeploymentStatus:
    """What a node says of an allocation in a deployment."""
    return AllocDeploymentStatus(healthy=value, canary=canary, modify_index=keys.THIS_REVISION)
