"""Carries a task's output from its pipe into rotated files.

The pipe is a FIFO in the supervisor's own directory, which the task holds open for reading and writing. So a task does
not die of SIGPIPE when the supervisor is killed, and what it writes waits in the FIFO for the next supervisor.
"""

import contextlib
import os
import sys

from lepa.drivers.supervisor.messages import LogFiles
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
            print(f"output dropped path={self._files.path} reason={error}", file=sys.stderr)
        self.dropped_bytes += len(data)
        self.close()


class LogPump:
    """One stream of one task: a non-blocking descriptor and where its data goes."""

    def __init__(self, fd: int, files: LogFiles, fifo: str) -> None:
        self.fd = fd
        self.fifo = fifo
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
        """End of the stream: the files stay, the FIFO goes."""
        os.close(self.fd)
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.fifo)


def open_fifo(path: str) -> int:
    """The reading end of a FIFO that is made when it is not there."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
