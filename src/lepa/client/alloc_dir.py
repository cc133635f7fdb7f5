"""Directories of an allocation on disk.

    <root>/<alloc id>/alloc/{data,logs,tmp}          shared by the group's tasks
    <root>/<alloc id>/<task>/{local,secrets,tmp,private}

Task directories are open to the task's own user; secrets are closed to everybody else.
"""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from lepa.model.errors import invalid

SHARED = ("data", "logs", "tmp")
OF_TASK = ("local", "secrets", "tmp", "private")
OPEN, CLOSED, LISTED = 0o777, 0o700, 0o755


class TaskDirs(NamedTuple):
    """Paths of one task on the host."""

    root: Path
    local: Path
    secrets: Path
    tmp: Path


class AllocDir:
    """Directories of one allocation below `root`."""

    def __init__(self, root: Path, alloc_id: str) -> None:
        self.path = root / alloc_id
        self.shared = self.path / "alloc"
        self.logs = self.shared / "logs"

    def task(self, name: str) -> TaskDirs:
        """Paths of one task."""
        root = self.path / name
        return TaskDirs(root, root / "local", root / "secrets", root / "tmp")

    def build(self, tasks: list[str]) -> None:
        """Make every directory that is not there yet."""
        _make(self.path, LISTED)
        _make(self.shared, OPEN)
        for name in SHARED:
            _make(self.shared / name, OPEN)
        for task in tasks:
            _make(self.path / task, OPEN)
            for name in OF_TASK:
                _make(self.path / task / name, CLOSED if name in {"secrets", "private"} else OPEN)

    def give_secrets(self, task: str, uid: int, gid: int) -> None:
        """Let the user that the task runs as read its secrets."""
        if os.geteuid() == 0:
            os.chown(self.task(task).secrets, uid, gid)

    def destroy(self) -> None:
        """Remove everything. Nothing outside the allocation is followed or touched."""
        shutil.rmtree(self.path, ignore_errors=True)

    def inside(self, path: str) -> Path:
        """The real path of a file of the allocation; raises for what leads outside, or into a task's secrets."""
        wanted = (self.path / path.lstrip("/")).resolve()
        if wanted != self.path.resolve() and not wanted.is_relative_to(self.path.resolve()):
            raise invalid(f"Path escapes the alloc directory: {path}")
        parts = wanted.relative_to(self.path.resolve()).parts
        if len(parts) > 1 and parts[0] != "alloc" and parts[1] in {"secrets", "private"}:
            raise invalid(f"Reading secret file prohibited: {path}")
        return wanted

    def within_task(self, task: str, relative: str) -> Path:
        """Where a task's own file lies (artifact, template, payload); raises when it would leave the allocation."""
        wanted = Path(os.path.normpath(self.path / task / relative.lstrip("/")))
        if not wanted.resolve().is_relative_to(self.path.resolve()):
            raise invalid(f"destination escapes allocation directory: {relative}")
        return wanted


def _make(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    if path.stat().st_mode & 0o777 != mode:
        path.chmod(mode)
