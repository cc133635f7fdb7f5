"""Plain processes of the host, without isolation: `raw_exec`.

They run as the agent's user unless the task names one, in a cgroup of their own where the host has cgroups (so that all
of a task's processes can be found and ended), with no limits.
"""

import fnmatch
import os
import shutil
from collections.abc import Sequence
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.protocol import Capabilities, DriverError, TaskConfig
from lepa.drivers.supervised import (
    DEFAULT_PATH,
    SupervisedDriver,
    find_user,
    log_files,
    own_identity,
    without_no_change,
)
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, Identity, TaskSpec
from lepa.drivers.user_ids import denied
from lepa.kit.sources import Clock
from lepa.model.node import DriverInfo

OPTIONS = options.Options(
    "raw_exec",
    {
        "command": "text",
        "args": "texts",
        "work_dir": "text",
        "oom_score_adj": "number",
        "cgroup_v2_override": "text",
        "cgroup_v1_override": "map",
        "denied_envvars": "texts",
    },
    required=("command",),
)


class RawExecSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "raw_exec"` block.

    enabled: off by default, because such tasks may do whatever the agent may. denied_host_uids, denied_host_gids:
    "0,100-200". denied_envvars: names with wildcards that tasks do not get.
    """

    enabled: bool = False
    denied_host_uids: str = ""
    denied_host_gids: str = ""
    denied_envvars: tuple[str, ...] = ()


class RawExec(SupervisedDriver):
    """Driver "raw_exec"."""

    name = "raw_exec"
    capabilities = Capabilities(isolation="none")

    def __init__(self, supervisor: Supervisor, clock: Clock, settings: RawExecSettings) -> None:
        super().__init__(supervisor, clock)
        self._settings = settings

    async def fingerprint(self) -> DriverInfo:
        """Always there when the operator enabled it."""
        if not self._settings.enabled:
            return DriverInfo(health_description="raw_exec is disabled; enable it in the plugin block of the agent")
        return DriverInfo(
            attributes={"driver.raw_exec": "1"}, detected=True, healthy=True, health_description="Healthy"
        )

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        found = OPTIONS.problems(config)
        if config.get("cgroup_v2_override") and config.get("cgroup_v1_override"):
            found.append("only one of cgroup_v2_override and cgroup_v1_override may be set")
        work_dir = config.get("work_dir")
        if isinstance(work_dir, str) and work_dir and not work_dir.startswith("/"):
            found.append(f"work_dir must be an absolute path, found {work_dir!r}")
        return found

    async def prepare(self, task: TaskConfig) -> TaskSpec:
        """The process to start."""
        if not self._settings.enabled:
            raise DriverError("raw_exec is disabled on this node")
        words = (options.text(task.config, "command"), *options.texts(task.config, "args"))
        return TaskSpec(
            id=task.id,
            command=self._command(task, words),
            stdout=log_files(task.stdout_path, task.logs),
            stderr=log_files(task.stderr_path, task.logs),
            join_cgroups=_override(task.config),
            cores=self.cores_of(task),
        )

    async def command_beside(self, task: TaskConfig, command: Sequence[str], *, tty: bool) -> tuple[Command, bool]:
        """The same user, directory and environment as the task's."""
        beside = self._command(task, tuple(command))
        if tty:
            beside = beside._replace(env={"TERM": "xterm", **beside.env})
        return beside, True

    async def remove_leftovers(self, task_id: str) -> None:
        """Nothing is left: the task's files are the allocation's."""

    async def close(self) -> None:
        """Nothing of its own to let go of."""

    def _command(self, task: TaskConfig, words: tuple[str, ...]) -> Command:
        identity = find_user(task.user) if task.user else own_identity()
        if reason := denied(identity, self._settings.denied_host_uids, self._settings.denied_host_gids):
            raise DriverError(f"user {task.user or 'of the agent'!r} is not allowed to run tasks: {reason}")
        patterns = (*self._settings.denied_envvars, *options.texts(task.config, "denied_envvars"))
        denied_names = {name for pattern in patterns for name in task.env if fnmatch.fnmatchcase(name, pattern)}
        env = {name: value for name, value in task.env.items() if name not in denied_names}
        program = find_program(words[0], task.task_dir, env.get("PATH", DEFAULT_PATH))
        argv, taken = (program, *words[1:]), without_no_change(identity)
        if task.network_namespace:
            argv, taken = (*_entering(task.network_namespace, taken), *argv), Identity()
        return Command(
            argv=argv,
            env=env,
            cwd=options.text(task.config, "work_dir") or task.task_dir or "/",
            identity=taken,
            oom_score_adj=options.number(task.config, "oom_score_adj"),
            network=task.network_namespace,
        )


def _entering(namespace: str, identity: Identity) -> tuple[str, ...]:
    """The command that enters a group's network namespace, which needs root, and only then becomes the task's user."""
    program = shutil.which("nsenter", path=DEFAULT_PATH)
    if program is None:
        raise DriverError("a task in a network namespace needs nsenter (util-linux), which was not found")
    if identity == Identity():
        return program, f"--net={namespace}", "--"
    groups = ",".join(str(group) for group in identity.groups)
    setpriv = shutil.which("setpriv", path=DEFAULT_PATH)
    if setpriv is None:
        raise DriverError("a task with a user of its own in a network namespace needs setpriv (util-linux)")
    chosen = ("--groups", groups) if groups else ("--clear-groups",)
    ids = (f"--reuid={identity.uid}", f"--regid={identity.gid}")
    return program, f"--net={namespace}", "--", setpriv, *ids, *chosen, "--"


def find_program(name: str, task_dir: str, path: str) -> str:
    """Where a command is: in the task's `local` or its own directory, else on the PATH. Raises DriverError."""
    if os.path.isabs(name):
        return name
    if task_dir:
        for folder in (os.path.join(task_dir, "local"), task_dir):
            candidate = os.path.join(folder, name)
            if os.path.isfile(candidate):
                return candidate
    found = shutil.which(name, path=path) if "/" not in name else None
    if found is None:
        raise DriverError(f"command {name!r} was not found in the task directory or on the PATH ({path})")
    return os.path.abspath(found)


def _override(config: dict[str, Any]) -> tuple[str, ...]:
    """The cgroups a task wants to join instead of one of its own."""
    unified = options.text(config, "cgroup_v2_override")
    if unified:
        root = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
        return (_below(root, unified),)
    return tuple(
        _below(f"/sys/fs/cgroup/{controller}", path)
        for controller, path in options.mapping(config, "cgroup_v1_override").items()
    )


def _below(root: str, path: str) -> str:
    directory = os.path.normpath(path if path.startswith(root + "/") else os.path.join(root, path.lstrip("/")))
    if not directory.startswith(root + "/"):
        raise DriverError(f"cgroup {path!r} is not below {root}")
    return directory
