"""How servers find each other before they have a store: short messages over the internal port.

    POST /peers/hello    Hello -> Hello          who are you, and whom do you know
    POST /peers/agree    Membership -> {}        would you be a member of this cluster
    POST /peers/begin    Membership -> {}        begin it
    POST /peers/join     Hello -> Membership     take me in
    POST /peers/member   Hello -> Standing       am I still a member

Bodies are JSON; a refusal is `{"error": …}` with a status of its code. What is decided, and why no two clusters come of
it, is in `lepa.store.formation`.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from msgspec.structs import replace

from lepa.kit.sources import Clock, Random
from lepa.model.errors import LepaError, conflict, invalid
from lepa.rpc.channel import STATUS, ServerSession
from lepa.store.formation import (
    HEARD_S,
    Agreement,
    Hello,
    Join,
    Membership,
    Peer,
    Propose,
    Wait,
    check_cluster,
    clock_doubt,
    misfit,
    next_step,
)

LOOK_S: Final = 0.5
"""How often a server without a cluster asks around."""
ANSWER_S: Final = 2.0
JOIN_S: Final = 15.0
"""Being taken in changes the members of etcd, which has to be agreed on."""
REMIND_S: Final = 10.0
"""How often a server says again what it waits for."""
KNOWN_MAX: Final = 64

A = TypeVar("A", bound=msgspec.Struct)

log = logging.getLogger(__name__)


class Standing(msgspec.Struct, frozen=True):
    """Whether a server is a member of the cluster."""

    member: bool


class Done(msgspec.Struct, frozen=True):
    """Nothing more to say."""


class Registry(Protocol):
    """The members of the running cluster (`lepa.store.etcd_members.Members`)."""

    async def take_in(self, peer: Peer, cluster: str) -> Membership:
        """Add a server. Raises LepaError(conflict) when it has to ask again later."""

    async def standing(self, peer_url: str) -> bool | None:
        """Whether somebody at this address is a member; None: one that has never started."""

    async def admit_back(self, peer: Peer) -> bool:
        """Whether a server with data is still a member, perhaps at another address now."""


class PeerExchange:
    """This server among others. addresses: `host:port` of internal ports to ask, this server's own does no harm."""

    def __init__(
        self,
        me: Peer,
        region: str,
        expect: int,
        addresses: Sequence[str],
        session: ServerSession,
        clock: Clock,
        random: Random,
        save: Callable[[Membership], None],
        tell: Callable[[str], None],
        gossiped: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """save: writes down what this server begins, before it does. tell: hears what it waits for.

        gossiped: internal addresses of the servers of this region that gossip knows.
        """
        self._me = me
        self._region = region
        self._expect = expect
        self._given = tuple(addresses)
        self._session = session
        self._clock = clock
        self._random = random
        self._save = save
        self._tell = tell
        self._gossiped = gossiped
        self._agreement = Agreement()
        self._heard: dict[str, tuple[Hello, float]] = {}
        self._silent: dict[str, str] = {}
        self._doubted: set[str] = set()
        self._begun = asyncio.Event()
        self.membership: Membership | None = None
        self.registry: Registry | None = None

    # Answers

    def add_routes(self, app: web.Application) -> None:
        """Answer others on the internal port."""
        for name, kind, answer in (
            ("hello", Hello, self._answer_hello),
            ("agree", Membership, self._answer_agree),
            ("begin", Membership, self._answer_begin),
            ("join", Hello, self._answer_join),
            ("member", Hello, self._answer_member),
        ):
            app.router.add_post(f"/peers/{name}", _handler(kind, answer))

    async def _answer_hello(self, other: Hello) -> Hello:
        self._note(other)
        return self._hello()

    async def _answer_agree(self, proposal: Membership) -> Done:
        self._agreement.agree(self._hello(), proposal, self._clock.now())
        return Done()

    async def _answer_begin(self, proposal: Membership) -> Done:
        self._agreement.begin(self._hello(), proposal)
        self._begin(proposal)
        return Done()

    async def _answer_join(self, other: Hello) -> Membership:
        mine = self.membership
        if mine is None:
            raise conflict(f'"{self._me.name}" belongs to no cluster yet')
        if why := misfit(self._hello(), other):
            raise conflict(why)
        if other.me in mine.peers and not mine.joins and await self._never_began(other.me):
            return replace(mine, name=other.me.name)
        if self.registry is None:
            raise conflict(f'the cluster of "{self._me.name}" has no majority yet')
        return await self.registry.take_in(other.me, mine.cluster)

    async def _never_began(self, peer: Peer) -> bool:
        """Whether one of the first members has yet to begin. While there is no majority, etcd itself looks."""
        return self.registry is None or await self.registry.standing(peer.peer_url) is None

    async def _answer_member(self, other: Hello) -> Standing:
        if self.registry is None:
            raise conflict(f'the cluster of "{self._me.name}" has no majority yet')
        return Standing(await self.registry.admit_back(other.me))

    # Asking

    async def form(self) -> Membership:
        """Become a member of a cluster, however long it takes."""
        said, said_at = "", self._clock.now()
        while self.membership is None:
            await self._ask_around()
            try:
                why = await self._take(next_step(self._hello(), self._recent(), self._silent))
            except LepaError as error:
                why = error.message
            now = self._clock.now()
            if why and self.membership is None and (why != said or now - said_at >= REMIND_S):
                log.warning("waiting for a cluster: %s", why)
                said, said_at = why, now
            self._tell(why)
            await self._pause()
        return self.membership

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S * self._random.uniform(0.7, 1.3)):
                await self._begun.wait()
        except TimeoutError:
            pass

    async def _take(self, step: Propose | Join | Wait) -> str:
        """Why nothing can be done yet, or "". Raises LepaError when others refuse."""
        if isinstance(step, Wait):
            return step.why
        if isinstance(step, Join):
            self._begin(await self._post(step.member.me.rpc_address, "join", self._hello(), Membership, JOIN_S))
        else:
            await self._propose(step.peers)
        return ""

    async def _propose(self, peers: tuple[Peer, ...]) -> None:
        proposal = Membership(self._random.uuid(), self._me.name, peers)
        self._agreement.agree(self._hello(), proposal, self._clock.now())
        others = [peer for peer in peers if peer != self._me]
        await asyncio.gather(*(self._post(peer.rpc_address, "agree", proposal, Done) for peer in others))
        self._begin(proposal)
        told = (self._post(peer.rpc_address, "begin", proposal, Done) for peer in others)
        for peer, outcome in zip(others, await asyncio.gather(*told, return_exceptions=True), strict=True):
            if isinstance(outcome, BaseException):  # it will ask to join, and be told the same
                log.info("server not told to begin name=%s reason=%s", peer.name, outcome)

    def _begin(self, membership: Membership) -> None:
        if self.membership is None:
            heard = {hello.me.peer_url: hello.me for hello, _ in self._heard.values()}
            peers = tuple(heard.get(peer.peer_url, peer) for peer in membership.peers)
            mine = replace(membership, name=self._me.name, peers=peers)
            self._save(mine)
            self.membership = mine
            self._begun.set()
            log.info("belongs to a cluster cluster=%s members=%s", mine.cluster, [peer.name for peer in mine.peers])

    async def check(self, mine: Membership) -> bool:
        """Before a server goes on with the data of a cluster: False when that does not count it any more.

        Raises LepaError(conflict) when the others belong to another cluster.
        """
        await self._ask_around(tuple(peer.rpc_address for peer in mine.peers if peer.rpc_address))
        for other in self._recent():
            if other.me.rpc_address != self._me.rpc_address:
                check_cluster(mine, other)
        for other in self._recent():
            if other.cluster == mine.cluster and other.me.rpc_address != self._me.rpc_address:
                try:
                    standing = await self._post(other.me.rpc_address, "member", self._hello(), Standing, JOIN_S)
                except LepaError as error:
                    log.debug("standing not known error=%s", error)
                else:
                    return standing.member
        return True

    async def _ask_around(self, more: Iterable[str] = ()) -> None:
        known = (address for hello, _ in self._heard.values() for address in (hello.me.rpc_address, *hello.known))
        wanted = {*await _resolved(self._given), *self._gossiped(), *more, *known} - {self._me.rpc_address}
        await asyncio.gather(*map(self._say_hello, sorted(wanted)[:KNOWN_MAX]))

    async def _say_hello(self, address: str) -> None:
        try:
            other = await self._post(address, "hello", self._hello(), Hello)
        except LepaError as error:
            if address in self._given or any(address == hello.me.rpc_address for hello, _ in self._heard.values()):
                self._silent[address] = error.message
            return
        self._silent.pop(address, None)
        self._note(other)

    def _note(self, other: Hello) -> None:
        if other.me == self._me:
            return
        if other.me.rpc_address in self._heard or len(self._heard) < KNOWN_MAX:
            self._heard[other.me.rpc_address] = other, self._clock.now()
        doubt = clock_doubt(other, self._clock.now_ns())
        if doubt and other.me.rpc_address not in self._doubted:
            self._doubted.add(other.me.rpc_address)
            log.warning("%s", doubt)

    def _recent(self) -> list[Hello]:
        now = self._clock.now()
        return [hello for hello, at in self._heard.values() if now - at < HEARD_S]

    def _hello(self) -> Hello:
        return Hello(
            me=self._me,
            region=self._region,
            expect=self._expect,
            cluster=self.membership.cluster if self.membership else "",
            known=tuple(sorted(self._heard))[:KNOWN_MAX],
            now_ns=self._clock.now_ns(),
        )

    async def _post(self, address: str, name: str, body: msgspec.Struct, kind: type[A], wait_s: float = ANSWER_S) -> A:
        timeout = aiohttp.ClientTimeout(total=wait_s)
        try:
            async with self._session.post(address, f"/peers/{name}", msgspec.json.encode(body), timeout) as answer:
                raw = await answer.read()
                if answer.status == 200:
                    return msgspec.json.decode(raw, type=kind)
                raise conflict(_error(raw) or f"{address} answers with status {answer.status}; is it a server of lepa?")
        except aiohttp.ClientConnectorError as error:
            said = os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
            raise LepaError("timeout", said.lower()) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise LepaError("timeout", str(error) or "no answer in time") from error
        except msgspec.DecodeError as error:
            raise conflict(f"{address} does not speak as a server of lepa: {error}") from error


