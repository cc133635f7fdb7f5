"""The network and the disk of the simulated cluster: slow by chance, lossy on purpose.

Network   who reaches whom, and how long a packet takes
Session   in the place of `rpc.channel.ServerSession`: the real callers speak msgpack through it
Disk      one server's way to the store
"""

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
from tests.simulation.virtual_time import Process

from lepa.kit.sockets import INTERVAL_S, SILENCE_S
from lepa.model.errors import LepaError
from lepa.rpc.methods import Method
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Change, Committed, Fence, Image, Lease, Read, Txn

PACKET_S = (0.0002, 0.005)
COMMIT_S = (0.0005, 0.01)
STORE_PATIENCE_S = 1.0
RETRANSMIT_S = 0.2
"""After how long a segment that was not acknowledged is sent again; then after twice that, and so on."""

Serve = Callable[[str, bytes, bool], Awaitable[tuple[int, bytes]]]
"""Answers a call: its name, its body, whether it is for a leader; the status and body of the answer."""


class Network:
    """Links between machines by name, and who listens at which address."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._cut: set[tuple[str, str]] = set()
        self._listeners: dict[str, tuple[str, Serve, Process]] = {}
        self.calls = 0

    def listen(self, address: str, machine: str, serve: Serve, process: Process) -> None:
        self._listeners[address] = (machine, serve, process)

    def hang_up(self, address: str) -> None:
        self._listeners.pop(address, None)

    def listener(self, address: str) -> tuple[str, Serve, Process] | None:
        return self._listeners.get(address)

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives in this direction any more."""
        self._cut.add((source, target))

    def isolate(self, machine: str, others: Sequence[str]) -> None:
        for other in others:
            self.cut(machine, other)
            self.cut(other, machine)

    def heal(self) -> None:
        self._cut.clear()

    async def carry(self, source: str, target: str) -> bool:
        """A message's way; whether it arrives."""
        await asyncio.sleep(self._chance.uniform(*PACKET_S))
        return (source, target) not in self._cut

    async def carry_long(self, source: str, target: str) -> bool:
        """A message's way within a connection: sent again until it arrives, or until the connection is given up."""
        waited, pause = 0.0, RETRANSMIT_S
        while not await self.carry(source, target):
            if waited >= SILENCE_S:
                return False
            await asyncio.sleep(pause)
            waited, pause = waited + pause, 2 * pause
        return True

    async def echo(self, one: str, other: str) -> bool:
        """Whether `other` answers what `one` asks it, as a kernel does for a process that stands still."""
        return await self.carry(one, other) and await self.carry(other, one)


