"""Keeps tasks without cores of their own off those that others have reserved.

A job that asks for `cores` gets whole ones. Its own tasks are pinned by their drivers; the others have to leave those
cores before its tasks start, and may come back once they have ended.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from lepa.drivers.protocol import Driver, SharesCores
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError

log = logging.getLogger(__name__)


def shared(cores: Iterable[int], allocations: Iterable[Allocation]) -> tuple[int, ...]:
    """Cores that nobody has reserved; all of them where nothing would be left."""
    reserved = {
        core
        for alloc in allocations
        for task in alloc.allocated_resources.tasks.values()
        for core in task.cpu.reserved_cores
    }
    everything = sorted(cores)
    return tuple(core for core in everything if core not in reserved) or tuple(everything)


class Cores:
    """Tells drivers which cores are for all, whenever that changes."""

    def __init__(self, drivers: Mapping[str, Driver]) -> None:
        self._drivers = [driver for driver in drivers.values() if isinstance(driver, SharesCores)]
        self._told: tuple[int, ...] = ()
        self._turn = asyncio.Lock()

    async def share(self, cores: Iterable[int], allocations: Iterable[Allocation]) -> None:
        """cores: of the node; allocations: that run or are about to. A node without reservations is left alone."""
        everything = tuple(sorted(cores))
        found = shared(everything, allocations)
        async with self._turn:
            if found == (self._told or everything):
                return
            self._told = found
            for driver in self._drivers:
                try:
                    await driver.share_cores(found)
                except LepaError as error:
                    log.warning("cores were not shared out driver=%s error=%s", driver.name, error.message)
