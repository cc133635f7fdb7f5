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
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += family_of(int(child))
    return found


def cores_of(pid: int) -> list[set[int]]:
    """Where each thread of a process and of all that descend from it may run."""
    found = []
    for each in family_of(pid):
        with contextlib.suppress(OSError):
            found += [os.sched_getaffinity(int(thread.name)) for thread in Path(f"/proc/{each}/task").iterdir()]
    return found