class Session:
    """One process's connections."""

    closed = False

    def __init__(self, network: Network, machine: str, process: Process) -> None:
        self._network = network
        self._machine = machine
        self._process = process

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def call(
        self,
        address: str,
        method: Method[Any, Any],
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> "_Exchange":
        call = method.name, body, bool(headers)
        return _Exchange(self._network, self._machine, self._process, address, call, timeout)


class _Exchange:
    """One call on its way, as an async context manager that gives the response."""

    def __init__(
        self,
        network: Network,
        machine: str,
        process: Process,
        address: str,
        call: tuple[str, bytes, bool],
        timeout: aiohttp.ClientTimeout,
    ) -> None:
        """call: its name, its body, whether it is for a leader."""
        self._network = network
        self._machine = machine
        self._process = process
        self._address = address
        self._call = call
        self._timeout = timeout
        self._work: asyncio.Task[tuple[int, bytes]] | None = None

    async def __aenter__(self) -> "_Response":
        self._network.calls += 1
        try:
            async with asyncio.timeout(self._timeout.total):
                response = await self._answer()
        except TimeoutError:
            raise TimeoutError("no answer in time") from None
        finally:
            if self._work is not None and not self._work.done():
                self._work.cancel()  # as a server does whose caller hangs up
        await self._process.gate()
        return response

    async def _answer(self) -> "_Response":
        await self._process.gate()
        known = self._network.listener(self._address)
        target = known[0] if known else self._address
        if not await self._network.echo(self._machine, target):
            await asyncio.sleep(self._timeout.sock_connect or 5.0)
            raise aiohttp.ConnectionTimeoutError("no way there")
        known = self._network.listener(self._address)
        if known is None:
            key = SimpleNamespace(host=self._address, port=0, ssl=True, is_ssl=False)
            raise aiohttp.ClientConnectorError(cast(Any, key), OSError(errno.ECONNREFUSED, "Connection refused"))
        _, serve, process = known
        await process.gate()
        self._work = asyncio.get_running_loop().create_task(_coroutine(serve(*self._call)))
        await self._served(self._work, target)
        await process.gate()
        if self._work.cancelled() or self._network.listener(self._address) is not known:
            raise aiohttp.ServerDisconnectedError
        status, body = self._work.result()
        if not await self._network.carry_long(target, self._machine):
            raise aiohttp.ServerDisconnectedError
        return _Response(status, body)

    async def _served(self, work: "asyncio.Task[tuple[int, bytes]]", target: str) -> None:
        """Wait until the call is worked off, or until the other machine was silent for too long: `kit.sockets`."""
        silent_s = 0
        while not (await asyncio.wait({work}, timeout=INTERVAL_S))[0]:
            silent_s = 0 if await self._network.echo(self._machine, target) else silent_s + INTERVAL_S
            if silent_s >= SILENCE_S:
                raise aiohttp.ServerDisconnectedError

    async def __aexit__(self, *_: object) -> None:
        """The answer has been read."""


async def _coroutine(work: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
    return await work


class _Response:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self._body = body

    async def read(self) -> bytes:
        return self._body


class Disk:
    """One server's way to the store: takes time, may be cut, may lose answers."""

    def __init__(self, store: MemoryStore, process: Process, chance: random.Random) -> None:
        self.store = store
        self.limits = store.limits
        self._process = process
        self._chance = chance
        self._reached = asyncio.Event()
        self._reached.set()
        self.answers_lost = 0.0
        """The share of commits that are made and not answered."""
        self.fenced = True
        self.lies = 0.0
        """The share of commits that are answered and not made. This and `fenced` are for bugs that are planted."""

    def cut(self) -> None:
        self._reached.clear()

    def mend(self) -> None:
        self._reached.set()
        self.answers_lost = 0.0

    async def _way(self) -> None:
        await asyncio.sleep(self._chance.uniform(*COMMIT_S))
        await self._process.gate()
        if not self._reached.is_set():
            await asyncio.sleep(STORE_PATIENCE_S)
            raise LepaError("timeout", "the store did not answer")

    async def read(self, prefix: str) -> Read:
        await self._way()
        return await self.store.read(prefix)

    async def commit(self, txn: Txn, fence: Fence | None = None) -> Committed:
        await self._way()
        if self._chance.random() < self.lies:
            return Committed(True, (await self.store.read("leader")).revision)
        committed = await self.store.commit(txn, fence if self.fenced else None)
        if self._chance.random() < self.answers_lost:
            await asyncio.sleep(STORE_PATIENCE_S)
            raise LepaError("timeout", "the store did not answer")
        await self._way()
        return committed

    async def replace(self, image: Image, fence: Fence | None = None) -> int:
        await self._way()
        return await self.store.replace(image, fence)

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Sequence[Change]]:
        async for changes in self.store.watch(from_revision, prefix):
            await asyncio.sleep(self._chance.uniform(*PACKET_S))
            await self._process.gate()
            await self._reached.wait()
            yield changes

    async def lease(self, ttl_s: float) -> "DiskLease":
        await self._way()
        return DiskLease(self, await self.store.lease(ttl_s))

    async def close(self) -> None:
        """The store is the world's to close."""


class DiskLease:
    """A lease at the other end of a disk."""

    def __init__(self, disk: Disk, lease: Lease) -> None:
        self._disk = disk
        self._lease = lease
        self.id = lease.id

    async def keep(self) -> None:
        await self._disk._way()
        await self._lease.keep()

    async def revoke(self) -> None:
        await self._disk._way()
        await self._lease.revoke()
