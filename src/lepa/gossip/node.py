"""One running member of a gossip cluster: carries out what `Serf` orders, and says what happens.

    async with GossipNode(settings, clock, random, on_event) as node:
        joined, errors = await node.join(["10.0.0.1:4648"])

Every packet, stream and timer goes through the machine and its orders are carried out at once. Before time is looked
at, packets that wait are read, so that a process that was held up accuses nobody whose answer is already there.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lepa.gossip import internal_queries as internal
from lepa.gossip import messages as w
from lepa.gossip import serf_messages as s
from lepa.gossip.errors import Malformed
from lepa.gossip.keyring import Keyring, key_text
from lepa.gossip.orders import Endpoint, ExchangeStates, Order, PingByStream, SendPacket
from lepa.gossip.packets import Framing
from lepa.gossip.queries import Pending
from lepa.gossip.serf import Event, QueryEnded, Serf, Settings
from lepa.gossip.serf_members import Member
from lepa.gossip.transport import StreamMessage, Transport, packed, unpacked
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks

log = logging.getLogger(__name__)

FAREWELL_S: Final = 5.0
"""How long a member that leaves waits until others were told."""
PROPAGATE_S: Final = 1.0
LOOK_S: Final = 0.05
EXCHANGES_MAX: Final = 32
JOIN_MAX: Final = 64
ADDRESSES_MAX: Final = 16


class Listen(NamedTuple):
    """Where to listen; port 0 picks a free one. advertised: what others are told, "" and 0 for the same."""

    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0


class KeyReport(NamedTuple):
    """How a question about keys went. messages: by member, what was wrong. keys: how many members have each."""

    members: int
    answered: int
    failed: int
    messages: dict[str, str]
    keys: dict[str, int]
    primary_keys: dict[str, int]


class GossipNode:
    """One member, as an async context manager. settings: addr and port are filled in when it listens."""

    def __init__(
        self,
        settings: Settings,
        listen: Listen,
        clock: Clock,
        random: Random,
        on_event: Callable[[Event], None] = lambda event: None,
        *,
        keyring: Keyring | None = None,
        label: bytes = b"",
    ) -> None:
        self._settings = settings
        self._listen = listen
        self._clock = clock
        self._random = random
        self._on_event = on_event
        self.framing = Framing(keyring, label)
        self._tasks = Tasks("gossip")
        self._transport = Transport(
            listen.host,
            listen.port,
            self.framing,
            self._packet,
            self._stream,
            settings.profile.stream_timeout_s,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._ended: dict[int, asyncio.Event] = {}
        self.serf: Serf

    async def __aenter__(self) -> "GossipNode":
        """Raises OSError when the port cannot be had."""
        await self._transport.__aenter__()
        host = self._listen.advertised_host or self._listen.host
        port = self._listen.advertised_port or self._transport.port
        settings = self._settings._replace(addr=packed(host), port=port)
        self.serf = Serf(settings, self.framing, self._random, self._clock.now())
        self._pump()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        await self._tasks.close()
        await self._transport.__aexit__()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._transport.port

    def members(self) -> list[Member]:
        """Everyone this member knows of."""
        return self.serf.members.all()

    def counts(self) -> dict[str, int]:
        """What was dropped and failed, by a fixed set of names."""
        return dict(self.serf.counts + self.serf.membership.counts + self._transport.counts)

    # The machine

    def _pump(self) -> None:
        """Carry out orders, tell what happened, come back in time."""
        for order in self.serf.poll():
            self._carry_out(order)
        for event in self.serf.events():
            if isinstance(event, QueryEnded) and (waits := self._ended.pop(event.pending.query.id, None)):
                waits.set()
            self._on_event(event)
        if self._timer is not None:
            self._timer.cancel()
        wait = max(0.0, self.serf.wake_at() - self._clock.now())
        self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._transport.drain()
        now = self._clock.now()
        if now >= self.serf.wake_at():
            self.serf.tick(now)
        self._pump()

    def _carry_out(self, order: Order) -> None:
        match order:
            case SendPacket(to, parts, crc):
                self._transport.send(to, parts, crc=crc)
            case PingByStream():
                if len(self._tasks) < EXCHANGES_MAX:
                    self._tasks.start("ping", self._ping(order))
            case ExchangeStates(to, name):
                if len(self._tasks) < EXCHANGES_MAX:
                    self._tasks.start("exchange", self._exchange_quietly(to, name))

    def _packet(self, data: bytes, source: Endpoint) -> None:
        self.serf.packet(data, source, self._clock.now())
        self._pump()

    def _stream(self, message: StreamMessage) -> tuple[bytes, Callable[[], None] | None]:
        now = self._clock.now()
        match message:
            case w.PushPull():
                return self.serf.state(join=message.join), lambda: self._merge_theirs(message)
            case w.Ping():
                return self.serf.stream_ping(message), None
            case w.UserMessage(data):
                self.serf.stream_user(data, now)
                self._pump()
                return b"", None
            case _:
                raise Malformed("type", "this message asks nothing")

    def _merge_theirs(self, state: w.PushPull) -> None:
        if why := self.serf.merge(state, self._clock.now()):
            log.warning("members of another server were refused reason=%s", why)
        self._pump()

    async def _ping(self, ping: PingByStream) -> None:
        with contextlib.suppress(OSError, TimeoutError, EOFError, Malformed):
            answer = await self._transport.ask(ping.to, ping.message, max(0.01, ping.deadline - self._clock.now()))
            if isinstance(answer, w.Ack) and answer.seq == ping.seq:
                self.serf.stream_acked(ping.seq, self._clock.now())
                self._pump()

    async def _exchange_quietly(self, to: Endpoint, name: str) -> None:
        if why := await self._exchange(to, join=False):
            log.debug("exchange of states failed member=%s reason=%s", name, why)

    async def _exchange(self, to: Endpoint, *, join: bool) -> str:
        """Push and pull; why it failed, or ""."""
        try:
            answer = await self._transport.ask(to, self.serf.state(join=join))
        except TimeoutError:
            return "no answer in time"
        except EOFError:
            return "the connection was closed without an answer: is this the gossip port of a server?"
        except OSError as error:
            return f"cannot be reached: {_reason(error)}"
        except Malformed as error:
            return _explained(error)
        if isinstance(answer, w.ErrorReply):
            return _translated(answer.error)
        if not isinstance(answer, w.PushPull):
            return "answered with something else than its members"
        why = self.serf.merge(answer, self._clock.now(), joining=join)
        self._pump()
        return why

    # What users ask for

    async def join(self, addresses: Sequence[str], default_port: int) -> tuple[int, list[str]]:
        """Join others, each `host`, `host:port` or `name/host:port`. How many were reached, and a sentence for each
        that was not."""
        joined, errors = 0, []
        for address in addresses[:JOIN_MAX]:
            why = await self._join_one(address, default_port)
            joined += not why
            errors += [f"{address}: {why}"] if why else []
        if joined:
            self.serf.joined(self._clock.now())
            self._pump()
        return joined, errors

    async def _join_one(self, address: str, default_port: int) -> str:
        try:
            host, port = split_address(address.rpartition("/")[2], default_port)
            async with asyncio.timeout(self._settings.profile.stream_timeout_s):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (ValueError, UnicodeError) as error:
            return str(error)
        except TimeoutError:
            return "the name could not be looked up in time"
        except OSError as error:
            return f"the name cannot be looked up: {error.strerror or error}"
        why = "the name has no address"
        for entry in found[:ADDRESSES_MAX]:
            why = await self._exchange((packed(str(entry[4][0])), port), join=True)
            if not why:
                break
        return why

    async def leave(self) -> None:
        """Say goodbye, and return once others had time to hear it."""
        self.serf.intend_to_leave(self._clock.now())
        self._pump()
        await self._wait_while(lambda: self.serf.is_telling_intent)
        self.serf.leave(self._clock.now())
        self._pump()
        others = self.serf.membership.is_telling_farewell
        await self._wait_while(lambda: self.serf.membership.is_telling_farewell)
        if others:
            await self._clock.sleep(PROPAGATE_S)

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        ends = self._clock.now() + FAREWELL_S
        while condition() and self._clock.now() < ends:
            await self._clock.sleep(LOOK_S)

    def force_leave(self, name: str, *, prune: bool = False) -> bool:
        """Declare a failed member left; whether there is such a member."""
        found = self.serf.send_away(name, self._clock.now(), prune=prune)
        self._pump()
        return found

    def set_tags(self, tags: dict[str, str]) -> None:
        """Say something else of this member. Raises ValueError."""
        self.serf.set_tags(tags, self._clock.now())
        self._pump()

    def tell(self, name: str, payload: bytes) -> None:
        """Tell everybody something. Raises ValueError."""
        self.serf.tell(name, payload, self._clock.now())
        self._pump()

    async def ask(
        self,
        name: str,
        payload: bytes = b"",
        *,
        filters: tuple[bytes, ...] = (),
        timeout_s: float = 0.0,
        want_acks: bool = False,
        enough: Callable[[Pending], bool] = lambda pending: False,
    ) -> Pending:
        """Ask everybody, and wait until there are `enough` answers or the time is over. Raises ValueError."""
        pending = self.serf.ask(
            name, payload, self._clock.now(), filters=filters, timeout_s=timeout_s, want_acks=want_acks
        )
        self._pump()
        over = self._ended.setdefault(pending.query.id, asyncio.Event())
        while not over.is_set() and not enough(pending):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await over.wait()
        self._ended.pop(pending.query.id, None)
        return pending

    def answer(self, query: s.Query, payload: bytes) -> None:
        """Answer a question that an event told. Raises ValueError."""
        self.serf.answer(query, payload)
        self._pump()

    async def ask_about_keys(self, name: str, key: bytes = b"") -> KeyReport:
        """Have every member list, install, use or remove a key (`lepa.gossip.internal_queries`)."""
        payload = s.encode(s.KeyRequest(key)) if internal.changes_keys(name) else b""
        members = sum(member.status == "alive" for member in self.members())
        pending = await self.ask(name, payload, enough=lambda pending: len(pending.answers) >= members)
        messages: dict[str, str] = {}
        keys: dict[str, int] = {}
        primary: dict[str, int] = {}
        for member, data in pending.answers.items():
            try:
                response = s.decode(data)
            except Malformed as error:
                messages[member] = str(error)
                continue
            if not isinstance(response, s.KeyResponse):
                messages[member] = "an answer of another kind"
            elif not response.result:
                messages[member] = response.message
            else:
                _count(keys, response.keys)
                _count(primary, (response.primary_key,) if response.primary_key else ())
        return KeyReport(members, len(pending.answers), len(messages), messages, keys, primary)

    def keys(self) -> list[str]:
        """The keys of this member, the primary first; for its own store only."""
        return [key_text(key) for key in self.framing.keyring.keys] if self.framing.keyring else []


def _reason(error: OSError) -> str:
    """The system's words, without the numbers that asyncio puts in their place."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _count(tally: dict[str, int], keys: Sequence[str]) -> None:
    for key in keys:
        tally[key] = tally.get(key, 0) + 1


