"""Directories of an allocation on disk.

    <root>/<alloc id>/alloc/{data,logs,tmp}          shared by the group's tasks
    <root>/<alloc id>/<task>/{local,secrets,tmp,private}

Task directories are open to the task's own user, but their sticky bit keeps it from putting something else in the
place of the directories in them. `secrets` is in memory where that is possible, and closed to other users of the host;
a task in a container may run as any user, and reaches its own through a mount. `private` is the agent's alone. The
allocation's directory cannot be listed, only entered by those who know its id.
"""

import contextlib
import os
import pwd
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lepa.client import confined, secrets_mount
from lepa.client.confined import Owner
from lepa.model.errors import LepaError, invalid

SHARED = ("data", "logs", "tmp")
OF_TASK = ("local", "secrets", "tmp", "private")
OPEN, STICKY, CLOSED, ENTERED = 0o777, 0o1777, 0o700, 0o711
MODES = {"secrets": CLOSED, "private": CLOSED, "logs": STICKY}
"""Of directories that are not simply open."""
KEPT = ("local",)
"""Of a task, with alloc/data, what a sticky disk hands on to the next allocation."""


class TaskDirs(NamedTuple):
    """Paths of one task on the host."""

    root: Path
    local: Path
    secrets: Path
    tmp: Path
    private: Path


class AllocDir:
    """Directories of one allocation below `root`."""

    def __init__(self, root: Path, alloc_id: str) -> None:
        self.path = root / alloc_id
        self.shared = self.path / "alloc"
        self.logs = self.shared / "logs"
        self._tasks: dict[str, TaskDirs] = {}

    def task(self, name: str) -> TaskDirs:
        """Paths of one task."""
        if (known := self._tasks.get(name)) is not None:
            return known
        root = self.path / name
        self._tasks[name] = TaskDirs(root, root / "local", root / "secrets", root / "tmp", root / "private")
        return self._tasks[name]

    def build(self, tasks: Iterable[str]) -> None:
        """Make every directory that is not there yet, and mount what has to be mounted."""
        _make(self.path, ENTERED)
        _make(self.shared, STICKY)
        for name in SHARED:
            _make(self.shared / name, MODES.get(name, OPEN))
        for task in tasks:
            _make(self.path / task, STICKY)
            for name in OF_TASK:
                _make(self.path / task / name, MODES.get(name, OPEN))
            secrets = self.task(task).secrets
            if not os.path.ismount(secrets):
                secrets_mount.mount(secrets)

    def expect_data(self, incoming: str) -> None:
        """Make the allocation's directory with a mark in it that says that data are still to come from elsewhere."""
        _make(self.path, ENTERED)
        _make(self.path / incoming, CLOSED)

    def give_secrets(self, task: str, user: str, *, isolated: bool) -> None:
        """Let the task read its secrets: the user it runs as, or whoever it is inside its container."""
        secrets = self.task(task).secrets
        with contextlib.suppress(KeyError, PermissionError):
            if isolated:
                secrets.chmod(OPEN)
            elif user:
                entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
                os.chown(secrets, entry.pw_uid, entry.pw_gid)

    def inherit(self, earlier: "AllocDir", tasks: Iterable[str]) -> None:
        """Take over the sticky data of an earlier allocation on this node, which has ended."""
        pairs = [(earlier.shared / "data", self.shared / "data")]
        pairs += [(earlier.path / task / name, self.path / task / name) for task in tasks for name in KEPT]
        for source, target in pairs:
            if source.is_dir() and not source.is_symlink() and not any(target.iterdir()):
                target.rmdir()
                shutil.move(source, target)

    def drop_secrets(self) -> None:
        """Let go of what was in memory: secrets end with the tasks."""
        secrets_mount.unmount_below(self.path)

    def destroy(self) -> None:
        """Remove everything. Nothing outside the allocation is followed or touched."""
        self.drop_secrets()
        shutil.rmtree(self.path, ignore_errors=True)

    def readable(self, path: str) -> str:
        """`path`, when the API may show it; raises for what leads outside, or into what is a task's secret."""
        parts = confined.inside(self.path, path).relative_to(self.path.resolve()).parts
        if len(parts) > 1 and parts[0] != "alloc" and parts[1] in {"secrets", "private"}:
            raise invalid(f"Reading secret file prohibited: {path}")
        return "/".join(parts)

    def of_task(self, task: str, wanted: str) -> str:
        """Where a task's own file lies (artifact, template, payload), relative to the allocation's directory.

        wanted: relative to the task's directory, or absolute as the task sees it: below /alloc, /local or /secrets in
        a container, the host's path elsewhere. Raises LepaError(invalid) when it would leave the allocation.
        """
        relative = _without(str(self.path), wanted)
        if relative is None:
            places = {"/alloc": "alloc", "/local": f"{task}/local", "/secrets": f"{task}/secrets"}
            for prefix, place in places.items():
                if (rest := _without(prefix, wanted)) is not None:
                    relative = f"{place}/{rest}"
                    break
            else:
                relative = f"{task}/{wanted.lstrip('/')}"
        plain = os.path.normpath(relative)
        if plain.startswith("..") or "\0" in plain or not _lies_inside(self.path, plain):
            raise invalid(f"destination escapes allocation directory: {wanted}")
        return plain


def _without(prefix: str, path: str) -> str | None:
    """The rest of a path below `prefix`, None when it lies elsewhere."""
    if path == prefix:
        return ""
    return path[len(prefix) + 1 :] if path.startswith(prefix + "/") else None


def _lies_inside(root: Path, relative: str) -> bool:
    try:
        return bool(confined.inside(root, relative))
    except LepaError:
        return False


def task_owner(user: str) -> Owner:
    """The ids of a task's user, for files that shall be its own."""
    try:
        entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return confined.NOBODY_ELSE
    return Owner(entry.pw_uid, entry.pw_gid)


def _make(path: Path, mode: int) -> None:
    """Make a directory; one that is there keeps its mode and owner, which may have been given to a task."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(parents=True)
        path.chmod(mode)
