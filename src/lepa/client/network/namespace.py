"""Network namespaces that have a name: a file that the kernel's namespace is mounted on.

A namespace lives as long as something holds it: a process, or the mount. So it outlives the agent, and a later agent
finds it by its path. Making one needs a thread of its own, because a namespace is entered by the thread that makes it.
"""

import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from lepa.model.errors import LepaError

NEW_NETWORK = 0x40000000
BIND, DETACH = 0x1000, 0x2
NSFS_MAGIC = 0x6E736673
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1
MAKE_S = 10.0
OWNER = 0o700

_libc = ctypes.CDLL(None, use_errno=True)


def make(path: Path) -> None:
    """Make a namespace with its loopback interface up, known by `path`. Raises LepaError(internal)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(OWNER)
    path.touch(mode=0o400)
    try:
        _in_thread(lambda: _make_here(path))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise LepaError("internal", f"cannot make a network namespace: {error.strerror or error}") from error


def _make_here(path: Path) -> None:
    if _libc.unshare(NEW_NETWORK) != 0:
        raise _error("unshare")
    _bring_up("lo")
    if _libc.mount(b"/proc/thread-self/ns/net", os.fsencode(path), None, BIND, None) != 0:
        raise _error("mount")


def _bring_up(interface: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("16sH14x", interface.encode(), 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(asking, GET_FLAGS, request))[1]
        fcntl.ioctl(asking, SET_FLAGS, struct.pack("16sH14x", interface.encode(), flags | UP))


def run_inside(path: Path, action: Callable[[], None]) -> None:
    """Do something that must not wait for long in a namespace. Raises OSError."""

    def enter_and_act() -> None:
        with path.open("rb") as there:
            if _libc.setns(there.fileno(), NEW_NETWORK) != 0:
                raise _error("setns")
        action()

    _in_thread(enter_and_act)


def _in_thread(action: Callable[[], None]) -> None:
    """Run in a thread that ends with it: it never leaves the namespace that it has entered."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded, name="client-netns", daemon=True)
    thread.start()
    thread.join(MAKE_S)
    if thread.is_alive():
        raise OSError(f"not done within {MAKE_S:g} s")
    if failures:
        raise failures[0]


def exists(path: Path) -> bool:
    """Whether a namespace is mounted there; after a restart of the host only the file is left."""
    buffer = ctypes.create_string_buffer(256)
    if _libc.statfs(os.fsencode(path), buffer) != 0:
        return False
    return int.from_bytes(buffer.raw[:8], "little") == NSFS_MAGIC


def remove(path: Path) -> None:
    """Take the name away; the namespace ends with its last process."""
    while exists(path):
        if _libc.umount2(os.fsencode(path), DETACH) != 0:
            raise _error("umount")
    path.unlink(missing_ok=True)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{os.strerror(number)} ({call})")
