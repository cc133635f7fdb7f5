"""Control groups as a way to know and end all processes of a task, whatever they forked; no limits are set here."""

import contextlib
import os
import signal

PARENT = "lepa"
"""The cgroup below the hierarchy's root (or our own cgroup, where that is all we may write) that holds tasks."""


def tracking_root() -> str:
    """The directory in which a task's tracking cgroup is made; "" where none may be made.

    The v2 hierarchy is preferred, because cgroup.kill ends a whole tree at once; then v1's freezer.
    """
    for kind, mount_point in hierarchies():
        root = os.path.join(mount_point, PARENT)
        if kind in ("cgroup2", "freezer") and _can_make(root):
            return root
    return ""


def home(tracking: str) -> str:
    """Our own cgroup in the hierarchy of `tracking_root`; "" where we cannot leave it and come back."""
    for kind, mount_point in hierarchies():
        if tracking != os.path.join(mount_point, PARENT):
            continue
        own = os.path.join(mount_point, _own_path(kind).lstrip("/"))
        return own if _can_go_there_and_back(os.path.join(tracking, f"trial-{os.getpid()}"), own) else ""
    return ""


def _can_go_there_and_back(there: str, own: str) -> bool:
    """`there` is a cgroup like a task's: under v2 nobody may be in one that has others with controllers below it."""
    make(there)
    try:
        for place in (there, own):
            with open(os.path.join(place, "cgroup.procs"), "w") as file:
                file.write("0")
    except OSError:
        return False
    finally:
        remove(there)
    return True


def _own_path(kind: str) -> str:
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if kind in controllers.split(",") or (kind == "cgroup2" and not controllers):
                return path
    return "/"


def hierarchies() -> list[tuple[str, str]]:
    """("cgroup2" or the v1 controller, mount point) of each mounted hierarchy, v2 first."""
    found: list[tuple[str, str]] = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _, options = right.split()[:3]
            mount_point = left.split()[4]
            if kind == "cgroup2":
                found.insert(0, (kind, mount_point))
            elif kind == "cgroup":
                found.extend((option, mount_point) for option in options.split(","))
    return found


def make(directory: str) -> bool:
    """Make a cgroup; False where it cannot be made."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError:
        return False
    return True


def pids(directory: str) -> list[int]:
    """Live processes in a cgroup and those below it."""
    found: list[int] = []
    for folder, _, files in os.walk(directory):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as file:
                found.extend(int(line) for line in file)
    return found


def kill(directory: str) -> bool:
    """Send SIGKILL to everything in a cgroup; True when nothing was left in it already."""
    with contextlib.suppress(OSError):
        with open(os.path.join(directory, "cgroup.kill"), "w") as file:
            file.write("1")
        return not pids(directory)
    members = pids(directory)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not members


def remove(directory: str) -> bool:
    """Remove an empty cgroup with those below it; False while something is in it."""
    try:
        for folder, _, _ in os.walk(directory, topdown=False):
            os.rmdir(folder)
    except OSError:
        return not os.path.exists(directory)
    return True


def oom_killed(directories: tuple[str, ...]) -> bool:
    """Whether the kernel killed a process of these cgroups for lack of memory."""
    return any(_oom_kills(os.path.join(directory, name)) for directory in directories for name in _OOM_FILES)


_OOM_FILES = ("memory.events", "memory.oom_control")


def _oom_kills(path: str) -> int:
    with contextlib.suppress(OSError, ValueError), open(path) as file:
        for line in file:
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def _can_make(root: str) -> bool:
    """Whether a cgroup below `root` can be made: tried, because permissions and read-only mounts differ."""
    trial = os.path.join(root, f"trial-{os.getpid()}")
    if not make(trial):
        return False
    return remove(trial)
