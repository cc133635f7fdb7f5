"""Pure: a job and its task groups, in canonical form: every default filled in by `lepa.model.job_rules`."""

from msgspec import field

from lepa.model.constraint import Affinity, Constraint, Spread
from lepa.model.policies import (
    DisconnectStrategy,
    MigrateStrategy,
    Multiregion,
    ParameterizedJobConfig,
    PeriodicConfig,
    ReschedulePolicy,
    RestartPolicy,
    ScalingPolicy,
    UpdateStrategy,
)
from lepa.model.resources import NetworkResource
from lepa.model.service import Service
from lepa.model.task import Consul, Task
from lepa.model.wire import Wire


class JobUILink(Wire, frozen=True):
    """A link shown beside the job."""

    label: str = ""
    url: str = ""


class JobUIConfig(Wire, frozen=True):
    """What a user interface shows about the job."""

    description: str = ""
    links: tuple[JobUILink, ...] = ()


class JobVersionTag(Wire, frozen=True):
    """A name for one version of a job; a tagged version is not garbage collected."""

    name: str = ""
    description: str = ""
    tagged_time: int = 0


class JobDependency(Wire, frozen=True):
    """Begin only when another job is so far: "complete" (ended, and well), "running", or "dead" (ended in any way).

    namespace "": the job's own. Nomad has no such block.
    """

    job: str = ""
    namespace: str = ""
    status: str = "complete"


class CSIMountOptions(Wire, frozen=True):
    """File system and flags of a CSI mount."""

    fs_type: str = field(default="", name="FSType")
    mount_flags: tuple[str, ...] = ()


class VolumeRequest(Wire, frozen=True):
    """A volume the group needs."""

    name: str = ""
    type: str = ""
    source: str = ""
    read_only: bool = False
    sticky: bool = False
    access_mode: str = ""
    attachment_mode: str = ""
    mount_options: CSIMountOptions | None = None
    per_alloc: bool = False


class EphemeralDisk(Wire, frozen=True):
    """Scratch disk of an allocation in MiB; sticky keeps it for a replacement on the same node, migrate moves it."""

    sticky: bool = False
    migrate: bool = False
    size_mb: int = 300


class TaskGroup(Wire, frozen=True):
    """Tasks that are placed together on one node, `count` times."""

    name: str = ""
    count: int = 1
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    tasks: tuple[Task, ...] = ()
    spreads: tuple[Spread, ...] = ()
    volumes: dict[str, VolumeRequest] = {}
    restart_policy: RestartPolicy | None = None
    disconnect: DisconnectStrategy | None = None
    reschedule_policy: ReschedulePolicy | None = None
    ephemeral_disk: EphemeralDisk = EphemeralDisk()
    update: UpdateStrategy | None = None
    migrate: MigrateStrategy | None = None
    networks: tuple[NetworkResource, ...] = ()
    meta: dict[str, str] = {}
    services: tuple[Service, ...] = ()
    shutdown_delay: int = 0
    max_run_duration: int | None = None
    stop_after_client_disconnect: int | None = None
    max_client_disconnect: int | None = None
    scaling: ScalingPolicy | None = None
    consul: Consul | None = None
    prevent_reschedule_on_lost: bool = False


class Job(Wire, frozen=True):
    """What a user wants run. version counts changes; job_modify_index is the index of the last one."""

    region: str = "global"
    namespace: str = "default"
    id: str = ""
    name: str = ""
    type: str = "service"
    priority: int = 50
    all_at_once: bool = False
    datacenters: tuple[str, ...] = ("*",)
    node_pool: str = "default"
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    task_groups: tuple[TaskGroup, ...] = ()
    update: UpdateStrategy | None = None
    multiregion: Multiregion | None = None
    spreads: tuple[Spread, ...] = ()
    periodic: PeriodicConfig | None = None
    parameterized_job: ParameterizedJobConfig | None = None
    after: tuple[JobDependency, ...] = ()
    meta: dict[str, str] = {}
    ui: JobUIConfig | None = None
    stop: bool = False
    parent_id: str = ""
    dispatched: bool = False
    dispatch_idempotency_token: str = ""
    payload: bytes | None = None
    consul_namespace: str = ""
    vault_namespace: str = ""
    nomad_token_id: str = ""
    status: str = ""
    status_description: str = ""
    stable: bool = False
    version: int = 0
    submit_time: int = 0
    create_index: int = 0
    modify_index: int = 0
    job_modify_index: int = 0
    version_tag: JobVersionTag | None = None
