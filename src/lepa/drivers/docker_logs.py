"""Copies a container's output from Docker into the task's rotated log files, and knows where it was after a restart.

Docker keeps the output while nobody reads it (as much as its log driver's limits allow), so nothing is lost when the
agent is away. The time stamp of the last piece written stands in a small file; after a kill in the moment between the
two writes, that piece is written twice rather than not at all.
"""

import contextlib
import logging
import os
from collections.abc import Callable

from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.supervisor.log_pump import RotatedFile
from lepa.drivers.supervisor.messages import LogFiles
from lepa.kit.durations import parse_rfc3339
from lepa.kit.sources import Clock

log = logging.getLogger(__name__)

RETRY_S = 1.0


class DockerLogs:
    """Follows one container until it ends. position_path: the file that says how far it came."""

    def __init__(
        self, api: DockerApi, clock: Clock, container: str, files: dict[str, LogFiles], position_path: str
    ) -> None:
        self._api = api
        self._clock = clock
        self._container = container
        self._files = {stream: RotatedFile(where) for stream, where in files.items()}
        self._position = Position(position_path)

    async def run(self, tty: Callable[[], bool], ended: Callable[[], bool]) -> None:
        """Copy until the container's end has been copied; goes on after the daemon was away."""
        try:
            while not await self._copy(tty()) and not ended():
                await self._clock.sleep(RETRY_S)
        finally:
            self._position.close()
            for file in self._files.values():
                file.close()

    async def _copy(self, tty: bool) -> bool:
        """One stream of Docker's; whether it came to its end."""
        seen = self._position.copy()
        try:
            async for stream, piece in self._api.logs(self._container, seen.since, tty=tty):
                stamp, _, data = piece.partition(b" ")
                if not seen.passes(stamp.decode()):
                    continue
                if stream in self._files:
                    self._files[stream].write(memoryview(data))
                self._position.note(stamp.decode())
        except DockerError as error:
            log.warning("container logs broke off container=%s reason=%s", self._container[:12], error)
            return error.status == 404
        return True


class Position:
    """The stamp of the last piece copied, and how many pieces bore it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp, self._count = "", 0
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            stamp, count = file.read().split()
            self._stamp, self._count = stamp, int(count)
        self._fd = -1

    def copy(self) -> "Seen":
        """What has to be passed over when Docker answers from `since` on."""
        return Seen(self._stamp, self._count)

    def note(self, stamp: str) -> None:
        """A piece with this stamp was copied."""
        self._count = self._count + 1 if stamp == self._stamp else 1
        self._stamp = stamp
        if self._fd < 0:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(self._fd, f"{stamp} {self._count:<12}\n".encode(), 0)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Seen:
    """Passes over what was copied before: everything earlier than `stamp`, and `count` pieces of that very stamp."""

    def __init__(self, stamp: str, count: int) -> None:
        self._stamp = stamp
        self._count = count

    @property
    def since(self) -> str:
        """The same moment as Docker takes it, seconds and nanoseconds; it answers from that very moment on."""
        if not self._stamp:
            return "0"
        seconds, nanoseconds = divmod(parse_rfc3339(self._stamp), 1_000_000_000)
        return f"{seconds}.{nanoseconds:09d}"

    def passes(self, stamp: str) -> bool:
        """Whether a piece with this stamp is new."""
        if stamp == self._stamp and self._count > 0:
            self._count -= 1
            return False
        return stamp >= self._stamp
