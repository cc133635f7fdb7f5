"""Starting processes, telling them apart, and finding all that belong together."""

import contextlib
import ctypes
import fcntl
import functools
import os
import resource
import signal
import termios
from typing import NamedTuple, NoReturn

from lepa.drivers.supervisor.messages import NO_CHANGE, Command, Identity

MARK = "LEPA_SUPERVISED"
"""Environment variable that marks a task's processes, for hosts where no cgroup can hold them together."""

TASK_UMASK = 0o022
STAT_BYTES_MAX = 4096
"""52 numbers and a name of at most 64 bytes."""
_SETTABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that Python, we, or whoever started us ignore or catch: a program expects the defaults."""
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

_task_descriptors_max = 0


def raise_descriptor_limit(for_tasks: int) -> None:
    """Let ourselves have as many descriptors as the hard limit allows: two a task are needed.

    for_tasks: the soft limit tasks get, as it was before a predecessor raised it; 0: as it is now.
    """
    global _task_descriptors_max
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _task_descriptors_max = for_tasks or soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def task_descriptor_limit() -> int:
    """The soft limit of descriptors that tasks get."""
    return _task_descriptors_max


class Child(NamedTuple):
    """A process about to become a command. status_fd reads empty when it did, else the reason why it could not; -1: it
    is the command already."""

    pid: int
    status_fd: int


class Home:
    """Where the supervisor stands, kept open: it leaves for each start, so that a child is from its first moment where
    its command shall be, and comes back.

    root: what holds the tasks' cgroups. cgroup: our own in that hierarchy, "" when we cannot leave it and come back.
    """

    def __init__(self, root: str, cgroup: str) -> None:
        self._root = root
        self._cgroup = os.open(os.path.join(cgroup, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC) if cgroup else -1
        self._directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._umask = os.umask(TASK_UMASK)
        os.umask(self._umask)
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)

    def can_leave_for(self, cgroups: tuple[str, ...]) -> bool:
        """Whether we find back from these cgroups."""
        return not cgroups or (self._cgroup >= 0 and all(each.startswith(self._root + "/") for each in cgroups))

    def leave_for(self, command: Command, cgroups: tuple[str, ...]) -> None:
        """Stand where a command shall run. Raises OSError; `come_back` all the same."""
        for directory in cgroups:
            _write(os.path.join(directory, "cgroup.procs"), "0")
        os.chdir(command.cwd)
        os.umask(TASK_UMASK)
        _lower_descriptor_limit(self._descriptors[1])

    def come_back(self, cgroups: tuple[str, ...]) -> None:
        """Stand here again, in all of it that can be had. Raises OSError for what cannot."""
        os.umask(self._umask)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._descriptors)
        finally:
            try:
                os.fchdir(self._directory)
            finally:
                if cgroups:
                    os.write(self._cgroup, b"0")

    def close(self) -> None:
        """Let go of it."""
        for fd in {self._cgroup, self._directory} - {-1}:
            os.close(fd)


def spawn(
    command: Command, stdio: tuple[int, int, int], cgroups: tuple[str, ...], home: Home, *, terminal: bool = False
) -> Child:
    """Start a process in a session of its own that joins `cgroups` and becomes `command`.

    stdio: its three streams. terminal: the first of them is the terminal that shall control its session.

    posix_spawn(3) copies no page tables and runs no Python in the child: a quarter of the CPU time that a fork takes.
    It can do all that most commands need, when we stand where the child shall stand meanwhile. Whatever it cannot do,
    or fails to do, is done by a fork, which can tell the step that failed.
    """
    if not terminal and home.can_leave_for(cgroups) and _is_plain(command):
        with contextlib.suppress(OSError):
            return Child(_spawn_plain(command, stdio, cgroups, home), -1)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(command, stdio, cgroups, terminal, writer)
    os.close(writer)
    os.set_blocking(reader, False)
    return Child(pid, reader)


def _is_plain(command: Command) -> bool:
    return command.identity == Identity() and not command.network and command.oom_score_adj == _own_oom_score()


@functools.cache
def _own_oom_score() -> int:
    with open("/proc/self/oom_score_adj") as file:
        return int(file.read())


def _spawn_plain(command: Command, stdio: tuple[int, int, int], cgroups: tuple[str, ...], home: Home) -> int:
    """The process, which runs its command. Raises OSError when it does not, or we did not get back to where we were;
    then there is none."""
    pid = 0
    try:
        try:
            home.leave_for(command, cgroups)
            pid = _posix_spawn(command, stdio)
        finally:
            home.come_back(cgroups)
    except OSError:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    return pid


def _posix_spawn(command: Command, stdio: tuple[int, int, int]) -> int:
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(stdio)]
    return os.posix_spawn(
        command.argv[0],
        command.argv,
        command.env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_SETTABLE,
    )


def _become(
    command: Command, stdio: tuple[int, int, int], cgroups: tuple[str, ...], terminal: bool, status_fd: int
) -> NoReturn:
    step = "start a session"
    try:
        os.setsid()
        for directory in cgroups:
            step = f"join cgroup {directory}"
            _write(os.path.join(directory, "cgroup.procs"), "0")
        if command.network:
            step = f"enter network namespace {command.network}"
            _enter_network(command.network)
        step = "set oom_score_adj"
        _set_oom_score(command.oom_score_adj)
        step = "connect its streams"
        for target, source in enumerate(stdio):
            os.dup2(source, target, inheritable=True)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _reset_signals()
        _lower_descriptor_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        os.umask(TASK_UMASK)
        step = f"enter directory {command.cwd}"
        os.chdir(command.cwd)
        step = "change user"
        _take_identity(command)
        step = f"run {command.argv[0]}"
        os.execve(command.argv[0], command.argv, command.env)
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(status_fd, f"cannot {step}: {reason}".encode()[:4000])
    finally:
        os._exit(127)


def _enter_network(path: str) -> None:
    """setns(2) by hand: os.setns came with Python 3.12."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(fd)


