"""Carries a task's output from its pipe into rotated files.

The task holds its end of the pipe open for reading and writing. So it does not die of SIGPIPE when the supervisor is
killed; what it writes waits in the pipe, and the next supervisor opens the pipe again by way of /proc/PID/fd.
"""

import contextlib
import os
from collections.abc import Iterable

from lepa.drivers.supervisor.messages import LogFiles
from lepa.drivers.supervisor.notes import note
from lepa.drivers.supervisor.rotation import cut, expired, newest

READ_BYTES_MAX = 256 * 1024
"""One read: a pipe holds 64 KiB unless somebody enlarged it."""

_buffer = bytearray(READ_BYTES_MAX)


class RotatedFile:
    """`<path>.N`: continues the newest file, moves on when it is full, removes the oldest.

    Data that the disk does not take is dropped and counted: a full disk must not stop the task.
    """

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._directory, self._base = os.path.split(files.path)
        self._fd = -1
        self._number = 0
        self._size = 0
        self._mid_line = False
        self.dropped_bytes = 0

    def write(self, data: memoryview) -> None:
        """Append, rotating as `rotation.cut` decides."""
        while data:
            try:
                if self._fd < 0:
                    self._open_newest()
                piece = cut(data, self._size, self._files.bytes_max, self._mid_line)
                self._append(data[: piece.take])
                data = data[piece.take :]
                if piece.rotate:
                    self._rotate()
            except OSError as error:
                self._drop(data, error)
                return

    def close(self) -> None:
        """Let go of the present file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: memoryview) -> None:
        while data:
            written = os.write(self._fd, data)
            self._size += written
            self._mid_line = data[written - 1] != 0x0A
            data = data[written:]

    def _open_newest(self) -> None:
        self._number = newest(os.listdir(self._directory), self._base)
        self._open()
        self._size = os.fstat(self._fd).st_size
        self._mid_line = self._size > 0 and os.pread(self._fd, 1, self._size - 1) != b"\n"

    def _rotate(self) -> None:
        self.close()
        self._number += 1
        self._open()
        self._size, self._mid_line = 0, False
        for name in expired(os.listdir(self._directory), self._base, self._number, self._files.files_max):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, name))

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._fd = os.open(f"{self._files.path}.{self._number}", flags, 0o644)

    def _drop(self, data: memoryview, error: OSError) -> None:
        if not self.dropped_bytes:
            note(f"output dropped path={self._files.path} reason={error}")
        self.dropped_bytes += len(data)
        self.close()


class LogPump:
    """One stream of one task: a non-blocking descriptor and where its data goes."""

    def __init__(self, fd: int, files: LogFiles) -> None:
        self.fd = fd
        self._file = RotatedFile(files)

    def pump(self) -> bool:
        """Move what is there, at most READ_BYTES_MAX; False when every writer is gone."""
        try:
            count = os.readv(self.fd, [_buffer])
        except BlockingIOError:
            return True
        if count == 0:
            return False
        with memoryview(_buffer) as view:
            self._file.write(view[:count])
        return True

    def close(self) -> None:
        """End of the stream; the files stay."""
        os.close(self.fd)
        self._file.close()


def open_pipe() -> tuple[int, int]:
    """(our end, the task's end): the task's reads too, so that the pipe always has a reader."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return reader, os.open(f"/proc/self/fd/{writer}", os.O_RDWR)
    finally:
        os.close(writer)


def pipe_number(fd: int) -> int:
    """What tells a pipe from others for as long as the machine runs."""
    return os.fstat(fd).st_ino


def find_pipe(number: int, pids: Iterable[int]) -> int:
    """Our end of a pipe that one of these processes holds open, opened anew; -1 when none does."""
    for pid in pids:
        for path in _descriptors(pid):
            with contextlib.suppress(OSError):
                if os.readlink(path) == f"pipe:[{number}]":
                    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return -1


def _descriptors(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except OSError:
        return []
