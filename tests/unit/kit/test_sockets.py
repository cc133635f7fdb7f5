"""Connections that notice a peer that is gone."""

import asyncio
import socket

import aiohttp
from aiohttp import web

from lepa.kit.sockets import SILENCE_S, watch, watched_socket


def test_a_silent_peer_is_asked_and_given_up_within_the_bound() -> None:
    with watched_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))) as sock:
        assert not sock.getblocking()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * count <= SILENCE_S
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_S * 1000


def test_a_peer_that_reads_nothing_for_a_while_may_do_so() -> None:
    with socket.socket() as accepted:
        before = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        watch(accepted)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == before == 0


async def test_an_http_client_connects_with_it() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        (host, port), *_ = runner.addresses
        async with (
            asyncio.timeout(5),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=watched_socket)) as session,
            session.get(f"http://{host}:{port}/") as response,
        ):
            assert await response.text() == "here"
    finally:
        await runner.cleanup()
