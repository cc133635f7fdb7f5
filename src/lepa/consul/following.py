"""Holds the newest view of the catalog, and lets requests wait for a newer one.

Until the catalog has been read once there is nothing to show: an empty answer would make a balancer drop every route.

`publish` is called on the event loop's thread with each new table. Whoever waits looks again at every new view and goes
back to waiting when what it asked about has not changed.
"""

import asyncio
from collections.abc import Callable, Sequence

from lepa.catalog.table import Instance, ServiceTable
from lepa.consul.indexes import View, advance
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError

FIRST_WAIT_S = 10.0
"""How long a request waits for the catalog to be read for the first time."""

WAITING_MAX = 10_000
"""Requests that wait for a change at the same time; each looks again at every newer view."""


class Following:
    """The newest view. own: instances that are always shown: the service `consul`, which clients expect to find."""

    def __init__(self, clock: Clock, own: Sequence[Instance] = ()) -> None:
        self._clock = clock
        self._own = tuple(own)
        self._newer = asyncio.Event()
        self._waiting = 0
        self._view = View()

    @property
    def view(self) -> View:
        """The newest view. Raises LepaError(no_leader) before the first `publish`."""
        if not self._view.changed:
            raise LepaError("no_leader", "No cluster leader: the catalog has not been read yet")
        return self._view

    def publish(self, table: ServiceTable) -> None:
        """Show `table` from now on."""
        for own in self._own:
            others = table.service(own.namespace, own.service).all
            table = table.with_service(own.namespace, own.service, [*others, own], table.index)
        before, self._view = self._view, advance(self._view, table)
        if self._view.changed != before.changed:
            newer, self._newer = self._newer, asyncio.Event()
            newer.set()

    async def first(self) -> View:
        """The newest view, waited for when there is none yet. Raises LepaError(no_leader)."""
        deadline = self._clock.now() + FIRST_WAIT_S
        while not self._view.changed and await self._next(deadline):
            pass
        return self.view

    async def changed(self, index_of: Callable[[View], int], seen: int, wait_s: float) -> View:
        """The first view whose index is not `seen` or lower, else the newest one after wait_s.

        An index from the future, of an agent before this one, is answered at once: its owner has to begin anew. Raises
        LepaError when too many wait already.
        """
        deadline = self._clock.now() + wait_s
        if self._waiting >= WAITING_MAX:
            raise LepaError("internal", f"{WAITING_MAX} requests wait already; try again later", http_status=429)
        self._waiting += 1
        try:
            while index_of(self.view) <= seen <= self.view.changed and await self._next(deadline):
                pass
        finally:
            self._waiting -= 1
        return self.view

    async def _next(self, deadline: float) -> bool:
        """Return when there is a newer view; False when the time is over first."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.now())):
                await self._newer.wait()
        except TimeoutError:
            return False
        return True