def _handler(kind: type[msgspec.Struct], answer: Callable[[Any], Any]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            try:
                wanted = msgspec.json.decode(await request.read(), type=kind)
            except msgspec.DecodeError as error:
                raise invalid(f"{request.path}: {error}") from error
            found = await answer(wanted)
        except LepaError as error:
            return web.Response(status=STATUS[error.code], body=msgspec.json.encode({"error": error.message}))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    return handle


def _error(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=dict[str, str]).get("error", "")
    except msgspec.DecodeError:
        return ""


async def _resolved(addresses: Sequence[str]) -> set[str]:
    """Names as all the addresses they stand for; one that cannot be resolved stays as it is and will not answer."""
    loop = asyncio.get_running_loop()
    found: set[str] = set()
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            infos = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            found.add(address)
            continue
        found |= {f"[{info[4][0]}]:{port}" if ":" in str(info[4][0]) else f"{info[4][0]}:{port}" for info in infos}
    return found


def join_addresses(entries: Iterable[str], rpc_port: int, serf_port: int) -> tuple[str, ...]:
    """Entries of retry_join as `host:port` of internal ports.

    Their ports are those of gossip, as Nomad's are. Where that is the usual one, or none is given, the internal port is
    the usual one too; servers at other ports are found by gossip.
    """
    found = []
    for entry in entries:
        host, colon, port = entry.rpartition(":")
        if not colon or not port.isdigit() or (":" in host and not host.endswith("]")):
            host, port = entry, ""  # a name, or an IPv6 address without brackets
        if not host:
            raise invalid(f'configuration: retry_join: "{entry}" names no host')
        if port in ("", str(serf_port), str(rpc_port)):
            found.append(f"[{host.strip('[]')}]:{rpc_port}" if ":" in host else f"{host}:{rpc_port}")
    return tuple(dict.fromkeys(found))
