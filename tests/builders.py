"""Objects for tests: valid, small, and different only where the test says so.

Ids are readable texts unless a test needs UUIDs: `uuid_of(7)` gives the same one each time.
"""

import uuid
from typing import Any

from lepa.model.allocation import Allocation, TaskEvent, TaskState
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import AllocMetric, Evaluation, NodeScoreMeta
from lepa.model.job import Job, TaskGroup
from lepa.model.node import (
    DriverInfo,
    LegacyNodeCpuResources,
    Node,
    NodeDiskResources,
    NodeMemoryResources,
    NodeNetworkAddress,
    NodeNetworkResource,
    NodeResources,
)
from lepa.model.policies import RestartPolicy, UpdateStrategy
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    Resources,
)
from lepa.model.service import ServiceRegistration
from lepa.model.task import Task


def uuid_of(number: int) -> str:
    """The same UUID for the same number; different numbers differ in their first hex digits too."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))


def make_task(name: str = "web", *, cpu: int = 100, memory_mb: int = 128, **overrides: Any) -> Task:
    """A mock_driver task that runs until it is stopped."""
    fields: dict[str, Any] = {
        "driver": "mock_driver",
        "config": {"run_for": "0s"},
        "resources": Resources(cpu=cpu, memory_mb=memory_mb),
    }
    return Task(name=name, **(fields | overrides))


def make_group(name: str = "web", *, count: int = 1, **overrides: Any) -> TaskGroup:
    """A group of one task."""
    fields: dict[str, Any] = {"tasks": (make_task(),), "restart_policy": RestartPolicy()}
    return TaskGroup(name=name, count=count, **(fields | overrides))


def make_job(
    job_id: str = "web", *, count: int = 1, groups: tuple[TaskGroup, ...] | None = None, **overrides: Any
) -> Job:
    """A job of one group of `count`, unless `groups` are given."""
    fields: dict[str, Any] = {"name": job_id, "task_groups": groups or (make_group(count=count),)}
    return Job(id=job_id, **(fields | overrides))


def make_update(**overrides: Any) -> UpdateStrategy:
    """Nomad's default update strategy of a service."""
    return UpdateStrategy(**overrides)


def make_node(node_id: str = "node-1", *, cpu: int = 4_000, memory_mb: int = 8_192, **overrides: Any) -> Node:
    """A ready node in dc1 with mock_driver and raw_exec."""
    healthy = DriverInfo(detected=True, healthy=True)
    fields: dict[str, Any] = {
        "name": node_id,
        "datacenter": "dc1",
        "status": "ready",
        "http_addr": "127.0.0.1:4646",
        "attributes": {"kernel.name": "linux", "cpu.arch": "amd64", "driver.mock_driver": "1", "driver.raw_exec": "1"},
        "drivers": {"mock_driver": healthy, "raw_exec": healthy},
        "node_resources": NodeResources(
            cpu=LegacyNodeCpuResources(cpu_shares=cpu, total_cpu_cores=4),
            memory=NodeMemoryResources(memory_mb=memory_mb),
            disk=NodeDiskResources(disk_mb=100_000),
            node_networks=(
                NodeNetworkResource(
                    mode="host",
                    device="lo",
                    addresses=(NodeNetworkAddress(alias="default", address="127.0.0.1"),),
                ),
            ),
        ),
    }
    return Node(id=node_id, **(fields | overrides))


def make_resources(*tasks: str, cpu: int = 100, memory_mb: int = 128, disk_mb: int = 300) -> AllocatedResources:
    """The same share for each task ("web" when none is named)."""
    share = AllocatedTaskResources(
        cpu=AllocatedCpuResources(cpu_shares=cpu), memory=AllocatedMemoryResources(memory_mb=memory_mb)
    )
    return AllocatedResources(
        tasks=dict.fromkeys(tasks or ("web",), share), shared=AllocatedSharedResources(disk_mb=disk_mb)
    )


def make_alloc(alloc_id: str = "alloc-1", *, job: Job | None = None, index: int = 0, **overrides: Any) -> Allocation:
    """Allocation number `index` of the job's first group, running as wanted on node-1; it does not hold the job."""
    job = job or make_job()
    group = job.task_groups[0].name
    fields: dict[str, Any] = {
        "namespace": job.namespace,
        "job_id": job.id,
        "job_version": job.version,
        "task_group": group,
        "name": f"{job.id}.{group}[{index}]",
        "node_id": "node-1",
        "node_name": "node-1",
        "eval_id": "eval-1",
        "desired_status": "run",
        "client_status": "running",
        "allocated_resources": make_resources(*(task.name for task in job.task_groups[0].tasks)),
    }
    return Allocation(id=alloc_id, **(fields | overrides))


def make_task_state(*event_types: str, **overrides: Any) -> TaskState:
    """A running task with one event of each type, a second apart."""
    events = tuple(
        TaskEvent(type=name, time=(at + 1) * 1_000_000_000, display_message=name) for at, name in enumerate(event_types)
    )
    return TaskState(**({"state": "running", "events": events} | overrides))


def make_metric(*node_ids: str, **overrides: Any) -> AllocMetric:
    """Reasons of a placement that scored these nodes."""
    scores = tuple(
        NodeScoreMeta(node_id=node, scores={"binpack": 0.5, "job-anti-affinity": 0.0}, norm_score=0.25)
        for node in node_ids
    )
    fields = {"nodes_evaluated": len(node_ids), "nodes_in_pool": len(node_ids), "score_meta_data": scores}
    return AllocMetric(**(fields | overrides))


def make_eval(eval_id: str = "eval-1", *, job: Job | None = None, **overrides: Any) -> Evaluation:
    """A pending evaluation, as registering the job makes it."""
    job = job or make_job()
    fields: dict[str, Any] = {
        "namespace": job.namespace,
        "job_id": job.id,
        "priority": job.priority,
        "type": job.type,
        "triggered_by": "job-register",
        "status": "pending",
    }
    return Evaluation(id=eval_id, **(fields | overrides))


def make_deployment(deployment_id: str = "deployment-1", *, job: Job | None = None, **overrides: Any) -> Deployment:
    """A running deployment of the job's first group."""
    job = job or make_job()
    group = job.task_groups[0]
    fields: dict[str, Any] = {
        "namespace": job.namespace,
        "job_id": job.id,
        "job_version": job.version,
        "task_groups": {group.name: DeploymentState(desired_total=group.count)},
        "status_description": "Deployment is running",
    }
    return Deployment(id=deployment_id, **(fields | overrides))


def make_service(service_id: str = "service-1", **overrides: Any) -> ServiceRegistration:
    """One instance of `web` on node-1."""
    fields: dict[str, Any] = {
        "service_name": "web",
        "namespace": "default",
        "node_id": "node-1",
        "datacenter": "dc1",
        "job_id": "web",
        "alloc_id": "alloc-1",
        "address": "127.0.0.1",
        "port": 8080,
    }
    return ServiceRegistration(id=service_id, **(fields | overrides))