def split_address(text: str, default_port: int) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `[v6]:port` or a bare IPv6 address. Raises ValueError."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError("no host is named; expected host or host:port")
    if not port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError(f'"{port}" is not a port; it has to be 1 to 65535')
    return host, int(port)


SAME_KEY: Final = 'set the same server { encrypt = "…" } on both'


def _explained(error: Malformed) -> str:
    """Why the answer of another server could not be read."""
    if error.kind == "key" and "not configured" in str(error):
        return f"gossip is encrypted there and not here; {SAME_KEY}"
    if error.kind == "key":
        return f"gossip is encrypted there with a key that this server does not have; {SAME_KEY}"
    if error.kind == "plain":
        return f"gossip is encrypted here and not there; {SAME_KEY}"
    return f"answered with something that is no gossip ({error}): is this the gossip port of a server?"


def _translated(error: str) -> str:
    """What another server says of this one."""
    if "not encrypted" in error:
        return f"gossip is encrypted there and not here; {SAME_KEY}"
    if "encryption is not configured" in error:
        return f"gossip is encrypted here and not there; {SAME_KEY}"
    if "could decrypt" in error:
        return f"gossip is encrypted here with a key that the other server does not have; {SAME_KEY}"
    return f"refused: {error}"


def address_text(address: bytes) -> str:
    """An address of a member as text."""
    return unpacked(address)
