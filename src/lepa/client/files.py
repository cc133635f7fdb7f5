"""Files and logs of an allocation, as the API shows them.

Rotated logs are `<task>.<stdout|stderr>.<n>`, read as one text in the order of n. A follower polls: that is what
works for files that other processes write, and it costs one `stat` each 100 ms.
"""

import contextlib
import mimetypes
import os
import re
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

from lepa.client import confined
from lepa.client.alloc_dir import AllocDir
from lepa.kit.durations import rfc3339
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.model.stats import AllocFileInfo
from lepa.rpc.node_service import StreamFrame

CHUNK = 64 * 1024
POLL_S = 0.1
LIST_MAX = 10_000


def list_files(directory: AllocDir, path: str) -> list[AllocFileInfo]:
    """Entries of a directory in order of their names."""
    wanted = directory.readable(path)
    with confined.explained(path), confined.directory(directory.path, wanted) as handle:
        names = sorted(os.listdir(handle))[:LIST_MAX]
        found = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found.append(_info(name, os.stat(name, dir_fd=handle, follow_symlinks=False)))
    return found


def stat_file(directory: AllocDir, path: str) -> AllocFileInfo:
    """One file or directory."""
    parent, name = os.path.split(directory.readable(path))
    with confined.explained(path), confined.directory(directory.path, parent) as handle:
        return _info(name or directory.path.name, os.stat(name or ".", dir_fd=handle, follow_symlinks=False))


def _info(name: str, status: os.stat_result) -> AllocFileInfo:
    is_dir = stat.S_ISDIR(status.st_mode)
    return AllocFileInfo(
        name=name,
        is_dir=is_dir,
        size=status.st_size,
        file_mode=_mode(status.st_mode),
        mod_time=rfc3339(status.st_mtime_ns),
        content_type="" if is_dir else mimetypes.guess_type(name)[0] or "application/octet-stream",
    )


def _mode(mode: int) -> str:
    """`drwxr-xr-x` as Go prints it: a dash for a plain file, `d` for a directory, `L` for a link."""
    kind = "d" if stat.S_ISDIR(mode) else "L" if stat.S_ISLNK(mode) else "-"
    return kind + stat.filemode(mode)[1:].replace("t", "x").replace("T", "-")


def read_file(directory: AllocDir, path: str, offset: int, limit: int) -> bytes:
    """Bytes of a file; limit -1 reads to its end."""
    with confined.open_file(directory.path, directory.readable(path)) as file:
        file.seek(offset)
        return file.read(limit)


async def stream_file(
    directory: AllocDir, path: str, clock: Clock, *, offset: int, origin: str, follow: bool
) -> AsyncGenerator[StreamFrame]:
    """A file in frames. A truncated file is read from its start again; a deleted one ends the stream."""
    name = directory.readable(path)
    with confined.open_file(directory.path, name) as file:
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
            await clock.sleep(POLL_S)


class LogFiles:
    """Rotated files of one stream of one task."""

    def __init__(self, directory: AllocDir, task: str, stream: str) -> None:
        self._root = directory.path
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

    def open(self, number: int) -> BinaryIO:
        """One file for reading. Raises LepaError: a task may put a link where its logs are."""
        return confined.open_file(self._root, self.name(number))

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


async def stream_logs(
    files: LogFiles, clock: Clock, *, offset: int, origin: str, follow: bool
) -> AsyncGenerator[StreamFrame]:
    """All files as one text, then what is appended while follow. Waits for the first file when following."""
    while not (numbers := files.numbers()):
        if not follow:
            return
        await clock.sleep(POLL_S)
    number, position = starting_point([(n, files.size(n)) for n in numbers], offset, origin)
    last = numbers[-1]
    while True:
        async for frame in _one_file(files, number, position, clock, follow=follow):
            yield frame
        newer = [n for n in files.numbers() if n > number]
        if not newer or (not follow and newer[0] > last):
            return
        number, position = newer[0], 0


async def _one_file(
    files: LogFiles, number: int, position: int, clock: Clock, *, follow: bool
) -> AsyncGenerator[StreamFrame]:
    """One file to its end; while following, until a newer one exists and this one has been read to the end."""
    try:
        file = files.open(number)
    except LepaError:
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
            await clock.sleep(POLL_S)
