"""A task's secrets directory in memory: nothing of it reaches the disk.

Where the agent may not mount (not root, or root without the right to) the directory stays an ordinary one, closed to
everybody else. What is mounted is found in the kernel's own list, so that an agent that was killed leaves nothing that
its successor could not take away.
"""

import ctypes
import os
from pathlib import Path

FLAGS = 0x2 | 0x4 | 0x8 | 0x400  # nosuid, nodev, noexec, noatime
DETACH = 0x2
SIZE_MB = 1

_libc = ctypes.CDLL(None, use_errno=True)


def mount(directory: Path, size_mb: int = SIZE_MB) -> bool:
    """Mount a file system in memory on `directory`; False where that is not allowed."""
    if os.geteuid() != 0:
        return False
    options = f"size={size_mb}m,mode=0700".encode()
    return bool(_libc.mount(b"lepa-secrets", os.fsencode(directory), b"tmpfs", FLAGS, options) == 0)


def mounted_below(directory: Path) -> list[Path]:
    """Every mount point below `directory`, the deepest first; not itself, which may be a disk of the operator's."""
    root = directory.resolve()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        points = [Path(_plain(line.split()[4])) for line in lines]
    return sorted((point for point in points if point != root and point.is_relative_to(root)), reverse=True)


def _plain(field: str) -> str:
    """The kernel writes blanks and backslashes of a path as octal numbers."""
    for code, sign in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(code, sign)
    return field


def unmount_below(directory: Path) -> None:
    """Take every mount below `directory` away; one in use vanishes when its last user is gone."""
    for point in mounted_below(directory):
        _libc.umount2(os.fsencode(point), DETACH)
