"""How a query frontend follows the management frontend: long polls for the registry and for what was learned, reports
of its containers and of its feedback.

The query frontend needs nothing else from anybody: when the management frontend is away it goes on with the registry it
has, and asks again, with growing pauses.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec

from lepa.kit.sources import Clock, Random
from lepa.model.errors import LepaError
from lepa.serving.addresses import Address
from lepa.serving.records import Container, Registry
from lepa.serving.selection import Observation
from lepa.serving.selection_memory import SelectionUpdate

log = logging.getLogger(__name__)

POLL_WAIT_S = 30
CALL_TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 1 << 26
RETRY_MIN_S = 0.1
RETRY_MAX_S = 5.0
REPORT_EVERY_S = 10.0
"""A report is good for three times as long."""
TELL_TRIES_MAX = 10


class _Revised(Protocol):
    @property
    def revision(self) -> int: ...


Update = TypeVar("Update", bound=_Revised)


async def call(address: Address, method: str, path: str, body: Any = None, timeout_s: float = CALL_TIMEOUT_S) -> bytes:
    """One HTTP call on its own connection. Raises OSError (TimeoutError included) when there is no 200 answer."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _call(address, method, path, b"" if body is None else msgspec.json.encode(body))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise OSError(f"{address} gave no HTTP answer: {error}") from error


async def _call(address: Address, method: str, path: str, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    try:
        head = f"{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        status = await reader.readuntil(b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        answer = await _read_to_end(reader)
    finally:
        writer.close()
    if status.split(b" ", 2)[1] != b"200":
        raise OSError(f"{address} answered {status.decode(errors='replace').strip()} to {method} {path}")
    return answer


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    answer = bytearray()
    while chunk := await reader.read(1 << 16):
        answer += chunk
        if len(answer) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return bytes(answer)


class RegistryFollower:
    """Calls `configure` with each registry the management frontend has, and `learned` with each change of what policies
    know, as soon as there is one."""

    def __init__(
        self,
        management: Callable[[], Awaitable[Address]],
        configure: Callable[[Registry], None],
        learned: Callable[[SelectionUpdate], None],
        clock: Clock,
        random: Random,
    ) -> None:
        self._management = management
        self._configure = configure
        self._learned = learned
        self._clock = clock
        self._random = random

    async def run(self) -> None:
        """Follow the registry for ever."""
        await self._follow("registry", Registry, self._configure)

    async def run_selection(self) -> None:
        """Follow what is learned for ever."""
        await self._follow("selection", SelectionUpdate, self._learned)

    async def _follow(self, what: str, shape: type[Update], changed: Callable[[Update], None]) -> None:
        revision, pause_s = -1, RETRY_MIN_S
        decoder = msgspec.json.Decoder(shape)
        while True:
            path = f"/admin/{what}?index={revision}&wait={POLL_WAIT_S}"
            try:
                answer = await call(await self._management(), "GET", path, timeout_s=POLL_WAIT_S + CALL_TIMEOUT_S)
                update = decoder.decode(answer)
            except (OSError, LepaError, msgspec.MsgspecError) as error:
                log.warning("%s was not read error=%s retry_s=%.1f", what, error, pause_s)
                await self._clock.sleep(pause_s * self._random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, RETRY_MAX_S)
                continue
            pause_s = RETRY_MIN_S
            if update.revision != revision:
                revision = update.revision
                changed(update)

    async def report(self, frontend: str, containers: list[Container]) -> None:
        """Tell the management frontend which containers this frontend has; a failure is only logged."""
        body = {"frontend": frontend, "containers": containers}
        try:
            await call(await self._management(), "POST", "/admin/report_containers", body)
        except (OSError, LepaError) as error:
            log.warning("containers were not reported error=%s", error)

    async def tell(self, observations: list[Observation]) -> None:
        """Tell the management frontend what feedback has shown; one that is away is asked again a few times."""
        for attempt in range(TELL_TRIES_MAX):
            try:
                await call(await self._management(), "POST", "/admin/observe", {"observations": observations})
            except (OSError, LepaError) as error:
                log.warning("feedback was not told error=%s attempt=%d", error, attempt)
                await self._clock.sleep(min(RETRY_MIN_S * 2**attempt, RETRY_MAX_S) * self._random.uniform(0.5, 1.0))
                continue
            return
        log.warning("feedback was forgotten observations=%d", len(observations))
