"""Isolated processes of the host's programs: `exec`, and what is alike in `java`.

A task is an OCI container whose root is the task's own directory, with the host's programs mounted read-only. crun or
runc makes it, started by the supervisor: the container's first process then becomes the supervisor's child, so it
outlives the agent, and its output and exit code are the supervisor's as with `raw_exec`.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.oci_bundle import (
    DEFAULT_CAPABILITIES,
    HOST_FOLDERS,
    MIB,
    PIDS_MAX,
    Bind,
    Device,
    Isolation,
    Limits,
    Process,
    bundle_config,
    capabilities_for,
    capability_problems,
    process_config,
    task_limits,
)
from lepa.drivers.oci_runtime import ENVIRONMENT, OciRuntime, installed, write_private
from lepa.drivers.protocol import Capabilities, DeviceNode, DriverError, TaskConfig
from lepa.drivers.supervised import DEFAULT_PATH, SupervisedDriver, find_user, log_files, resolv_conf
from lepa.drivers.supervisor import cgroups
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, Identity, TaskSpec
from lepa.drivers.user_ids import denied
from lepa.kit.sources import Clock
from lepa.model.node import DriverInfo
from lepa.model.wire import to_json

OPTIONS = options.Options(
    "exec",
    {
        "command": "text",
        "args": "texts",
        "pid_mode": "text",
        "ipc_mode": "text",
        "cap_add": "texts",
        "cap_drop": "texts",
        "cpu_hard_limit": "bool",
        "pids_limit": "number",
        "work_dir": "text",
    },
    required=("command",),
)

DEFAULT_USER = "nobody"
MODES = ("private", "host")
SESSION_FILES_MAX = 1024
"""Descriptions of commands beside tasks that are kept; each is read once, when its command starts."""


class ExecSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "exec"` block.

    no_pivot_root: for a root file system in memory. default_pid_mode, default_ipc_mode: "private" or "host".
    allow_caps: what a job's cap_add may name. denied_host_uids, denied_host_gids: "0,100-200". pids_limit: processes
    of one task.
    """

    no_pivot_root: bool = False
    default_pid_mode: str = "private"
    default_ipc_mode: str = "private"
    allow_caps: tuple[str, ...] = DEFAULT_CAPABILITIES
    denied_host_uids: str = ""
    denied_host_gids: str = ""
    pids_limit: int = PIDS_MAX


