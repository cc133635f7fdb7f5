"""Pure: the shortened forms in which lists show allocations."""

from lepa.model.allocation import Allocation, AllocListStub
from lepa.state.snapshot import Snapshot


def alloc_stub(
    snapshot: Snapshot, alloc: Allocation, *, resources: bool = False, task_states: bool = True
) -> AllocListStub:
    """An allocation in a list."""
    job = snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version) or snapshot.job(
        alloc.namespace, alloc.job_id
    )
    return AllocListStub(
        id=alloc.id,
        eval_id=alloc.eval_id,
        name=alloc.name,
        namespace=alloc.namespace,
        node_id=alloc.node_id,
        node_name=alloc.node_name,
        job_id=alloc.job_id,
        job_type=job.type if job is not None else "",
        job_version=alloc.job_version,
        task_group=alloc.task_group,
        allocated_resources=alloc.allocated_resources if resources else None,
        desired_status=alloc.desired_status,
        desired_description=alloc.desired_description,
        client_status=alloc.client_status,
        client_description=alloc.client_description,
        desired_transition=alloc.desired_transition,
        task_states=alloc.task_states if task_states else {},
        deployment_status=alloc.deployment_status,
        followup_eval_id=alloc.followup_eval_id,
        next_allocation=alloc.next_allocation,
        reschedule_tracker=alloc.reschedule_tracker,
        preempted_allocations=alloc.preempted_allocations,
        preempted_by_allocation=alloc.preempted_by_allocation,
        create_index=alloc.create_index,
        modify_index=alloc.modify_index,
        create_time=alloc.create_time,
        modify_time=alloc.modify_time,
    )
