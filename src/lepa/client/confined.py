"""Opens, lists and writes files below a directory that strangers may write to, and is never led outside by links.

The agent is often root while tasks are not, and a task can put a link in place of any directory of its own at any
moment. So a path is resolved once and must lie inside; then it is walked from the root, one name after another, and no
link is followed on the way. Whoever swaps a name meanwhile makes the walk fail; nothing outside is read or written.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lepa.model.errors import LepaError, invalid, not_found

FILE_MODE = 0o644
DIRECTORY_MODE = 0o777
OUR_TROUBLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})
"""Errors of the host rather than of the path."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Owner(NamedTuple):
    """Whom a new file belongs to; -1 leaves it to the agent's own user or group."""

    uid: int = -1
    gid: int = -1


NOBODY_ELSE = Owner()


def inside(root: Path, path: str) -> Path:
    """The real path of `path` below `root`. Raises LepaError(invalid) when it leads outside, or in a circle."""
    real_root = root.resolve()
    if "\0" in path:
        raise invalid(f"{path!r} is no path: it holds a NUL character")
    try:
        wanted = (real_root / path.lstrip("/")).resolve()
    except OSError as error:  # a name was changed at this moment
        raise cannot(path, error) from error
    except RuntimeError as error:
        raise invalid(f"cannot open {path}: its links lead in a circle") from error
    if not wanted.is_relative_to(real_root):
        raise invalid(f"Path escapes the alloc directory: {path}")
    return wanted


@contextlib.contextmanager
def directory(root: Path, path: str, *, create: bool = False, owner: Owner = NOBODY_ELSE) -> Iterator[int]:
    """A descriptor of a directory below `root`. create: make what is missing of it."""
    parts = inside(root, path).relative_to(root.resolve()).parts
    handle = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            if create:
                _make(part, handle, owner)
            following = os.open(part, _DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = following
        yield handle
    finally:
        os.close(handle)


def _make(name: str, within: int, owner: Owner) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=within)
        os.chmod(name, DIRECTORY_MODE, dir_fd=within)
        _give(name, within, owner)


def _give(name: str, within: int, owner: Owner) -> None:
    if owner != NOBODY_ELSE:
        os.chown(name, owner.uid, owner.gid, dir_fd=within, follow_symlinks=False)


def open_file(root: Path, path: str) -> BinaryIO:
    """Open a plain file for reading: opening a pipe or a device could block or act."""
    wanted = inside(root, path)
    name = "." if wanted == root.resolve() else wanted.name
    with explained(path), directory(root, _parent(root, wanted)) as parent:
        handle = os.open(name, _FILE, dir_fd=parent)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise invalid(f'file "{path}" is a directory' if stat.S_ISDIR(mode) else f'"{path}" is not a regular file')


def write_file(root: Path, path: str, data: bytes, *, mode: int = FILE_MODE, owner: Owner = NOBODY_ELSE) -> None:
    """Write a file whole: readers see the old one or the new one. Missing directories are made."""
    wanted = inside(root, _parent_text(path)) / Path(path).name
    temporary = f".{wanted.name}.new"
    with explained(path), directory(root, _parent(root, wanted), create=True, owner=owner) as parent:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if owner != NOBODY_ELSE:
                os.fchown(file.fileno(), owner.uid, owner.gid)
        os.replace(temporary, wanted.name, src_dir_fd=parent, dst_dir_fd=parent)


def _parent_text(path: str) -> str:
    return os.path.dirname(path.rstrip("/"))


def _parent(root: Path, wanted: Path) -> str:
    real_root = root.resolve()
    return "" if wanted == real_root else str(wanted.parent.relative_to(real_root))


def move_into(source: Path, root: Path, path: str, *, owner: Owner = NOBODY_ELSE) -> None:
    """Move the entries of directory `source` into the directory `path` below `root`; equal names are replaced.

    `source` is a private directory that no stranger can write to.
    """
    for folder, _, files in os.walk(source):
        relative = os.path.relpath(folder, source)
        below = path if relative == "." else os.path.join(path, relative)
        with explained(path), directory(root, below, create=True, owner=owner) as target:
            links = [entry.name for entry in os.scandir(folder) if entry.is_symlink()]
            for name in {*files, *links}:
                _move(os.path.join(folder, name), name, target, owner)


def _move(source: str, name: str, target: int, owner: Owner) -> None:
    try:
        os.replace(source, name, dst_dir_fd=target)
    except OSError:
        _copy(source, name, target)
    _give(name, target, owner)


def _copy(source: str, name: str, target: int) -> None:
    """For a target on another file system, such as a task's secrets."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=target)
    if os.path.islink(source):
        os.symlink(os.readlink(source), name, dir_fd=target)
        return
    mode = stat.S_IMODE(os.stat(source).st_mode)
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=target)
    with open(source, "rb") as read, os.fdopen(handle, "wb") as written:
        shutil.copyfileobj(read, written)


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Errors of the operating system in the words of the API."""
    try:
        yield
    except OSError as error:
        raise cannot(path, error) from error


def cannot(path: str, error: OSError) -> LepaError:
    """What went wrong with a file, in the words of the API."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return not_found(f"no such file or directory: {path}")
    text = f"cannot open {path}: {error.strerror or error}"
    return LepaError("internal" if error.errno in OUR_TROUBLE else "invalid", text)
