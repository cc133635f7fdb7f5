"""Files and logs of an allocation, as the API shows them.

Rotated logs are `<task>.<stdout|stderr>.<n>`, read as one text in the order of n. A follower polls: that is what
works for files that other processes write, and it costs one `stat` each 100 ms.
"""

import asyncio
import mimetypes
import os
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from lepa.client.alloc_dir import AllocDir
from lepa.kit.durations import rfc3339
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.stats import AllocFileInfo
from lepa.rpc.node_service import StreamFrame

CHUNK = 64 * 1024
POLL_S = 0.1
LIST_MAX = 10_000


def list_files(directory: AllocDir, path: str) -> list[AllocFileInfo]:
    """Entries of a directory in order of their names."""
    wanted = directory.inside(path)
    try:
        names = sorted(os.listdir(wanted))[:LIST_MAX]
    except OSError as error:
        raise _cannot_read(path, error) from error
    found = []
    for name in names:
        try:
            found.append(_info(wanted / name))
        except FileNotFoundError:
            continue
    return found


def stat_file(directory: AllocDir, path: str) -> AllocFileInfo:
    """One file or directory."""
    try:
        return _info(directory.inside(path))
    except OSError as error:
        raise _cannot_read(path, error) from error


def _info(path: Path) -> AllocFileInfo:
    status = path.lstat()
    is_dir = stat.S_ISDIR(status.st_mode)
    return AllocFileInfo(
        name=path.name,
        is_dir=is_dir,
        size=status.st_size,
        file_mode=_mode(status.st_mode),
        mod_time=rfc3339(status.st_mtime_ns),
        content_type="" if is_dir else mimetypes.guess_type(path.name)[0] or "application/octet-stream",
    )


def _mode(mode: int) -> str:
    """`drwxr-xr-x` as Go prints it: a dash for a plain file, `d` for a directory, `L` for a link."""
    kind = "d" if stat.S_ISDIR(mode) else "L" if stat.S_ISLNK(mode) else "-"
    return kind + stat.filemode(mode)[1:].replace("t", "x").replace("T", "-")


def read_file(directory: AllocDir, path: str, offset: int, limit: int) -> bytes:
    """Bytes of a file; limit -1 reads to its end."""
    try:
        with open(_regular(directory, path), "rb") as file:
            file.seek(offset)
            return file.read(limit)
    except OSError as error:
        raise _cannot_read(path, error) from error


def _regular(directory: AllocDir, path: str) -> Path:
    """The path of a plain file: opening a pipe or a device could block or act."""
    wanted = directory.inside(path)
    mode = wanted.stat().st_mode
    if stat.S_ISDIR(mode):
        raise invalid(f'file "{path}" is a directory')
    if not stat.S_ISREG(mode):
        raise invalid(f'"{path}" is not a regular file')
    return wanted


def _cannot_read(path: str, error: OSError) -> LepaError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return not_found(f"no such file or directory: {path}")
    return invalid(f"cannot read {path}: {error.strerror or error}")


async def stream_file(
    directory: AllocDir, path: str, *, offset: int, origin: str, follow: bool
) -> AsyncIterator[StreamFrame]:
    """A file in frames. A truncated file is read from its start again; a deleted one ends the stream."""
    try:
        real = _regular(directory, path)
        file = open(real, "rb")  # noqa: SIM115
    except OSError as error:
        raise invalid(_cannot_read(path, error).message) from error
    name = path.lstrip("/")
    with file:
        size = os.fstat(file.fileno()).st_size
        position = max(0, size - offset) if origin == "end" else min(offset, size)
        while True:
            file.seek(position)
            if data := file.read(CHUNK):
                position += len(data)
                yield StreamFrame(offset=position, data=data, file=name)
                continue
            if not follow:
                return
            status = os.fstat(file.fileno())
            if status.st_nlink == 0:
                yield StreamFrame(file=name, file_event="file deleted")
                return
            if status.st_size < position:
                position = 0
                yield StreamFrame(file=name, file_event="file truncated")
            await asyncio.sleep(POLL_S)


class LogFiles:
    """Rotated files of one stream of one task."""

    def __init__(self, directory: AllocDir, task: str, stream: str) -> None:
        self._directory = directory.logs
        self._pattern = re.compile(re.escape(f"{task}.{stream}.") + r"(\d+)$")
        self._prefix = f"{task}.{stream}."

    def numbers(self) -> list[int]:
        """Numbers of the files that are there, oldest first."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        return sorted(int(match[1]) for name in names if (match := self._pattern.match(name)))

    def path(self, number: int) -> Path:
        """The path of one file."""
        return self._directory / f"{self._prefix}{number}"

    def name(self, number: int) -> str:
        """The file's name as the API shows it."""
        return f"alloc/logs/{self._prefix}{number}"

    def size(self, number: int) -> int:
        """Bytes in one file, 0 when it is gone."""
        try:
            return self.path(number).stat().st_size
        except OSError:
            return 0


def starting_point(sizes: list[tuple[int, int]], offset: int, origin: str) -> tuple[int, int]:
    """Where to begin: a file's number and a position in it. sizes: (number, bytes) of all files, oldest first."""
    if origin == "start":
        for number, size in sizes[:-1]:
            if offset < size:
                return number, offset
            offset -= size
        return sizes[-1][0], min(offset, sizes[-1][1])
    for number, size in reversed(sizes):
        if offset <= size:
            return number, size - offset
        offset -= size
    return sizes[0][0], 0


async def stream_logs(files: LogFiles, *, offset: int, origin: str, follow: bool) -> AsyncIterator[StreamFrame]:
    """All files as one text, then what is appended while follow. Waits for the first file when following."""
    while not (numbers := files.numbers()):
        if not follow:
            return
        await asyncio.sleep(POLL_S)
    number, position = starting_point([(n, files.size(n)) for n in numbers], offset, origin)
    last = numbers[-1]
    while True:
        async for frame in _one_file(files, number, position, follow=follow):
            yield frame
        newer = [n for n in files.numbers() if n > number]
        if not newer or (not follow and newer[0] > last):
            return
        number, position = newer[0], 0


async def _one_file(files: LogFiles, number: int, position: int, *, follow: bool) -> AsyncIterator[StreamFrame]:
    """One file to its end; while following, until a newer one exists and this one has been read to the end."""
    try:
        file = files.path(number).open("rb")
    except OSError:
        return
    with file:
        file.seek(position)
        while True:
            superseded = not follow or any(n > number for n in files.numbers())
            while data := file.read(CHUNK):
                position += len(data)
                yield StreamFrame(offset=position, data=data, file=files.name(number))
            if superseded:
                return
            await asyncio.sleep(POLL_S)
