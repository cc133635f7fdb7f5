"""Pure: one task, the smallest unit, run by a driver. Durations are nanoseconds."""

from typing import Any

from msgspec import UNSET, UnsetType, field

from lepa.model.constraint import Affinity, Constraint
from lepa.model.identity import WorkloadIdentity
from lepa.model.policies import RestartPolicy, ScalingPolicy, TaskLifecycle
from lepa.model.resources import Resources
from lepa.model.service import Service
from lepa.model.wire import Wire


class LogShip(Wire, frozen=True):
    """A receiver that a task's output is sent to as well: `logs { ship "NAME" { … } }`. Nomad has none.

    type: "syslog" (RFC 5424), "fluentd" (the forward protocol, which Fluent Bit and Vector speak too) or "loki" (its
    push API, by JSON). address: udp:// or tcp:// for syslog, tcp:// for fluentd, http(s):// for loki. labels: added to
    every line. facility: of syslog. tag: of fluentd. headers: of loki's requests. timeout: how long one batch may take.
    """

    name: str = ""
    type: str = ""
    address: str = ""
    streams: tuple[str, ...] = ("stdout", "stderr")
    labels: dict[str, str] = {}
    facility: str = "local0"
    tag: str = "lepa"
    headers: dict[str, str] = {}
    timeout: int = 10_000_000_000


class LogConfig(Wire, frozen=True):
    """Rotation of a task's stdout and stderr files, and who gets what is written to them.

    ship: left out where there is none, so that whoever knows Nomad's keys finds those and no other.
    """

    max_files: int = 10
    max_file_size_mb: int = 10
    enabled: bool | None = None
    disabled: bool = False
    ship: tuple[LogShip, ...] | UnsetType = UNSET

    @property
    def receivers(self) -> tuple[LogShip, ...]:
        """Those of `ship`, if any."""
        return () if self.ship is UNSET else self.ship


class TaskArtifact(Wire, frozen=True):
    """A file to fetch before the task starts."""

    getter_source: str = ""
    getter_options: dict[str, str] = {}
    getter_headers: dict[str, str] = {}
    getter_mode: str = "any"
    getter_insecure: bool = False
    relative_dest: str = "local/"
    chown: bool = False


class DispatchPayloadConfig(Wire, frozen=True):
    """Where a dispatched job's payload is written, relative to the task's local directory."""

    file: str = ""


class VolumeMount(Wire, frozen=True):
    """A group volume mounted into a task."""

    volume: str = ""
    destination: str = ""
    read_only: bool = False
    propagation_mode: str = "private"
    selinux_label: str = field(default="", name="SELinuxLabel")


class TaskCSIPluginConfig(Wire, frozen=True):
    """The task is a CSI plugin."""

    id: str = ""
    type: str = ""
    mount_dir: str = "/csi"
    stage_publish_base_dir: str = ""
    health_timeout: int = 0


class Action(Wire, frozen=True):
    """A command a person may run inside the task by name."""

    name: str = ""
    command: str = ""
    args: tuple[str, ...] = ()


class TaskScheduleCron(Wire, frozen=True):
    """When a scheduled task runs and ends."""

    start: str = ""
    end: str = ""
    timezone: str = ""


class TaskSchedule(Wire, frozen=True):
    """A time-based schedule of a task."""

    cron: TaskScheduleCron | None = None


class ChangeScript(Wire, frozen=True):
    """A command run in the task when a template changes."""

    command: str = ""
    args: tuple[str, ...] = ()
    timeout: int = 5_000_000_000
    fail_on_error: bool = False
    run_on_first_render: bool = False


class WaitConfig(Wire, frozen=True):
    """How long a template waits for its data to settle."""

    min: int | None = None
    max: int | None = None


class Template(Wire, frozen=True):
    """A file rendered from data and kept up to date."""

    source_path: str = ""
    dest_path: str = ""
    embedded_tmpl: str = ""
    change_mode: str = "restart"
    change_script: ChangeScript | None = None
    change_signal: str = ""
    once: bool = False
    splay: int = 5_000_000_000
    perms: str = "0644"
    uid: int | None = None
    gid: int | None = None
    left_delim: str = "{{"
    right_delim: str = "}}"
    envvars: bool = False
    vault_grace: int = 0
    wait: WaitConfig | None = None
    err_missing_key: bool = False


class Secret(Wire, frozen=True):
    """A secret fetched from a provider and offered as `${secret.NAME.KEY}`."""

    name: str = ""
    provider: str = ""
    path: str = ""
    config: dict[str, Any] = {}
    env: dict[str, str] = {}


class Vault(Wire, frozen=True):
    """A Vault token for the task."""

    policies: tuple[str, ...] = ()
    role: str = ""
    namespace: str = ""
    cluster: str = "default"
    env: bool = True
    disable_file: bool = False
    change_mode: str = "restart"
    change_signal: str = ""
    allow_token_expiration: bool = False


class Consul(Wire, frozen=True):
    """Which Consul a group or task uses."""

    namespace: str = ""
    cluster: str = "default"
    partition: str = ""


class Task(Wire, frozen=True):
    """One process, container or virtual machine."""

    name: str = ""
    driver: str = ""
    user: str = ""
    lifecycle: TaskLifecycle | None = None
    config: dict[str, Any] = {}
    constraints: tuple[Constraint, ...] = ()
    affinities: tuple[Affinity, ...] = ()
    env: dict[str, str] = {}
    services: tuple[Service, ...] = ()
    resources: Resources = Resources()
    restart_policy: RestartPolicy | None = None
    meta: dict[str, str] = {}
    kill_timeout: int = 5_000_000_000
    log_config: LogConfig = LogConfig()
    artifacts: tuple[TaskArtifact, ...] = ()
    vault: Vault | None = None
    consul: Consul | None = None
    templates: tuple[Template, ...] = ()
    dispatch_payload: DispatchPayloadConfig | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    csi_plugin_config: TaskCSIPluginConfig | None = None
    leader: bool = False
    shutdown_delay: int = 0
    kill_signal: str = ""
    kind: str = ""
    scaling_policies: tuple[ScalingPolicy, ...] = ()
    secrets: tuple[Secret, ...] = ()
    identity: WorkloadIdentity | None = None
    identities: tuple[WorkloadIdentity, ...] = ()
    actions: tuple[Action, ...] = ()
    schedule: TaskSchedule | None = None
