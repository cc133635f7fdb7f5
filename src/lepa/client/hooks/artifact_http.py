"""Fetches artifacts over HTTP without being led astray.

Every connection is judged by the address it really goes to, at the moment it is made: so neither a name that resolves
to a forbidden address, nor one whose answer changes, nor a redirect leads there. Redirects are followed by hand: to
HTTP(S) only, and to another host without the headers and credentials that the job gave for the first one.
"""

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from lepa.client.hooks.artifact_settings import ArtifactSettings, denied
from lepa.client.hooks.artifact_source import Source
from lepa.model.errors import LepaError

CHUNK = 256 * 1024
REDIRECTS_MAX = 10
CONNECTIONS_MAX = 100
CONNECT_S = 30.0
REDIRECTS = (301, 302, 303, 307, 308)


class ForbiddenAddress(OSError):
    """A connection would go where nothing is fetched from."""


def guarded_session(settings: ArtifactSettings) -> aiohttp.ClientSession:
    """A session whose connections stay out of the denied networks."""

    def judged(found: Any) -> socket.socket:
        family, kind, protocol, _, address = found
        if network := denied(str(address[0]), settings.denied_networks):
            raise ForbiddenAddress(f"{address[0]} is in {network}, which artifacts are not fetched from")
        return socket.socket(family, kind, protocol)

    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, force_close=True, socket_factory=judged),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def download(
    http: aiohttp.ClientSession, source: Source, target: Path, settings: ArtifactSettings, *, insecure: bool
) -> None:
    """Fetch a file and check its digest. Raises LepaError."""
    digest = hashlib.new(source.checksum_type) if source.checksum_type else None
    received = 0
    try:
        async with asyncio.timeout(settings.http_s):
            async with _opened(http, source, insecure=insecure) as response:
                with target.open("wb") as file:
                    async for chunk in response.content.iter_chunked(CHUNK):
                        received += len(chunk)
                        if received > settings.http_bytes_max:
                            raise LepaError("invalid", f"it is larger than {settings.http_bytes_max} bytes")
                        file.write(chunk)
                        if digest is not None:
                            digest.update(chunk)
    except TimeoutError as error:
        raise LepaError("timeout", f"not finished within {settings.http_s:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _explained(error) from error
    if digest is not None and digest.hexdigest() != source.checksum:
        raise LepaError("invalid", f"checksum did not match: expected {source.checksum}, found {digest.hexdigest()}")


def require_digest(path: Path, source: Source) -> None:
    """A file that was fetched otherwise is the one that the job means. Raises LepaError(invalid)."""
    if not source.checksum_type:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, source.checksum_type).hexdigest()
    if found != source.checksum:
        raise LepaError("invalid", f"checksum did not match: expected {source.checksum}, found {found}")


@asynccontextmanager
async def _opened(
    http: aiohttp.ClientSession, source: Source, *, insecure: bool
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer at the end of all redirects."""
    url, headers = source.url, dict(source.headers)
    for _ in range(REDIRECTS_MAX + 1):
        async with http.get(url, headers=headers, ssl=not insecure, allow_redirects=False) as response:
            if response.status not in REDIRECTS:
                if response.status != 200:
                    raise LepaError(
                        "internal", f"the server answered {response.status} {response.reason or ''}".strip()
                    )
                yield response
                return
            url, headers = redirected(url, response.headers.get("Location", ""), headers)
    raise LepaError("invalid", f"there are more than {REDIRECTS_MAX} redirects")


def redirected(url: str, location: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Where a redirect leads, and the headers to send there. Raises LepaError(invalid)."""
    target = urljoin(url, location)
    before, after = urlsplit(url), urlsplit(target)
    if after.scheme not in ("http", "https") or not after.hostname:
        raise LepaError("invalid", f'a redirect leads to "{location}", which is no HTTP URL')
    if before.scheme == "https" and after.scheme == "http":
        raise LepaError("invalid", "a redirect leads from https to http")
    same = (before.hostname, before.port, before.scheme) == (after.hostname, after.port, after.scheme)
    return target, dict(headers) if same else {}


def _explained(error: Exception) -> LepaError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ForbiddenAddress):
            return LepaError("denied", str(cause))
        cause = cause.__cause__ or cause.__context__
    return LepaError("internal", str(error) or type(error).__name__)
