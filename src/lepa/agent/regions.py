"""Calls that name another region are carried to a server of it; all others stay here.

Regions share no jobs, nodes or state: only calls cross. Which servers a region has, gossip knows. A call is carried
once: the server that gets it is of the region that it names.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, Self, TypeVar, cast

from lepa.kit.sources import Clock, Random
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller, ServerSession
from lepa.rpc.methods import Caller, Method

Q = TypeVar("Q", bound=r.Request)
A = TypeVar("A")
REGIONS_MAX: Final = 256


class Directory(Protocol):
    """Who the servers are (`lepa.agent.gossip_part.GossipPart`)."""

    def members(self) -> list[r.Member]:
        """Servers of all regions."""

    def regions(self) -> tuple[str, ...]:
        """Regions with a server that lives."""

    def servers(self, region: str) -> list[str]:
        """Internal addresses of a region's servers that live."""


class RegionCaller:
    """A `Caller` that knows the way to other regions, as an async context manager. own: the way within this one."""

    def __init__(
        self,
        own: Caller,
        region: str,
        directory: Directory,
        session_to: Callable[[str], ServerSession],
        clock: Clock,
        random: Random,
        metrics: Metrics,
    ) -> None:
        """session_to: connections to the servers of a region, which are closed when this is left."""
        self._own = own
        self._region = region
        self._directory = directory
        self._session_to = session_to
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._others: dict[str, HttpCaller] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def call(self, method: Method[Q, A], request: Q) -> r.Reply[A]:
        if request.region not in ("", self._region):
            return await self._other(request.region).call(method, request)
        if method.name == m.STATUS_MEMBERS.name:
            return r.Reply(value=cast(A, await self._members(request)), index=1)
        if method.name == m.STATUS_REGIONS.name:
            return r.Reply(value=cast(A, self._directory.regions()), index=1)
        return await self._own.call(method, request)

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        if request.region in ("", self._region):
            return self._own.stream(method, request)
        return self._other(request.region).stream(method, request)

    def _other(self, region: str) -> HttpCaller:
        """The way to another region. Raises LepaError when none is known."""
        servers = self._directory.servers(region)
        if not servers:
            raise no_path()
        caller = self._others.get(region)
        if caller is None:
            if len(self._others) >= REGIONS_MAX:
                raise LepaError("unsupported", f"{REGIONS_MAX} other regions are called already")
            session = self._session_to(region)
            self._stack.push_async_exit(session)
            caller = self._others[region] = HttpCaller(session, (), self._clock, self._random)
        if set(caller.servers) != set(servers):
            caller.use(servers)
        self._metrics.count("nomad.nomad.rpc.cross_region", region=region)
        return caller

    async def _members(self, request: r.Request) -> r.Members:
        """What gossip says, and of this region's servers what they say of each other: that comes sooner."""
        gossip = {member.name: member for member in self._directory.members()}
        try:
            near = (await self._own.call(m.STATUS_MEMBERS, r.ReadRequest(stale=True))).value
        except LepaError:
            near = r.Members(server_region=self._region)
        return r.Members(
            server_name=near.server_name,
            server_region=near.server_region,
            server_dc=near.server_dc,
            members=together(gossip, near.members),
        )


def together(gossip: dict[str, r.Member], near: Sequence[r.Member]) -> tuple[r.Member, ...]:
    """Members by name. near: of this region as its servers see each other; a silent one there is failed here."""
    found = {member.name: member for member in near} | gossip
    silent = {member.name for member in near if member.status == "failed"}
    for name in silent & gossip.keys():
        if gossip[name].status == "alive":
            found[name] = next(member for member in near if member.name == name)
    return tuple(found[name] for name in sorted(found))


def no_path() -> LepaError:
    """Nomad's words for a region that nobody knows a server of."""
    return LepaError("not_found", "No path to region", http_status=500)
