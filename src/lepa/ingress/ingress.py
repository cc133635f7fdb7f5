"""A whole ingress: follows the catalog, builds tables, carries traffic, answers about itself.

The asyncio loop of its process follows the agent and builds tables; traffic has a thread of its own (`plane`). While
the agent is away, the last table stays in force. Several changes that come together make one table.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from lepa.catalog.table import ServiceTable
from lepa.catalog.watcher import Watcher
from lepa.ingress.access import Passwords, read_passwords
from lepa.ingress.admin import Admin
from lepa.ingress.plane import Plane
from lepa.ingress.route_spec import Notice
from lepa.ingress.routes import RouteTable
from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import invalid
from lepa.sdk.address import Target
from lepa.sdk.async_connection import AsyncConnection

log = logging.getLogger(__name__)

LOOK_S = 3.0
"""How often files of certificates and passwords are looked at."""
SETTLE_S = 0.02
"""How long a change waits for others that belong to it."""
NOTICES_LOGGED_MAX = 100


class Ingress:
    """One ingress, as an async context manager: it serves while it is entered, and drains when it is left.

    agent: whose HTTP API tells of services.
    """

    def __init__(self, settings: IngressSettings, agent: Target, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._agent = agent
        self._clock = clock
        self._stack = AsyncExitStack()
        self._tasks = Tasks("ingress")
        self._changed = asyncio.Event()
        self._services: ServiceTable | None = None
        self._rules = settings.rules()
        self._table: RouteTable | None = None
        self._noted: frozenset[Notice] = frozenset()
        self.plane = Plane(settings, clock, random.seed(), {name: {} for name in settings.auth})

    async def __aenter__(self) -> "Ingress":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings = self._settings
        self._read_passwords(strict=True)
        self.plane.start()
        self._stack.push_async_callback(asyncio.to_thread, self.plane.stop)
        if settings.ui:
            await self._stack.enter_async_context(Admin(self.plane))
        connection = await self._stack.enter_async_context(AsyncConnection(self._agent._replace(namespace="*")))
        await self._stack.enter_async_context(self._tasks)
        self._tasks.start("catalog", Watcher(connection, self._clock, self._take).run())
        self._tasks.start("tables", self._build_tables())
        self._tasks.start("files", self._look_at_files())
        log.info("ingress started address=%s ports=%s", settings.address, self.plane.ports())

    def _take(self, services: ServiceTable) -> None:
        self._services = services
        self._changed.set()

    async def _build_tables(self) -> None:
        """Turn the newest catalog into a table, again and again."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(SETTLE_S)
            self._changed.clear()
            assert self._services is not None
            self._table = RouteTable.build(self._services, self._rules, self._table)
            self.plane.publish(self._table)
            self._log_notices(self._table)

    def _log_notices(self, table: RouteTable) -> None:
        """Tell of tags that are not followed, each once while it stands."""
        now = frozenset(table.notices)
        for notice in sorted(now - self._noted)[:NOTICES_LOGGED_MAX]:
            log.warning("tag not followed service=%s tag=%r problem=%r", notice.service, notice.tag, notice.problem)
        self._noted = now

    async def _look_at_files(self) -> None:
        """Take renewed certificates and passwords in."""
        while True:
            await self._clock.sleep(LOOK_S)
            await asyncio.to_thread(self.plane.certificates.refresh)
            self._read_passwords(strict=False)

    def _read_passwords(self, *, strict: bool) -> None:
        found: dict[str, Passwords] = {}
        for scheme, path in self._settings.auth.items():
            try:
                found[scheme] = read_passwords(Path(path).read_text())
            except (OSError, ValueError) as error:
                if strict:
                    raise invalid(f"ingress: auth: cannot read {path}: {error}") from error
                log.warning("passwords not read path=%s error=%s", path, error)
        self.plane.http.passwords.update(found)