def _set_oom_score(score: int) -> None:
    """Every task starts from its own score, not from the supervisor's. A lower one may be refused to us: go on then."""
    with contextlib.suppress(PermissionError):
        _write("/proc/self/oom_score_adj", str(score))


def _reset_signals() -> None:
    """Undo what was ignored or caught."""
    for number in _SETTABLE:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _lower_descriptor_limit(hard: int) -> None:
    if _task_descriptors_max:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_task_descriptors_max, hard))


def _take_identity(command: Command) -> None:
    uid, gid, groups = command.identity
    if gid != NO_CHANGE:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
    if uid != NO_CHANGE:
        os.setresuid(uid, uid, uid)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def born(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid, its identity. 0 when it is dead or a zombie."""
    stat = _stat(pid)
    return 0 if stat is None or stat[0] in ("Z", "X") else int(stat[19])


def family(leader: int, mark: str) -> set[int]:
    """All live processes of a task: the session of `leader` (0: none), those with `mark`, and their descendants."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    marked = f"{MARK}={mark}".encode()
    for pid in _all_pids():
        stat = _stat(pid)
        if stat is None or stat[0] in ("Z", "X"):
            continue
        parents[pid] = int(stat[1])
        if (leader and leader in (pid, int(stat[3]))) or marked in _environment(pid):
            members.add(pid)
    return members | {pid for pid in parents if _descends(pid, members, parents)}


def _descends(pid: int, members: set[int], parents: dict[int, int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        if pid in members:
            return True
        seen.add(pid)
        pid = parents[pid]
    return False


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on (field 3); the name before may hold anything."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, STAT_BYTES_MAX).rpartition(b")")[2].decode().split()
    except OSError:
        return None
    finally:
        os.close(fd)


def _environment(pid: int) -> list[bytes]:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return file.read(1024 * 1024).split(b"\0")
    return []
