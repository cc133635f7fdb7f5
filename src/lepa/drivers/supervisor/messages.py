"""Pure: what the agent tells the supervisor, and what it hears back."""

from typing import Any, NamedTuple

PROGRAM = ("-P", "-m", "lepa.drivers.supervisor")
"""What a Python runs to be the supervisor. -P: modules come from the installation, never from the working directory."""

CONSOLE = "{console}"
"""An argument of a command beside a task that stands for a socket on which its launcher hands over a terminal."""

NO_CHANGE = -1
"""A uid or gid that means: as the supervisor."""


class LogFiles(NamedTuple):
    """One output stream on disk: `<path>.N`, at most `files_max` files of `bytes_max` bytes."""

    path: str
    files_max: int = 10
    bytes_max: int = 10 * 1024 * 1024


class Identity(NamedTuple):
    """Whom a process runs as."""

    uid: int = NO_CHANGE
    gid: int = NO_CHANGE
    groups: tuple[int, ...] = ()


class Command(NamedTuple):
    """A program to run: argv[0] is an absolute path. network: path of a network namespace, "" for the supervisor's."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str = "/"
    identity: Identity = Identity()
    oom_score_adj: int = 0
    network: str = ""


class TaskSpec(NamedTuple):
    """A task to start and keep.

    stdout, stderr: None discards the stream. join_cgroups: directories of existing cgroups to join instead of one of
    the task's own. cores: "0,2" to hold it to these in its own cgroup, "" for all. pid_file: when set, `command` is a
    launcher (an OCI runtime) that ends, and this file then names the task's first process; error_file holds what the
    launcher complained about; cgroups are those it makes.
    """

    id: str
    command: Command
    stdout: LogFiles | None = None
    stderr: LogFiles | None = None
    join_cgroups: tuple[str, ...] = ()
    cores: str = ""
    pid_file: str = ""
    error_file: str = ""
    cgroups: tuple[str, ...] = ()


class Exit(NamedTuple):
    """How a task ended. code is 128+signal for a death by signal; error: the code is not known, and why."""

    code: int = 0
    signal: int = 0
    oom_killed: bool = False
    error: str = ""
    finished_at: int = 0


class TaskInfo(NamedTuple):
    """A task the supervisor knows. cgroups: directories that hold its processes. exit: None while it runs."""

    id: str
    pid: int
    started_at: int
    cgroups: tuple[str, ...] = ()
    exit: Exit | None = None


def to_json(value: Any) -> Any:
    """A message as JSON values: tuples with names become objects."""
    if hasattr(value, "_fields"):
        return {name: to_json(item) for name, item in zip(value._fields, value, strict=True)}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def task_spec(raw: dict[str, Any]) -> TaskSpec:
    """The inverse of `to_json` for a TaskSpec. Raises KeyError, TypeError or ValueError for anything else."""
    return TaskSpec(
        id=str(raw["id"]),
        command=command(raw["command"]),
        stdout=log_files(raw.get("stdout")),
        stderr=log_files(raw.get("stderr")),
        join_cgroups=tuple(raw.get("join_cgroups", ())),
        cores=str(raw.get("cores", "")),
        pid_file=raw.get("pid_file", ""),
        error_file=raw.get("error_file", ""),
        cgroups=tuple(raw.get("cgroups", ())),
    )


def command(raw: dict[str, Any]) -> Command:
    """The inverse of `to_json` for a Command."""
    argv = tuple(str(part) for part in raw["argv"])
    if not argv or not argv[0].startswith("/"):
        raise ValueError("argv must begin with an absolute path")
    if any("\0" in part for part in argv):
        raise ValueError("an argument holds a NUL character")
    identity = raw.get("identity") or {}
    return Command(
        argv=argv,
        env={str(name): str(value) for name, value in raw.get("env", {}).items()},
        cwd=raw.get("cwd") or "/",
        identity=Identity(
            int(identity.get("uid", NO_CHANGE)), int(identity.get("gid", NO_CHANGE)), tuple(identity.get("groups", ()))
        ),
        oom_score_adj=int(raw.get("oom_score_adj", 0)),
        network=str(raw.get("network", "")),
    )


def log_files(raw: dict[str, Any] | None) -> LogFiles | None:
    """The inverse of `to_json` for LogFiles."""
    return None if raw is None else LogFiles(str(raw["path"]), int(raw["files_max"]), int(raw["bytes_max"]))


def exit_from(raw: dict[str, Any] | None) -> Exit | None:
    """The inverse of `to_json` for an Exit."""
    return None if raw is None else Exit(**raw)


def task_info(raw: dict[str, Any]) -> TaskInfo:
    """The inverse of `to_json` for a TaskInfo."""
    return TaskInfo(raw["id"], raw["pid"], raw["started_at"], tuple(raw["cgroups"]), exit_from(raw.get("exit")))
