"""A command inside a container: the connection that started it carries its streams."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from lepa.drivers.docker_api import DockerApi, DockerError, split_frames
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError


class DockerSession:
    """One such command; it ends with its connection."""

    def __init__(
        self,
        api: DockerApi,
        clock: Clock,
        number: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        tty: bool,
    ) -> None:
        self._api = api
        self._clock = clock
        self._number = number
        self._reader = reader
        self._writer = writer
        self._tty = tty
        self._ended = False

    async def write(self, data: bytes) -> None:
        """Send to its standard input; b"" closes it."""
        with contextlib.suppress(OSError):
            if data:
                self._writer.write(data)
                await self._writer.drain()
            elif self._tty:
                self._writer.write(b"\x04")
            elif self._writer.can_write_eof():
                self._writer.write_eof()

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        if self._tty:
            with contextlib.suppress(DockerError):
                await self._api.resize_exec(self._number, rows, columns)

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of output until the command ends."""
        with contextlib.suppress(OSError):
            if self._tty:
                while piece := await self._reader.read(64 * 1024):
                    yield "stdout", piece
            else:
                async for each in split_frames(self._reader):
                    yield each
        self._ended = True

    async def wait(self) -> int:
        """The command's exit code."""
        if not self._ended:
            async for _ in self.output():
                pass
        while True:
            try:
                state = await self._api.inspect_exec(self._number)
            except DockerError as error:
                raise LepaError("internal", str(error)) from error
            if not state["Running"]:
                return int(state["ExitCode"] or 0)
            await self._clock.sleep(0.02)

    async def close(self) -> None:
        """Hang up, and end the command if it still runs (Docker itself has no call for that)."""
        self._writer.close()
        if not self._ended:
            with contextlib.suppress(DockerError, OSError):
                state = await self._api.inspect_exec(self._number)
                if state["Running"] and state.get("Pid"):
                    os.kill(int(state["Pid"]), 15)
