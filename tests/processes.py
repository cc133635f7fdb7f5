"""What runs on this machine, seen in /proc, where a process may end while it is looked at."""

import contextlib
from pathlib import Path


def command_of(pid: int) -> str:
    """The command line of a process; "" once it has ended, waited for or not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
