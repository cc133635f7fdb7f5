"""Copies a container's output from the file that Podman keeps (k8s-file) into the task's rotated log files.

Podman's monitor puts a new file in the place of a full one. Whoever has the old one open reads it to its end and then
goes on with the new one, so nothing is lost unless two files fill between two looks. How far the copying came stands in
a small file: the inode of Podman's file, and the offset of the first line that was not copied.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from lepa.drivers.supervisor.log_pump import RotatedFile
from lepa.drivers.supervisor.messages import LogFiles
from lepa.kit.sources import Clock

READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 1024 * 1024
LOOK_MIN_S, LOOK_MAX_S = 0.02, 0.5
"""How soon a file at its end is looked at again: soon after output, seldom when there is none."""


class Place(NamedTuple):
    """A position in one of the files that follow each other."""

    inode: int = 0
    offset: int = 0


class PodmanLogs:
    """Follows one container until it ends. path: Podman's file; position_path: the file that says how far it came."""

    def __init__(self, path: str, files: dict[str, LogFiles], position_path: str, clock: Clock) -> None:
        self._path = path
        self._files = {stream: RotatedFile(where) for stream, where in files.items()}
        self._position_path = position_path
        self._clock = clock
        self._place = read_place(position_path)
        self._position_fd = -1
        self._fd = -1

    async def run(self, ended: Callable[[], bool]) -> None:
        """Copy until the container's end has been copied."""
        wait_s = LOOK_MIN_S
        try:
            while True:
                last = ended()
                if self._copy():
                    wait_s = LOOK_MIN_S
                    await asyncio.sleep(0)
                elif last:
                    return
                else:
                    await self._clock.sleep(wait_s)
                    wait_s = min(wait_s * 2, LOOK_MAX_S)
        finally:
            self._close()

    def _copy(self) -> bool:
        """One piece; False when there is nothing new."""
        if self._fd < 0 and not self._open():
            return False
        data = os.pread(self._fd, READ_BYTES, self._place.offset)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == READ_BYTES:
            whole = os.pread(self._fd, LINE_BYTES_MAX, self._place.offset)
            whole = whole[: whole.find(b"\n") + 1] or whole
        if not whole:
            return self._next_file()
        for line in whole.splitlines(keepends=True):
            stream, text = parse_line(line)
            if stream in self._files:
                self._files[stream].write(memoryview(text))
        self._note(Place(self._place.inode, self._place.offset + len(whole)))
        return True

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        inode = os.fstat(self._fd).st_ino
        if inode != self._place.inode:
            self._place = Place(inode, 0)
        return True

    def _next_file(self) -> bool:
        """Whether another file is in the place of the one that was read to its end."""
        try:
            inode = os.stat(self._path).st_ino
        except OSError:
            return False
        if inode == self._place.inode:
            return False
        if len(os.pread(self._fd, 1, self._place.offset)):
            return True
        os.close(self._fd)
        self._fd = -1
        return self._open()

    def _note(self, place: Place) -> None:
        self._place = place
        if self._position_fd < 0:
            os.makedirs(os.path.dirname(self._position_path), mode=0o700, exist_ok=True)
            self._position_fd = os.open(self._position_path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._position_fd, f"{place.inode} {place.offset:<20}\n".encode(), 0)

    def _close(self) -> None:
        for fd in (self._fd, self._position_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._position_fd = -1
        for file in self._files.values():
            file.close()


def read_place(path: str) -> Place:
    """What the position file says; the beginning when there is none."""
    with contextlib.suppress(OSError, ValueError), open(path) as file:
        inode, offset = file.read().split()
        return Place(int(inode), int(offset))
    return Place()


def parse_line(line: bytes) -> tuple[str, bytes]:
    """ "2024-…Z stdout F text\\n" -> ("stdout", "text\\n"); after a P(artial) piece the line goes on."""
    _, _, rest = line.partition(b" ")
    stream, _, rest = rest.partition(b" ")
    kind, _, text = rest.partition(b" ")
    return stream.decode(errors="replace"), text[:-1] if kind == b"P" and text.endswith(b"\n") else text
