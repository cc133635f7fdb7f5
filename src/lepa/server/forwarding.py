"""Who answers a call: this server, or the leader over its internal port.

    status, events, `stale` reads   this server, from its own snapshot
    other reads                     the leader, once it is certain that it leads
    writes                          the leader

While nobody leads a call waits, for HOLD_S, and is then refused. It is asked again as long as it has certainly not been
done: nobody was reached, or whoever was reached did not lead. A write whose connection was lost may have been done; its
caller is told, and has to look.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.channel import LocalCaller, Lost, Peers, patience_s
from lepa.rpc.methods import Method
from lepa.rpc.requests import ReadRequest, Reply, Request
from lepa.server.contact import Contact
from lepa.server.leadership import Leadership

HOLD_S: Final = 5.0
"""How long a call waits for a leader."""
RETRY_S: Final = 0.1
LOOK_S: Final = 0.5
SILENT_MS: Final = 3_000
"""A leader that this server has not heard of for that long is asked nothing: other servers may reach it."""
ANYWHERE: Final = "Status."
"""Methods whose names begin like this tell what the asked server knows."""

Q = TypeVar("Q", bound=Request)
A = TypeVar("A")


class AsLeader:
    """Answers as the leader, or refuses at once: for calls that another server has passed on."""

    def __init__(self, local: LocalCaller, leadership: Leadership, *, alone: bool) -> None:
        """alone: no other server can have the store, so leading needs no confirmation."""
        self._local = local
        self._leadership = leadership
        self._alone = alone

    async def call(self, method: Method[Q, A], request: Q) -> Reply[A]:
        """The answer. Raises LepaError(no_leader) when this server does not lead."""
        if self._leadership.leading is None:
            raise LepaError("no_leader", "No cluster leader")
        if method.kind == "read" and not self._alone:
            await self._leadership.confirm()
        reply = await self._local.call(method, request)
        if isinstance(request, ReadRequest) and 0 < reply.index <= request.index and self._leadership.leading is None:
            raise LepaError("no_leader", "No cluster leader")  # what was waited for may have happened elsewhere
        return reply

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        """Streams are this server's own."""
        return self._local.stream(method, request)


class Forwarder:
    """Calls from anywhere, as an async context manager; fits `lepa.rpc.methods.Caller`."""

    def __init__(
        self,
        local: LocalCaller,
        leadership: Leadership,
        contact: Contact,
        peers: Peers | None,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._local = local
        self._leadership = leadership
        self._contact = contact
        self._peers = peers
        self._clock = clock
        self._metrics = metrics
        self._tasks = Tasks("forwarding")
        self._asks: dict[asyncio.Task[Any], int] = {}
        self.as_leader = AsLeader(local, leadership, alone=peers is None)

    async def __aenter__(self) -> "Forwarder":
        if self._peers is not None:
            self._tasks.start("give-up", self._give_up())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    async def call(self, method: Method[Q, A], request: Q) -> Reply[A]:
        """The answer of this server or of the leader. Raises LepaError."""
        if method.name.startswith(ANYWHERE) or (isinstance(request, ReadRequest) and request.stale):
            return self._fresh(await self._local.call(method, request))
        deadline = self._clock.now() + HOLD_S
        while True:
            began = self._clock.now()
            try:
                return await self._ask_leader(method, request)
            except LepaError as error:
                if error.code != "no_leader" and not (isinstance(error, Lost) and method.kind == "read"):
                    raise
                now = self._clock.now()
                if now - began >= HOLD_S:
                    deadline = now + HOLD_S  # it has waited for something else than a leader
                if now >= deadline:
                    self._metrics.count("nomad.nomad.rpc.no_leader", method=method.name)
                    raise LepaError("no_leader", "No cluster leader") from error
            await self._leadership.changed(min(deadline, self._clock.now() + RETRY_S))

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        """Streams are this server's own: every server follows all changes."""
        return self._local.stream(method, request)

    async def _ask_leader(self, method: Method[Q, A], request: Q) -> Reply[A]:
        if self._leadership.leading is not None:
            return await self.as_leader.call(method, request)
        address = self._leadership.leader_address
        if self._peers is None or not self._answers(address):
            raise LepaError("no_leader", "No cluster leader")
        self._metrics.count("nomad.nomad.rpc.forward", method=method.name)
        ask = self._tasks.start("ask", _outcome(self._peers.ask(address, method, request, patience_s(request))))
        self._asks[ask] = self._leadership.key.created
        try:
            await asyncio.wait({ask})
        finally:
            del self._asks[ask]
            ask.cancel()
        if ask.cancelled():
            raise Lost(method.name, address, "it does not answer or no longer leads")
        if isinstance(found := ask.result(), LepaError):
            raise found
        reply: Reply[A] = found
        return reply

    def _answers(self, address: str) -> bool:
        """Whether a leader is known that is another server and is not silent."""
        return bool(address) and not self._contact.is_me(address) and self._contact.silence_ms() < SILENT_MS

    async def _give_up(self) -> None:
        """Wait no longer for servers that have fallen silent or lead no more."""
        while True:
            await self._leadership.changed(self._clock.now() + LOOK_S)
            key = self._leadership.key
            for ask, created in list(self._asks.items()):
                if created != key.created or not self._answers(key.address):
                    ask.cancel()

    def _fresh(self, reply: Reply[A]) -> Reply[A]:
        """The reply, and how old it may be."""
        age_ms, known = self._contact.age_ms(), bool(self._leadership.leader_address)
        if age_ms == 0 and known:
            return reply
        return replace(reply, known_leader=known, last_contact_ms=age_ms)


async def _outcome(ask: Coroutine[Any, Any, Reply[Any]]) -> Reply[Any] | LepaError:
    """The answer, or how it was refused."""
    try:
        return await ask
    except LepaError as error:
        return error