class OciExec(SupervisedDriver):
    """Driver "exec"."""

    name = "exec"
    options = OPTIONS
    cgroup_view = False
    capabilities = Capabilities(isolation="chroot")

    def __init__(
        self,
        supervisor: Supervisor,
        clock: Clock,
        settings: ExecSettings,
        state_dir: str,
        chroot_env: Mapping[str, str] | None = None,
    ) -> None:
        """chroot_env: what tasks see of the host, path -> path inside."""
        super().__init__(supervisor, clock)
        self._chroot_env = chroot_env or {path: path for path in HOST_FOLDERS}
        self._settings = settings
        self._state_dir = os.path.join(os.path.abspath(state_dir), self.name)
        self._runtime: OciRuntime | None = None
        self._sessions = 0

    async def fingerprint(self) -> DriverInfo:
        """Detected when a runtime can run a container here; else the reason of each that could not."""
        if os.geteuid() != 0:
            return DriverInfo(health_description=f"{self.name} needs the agent to run as root")
        if not installed():
            return DriverInfo(health_description="neither crun nor runc was found on the PATH; install one of them")
        runtime, reasons = await self._find_runtime()
        if runtime is None:
            return DriverInfo(health_description="; ".join(reasons))
        self._runtime = runtime
        attributes = {f"driver.{self.name}": "1", f"driver.{self.name}.runtime": runtime.name}
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        found = self.options.problems(config)
        for name in ("pid_mode", "ipc_mode"):
            if config.get(name) and config[name] not in MODES:
                found.append(f'{name} must be "private" or "host", found {config[name]!r}')
        work_dir = config.get("work_dir")
        if isinstance(work_dir, str) and work_dir and not work_dir.startswith("/"):
            found.append(f"work_dir must be an absolute path, found {work_dir!r}")
        return found + capability_problems(options.texts(config, "cap_add"), self._settings.allow_caps)

    async def prepare(self, task: TaskConfig) -> TaskSpec:
        """Write the bundle; the runtime that starts it is the process to start."""
        runtime = await self._working_runtime()
        user = self._user(task)
        process = Process(
            args=self.words(task),
            env={"PATH": DEFAULT_PATH, **task.env},
            cwd=options.text(task.config, "work_dir") or "/",
            uid=user.uid,
            gid=user.gid,
            groups=user.groups,
        )
        bundle = self._bundle_dir(task.id)
        os.makedirs(bundle, mode=0o700, exist_ok=True)
        binds = [*_binds(task, self._chroot_env), *self._dns_binds(task, bundle)]
        cgroup = f"/{cgroups.PARENT}/{task.id}"
        devices = [_device(each, user) for each in task.devices]
        isolation = self._isolation(task, user)
        limits = task_limits(task, self._settings.pids_limit, self._core_mhz, self.cores_of(task))
        config = bundle_config(process, task.task_dir, binds, isolation, limits, cgroup, devices)
        write_private(os.path.join(bundle, "config.json"), to_json(config))
        pid_file, error_file = os.path.join(bundle, "pid"), os.path.join(bundle, "error")
        return TaskSpec(
            id=task.id,
            command=Command(runtime.run_argv(task.id, bundle, pid_file, error_file), ENVIRONMENT),
            stdout=log_files(task.stdout_path, task.logs),
            stderr=log_files(task.stderr_path, task.logs),
            pid_file=pid_file,
            error_file=error_file,
            cgroups=cgroup_directories(cgroup),
        )

    def words(self, task: TaskConfig) -> tuple[str, ...]:
        """The command line inside the container."""
        return (
            inside(options.text(task.config, "command"), task.task_dir),
            *options.texts(task.config, "args"),
        )

    async def command_beside(self, task: TaskConfig, command: Sequence[str], *, tty: bool) -> tuple[Command, bool]:
        """A process inside the container, described by a file so that no secret shows in a command line."""
        runtime = await self._working_runtime()
        user = self._user(task)
        terminal = {"TERM": "xterm"} if tty else {}
        process = Process(
            args=tuple(command),
            env={"PATH": DEFAULT_PATH, **terminal, **task.env},
            cwd=options.text(task.config, "work_dir") or "/",
            uid=user.uid,
            gid=user.gid,
            groups=user.groups,
            terminal=tty,
        )
        self._sessions = (self._sessions + 1) % SESSION_FILES_MAX
        path = os.path.join(self._bundle_dir(task.id), f"session-{self._sessions}")
        write_private(path, to_json(process_config(process, self._isolation(task, user).capabilities)))
        return Command(runtime.exec_argv(task.id, path, tty=tty), {**ENVIRONMENT, **terminal}), False

    async def remove_leftovers(self, task_id: str) -> None:
        """Remove the container, its cgroups and its bundle."""
        await (await self._working_runtime()).delete(task_id)
        shutil.rmtree(self._bundle_dir(task_id), ignore_errors=True)

    async def hold(self, task_id: str, cores: str) -> None:
        """By the runtime, which made the container's cgroups."""
        try:
            await (await self._working_runtime()).pin(task_id, cores)
        except DriverError:
            if (await self._supervisor.inspect(task_id)).exit is None:
                raise

    async def close(self) -> None:
        """Remove the cgroups that hold tasks, where no task is left."""
        for directory in _parent_cgroups():
            with contextlib.suppress(OSError):
                os.rmdir(directory)

    async def _working_runtime(self) -> OciRuntime:
        if self._runtime is None:
            self._runtime, reasons = await self._find_runtime()
            if self._runtime is None:
                raise DriverError("no OCI runtime works here: " + ("; ".join(reasons) or "neither crun nor runc found"))
        return self._runtime

    async def _find_runtime(self) -> tuple[OciRuntime | None, list[str]]:
        reasons = []
        for program in installed():
            runtime = OciRuntime(
                program,
                os.path.join(self._state_dir, f"state-{os.path.basename(program)}"),
                no_pivot_root=self._settings.no_pivot_root,
            )
            directory = os.path.join(self._state_dir, f"trial-{os.getpid()}")
            reason = await runtime.works(directory, f"lepa-{self.name}-trial-{os.getpid()}", self._trial())
            if not reason:
                return runtime, []
            reasons.append(f"{runtime.name} does not work here: {reason}")
        return None, reasons

    def _trial(self) -> dict[str, Any]:
        """A container like a task's, that does nothing."""
        root = os.path.join(self._state_dir, f"trial-{os.getpid()}", "root")
        os.makedirs(root, mode=0o755, exist_ok=True)
        process = Process(args=("/bin/true",), env=ENVIRONMENT, cwd="/", uid=65534, gid=65534)
        isolation = Isolation(capabilities=capabilities_for(65534, (), (), self._settings.allow_caps))
        limits = Limits(memory_bytes=64 * MIB, cpu_shares=100)
        return bundle_config(
            process,
            root,
            _host_binds(self._chroot_env),
            isolation,
            limits,
            f"/{cgroups.PARENT}/{self.name}-{os.getpid()}",
        )

    def _user(self, task: TaskConfig) -> Identity:
        user = find_user(task.user or DEFAULT_USER)
        if reason := denied(user, self._settings.denied_host_uids, self._settings.denied_host_gids):
            raise DriverError(f"user {task.user or DEFAULT_USER!r} is not allowed to run tasks: {reason}")
        return user

    def _isolation(self, task: TaskConfig, user: Identity) -> Isolation:
        config, settings = task.config, self._settings
        return Isolation(
            pid_host=options.text(config, "pid_mode", settings.default_pid_mode) == "host",
            ipc_host=options.text(config, "ipc_mode", settings.default_ipc_mode) == "host",
            network=task.network_namespace,
            hostname=task.hostname,
            cgroup_view=self.cgroup_view,
            capabilities=capabilities_for(
                user.uid,
                options.texts(config, "cap_add"),
                options.texts(config, "cap_drop"),
                settings.allow_caps,
            ),
        )

    def _dns_binds(self, task: TaskConfig, bundle: str) -> list[Bind]:
        text = resolv_conf(task.dns)
        if not text:
            return []
        path = os.path.join(bundle, "resolv.conf")
        with open(path, "w") as file:
            file.write(text)
        return [Bind(path, "/etc/resolv.conf", read_only=True)]

    def _bundle_dir(self, task_id: str) -> str:
        return os.path.join(self._state_dir, "bundles", task_id)


