"""A listener that strangers cannot fill."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from lepa.kit.doorman import Doorman, Limits, heard, listen
from lepa.kit.sockets import IDLE_S

ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@asynccontextmanager
async def listening(
    limits: Limits, told: Callable[[int, bool], None] | None = None
) -> AsyncIterator[tuple[Doorman, int]]:
    app = web.Application(middlewares=[heard])

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="well")

    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    doorman = Doorman(runner.server, limits, told)
    listener = await listen(doorman, "127.0.0.1", 0)
    try:
        yield doorman, listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await runner.cleanup()


async def test_idle_connections_of_one_address_do_not_keep_others_out() -> None:
    """B249: hundreds that only connect, or send their head letter by letter, and another address that is answered."""
    async with listening(Limits(connections_max=20, first_request_s=60.0)) as (doorman, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        idle[0][1].write(ASK[:10])
        refused = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
        for reader, _ in refused:
            text = await reader.read()
            assert text.startswith(b"HTTP/1.1 429 ")
            assert text.endswith(b"please rate limit your calls\n")
        assert (doorman.held, doorman.refused) == ({"127.0.0.1": 20}, 80)
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get(f"http://127.0.0.1:{port}/") as response:
                assert await response.text() == "well"
        idle[1][1].write(ASK)
        assert (await idle[1][0].readline()).startswith(b"HTTP/1.1 200 ")
        for _, writer in (*idle, *refused):
            writer.close()


async def test_who_does_not_ask_in_time_is_cut_off_and_who_has_asked_may_stay() -> None:
    async with listening(Limits(first_request_s=0.4)) as (doorman, port):
        kept = await asyncio.open_connection("127.0.0.1", port)
        kept[1].write(ASK)
        assert await kept[0].readuntil(b"well")
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        slow[0][1].write(ASK[:-2])
        for reader, writer in slow:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        kept[1].write(ASK)
        assert await kept[0].readuntil(b"well")
        assert doorman.held["127.0.0.1"] == 1
        kept[1].close()
        await kept[1].wait_closed()


async def test_a_limit_of_zero_is_none() -> None:
    async with listening(Limits(connections_max=0, first_request_s=0.0)) as (doorman, port):
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(120)]
        many[-1][1].write(ASK)
        assert (await many[-1][0].readline()).startswith(b"HTTP/1.1 200 ")
        assert doorman.refused == 0
        for _, writer in many:
            writer.close()


async def test_each_change_is_told() -> None:
    told: list[tuple[int, bool]] = []
    gone = asyncio.Event()

    def tell(connections: int, refused: bool) -> None:
        told.append((connections, refused))
        if not connections:
            gone.set()

    async with listening(Limits(connections_max=1), tell) as (_, port):
        first = await asyncio.open_connection("127.0.0.1", port)
        second = await asyncio.open_connection("127.0.0.1", port)
        assert (await second[0].read()).startswith(b"HTTP/1.1 429 ")
        first[1].close()
        async with asyncio.timeout(30.0):
            await gone.wait()
    assert told == [(1, False), (1, True), (0, False)]


def probe_due_s(port: int) -> float:
    """In how many seconds the kernel asks the peer of the one connection that was accepted at a port."""
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    (timer,) = [row[5] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"]
    kind, _, when = timer.partition(":")
    assert kind == "02", "the timer of keepalive"
    return int(when, 16) / 100


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_is_silent_is_asked_whether_he_is_there(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A node that lost its power says no goodbye: its connections would stay for two hours."""

    async def connect() -> float:
        async with listening(Limits()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASK)
            assert await reader.readuntil(b"well")
            due = probe_due_s(port)
            writer.close()
            return due

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert 0 < runner.run(connect()) <= IDLE_S
