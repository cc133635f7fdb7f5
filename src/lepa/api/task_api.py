"""The API on a socket inside a task: the same routes, and always a token, also while access control is off.

401 without a token, 403 with one that is not known. The address of a socket has room for some 100 characters, and
paths of allocations are longer: it is bound by a short way, through the descriptor of its directory.
"""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from lepa.api.app import build
from lepa.api.edge import Edge
from lepa.api.request import text_response, token
from lepa.model.errors import LepaError

MODE: Final = 0o666
BACKLOG: Final = 64
SHUTDOWN_S: Final = 0.5


class TaskSockets:
    """The sockets of this agent's tasks. As an async context manager they are served while it is entered.

    Those that are opened before there is an edge wait for it (`serve`).
    """

    def __init__(self) -> None:
        self._runner: web.AppRunner | None = None
        self._sites: dict[Path, web.SockSite] = {}
        self._waiting: dict[Path, socket.socket] = {}

    async def __aenter__(self) -> "TaskSockets":
        return self

    async def __aexit__(self, *_: object) -> None:
        for path in [*self._sites, *self._waiting]:
            await self.close(path)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def serve(self, edge: Edge) -> None:
        """Answer from now on."""
        app = build(edge, (_known_only(edge),))
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
        await self._runner.setup()
        for path, listener in list(self._waiting.items()):
            await self._start(path, listener)
        self._waiting.clear()

    async def open(self, path: Path) -> None:
        """Listen on a socket at `path`; what stood there is replaced. Raises OSError."""
        await self.close(path)
        listener = _bound(path)
        if self._runner is None:
            self._waiting[path] = listener
        else:
            await self._start(path, listener)

    async def _start(self, path: Path, listener: socket.socket) -> None:
        assert self._runner is not None
        site = web.SockSite(self._runner, listener, backlog=BACKLOG)
        await site.start()
        self._sites[path] = site

    async def close(self, path: Path) -> None:
        """Listen there no longer."""
        if (site := self._sites.pop(path, None)) is not None:
            await site.stop()
        elif (listener := self._waiting.pop(path, None)) is not None:
            listener.close()
        else:
            return
        with contextlib.suppress(OSError):
            path.unlink()


def _bound(path: Path) -> socket.socket:
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.chmod(path.name, MODE, dir_fd=directory)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _known_only(edge: Edge) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def known_only(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not token(request):
            return text_response(401, "Unauthorized")
        try:
            await edge.authorize(request, "Task.Api")
        except LepaError as error:
            if error.code != "denied":
                return text_response(500, "Server error authenticating request")
            return text_response(403, "Forbidden")
        return await handler(request)

    return known_only
