"""Lets readers follow this agent's log while it is written: `lepa monitor`, `/v1/agent/monitor`."""

import asyncio
import logging
from collections.abc import AsyncIterator

from lepa.kit.telemetry import JsonFormatter, LineFormatter

LINES_MAX = 512
FOLLOWERS_MAX = 32
LEVELS = {"trace": logging.DEBUG, "warn": logging.WARNING}


class LogTap(logging.Handler):
    """A log handler that hands lines to followers. A slow follower loses the oldest lines, and is told how many."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._followers: set[_Follower] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Called for every record, from any thread."""
        for follower in list(self._followers):
            follower.offer(record)

    async def follow(self, level: str, *, as_json: bool) -> AsyncIterator[bytes]:
        """Lines of `level` and above from now on."""
        if len(self._followers) >= FOLLOWERS_MAX:
            return
        number = LEVELS.get(level) or logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        follower = _Follower(asyncio.get_running_loop(), number, JsonFormatter() if as_json else LineFormatter())
        self._followers.add(follower)
        self._let_through()
        try:
            while True:
                yield await follower.next()
        finally:
            self._followers.discard(follower)
            self._let_through()

    def _let_through(self) -> None:
        """Let the logger make the lines that followers want, though the other handlers do not write them down."""
        logger = logging.getLogger("lepa")
        others = [handler.level for handler in logger.handlers if handler is not self and handler.level]
        wanted = [*others, *(follower.level for follower in self._followers)]
        if others:
            logger.setLevel(min(wanted))


class _Follower:
    def __init__(self, loop: asyncio.AbstractEventLoop, level: int, formatter: logging.Formatter) -> None:
        self._loop = loop
        self.level = level
        self._formatter = formatter
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(LINES_MAX)
        self._lost = 0

    def offer(self, record: logging.LogRecord) -> None:
        if record.levelno >= self.level and not self._loop.is_closed():
            line = self._formatter.format(record).encode() + b"\n"
            self._loop.call_soon_threadsafe(self._put, line)

    def _put(self, line: bytes) -> None:
        if self._queue.full():
            self._queue.get_nowait()
            self._lost += 1
        self._queue.put_nowait(line)

    async def next(self) -> bytes:
        line = await self._queue.get()
        if self._lost:
            line = f"[{self._lost} lines were lost because they were not read in time]\n".encode() + line
            self._lost = 0
        return line
