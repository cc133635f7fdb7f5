"""Pure: how a group is updated, restarted, moved and scaled, and when a job runs. Durations are nanoseconds."""

from typing import Any

from lepa.model.wire import Wire


class TaskLifecycle(Wire, frozen=True):
    """When the task runs relative to the main tasks: prestart, poststart or poststop."""

    hook: str = ""
    sidecar: bool = False


class UpdateStrategy(Wire, frozen=True):
    """How a new version is rolled out. max_parallel 0 replaces all at once without a deployment."""

    stagger: int = 30_000_000_000
    max_parallel: int = 1
    health_check: str = "checks"
    min_healthy_time: int = 10_000_000_000
    healthy_deadline: int = 300_000_000_000
    progress_deadline: int = 600_000_000_000
    canary: int = 0
    auto_revert: bool = False
    auto_promote: bool = False


class RestartPolicy(Wire, frozen=True):
    """How often a failed task is restarted on its node: attempts within interval, then mode fail or delay."""

    interval: int = 1_800_000_000_000
    attempts: int = 2
    delay: int = 15_000_000_000
    mode: str = "fail"
    render_templates: bool = False


class ReschedulePolicy(Wire, frozen=True):
    """How a failed allocation moves to another node."""

    attempts: int = 0
    interval: int = 0
    delay: int = 30_000_000_000
    delay_function: str = "exponential"
    max_delay: int = 3_600_000_000_000
    unlimited: bool = True


class MigrateStrategy(Wire, frozen=True):
    """How allocations leave a draining node."""

    max_parallel: int = 1
    health_check: str = "checks"
    min_healthy_time: int = 10_000_000_000
    healthy_deadline: int = 300_000_000_000


class DisconnectStrategy(Wire, frozen=True):
    """What happens while a node cannot be reached. lost_after 0 is off."""

    lost_after: int = 0
    stop_on_client_after: int | None = None
    replace: bool = True
    reconcile: str = "best_score"


class ScalingPolicy(Wire, frozen=True):
    """Bounds for a group's count and an opaque policy for an autoscaler."""

    min: int = 0
    max: int = 0
    policy: dict[str, Any] = {}
    enabled: bool = True
    type: str = "horizontal"
    id: str = ""
    namespace: str = ""
    target: dict[str, str] = {}
    create_index: int = 0
    modify_index: int = 0


class PeriodicConfig(Wire, frozen=True):
    """Launch children of the job by cron expressions."""

    enabled: bool = True
    spec: str = ""
    specs: tuple[str, ...] = ()
    spec_type: str = "cron"
    prohibit_overlap: bool = False
    time_zone: str = "UTC"
    max_running: int = 0
    """Children that run at once, 0 for any number; others wait their turn. Nomad has no such limit."""


class ParameterizedJobConfig(Wire, frozen=True):
    """The job is a template; dispatching it makes children."""

    payload: str = "optional"
    meta_required: tuple[str, ...] = ()
    meta_optional: tuple[str, ...] = ()
    max_running: int = 0
    """Children that run at once, 0 for any number; others wait their turn. Nomad has no such limit."""


class MultiregionStrategy(Wire, frozen=True):
    """In what order regions are deployed."""

    max_parallel: int = 0
    on_failure: str = ""


class MultiregionRegion(Wire, frozen=True):
    """What differs in one region."""

    name: str = ""
    count: int = 1
    datacenters: tuple[str, ...] = ()
    node_pool: str = ""
    meta: dict[str, str] = {}


class Multiregion(Wire, frozen=True):
    """One job over several regions."""

    strategy: MultiregionStrategy | None = None
    regions: tuple[MultiregionRegion, ...] = ()
