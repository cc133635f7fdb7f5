"""Asking an address once."""

import asyncio
from collections.abc import AsyncIterator
from struct import pack

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lepa.kit.probes import BODY_MAX, HttpQuestion, ask_grpc, ask_http, ask_tcp


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.Response:
        told = f"{request.method} {request.headers.get('X-A')} {(await request.text())}"
        return web.Response(status=203, text=told)

    async def move(request: web.Request) -> web.Response:
        raise web.HTTPFound("/")

    async def flood(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * (BODY_MAX * 2))

    app = web.Application()
    app.router.add_route("*", "/", answer)
    app.router.add_get("/moved", move)
    app.router.add_get("/flood", flood)
    async with TestServer(app) as running:
        yield running


async def test_http_with_method_headers_and_body(http: aiohttp.ClientSession, server: TestServer) -> None:
    question = HttpQuestion(str(server.make_url("/")), "PUT", (("X-A", "1"),), "hello")
    assert await ask_http(http, question) == (203, "PUT 1 hello")


async def test_c62_a_host_header_takes_the_place_of_the_address(http: aiohttp.ClientSession) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=", ".join(request.headers.getall("Host")))

    app = web.Application()
    app.router.add_get("/", answer)
    async with TestServer(app) as running:
        question = HttpQuestion(str(running.make_url("/")), headers=(("Host", "web.example.com"),))
        assert (await ask_http(http, question)).body == "web.example.com"


async def test_redirects_are_followed_or_not(http: aiohttp.ClientSession, server: TestServer) -> None:
    url = str(server.make_url("/moved"))
    assert (await ask_http(http, HttpQuestion(url))).status == 203
    assert (await ask_http(http, HttpQuestion(url, redirects=False))).status == 302


async def test_a_long_body_is_cut(http: aiohttp.ClientSession, server: TestServer) -> None:
    assert len((await ask_http(http, HttpQuestion(str(server.make_url("/flood"))))).body) <= BODY_MAX


async def test_tcp_connects_or_fails(server: TestServer) -> None:
    assert server.port is not None
    await ask_tcp("127.0.0.1", server.port)
    with pytest.raises(OSError):
        await ask_tcp("127.0.0.1", 1)


async def test_grpc_says_what_the_server_says() -> None:
    serving = b"\0\0\7\0\0\0\0\0\1" + b"\0" + pack(">I", 2) + b"\x08\x01"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"SM\r\n\r\n")
        writer.write(serving)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    assert await ask_grpc("127.0.0.1", server.sockets[0].getsockname()[1]) == "SERVING"
    server.close()


async def test_a_server_that_speaks_no_http2_is_an_error(server: TestServer) -> None:
    assert server.port is not None
    assert await ask_grpc("127.0.0.1", server.port) == "ERROR"
