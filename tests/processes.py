"""What runs on this machine, seen in /proc, where a process may end while it is looked at."""

import contextlib
import os
from pathlib import Path


def command_of(pid: int) -> str:
    """The command line of a process; "" once it has ended, waited for or not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def family_of(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for thread in _threads(pid):
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                found += family_of(int(child))
    return found


def cores_of(pid: int) -> list[set[int]]:
    """Where each thread of a process and of all that descend from it may run."""
    found = []
    for each in family_of(pid):
        for thread in _threads(each):
            with contextlib.suppress(OSError):
                found.append(os.sched_getaffinity(thread))
    return found


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []
