"""Tells the servers what became of allocations: in batches, and only what differs from what was told last."""

import asyncio
import logging
from collections.abc import Callable

from lepa.client.server_link import ServerLink
from lepa.kit.sources import Clock
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc.requests import NodeAllocationUpdatesRequest

log = logging.getLogger(__name__)

GATHER_S = 0.02
RETRY_S = 1.0
BATCH_MAX = 100


class Reports:
    """What has news, and what was told. present: an allocation's report now, None when it is gone."""

    def __init__(self, link: ServerLink, clock: Clock, present: Callable[[str], Allocation | None]) -> None:
        self._link = link
        self._clock = clock
        self._present = present
        self._news: dict[str, None] = {}
        self._has_news = asyncio.Event()
        self._told: dict[str, Allocation] = {}
        self._doubted: set[str] = set()
        self.on_told: Callable[[Allocation | None, Allocation], None] = lambda before, after: None
        """Called for each allocation that was told, with what was told of it before."""

    def note(self, alloc_id: str) -> None:
        """An allocation may differ from what the servers know."""
        self._news[alloc_id] = None
        self._has_news.set()

    def is_known(self, alloc_id: str) -> bool:
        """Whether the servers know the allocation as it is now."""
        return self._present(alloc_id) == self._told.get(alloc_id)

    def doubt(self, alloc_id: str) -> None:
        """The servers gave up what they had been told of an allocation; what is being told now may come before that."""
        self._told.pop(alloc_id, None)
        self._doubted.add(alloc_id)

    def forget(self, alloc_id: str) -> None:
        """An allocation is gone from this node."""
        self._told.pop(alloc_id, None)

    def forget_all(self) -> None:
        """The servers may have lost what they were told."""
        self._told.clear()

    async def run(self) -> None:
        """Send news for as long as the node lives."""
        while True:
            await self._has_news.wait()
            await self._clock.sleep(GATHER_S)
            await self._link.registered.wait()
            self._has_news.clear()
            chosen = list(self._news)[:BATCH_MAX]
            for alloc_id in chosen:
                del self._news[alloc_id]
            present = [alloc for alloc_id in chosen if (alloc := self._present(alloc_id)) is not None]
            news = [alloc for alloc in present if self._told.get(alloc.id) != alloc]
            if news and not await self._send(news):
                self._news |= dict.fromkeys(alloc.id for alloc in news)
                await self._clock.sleep(RETRY_S)
            if self._news:
                self._has_news.set()

    async def _send(self, allocations: list[Allocation]) -> bool:
        update = NodeAllocationUpdatesRequest(
            node_id=self._link.node.id,
            secret_id=self._link.node.secret_id,
            seen=self._link.seen,
            allocations=tuple(allocations),
        )
        self._doubted.clear()
        try:
            await self._link.call(m.NODE_UPDATE_ALLOCATIONS, update)
        except LepaError as error:
            log.warning("allocations could not be reported count=%d error=%s", len(allocations), error.message)
            return False
        for alloc in allocations:
            self.on_told(self._told.get(alloc.id), alloc)
        self._told |= {alloc.id: alloc for alloc in allocations if alloc.id not in self._doubted}
        return True
