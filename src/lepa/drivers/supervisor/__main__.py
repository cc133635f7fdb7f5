"""`python -m lepa.drivers.supervisor --state DIR [--socket PATH]`: detach and supervise.

The command returns once the socket can be connected to. One supervisor serves a state directory; a second one says so
and ends with exit code 3. SIGTERM ends it and leaves the tasks running.
"""

import contextlib
import fcntl
import gc
import json
import os
import signal
import socket
import sys
from typing import Any

from lepa.drivers.supervisor import processes
from lepa.drivers.supervisor.server import Server

ANOTHER_RUNS = 3
_NOT_FOR_US = (signal.SIGHUP, signal.SIGINT)


def main(arguments: list[str]) -> int:
    """Start afresh, or go on with what `--handover FD` names."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if "--state" not in options or not set(options) <= {"--state", "--socket", "--handover"}:
        print("usage: python -m lepa.drivers.supervisor --state DIR [--socket PATH]", file=sys.stderr)
        return 2
    directory = os.path.abspath(options["--state"])
    path = os.path.abspath(options.get("--socket") or os.path.join(directory, "supervisor.sock"))
    if "--handover" in options:
        handover = _read_handover(int(options["--handover"]))
        listener = socket.socket(fileno=handover["listener"])
        lock = handover["lock"]
    else:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        lock = _lock(directory)
        if lock < 0:
            print(f"another supervisor serves {directory}", file=sys.stderr)
            return ANOTHER_RUNS
        listener = _listen(path)
        handover = {}
        if os.fork():
            os._exit(0)
        _detach(directory, keep={lock, listener.fileno()})
    return _supervise(directory, path, listener, lock, handover)


def _supervise(directory: str, path: str, listener: socket.socket, lock: int, handover: dict[str, Any]) -> int:
    os.chdir(directory)
    processes.raise_descriptor_limit(handover.get("descriptor_limit", 0))
    server = Server(directory, listener)
    signal.signal(signal.SIGTERM, lambda number, frame: server.leave())
    for number in _NOT_FOR_US:
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    gc.freeze()
    server.run(handover.get("descriptors", {}), handover.get("deadlines", {}))
    if server.replace_with:
        _replace(server, directory, path, listener, lock)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    server.close()
    return 0


def _replace(server: Server, directory: str, path: str, listener: socket.socket, lock: int) -> None:
    """Become another program that goes on where we are: same process, hence same children; same pipes, same socket."""
    server.hang_up()
    handover = {**server.handover(), "listener": listener.fileno(), "lock": lock}
    handover["descriptor_limit"] = processes.task_descriptor_limit()
    memory = os.memfd_create("handover", 0)
    os.write(memory, json.dumps(handover).encode())
    os.lseek(memory, 0, os.SEEK_SET)
    for fd in _descriptors(handover):
        os.set_inheritable(fd, True)
    argv = [*server.replace_with, "--state", directory, "--socket", path, "--handover", str(memory)]
    _ignore_signals()
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        print(f"could not be replaced program={argv[0]} reason={error}", file=sys.stderr)


def _read_handover(memory: int) -> dict[str, Any]:
    handover: dict[str, Any] = json.loads(os.read(memory, os.fstat(memory).st_size))
    os.close(memory)
    for fd in _descriptors(handover):
        os.set_inheritable(fd, False)
    return handover


def _descriptors(handover: dict[str, Any]) -> list[int]:
    pipes = [fd for streams in handover["descriptors"].values() for fd in streams.values()]
    return [handover["listener"], handover["lock"], *pipes]


def _lock(directory: str) -> int:
    """The descriptor that says this directory is ours while it is open; -1 when it is another's."""
    fd = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd


def _listen(path: str) -> socket.socket:
    """A socket for our user alone. It is bound by its bare name: a whole path may be too long for an address."""
    directory, name = os.path.split(path)
    os.chdir(directory)
    if os.path.lexists(name):
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(name)
    finally:
        os.umask(mask)
    listener.listen(16)
    return listener


def _ignore_signals() -> None:
    """Until `_supervise` catches them."""
    for number in _NOT_FOR_US:
        signal.signal(number, signal.SIG_IGN)


def _detach(directory: str, keep: set[int]) -> None:
    """A session of our own, no terminal, a small log of our own, and nothing open that was the starter's."""
    os.setsid()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    _ignore_signals()
    log_path = os.path.join(directory, "supervisor.log")
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target, inheritable=True)
    os.close(null)
    os.close(log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
