"""Which cores a task's processes run on, as a cgroup with the cpuset controller holds them to it.

Under v2 that is the task's own cgroup; under v1 one of the same name in the cpuset hierarchy. A process cannot leave it
by sched_setaffinity(2), and what it starts later is in it too, so that cores can be taken and given while a task runs.
"""

import contextlib
import os
from collections.abc import Callable, Iterable

from lepa.drivers.supervisor import cgroups

MOVES_MAX = 100
"""How often a task's processes are looked through for ones that were started while others were moved."""


def cpuset_root(tracking: str) -> str:
    """The directory below which tasks' cores are set; "" where no cgroup can. tracking: of `cgroups.tracking_root`."""
    for kind, mount_point in cgroups.hierarchies() if tracking else ():
        root = os.path.join(mount_point, cgroups.PARENT)
        if kind == "cpuset" or (root == tracking and "cpuset" in _read(mount_point, "cgroup.controllers").split()):
            return root
    return ""


def hold(directory: str, cores: str, members: Callable[[], Iterable[int]]) -> None:
    """Let the processes in a cgroup below `cpuset_root`, and `members`, run on `cores` only: "0,2". Raises OSError."""
    parent = os.path.dirname(directory)
    if os.path.exists(os.path.join(parent, "cgroup.subtree_control")):
        for above in (os.path.dirname(parent), parent):
            _write(above, "cgroup.subtree_control", "+cpuset")
    else:
        os.makedirs(directory, exist_ok=True)
        _take_from_above(parent, "cpuset.cpus")
        for folder in (parent, directory):
            _take_from_above(folder, "cpuset.mems")
    _write(directory, "cpuset.cpus", cores)
    for _ in range(MOVES_MAX):
        outside = set(members()) - set(cgroups.pids(directory))
        if not outside:
            return
        for pid in outside:
            with contextlib.suppress(ProcessLookupError):
                _write(directory, "cgroup.procs", str(pid))


def _take_from_above(directory: str, name: str) -> None:
    """v1 lets nothing run where nobody has said on which cores and with which memory."""
    if not _read(directory, name).strip():
        _write(directory, name, _read(os.path.dirname(directory), name))


def _read(directory: str, name: str) -> str:
    with open(os.path.join(directory, name)) as file:
        return file.read()


def _write(directory: str, name: str, text: str) -> None:
    with open(os.path.join(directory, name), "w") as file:
        file.write(text)
