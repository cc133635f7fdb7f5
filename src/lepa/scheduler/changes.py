"""Pure: what a reconciler decides: allocations to make, to stop and to change, each with its reason."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lepa.kit.durations import rfc3339
from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.plan import AllocationStop, DeploymentStatusUpdate, DesiredUpdates
from lepa.model.usage import has_ended, is_stopped
from lepa.scheduler.view import View

NOT_NEEDED = "alloc not needed due to job update"
NOT_NEEDED_RECONNECT = "alloc not needed due to disconnected client reconnect"
MIGRATING = "alloc is being migrated"
UPDATING = "alloc is being updated due to job update"
LOST = "alloc is lost since its node is down"
UNKNOWN = "alloc is unknown since its node is disconnected"
RESCHEDULED = "alloc was rescheduled because it failed"
TAINTED = "alloc not needed as node is tainted"
CREATED_FOR_RESCHEDULING = "created for delayed rescheduling"
CREATED_FOR_DISCONNECT = "created for delayed disconnect timeout"


@dataclass(frozen=True)
class Placement:
    """One allocation to make.

    job: the version it runs; an older one while a newer has canaries that are not promoted. previous: what it follows.
    rescheduled: `previous` failed. replaces: what to stop, but only if the placement succeeds.
    node_id: the one node it is for, or "".
    """

    name: str
    job: Job
    group: TaskGroup
    previous: Allocation | None = None
    rescheduled: bool = False
    canary: bool = False
    deployment_id: str = ""
    replaces: AllocationStop | None = None
    node_id: str = ""


@dataclass
class Changes:
    """Everything that should be different. updates: existing allocations as they should be stored, by id."""

    placements: list[Placement] = field(default_factory=list)
    stops: dict[str, AllocationStop] = field(default_factory=dict)
    updates: dict[str, Allocation] = field(default_factory=dict)
    followups: list[Evaluation] = field(default_factory=list)
    deployment: Deployment | None = None
    deployment_updates: list[DeploymentStatusUpdate] = field(default_factory=list)
    desired: dict[str, DesiredUpdates] = field(default_factory=dict)

    def stop(self, allocs: Iterable[Allocation], description: str, client_status: str = "") -> None:
        """Stop some allocations."""
        for alloc in allocs:
            self.stops[alloc.id] = stop_of(alloc, description, client_status)


def stop_of(alloc: Allocation, description: str, client_status: str = "") -> AllocationStop:
    """The order to stop one allocation."""
    return AllocationStop(alloc_id=alloc.id, description=description, client_status=client_status)


def stop_group(changes: Changes, view: View, name: str, allocs: Sequence[Allocation]) -> None:
    """Stop everything of a group that is wanted no more."""
    running = [alloc for alloc in allocs if not is_stopped(alloc) and not has_ended(alloc)]
    failed = [alloc for alloc in allocs if not is_stopped(alloc) and alloc.client_status == "failed"]
    changes.stop([*running, *failed], NOT_NEEDED)
    changes.stop([a for a in allocs if not has_ended(a) and _node_is_gone(view, a)], LOST, "lost")
    changes.desired[name] = DesiredUpdates(stop=len(running))


def followup_evaluation(
    job: Job, evaluation: Evaluation, new_id: str, now_ns: int, due: int, trigger: str
) -> Evaluation:
    """An evaluation of the same job at a later time. due: Unix nanoseconds."""
    disconnect = trigger == "max-disconnect-timeout"
    return Evaluation(
        id=new_id,
        namespace=job.namespace,
        priority=evaluation.priority,
        type=job.type,
        triggered_by=trigger,
        job_id=job.id,
        job_modify_index=job.job_modify_index,
        status="pending",
        status_description=CREATED_FOR_DISCONNECT if disconnect else CREATED_FOR_RESCHEDULING,
        wait_until=rfc3339(due),
        create_time=now_ns,
        modify_time=now_ns,
    )


def _node_is_gone(view: View, alloc: Allocation) -> bool:
    node = view.node(alloc.node_id)
    return node is None or node.status == "down"
