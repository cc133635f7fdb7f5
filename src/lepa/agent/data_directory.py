"""The data directory: one agent at a time, and nothing of anybody else's."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lepa.model.errors import conflict, invalid

LOCK = "agent.lock"
"""The first thing an agent puts into its directory: one with other things and without it is not ours."""
ALWAYS_THERE = "lost+found"


@contextlib.contextmanager
def owned_directory(path: Path) -> Iterator[Path]:
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
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            pid = lock.read().strip()
            raise conflict(f"another agent (pid {pid or 'unknown'}) uses data_dir {path}; stop it first") from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield path
