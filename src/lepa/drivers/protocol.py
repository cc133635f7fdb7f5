"""Pure: what a driver must do.

The task runner drives one task through `start`, `wait`, `stop`, `destroy`, and after an agent restart through `recover`
instead of `start`. A handle is all that is needed to find the task again; it is stored by the node. Calls for a task
that is not known raise LepaError(not_found).
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, runtime_checkable

from lepa.model.errors import LepaError
from lepa.model.node import DriverInfo
from lepa.model.resources import AllocatedPortMapping, AllocatedTaskResources, DNSConfig
from lepa.model.stats import TaskResourceUsage
from lepa.model.task import LogConfig
from lepa.model.wire import Wire


class Mount(Wire, frozen=True):
    """A host path to appear inside the task."""

    host_path: str = ""
    task_path: str = ""
    read_only: bool = False
    propagation: str = "private"


class DeviceNode(Wire, frozen=True):
    """A device of the host to appear inside the task. permissions: of reading, writing and making it, as "rwm"."""

    host_path: str = ""
    task_path: str = ""
    permissions: str = "rwm"


class TaskConfig(Wire, frozen=True):
    """Everything a driver needs to start one task; all texts are interpolated already.

    id: unique on the node and for this start, fit for file names. config: the job file's `config` block. paths are host
    paths: alloc_dir is shared by the group, task_dir holds local, secrets and tmp. stdout_path, stderr_path: the files
    `<log dir>/<task>.stdout` without the rotation number; drivers write `.0`, `.1`, … and rotate by `logs`.
    network_namespace: path of a namespace to join, "" for the host's.
    """

    id: str
    alloc_id: str
    job_id: str = ""
    job_name: str = ""
    namespace: str = "default"
    group_name: str = ""
    task_name: str = ""
    config: dict[str, Any] = {}
    env: dict[str, str] = {}
    user: str = ""
    kill_signal: str = ""
    resources: AllocatedTaskResources = AllocatedTaskResources()
    ports: tuple[AllocatedPortMapping, ...] = ()
    memory_mb: int = 0
    cpu_shares: int = 0
    alloc_dir: str = ""
    task_dir: str = ""
    local_dir: str = ""
    secrets_dir: str = ""
    stdout_path: str = ""
    stderr_path: str = ""
    logs: LogConfig = LogConfig()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    network_namespace: str = ""
    hostname: str = ""
    dns: DNSConfig | None = None


class TaskHandle(Wire, frozen=True):
    """How to find a started task again. `state` belongs to the driver and holds no secrets."""

    driver: str
    task_id: str
    started_at: int = 0
    state: dict[str, Any] = {}


class TaskNetwork(Wire, frozen=True):
    """An address of the task's own, when the driver gave it one: for `address_mode = "driver"`."""

    ip: str = ""
    port_map: dict[str, int] = {}
    auto_advertise: bool = False


class Started(Wire, frozen=True):
    """A started task."""

    handle: TaskHandle
    network: TaskNetwork | None = None


class ExitResult(Wire, frozen=True):
    """How a task ended. exit_code is 128+signal where a shell would say so; error: the driver lost sight of it."""

    exit_code: int = 0
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    finished_at: int = 0

    @property
    def successful(self) -> bool:
        """Whether the task did what it should: exit code 0, no signal, no error."""
        return self.exit_code == 0 and self.signal == 0 and not self.error


class DriverError(LepaError):
    """A start that failed. recoverable: the restart policy may try again; otherwise the task fails at once."""

    def __init__(self, message: str, *, recoverable: bool = False, **facts: Any) -> None:
        super().__init__("internal", message, **facts)
        self.recoverable = recoverable


class Capabilities(Wire, frozen=True):
    """What a driver can do. isolation: "none", "chroot" or "image"."""

    signals: bool = True
    exec: bool = True
    isolation: str = "none"
    network_modes: tuple[str, ...] = ("host", "group")
    remote: bool = False


class ExecSession(Protocol):
    """A command running inside a task, with its three streams."""

    async def write(self, data: bytes) -> None:
        """Send to its standard input; b"" closes it."""

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size; ignored without one."""

    def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of ("stdout" | "stderr", data) until the command ends; with a terminal all is "stdout"."""

    async def wait(self) -> int:
        """The command's exit code, after `output` has ended."""

    async def close(self) -> None:
        """End the command if it still runs, and let go of everything."""


class Driver(Protocol):
    """One way to run tasks."""

    name: str
    capabilities: Capabilities

    async def fingerprint(self) -> DriverInfo:
        """What the driver found on this host; undetected with the reason when it cannot work here."""

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a job file's `config` block, one sentence each; empty when it can be taken."""

    async def start(self, task: TaskConfig) -> Started:
        """Start the task. Raises DriverError."""

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Take up a task that an earlier agent started. Raises LepaError(not_found) when it is gone without a trace."""

    async def wait(self, task_id: str) -> ExitResult:
        """Return when the task has ended; again and again gives the same answer until `destroy`."""

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Send `signal` ("" for the driver's default), kill what is left after `timeout_s`; return when it ended."""

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal by name, such as "SIGHUP". Raises LepaError(invalid) for an unknown one."""

    async def destroy(self, task_id: str) -> None:
        """Forget an ended task and remove what it left: containers, cgroups, records. Kills it if it still runs."""

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """Present use of CPU and memory."""

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Run a command where the task runs."""

    async def close(self) -> None:
        """Let go of connections; tasks go on."""


@runtime_checkable
class SharesCores(Protocol):
    """A driver that can move its tasks between cores while they run; one that cannot need not say so."""

    name: str

    async def share_cores(self, cores: tuple[int, ...]) -> None:
        """From now on tasks run on these cores, unless they have some of their own. Raises LepaError."""
