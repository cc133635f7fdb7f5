"""Pure: what a scheduler wants changed, and what of it was applied."""

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.job import Job
from lepa.model.wire import Wire


class AllocationStop(Wire, frozen=True):
    """One existing allocation that should stop, move or change its client status.

    client_status "" leaves it as it is ("lost", "unknown" when the node is gone). followup_eval_id: the evaluation that
    will look again. preempted_by: the allocation that takes its place.
    """

    alloc_id: str = ""
    description: str = ""
    client_status: str = ""
    desired_status: str = "stop"
    followup_eval_id: str = ""
    preempted_by: str = ""


class DeploymentStatusUpdate(Wire, frozen=True):
    """A new status of an existing deployment."""

    deployment_id: str = ""
    status: str = ""
    status_description: str = ""


class DesiredUpdates(Wire, frozen=True):
    """How many allocations of a group a plan leaves, places, stops and changes: shown by `job plan`."""

    ignore: int = 0
    place: int = 0
    migrate: int = 0
    stop: int = 0
    in_place_update: int = 0
    destructive_update: int = 0
    canary: int = 0
    preemptions: int = 0
    disconnect: int = 0
    reconnect: int = 0
    reschedule_now: int = 0
    reschedule_later: int = 0


class Plan(Wire, frozen=True):
    """All changes one evaluation wants, made from a snapshot at `snapshot_index`.

    updates: allocations as they should be stored (new placements, in-place updates). stops: existing ones to stop or
    evict. deployment: a deployment to create. all_at_once: apply everything or nothing.
    """

    eval_id: str = ""
    eval_token: str = ""
    priority: int = 50
    all_at_once: bool = False
    job: Job | None = None
    snapshot_index: int = 0
    updates: tuple[Allocation, ...] = ()
    stops: tuple[AllocationStop, ...] = ()
    deployment: Deployment | None = None
    deployment_updates: tuple[DeploymentStatusUpdate, ...] = ()
    annotations: dict[str, DesiredUpdates] = {}

    @property
    def empty(self) -> bool:
        """Whether applying the plan would change nothing."""
        return not (self.updates or self.stops or self.deployment or self.deployment_updates)


class PlanResult(Wire, frozen=True):
    """What was applied. refresh_index > 0: some nodes refused; look again at a snapshot at least that new."""

    applied_index: int = 0
    refresh_index: int = 0
    updates: tuple[Allocation, ...] = ()
    stops: tuple[AllocationStop, ...] = ()
    rejected_nodes: tuple[str, ...] = ()
    deployment: Deployment | None = None
