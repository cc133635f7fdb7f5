"""The calls of Docker's HTTP API that the docker driver needs, over a Unix or TCP socket."""

import asyncio
import base64
import contextlib
import json
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

CALL_TIMEOUT_S = 60.0
HEAD_BYTES_MAX = 64 * 1024
CHUNK_BYTES_MAX = 64 * 1024
_FRAME = struct.Struct(">BxxxL")
STREAMS = {1: "stdout", 2: "stderr"}


class DockerError(Exception):
    """What Docker answered instead of a success. status 0: it could not be asked."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class DockerApi:
    """One Docker daemon. Every method raises DockerError."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("unix", "tcp", "http", "https"):
            raise ValueError(f"endpoint {endpoint!r} must begin with unix:// or tcp://")
        self.endpoint = endpoint
        self._tls = tls
        self._socket_path = parts.path if parts.scheme == "unix" else ""
        self._host, self._port = parts.hostname or "localhost", parts.port or (2376 if tls else 2375)
        self._base = "http://docker" if self._socket_path else f"{'https' if tls else 'http'}://{parts.netloc}"
        self._prefix = ""
        self._session: aiohttp.ClientSession | None = None

    async def version(self) -> dict[str, Any]:
        """What the daemon is; later calls speak its newest API."""
        found: dict[str, Any] = await self.call("GET", "/version", versioned=False)
        self._prefix = f"/v{found['ApiVersion']}"
        return found

    async def info(self) -> dict[str, Any]:
        """What the daemon knows of its host."""
        found: dict[str, Any] = await self.call("GET", "/info")
        return found

    async def has_image(self, image: str) -> bool:
        """Whether an image is there already."""
        try:
            await self.call("GET", f"/images/{image}/json")
        except DockerError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def pull(self, image: str, auth: Mapping[str, str] | None, *, silence_s: float | None = None) -> None:
        """Fetch an image from its registry. silence_s: how long the daemon may tell of no progress."""
        headers = (
            {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(dict(auth)).encode()).decode()} if auth else {}
        )
        repository, tag = split_image(image)
        params = {"fromImage": repository, "tag": tag}
        opened = self._open("POST", "/images/create", params=params, headers=headers, timeout_s=silence_s)
        async with opened as response:
            await _raise_streamed_error(response)

    async def import_image(self, archive: bytes, repository: str, tag: str) -> None:
        """Make an image of a tar archive of its files."""
        params = {"fromSrc": "-", "repo": repository, "tag": tag}
        headers = {"Content-Type": "application/x-tar"}
        async with self._open("POST", "/images/create", params=params, headers=headers, data=archive) as response:
            await _raise_streamed_error(response)

    async def remove_image(self, image: str) -> None:
        """Remove an image that no container uses; harmless when there is none."""
        try:
            await self.call("DELETE", f"/images/{image}")
        except DockerError as error:
            if error.status != 404:
                raise

    async def containers(self, label: str) -> list[dict[str, Any]]:
        """All containers with a label, ended ones included."""
        filters = json.dumps({"label": [label]})
        found: list[dict[str, Any]] = await self.call(
            "GET", "/containers/json", params={"all": "1", "filters": filters}
        )
        return found

    async def load(self, path: str) -> None:
        """Load an image from a tar archive on this host."""
        with open(path, "rb") as file:
            async with self._open("POST", "/images/load", data=file, timeout_s=None) as response:
                await _raise_streamed_error(response)

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Make a container; its id."""
        answer = await self.call("POST", "/containers/create", params={"name": name}, body=body)
        return str(answer["Id"])

    async def start(self, container: str) -> None:
        """Start a container."""
        await self.call("POST", f"/containers/{container}/start")

    async def inspect(self, container: str) -> dict[str, Any]:
        """All about a container."""
        found: dict[str, Any] = await self.call("GET", f"/containers/{container}/json")
        return found

    async def wait(self, container: str) -> None:
        """Return when a container does not run any more."""
        async with self._open("POST", f"/containers/{container}/wait", timeout_s=None) as response:
            await response.read()

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal to a container's first process; harmless when it does not run."""
        try:
            await self.call("POST", f"/containers/{container}/kill", params={"signal": signal})
        except DockerError as error:
            if error.status != 409:
                raise

    async def update(self, container: str, limits: Mapping[str, Any]) -> None:
        """Change limits of a container, running or not."""
        await self.call("POST", f"/containers/{container}/update", body=limits)

    async def rename(self, container: str, name: str) -> None:
        """Give a container another name."""
        await self.call("POST", f"/containers/{container}/rename", params={"name": name})

    async def remove(self, container: str) -> None:
        """Remove a container with its anonymous volumes, killing it if it runs; harmless when there is none."""
        try:
            await self.call("DELETE", f"/containers/{container}", params={"force": "1", "v": "1"})
        except DockerError as error:
            if error.status != 404:
                raise

    async def stats(self, container: str) -> dict[str, Any]:
        """Present use of CPU and memory; takes Docker about a second."""
        params = {"stream": "false", "one-shot": "true"}
        found: dict[str, Any] = await self.call("GET", f"/containers/{container}/stats", params=params)
        return found

    async def logs(self, container: str, since: str, *, tty: bool) -> AsyncIterator[tuple[str, bytes]]:
        """("stdout" | "stderr", timestamp, space, piece of output) from `since` on, until the container has ended."""
        params = {"follow": "1", "stdout": "1", "stderr": "1", "timestamps": "1", "since": since}
        async with self._open("GET", f"/containers/{container}/logs", params=params, timeout_s=None) as response:
            try:
                pieces = _lines(response.content) if tty else _frames(response.content)
                async for piece in pieces:
                    yield piece
            except (aiohttp.ClientError, OSError) as error:
                raise DockerError(0, f"log stream broke off: {error}") from error

    async def create_exec(self, container: str, body: Mapping[str, Any]) -> str:
        """Prepare a command inside a container; its id."""
        answer = await self.call("POST", f"/containers/{container}/exec", body=body)
        return str(answer["Id"])

    async def start_exec(self, number: str, *, tty: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Start a prepared command: the connection itself becomes its streams."""
        body = json.dumps({"Detach": False, "Tty": tty}).encode()
        head = (
            f"POST {self._prefix}/exec/{number}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await self._connect()
        try:
            writer.write(head.encode() + body)
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await reader.readuntil(b"\r\n\r\n")
            status = int(answer.split(b" ", 2)[1])
            if status not in (101, 200):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    said = await reader.read(4096)
                raise DockerError(status, _message(said))
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise DockerError(0, f"Docker did not start the command: {error}") from error
        except DockerError:
            writer.close()
            raise
        return reader, writer

    async def inspect_exec(self, number: str) -> dict[str, Any]:
        """All about a command inside a container."""
        found: dict[str, Any] = await self.call("GET", f"/exec/{number}/json")
        return found

    async def resize_exec(self, number: str, rows: int, columns: int) -> None:
        """Tell a command's terminal its size."""
        await self.call("POST", f"/exec/{number}/resize", params={"h": str(rows), "w": str(columns)})

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        versioned: bool = True,
    ) -> Any:
        """One request; its JSON answer, None when it is empty, its text where that is all it is."""
        async with self._open(method, path, params=params, json_body=body, versioned=versioned) as response:
            said = await response.read()
            if response.content_type == "text/plain":
                return said.decode(errors="replace")
            return json.loads(said) if said else None

    async def post_file(self, path: str, file_path: str) -> Any:
        """Send a file of this host; the JSON answer."""
        with open(file_path, "rb") as file:
            headers = {"Content-Type": "application/x-tar"}
            async with self._open(
                "POST", path, data=file, headers=headers, timeout_s=None, versioned=False
            ) as response:
                return json.loads(await response.read())

    @contextlib.asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        json_body: Mapping[str, Any] | None = None,
        data: Any = None,
        timeout_s: float | None = CALL_TIMEOUT_S,
        versioned: bool = True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A request whose answer is a success. timeout_s: silence between two reads; None for as long as it takes."""
        if self._session is None:
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(self._socket_path, limit=0)
                if self._socket_path
                else aiohttp.TCPConnector(limit=0)
            )
            self._session = aiohttp.ClientSession(connector=connector)
        url = self._base + (self._prefix if versioned else "") + path
        timeout = aiohttp.ClientTimeout(sock_connect=CALL_TIMEOUT_S, sock_read=timeout_s)
        try:
            async with self._session.request(
                method,
                url,
                params=params,
                headers=headers,
                json=json_body,
                data=data,
                timeout=timeout,
                ssl=self._tls or True,
            ) as response:
                if response.status >= 400:
                    raise DockerError(response.status, _message(await response.read()))
                yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DockerError(
                0, f"Docker at {self.endpoint} cannot be asked: {error or type(error).__name__}"
            ) from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            if self._socket_path:
                return await asyncio.open_unix_connection(self._socket_path, limit=HEAD_BYTES_MAX)
            return await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise DockerError(0, f"Docker at {self.endpoint} cannot be asked: {error}") from error


def split_image(image: str) -> tuple[str, str]:
    """ "registry:5000/web:1" -> ("registry:5000/web", "1"); without a tag "latest"; a digest stays whole."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    head, slash, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    return head + slash + name, tag or "latest"


async def split_frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """Docker's multiplexed streams: a header of eight bytes before each piece."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            kind, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
            while length:
                piece = await reader.read(min(length, CHUNK_BYTES_MAX))
                if not piece:
                    return
                length -= len(piece)
                yield STREAMS.get(kind, "stdout"), piece


async def _frames(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """The same of an HTTP body, whole frames: a log line's piece with its timestamp (Docker cuts lines at 16 KiB)."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            kind, length = _FRAME.unpack(await content.readexactly(_FRAME.size))
            yield STREAMS.get(kind, "stdout"), await content.readexactly(length)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes]]:
    """The output of a terminal: no frames, all is stdout."""
    pending = b""
    async for data in content.iter_any():
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            yield "stdout", line + b"\n"
    if pending:
        yield "stdout", pending


async def _raise_streamed_error(response: aiohttp.ClientResponse) -> None:
    """Pulls and loads report progress as JSON lines, and a failure as one with "error"."""
    async for line in response.content:
        with contextlib.suppress(ValueError):
            progress = json.loads(line)
            if isinstance(progress, dict) and progress.get("error"):
                raise DockerError(500, str(progress["error"]))


def _message(said: bytes) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(said)["message"])
    return said.decode(errors="replace").strip() or "no reason given"
