"""Several servers of one region in one process, on one store, each with its internal port and a cable to cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from aiohttp import web

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.channel import HttpPeers, ServerSession, channel_app
from lepa.server.server import Server
from lepa.server.settings import HeartbeatSettings, ServerSettings
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Change, Committed, Fence, Lease, Read, Store, Txn

WAIT_S = 15.0


class Cable:
    """A server's way to the store. While it is cut nothing gets through, and watches tell nothing.

    Asleep, watches tell nothing and leases seem to be kept, but are not: what a stopped process sees when it goes on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._whole = asyncio.Event()
        self._whole.set()
        self._asleep = False
        self._swallows = False
        self.lag_s = 0.0
        """How late watches tell."""
        self.limits = store.limits

    def cut(self) -> None:
        self._whole.clear()

    def sleep(self) -> None:
        self._asleep = True
        self._whole.clear()

    def mend(self) -> None:
        self._asleep = self._swallows = False
        self._whole.set()

    def swallow_answers(self) -> None:
        """From now on commits are made, and not answered."""
        self._swallows = True

    @property
    def asleep(self) -> bool:
        return self._asleep

    def _check(self) -> None:
        if not self._whole.is_set() and not self._asleep:
            raise LepaError("timeout", "the store did not answer")

    async def read(self, prefix: str) -> Read:
        self._check()
        return await self._store.read(prefix)

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        self._check()
        committed = await self._store.commit(txn, fence)
        if self._swallows:
            await asyncio.Event().wait()
        return committed

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        async for changes in self._store.watch(from_revision, prefix):
            await self._whole.wait()
            if self.lag_s:
                await asyncio.sleep(self.lag_s)
            yield changes

    async def lease(self, ttl_s: float) -> "CableLease":
        self._check()
        return CableLease(self, await self._store.lease(ttl_s))

    async def close(self) -> None:
        """The store is the test's to close."""


class CableLease:
    """A lease at the other end of a cable."""

    def __init__(self, cable: Cable, lease: Lease) -> None:
        self._cable = cable
        self._lease = lease
        self.id = lease.id

    async def keep(self) -> None:
        self._cable._check()
        if not self._cable.asleep:
            await self._lease.keep()

    async def revoke(self) -> None:
        self._cable._check()
        await self._lease.revoke()


class Member:
    """One server: its port, its cable, its figures."""

    def __init__(self, name: str, store: Store) -> None:
        self.name = name
        self.store = store
        self.cable = Cable(store)
        self.metrics = Metrics()
        self._stack = AsyncExitStack()
        self._port: web.AppRunner | None = None
        self.server: Server
        self.address = ""

    async def start(self, settings: dict[str, object]) -> None:
        """Listen first: a server that leads has to be reached."""
        clock = SystemClock()
        session = await self._stack.enter_async_context(ServerSession())
        holder = web.Application()
        self._port = web.AppRunner(holder, shutdown_timeout=0.1, handler_cancellation=True)
        port = await _free_site(self._port, self)
        self.address = f"127.0.0.1:{port}"
        wanted = ServerSettings(name=f"{self.name}.global", rpc_address=self.address, **settings)  # type: ignore[arg-type]
        self.server = Server(self.cable, wanted, clock, SystemRandom(), self.metrics, HttpPeers(session))
        await self._listen(port)
        await self._stack.enter_async_context(self.server)

    async def _listen(self, port: int) -> None:
        app = channel_app(self.server.caller, self.server.caller.as_leader)
        self._port = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._port.setup()
        await web.TCPSite(self._port, "127.0.0.1", port).start()

    async def close_port(self) -> None:
        """Nobody listens any more."""
        if self._port is not None:
            await self._port.cleanup()
            self._port = None

    async def die(self) -> None:
        """End as a killed process does: the port refuses at once, the store hears nothing more, the lease stays."""
        self.cable.cut()
        await self.close_port()
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def stop(self) -> None:
        """End in good order."""
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        await self.close_port()


async def _free_site(runner: web.AppRunner, member: Member) -> int:
    """A port that was free a moment ago."""
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = int(runner.addresses[0][1])
    await runner.cleanup()
    return port


class Region:
    """The servers, by name."""

    def __init__(self, members: dict[str, Member]) -> None:
        self.members = members

    async def leader(self) -> Member:
        """The one that leads, once one does."""
        found = await until(lambda: [m for m in self.members.values() if m.server.leads], "a leader")
        return found[0]

    async def followers(self) -> list[Member]:
        """The others, once they know it."""
        leader = await self.leader()
        others = [member for member in self.members.values() if member is not leader]
        await until(lambda: all(m.server.leader_address == leader.address for m in others), "known leader")
        return others

    def count(self, name: str) -> float:
        """The sum of a counter over all servers and labels."""
        members = self.members.values()
        return sum(value for m in members for (series, _), value in m.metrics.totals.items() if series == name)


T = TypeVar("T")


async def until(found: Callable[[], T], what: str, within_s: float = WAIT_S) -> T:
    """The first true value of `found`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not (value := found()):
        assert loop.time() < deadline, f"waited {within_s} s for: {what}"
        await asyncio.sleep(0.02)
    return value


@asynccontextmanager
async def region(count: int = 3, stores: Sequence[Store] = (), **settings: object) -> AsyncIterator[Region]:
    """A region of `count` servers, one of which leads.

    stores: for each server its own way to the same state, closed at the end; without them all share one in memory.
    settings: of each server.
    """
    stores = stores or [MemoryStore(SystemClock())] * count
    members = {f"s{number}": Member(f"s{number}", store) for number, store in enumerate(stores, 1)}
    wanted = {"heartbeat": HeartbeatSettings(min_ttl_s=1.0, grace_s=1.0, failover_ttl_s=5.0), "lease_ttl_s": 3.0}
    try:
        for member in members.values():
            await member.start({**wanted, **settings})
        made = Region(members)
        await made.followers()
        yield made
    finally:
        for member in members.values():
            await member.stop()
        for store in stores:
            await store.close()
