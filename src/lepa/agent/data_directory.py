"""The data directory: one agent at a time, and nothing of anybody else's."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lepa.model.errors import conflict, invalid

LOCK = "agent.lock"
"""The first thing an agent puts into its directory: one with other things and without it is not ours."""
ALWAYS_THERE = "lost+found"
STOPPING_S = 3.0
LOOK_AGAIN_S = 0.05


@contextlib.contextmanager
def owned_directory(path: Path, wait_s: float = STOPPING_S) -> Iterator[Path]:
    """The data directory, held by this process alone. Raises LepaError when another agent has it or it is not ours."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        strange = sorted(entry.name for entry in path.iterdir() if entry.name != ALWAYS_THERE)
        if strange and LOCK not in strange:
            raise invalid(
                f"data_dir {path} holds {', '.join(strange[:3])}, which no agent of lepa put there; "
                "choose an empty directory"
            )
        lock = open(path / LOCK, "a+")  # noqa: SIM115
    except OSError as error:
        raise invalid(f"cannot use data_dir {path}: {error.strerror or error}") from error
    with lock:
        _take(lock, path, wait_s)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield path


def _take(lock: IO[str], path: Path, wait_s: float) -> None:
    """Lock the file. An agent that is just stopping gets `wait_s` seconds to end."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                lock.seek(0)
                pid = lock.read().strip() or "unknown"
                raise conflict(f"another agent (pid {pid}) uses data_dir {path}; stop it first") from error
        time.sleep(LOOK_AGAIN_S)
