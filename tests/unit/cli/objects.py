"""Objects as the API sends them, made from the wire types, so that their keys are right."""

from typing import Any

from tests.unit.cli.conftest import NOW_NS

from lepa.kit.durations import SECOND
from lepa.model.allocation import Allocation, AllocDeploymentStatus, AllocListStub, TaskEvent, TaskState
from lepa.model.deployment import Deployment, DeploymentState
from lepa.model.evaluation import AllocMetric, Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.job_views import JobListStub, JobSummary, TaskGroupSummary
from lepa.model.node import (
    DriverInfo,
    LegacyNodeCpuResources,
    Node,
    NodeDiskResources,
    NodeEvent,
    NodeListStub,
    NodeMemoryResources,
    NodeResources,
)
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
    Port,
)
from lepa.model.task import Task
from lepa.model.wire import to_builtins

Json = dict[str, Any]

ALLOC = "11111111-aaaa-4bbb-8ccc-000000000001"
OTHER = "11112222-aaaa-4bbb-8ccc-000000000002"
NODE = "22222222-aaaa-4bbb-8ccc-000000000001"
EVALUATION = "33333333-aaaa-4bbb-8ccc-000000000001"
DEPLOYMENT = "44444444-aaaa-4bbb-8ccc-000000000001"

GIVEN = AllocatedResources(
    tasks={
        "server": AllocatedTaskResources(
            cpu=AllocatedCpuResources(cpu_shares=100), memory=AllocatedMemoryResources(memory_mb=64)
        )
    },
    shared=AllocatedSharedResources(
        networks=(NetworkResource(dynamic_ports=(Port(label="http", value=20_001),)),),
        disk_mb=300,
        ports=(AllocatedPortMapping(label="http", value=20_001, to=8080, host_ip="10.0.0.1"),),
    ),
)


def before(seconds: int) -> int:
    return NOW_NS - seconds * SECOND


def job(identifier: str = "web", **fields: Any) -> Json:
    group = TaskGroup(name="page", count=2, tasks=(Task(name="server", driver="raw_exec"),))
    made = Job(
        id=identifier,
        name=identifier,
        task_groups=(group,),
        status="running",
        submit_time=before(7200),
        create_index=5,
        modify_index=9,
        job_modify_index=9,
    )
    return {**to_builtins(made), **fields}


def job_stub(identifier: str = "web", **fields: Any) -> Json:
    made = JobListStub(
        id=identifier,
        name=identifier,
        namespace="default",
        type="service",
        priority=50,
        status="running",
        submit_time=before(7200),
        job_summary=JobSummary(job_id=identifier),
    )
    return {**to_builtins(made), **fields}


def summary(identifier: str = "web") -> Json:
    made = JobSummary(job_id=identifier, summary={"page": TaskGroupSummary(running=1, starting=1)})
    found: Json = to_builtins(made)
    return found


def alloc_stub(identifier: str = ALLOC, **fields: Any) -> Json:
    made = AllocListStub(
        id=identifier,
        eval_id=EVALUATION,
        name="web.page[0]",
        namespace="default",
        node_id=NODE,
        node_name="box",
        job_id="web",
        task_group="page",
        desired_status="run",
        client_status="running",
        create_index=7,
        modify_index=8,
        create_time=before(200),
        modify_time=before(61),
    )
    return {**to_builtins(made), **fields}


def allocation(identifier: str = ALLOC, **fields: Any) -> Json:
    events = (
        TaskEvent(type="Received", time=before(200), display_message="Task received by client"),
        TaskEvent(type="Started", time=before(199), display_message="Task started by client"),
    )
    made = Allocation(
        id=identifier,
        namespace="default",
        eval_id=EVALUATION,
        name="web.page[0]",
        node_id=NODE,
        node_name="box",
        job_id="web",
        task_group="page",
        allocated_resources=GIVEN,
        desired_status="run",
        client_status="running",
        client_description="Tasks are running",
        deployment_id=DEPLOYMENT,
        deployment_status=AllocDeploymentStatus(healthy=True),
        task_states={"server": TaskState(state="running", events=events, started_at="2026-05-28T20:23:21.5Z")},
        create_time=before(200),
        modify_time=before(61),
        create_index=7,
        modify_index=8,
    )
    return {**to_builtins(made), "Job": job(), **fields}


def node(**fields: Any) -> Json:
    made = Node(
        id=NODE,
        name="box",
        datacenter="dc1",
        node_class="large",
        status="ready",
        attributes={"kernel.name": "linux"},
        meta={"rack": "r1"},
        node_resources=NodeResources(
            cpu=LegacyNodeCpuResources(cpu_shares=4000),
            memory=NodeMemoryResources(memory_mb=8192),
            disk=NodeDiskResources(disk_mb=50_000),
        ),
        drivers={
            "raw_exec": DriverInfo(detected=True, healthy=True, health_description="Healthy"),
            "docker": DriverInfo(health_description="no daemon"),
        },
        events=(NodeEvent(message="Node registered", subsystem="Cluster", timestamp="2026-05-28T19:00:00Z"),),
    )
    return {**to_builtins(made), **fields}


def node_stub(**fields: Any) -> Json:
    made = NodeListStub(
        id=NODE,
        address="10.0.0.1",
        version="1.9.5",
        name="box",
        datacenter="dc1",
        node_pool="default",
        node_class="large",
        scheduling_eligibility="eligible",
        status="ready",
    )
    return {**to_builtins(made), **fields}


def evaluation(status: str = "complete", **fields: Any) -> Json:
    made = Evaluation(
        id=EVALUATION,
        namespace="default",
        priority=50,
        type="service",
        triggered_by="job-register",
        job_id="web",
        job_modify_index=9,
        status=status,
        create_index=6,
        modify_index=7,
        create_time=before(200),
        modify_time=before(199),
    )
    return {**to_builtins(made), **fields}


def unplaced(**fields: Any) -> Json:
    made = AllocMetric(
        nodes_evaluated=3,
        nodes_available={"dc1": 3},
        constraint_filtered={"${attr.kernel.name} = windows": 2},
        nodes_exhausted=1,
        dimension_exhausted={"memory": 1},
        coalesced_failures=1,
    )
    return {**to_builtins(made), **fields}


def deployment(status: str = "running", **state: Any) -> Json:
    made = Deployment(
        id=DEPLOYMENT,
        namespace="default",
        job_id="web",
        job_version=1,
        job_modify_index=9,
        status=status,
        status_description=f"Deployment is {status}",
        task_groups={
            "page": DeploymentState(
                desired_total=2,
                placed_allocs=2,
                healthy_allocs=1,
                require_progress_by="2026-05-28T20:30:00.123Z",
                **state,
            )
        },
        create_index=7,
    )
    found: Json = to_builtins(made)
    return found
