"""A small `lepa.scheduler.view.View` in memory that can apply outcomes, for tests of the scheduler."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from tests.builders import make_task_state

from lepa.model.allocation import Allocation, AllocDeploymentStatus
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.operator import SchedulerConfiguration
from lepa.model.plan import Plan
from lepa.model.tenancy import NodePool
from lepa.model.usage import NodeUsage, usage_of
from lepa.model.volume import CSIClaim, CSIVolume, TaskGroupHostVolumeClaim
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.outcome import Outcome
from lepa.scheduler.plan_check import check_plan
from lepa.scheduler.process import process

HOUR = 3_600_000_000_000


class Ids:
    """Readable ids in order: `id-1`, `id-2`."""

    def __init__(self, prefix: str = "id") -> None:
        self._prefix, self._last = prefix, 0

    def __call__(self) -> str:
        self._last += 1
        return f"{self._prefix}-{self._last}"


class FakeView:
    """A state that tests change by hand and by applying plans; every change moves the index on."""

    def __init__(self, *nodes: Node, job: Job | None = None, allocs: Iterable[Allocation] = ()) -> None:
        self.index = 1
        self.configuration = SchedulerConfiguration()
        self.pools: dict[str, NodePool] = {}
        self.deployments: list[Deployment] = []
        self.evaluations: dict[str, Evaluation] = {}
        self.claims: list[TaskGroupHostVolumeClaim] = []
        self.volumes: dict[tuple[str, str], CSIVolume] = {}
        self.held: list[CSIClaim] = []
        self.new_id = Ids()
        self.columns = NodeColumns()
        self.now_ns = 1_000 * HOUR
        self._nodes: dict[str, Node] = {}
        self._jobs: dict[tuple[str, str], list[Job]] = {}
        self._purged: set[tuple[str, str]] = set()
        self._allocs: dict[str, Allocation] = {}
        self._touched: dict[str, int] = {}
        for node in nodes:
            self.put_node(node)
        if job is not None:
            self.put_job(job)
        for alloc in allocs:
            self.put_alloc(alloc)

    # What a scheduler may ask.

    def job(self, namespace: str, job_id: str) -> Job | None:
        key = (namespace, job_id)
        return self._jobs[key][-1] if key in self._jobs and key not in self._purged else None

    def job_version(self, namespace: str, job_id: str, version: int) -> Job | None:
        return next((j for j in self._jobs.get((namespace, job_id), ()) if j.version == version), None)

    def job_allocations(self, namespace: str, job_id: str) -> Sequence[Allocation]:
        return [a for a in self._allocs.values() if (a.namespace, a.job_id) == (namespace, job_id)]

    def node_allocations(self, node_id: str) -> Sequence[Allocation]:
        return [alloc for alloc in self._allocs.values() if alloc.node_id == node_id]

    def node_usage(self, node_id: str) -> NodeUsage:
        return usage_of(self.node_allocations(node_id))

    def node(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def nodes(self) -> Iterable[Node]:
        return list(self._nodes.values())

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        found = [d for d in self.deployments if (d.namespace, d.job_id) == (namespace, job_id)]
        return found[-1] if found else None

    def node_pool(self, name: str) -> NodePool | None:
        return self.pools.get(name)

    def scheduler_configuration(self) -> SchedulerConfiguration:
        return self.configuration

    def allocation(self, alloc_id: str) -> Allocation | None:
        return self._allocs.get(alloc_id)

    def volume_claims(self, namespace: str, job_id: str, group: str) -> Sequence[TaskGroupHostVolumeClaim]:
        wanted = (namespace, job_id, group)
        return [c for c in self.claims if (c.namespace, c.job_id, c.task_group_name) == wanted]

    def csi_volume(self, namespace: str, volume_id: str) -> CSIVolume | None:
        return self.volumes.get((namespace, volume_id))

    def csi_claims(self, namespace: str, volume_id: str) -> Sequence[CSIClaim]:
        return [claim for claim in self.held if (claim.namespace, claim.volume_id) == (namespace, volume_id)]

    def touched_nodes(self, since: int) -> frozenset[str] | None:
        return frozenset(node for node, index in self._touched.items() if index > since)

    # What tests do to it.

    def put_node(self, node: Node, **changes: Any) -> Node:
        node = msgspec.structs.replace(node, **changes)
        self._nodes[node.id] = node
        self._touch(node.id)
        return node

    def change_node(self, node_id: str, **changes: Any) -> None:
        self.put_node(self._nodes[node_id], **changes)

    def remove_node(self, node_id: str) -> None:
        del self._nodes[node_id]
        self._touch(node_id)

    def put_job(self, job: Job) -> Job:
        """Register a job; a changed one becomes the next version."""
        self.index += 1
        key = (job.namespace, job.id)
        self._purged.discard(key)
        versions = self._jobs.setdefault(key, [])
        if versions:
            job = msgspec.structs.replace(job, version=versions[-1].version + 1)
        versions.append(job)
        return job

    def purge_job(self, job: Job) -> None:
        self.index += 1
        self._purged.add((job.namespace, job.id))

    def put_alloc(self, alloc: Allocation, **changes: Any) -> Allocation:
        alloc = msgspec.structs.replace(alloc, **changes)
        self._allocs[alloc.id] = alloc
        self._touch(alloc.node_id)
        return alloc

    def alloc(self, alloc_id: str) -> Allocation:
        return self._allocs[alloc_id]

    def all_allocs(self) -> list[Allocation]:
        return list(self._allocs.values())

    def wanted(self) -> list[Allocation]:
        """Allocations that should run and have not ended, by name."""
        found = [a for a in self._allocs.values() if a.desired_status == "run" and a.client_status in _ALIVE]
        return sorted(found, key=lambda a: (a.name, a.id))

    def run_clients(self, *, healthy: bool = True) -> None:
        """Let every client whose node is there do as it is told: start, stop, and report health."""
        killed = make_task_state("Killing", "Killed", state="dead")
        for alloc in self.all_allocs():
            node = self._nodes.get(alloc.node_id)
            if alloc.client_status not in _ALIVE or node is None or node.status != "ready":
                continue
            unproven = alloc.deployment_id and alloc.deployment_status is None
            if alloc.desired_status != "run":
                states = dict.fromkeys(alloc.allocated_resources.tasks, killed)
                self.put_alloc(alloc, client_status="complete", task_states=states)
            elif alloc.client_status != "running" or unproven:
                self._start(alloc, healthy)

    def _start(self, alloc: Allocation, healthy: bool) -> None:
        status = alloc.deployment_status or AllocDeploymentStatus()
        reported = msgspec.structs.replace(status, healthy=healthy) if alloc.deployment_id else None
        self.put_alloc(alloc, client_status="running", deployment_status=reported)

    def evaluate(self, evaluation: Evaluation, *, seed: int = 7, apply: bool = True) -> Outcome:
        """Process an evaluation and, unless told otherwise, commit what comes of it."""
        outcome = process(evaluation, self, now_ns=self.now_ns, seed=seed, new_id=self.new_id, columns=self.columns)
        if apply:
            self.commit(outcome.plan)
            for stored in (outcome.evaluation, *outcome.new_evaluations):
                self.evaluations[stored.id] = stored
        return outcome

    def commit(self, plan: Plan) -> None:
        """Apply what `check_plan` takes of a plan."""
        result = check_plan(plan, self)
        self.index += 1
        for stop in result.stops:
            alloc = self._allocs[stop.alloc_id]
            self.put_alloc(
                alloc,
                desired_status=stop.desired_status,
                desired_description=stop.description,
                client_status=stop.client_status or alloc.client_status,
                preempted_by_allocation=stop.preempted_by,
            )
        for alloc in result.updates:
            self.put_alloc(alloc)
        if result.deployment is not None:
            self.deployments = [each for each in self.deployments if each.id != result.deployment.id]
            self.deployments.append(result.deployment)
        for update in plan.deployment_updates:
            self.set_deployment(update.deployment_id, status=update.status)

    def set_deployment(self, deployment_id: str, **changes: Any) -> None:
        for position, deployment in enumerate(self.deployments):
            if deployment.id == deployment_id:
                self.deployments[position] = msgspec.structs.replace(deployment, **changes)

    def promote(self) -> None:
        """Promote all canaries of the latest deployment."""
        deployment = self.deployments[-1]
        groups = {n: msgspec.structs.replace(s, promoted=True) for n, s in deployment.task_groups.items()}
        self.set_deployment(deployment.id, task_groups=groups)
        for alloc in self.all_allocs():
            if alloc.deployment_status is not None and alloc.deployment_status.canary:
                self.put_alloc(alloc, deployment_status=msgspec.structs.replace(alloc.deployment_status, canary=False))

    def _touch(self, node_id: str) -> None:
        self.index += 1
        self._touched[node_id] = self.index


_ALIVE = ("pending", "running", "unknown")