def _binds(task: TaskConfig, host: Mapping[str, str]) -> list[Bind]:
    """The host's programs, the task's directories, and the volumes asked for."""
    own = [
        Bind(source, target)
        for source, target in ((task.alloc_dir, "/alloc"), (task.local_dir, "/local"), (task.secrets_dir, "/secrets"))
        if source
    ]
    volumes = [Bind(each.host_path, each.task_path, each.read_only, each.propagation) for each in task.mounts]
    return [*_host_binds(host), *own, *volumes]


def _device(node: DeviceNode, user: Identity) -> Device:
    """A device of the host as the task's user shall have it. Raises DriverError when there is none."""
    try:
        found = os.stat(node.host_path)
    except OSError as error:
        raise DriverError(f"device {node.host_path}: {error.strerror}") from error
    if not stat.S_ISCHR(found.st_mode) and not stat.S_ISBLK(found.st_mode):
        raise DriverError(f"device {node.host_path} is no device")
    return Device(
        path=node.task_path or node.host_path,
        kind="c" if stat.S_ISCHR(found.st_mode) else "b",
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        access=node.permissions,
        uid=user.uid,
        gid=user.gid,
    )


def _host_binds(wanted: Mapping[str, str]) -> list[Bind]:
    return [
        Bind(os.path.realpath(path), inside, read_only=True) for path, inside in wanted.items() if os.path.exists(path)
    ]


def inside(command: str, task_dir: str) -> str:
    """Where a command is inside the container: a file of the task by its relative name, or one on the PATH."""
    if not os.path.isabs(command):
        for folder in ("local", ""):
            if os.path.isfile(os.path.join(task_dir, folder, command)):
                return os.path.join("/", folder, command)
    return command


def cgroup_directories(cgroup: str) -> tuple[str, ...]:
    """Where the runtime puts a container: the hierarchy to kill by first, then those with figures."""
    wanted = ("cgroup2", "memory", "cpuacct")
    return tuple(mount_point + cgroup for kind, mount_point in cgroups.hierarchies() if kind in wanted)


def _parent_cgroups() -> list[str]:
    """The cgroups that hold all containers, one in each hierarchy."""
    return sorted({os.path.join(mount_point, cgroups.PARENT) for _, mount_point in cgroups.hierarchies()})
