"""Pure: the roll-out of one version of a job."""

from lepa.kit.durations import ZERO_TIME
from lepa.model.wire import Wire


class DeploymentState(Wire, frozen=True):
    """Progress of one group of a deployment."""

    auto_revert: bool = False
    auto_promote: bool = False
    progress_deadline: int = 0
    require_progress_by: str = ZERO_TIME
    promoted: bool = False
    placed_canaries: tuple[str, ...] = ()
    desired_canaries: int = 0
    desired_total: int = 0
    placed_allocs: int = 0
    healthy_allocs: int = 0
    unhealthy_allocs: int = 0


class Deployment(Wire, frozen=True):
    """The roll-out of one version of a job."""

    id: str = ""
    namespace: str = ""
    job_id: str = ""
    job_version: int = 0
    job_modify_index: int = 0
    job_spec_modify_index: int = 0
    job_create_index: int = 0
    is_multiregion: bool = False
    task_groups: dict[str, DeploymentState] = {}
    status: str = "running"
    status_description: str = ""
    eval_priority: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0
