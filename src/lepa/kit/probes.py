"""Asks an address once whether it answers: over HTTP, TCP or gRPC's health service.

Nobody is judged here: what an answer means is the caller's to say. The caller sets the time limit too, with
`asyncio.timeout`. Raises OSError or aiohttp.ClientError when there is no answer.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import aiohttp

from lepa.kit.grpc_health import Answer, Exchange

BODY_MAX = 64 * 1024
"""Octets of an HTTP body that are read."""
READ_SIZE = 16 * 1024


class Tls(NamedTuple):
    """How a probe speaks TLS. server_name "": the address's. skip_verify: take any certificate."""

    server_name: str = ""
    skip_verify: bool = False


class HttpQuestion(NamedTuple):
    """One HTTP request. tls: only for https URLs. redirects: whether they are followed."""

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    tls: Tls = Tls()
    redirects: bool = True


class HttpAnswer(NamedTuple):
    """Status and the beginning of the body."""

    status: int
    body: str


async def ask_http(http: aiohttp.ClientSession, question: HttpQuestion) -> HttpAnswer:
    """Send a request and read its answer."""
    async with http.request(
        question.method,
        question.url,
        headers=question.headers,
        data=question.body or None,
        ssl=tls_context(question.tls.skip_verify) if question.url.startswith("https:") else True,
        server_hostname=question.tls.server_name or None,
        allow_redirects=question.redirects,
    ) as response:
        return HttpAnswer(response.status, (await response.content.read(BODY_MAX)).decode(errors="replace"))


async def ask_tcp(host: str, port: int, tls: Tls | None = None) -> None:
    """Connect and part again."""
    _, writer = await _connect(host, port, tls, ())
    await _close(writer)


async def ask_grpc(host: str, port: int, service: str = "", tls: Tls | None = None) -> Answer:
    """What the health service of a gRPC server says of a service, or of itself when none is named."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    exchange = Exchange(authority, service, "https" if tls else "http")
    reader, writer = await _connect(host, port, tls, ("h2",))
    try:
        writer.write(exchange.opening)
        while exchange.answer is None:
            if reply := exchange.receive(await reader.read(READ_SIZE)):
                writer.write(reply)
    finally:
        await _close(writer)
    return exchange.answer


async def _connect(
    host: str, port: int, tls: Tls | None, protocols: Iterable[str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if tls is None:
        return await asyncio.open_connection(host, port)
    context = tls_context(tls.skip_verify, tuple(protocols))
    return await asyncio.open_connection(host, port, ssl=context, server_hostname=tls.server_name or host)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@cache
def tls_context(skip_verify: bool, protocols: tuple[str, ...] = ()) -> ssl.SSLContext:
    """The context of probes: the system's certificates, or none that count."""
    context = ssl.create_default_context()
    if skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context
