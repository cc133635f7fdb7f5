"""Pure: how servers that know nothing but each other's addresses become one cluster.

Every server says `Hello` to all it knows and hears theirs. Then, on each of them:

    somebody is a member of a cluster       -> ask it to be taken in
    fewer fresh servers than expected       -> wait, and say for whom
    as many as expected                     -> the first by name proposes those to be the members; the others wait

A proposal counts when every one of them has agreed to it; whoever has agreed agrees to no other for a while. Then each
is told to begin, and writes down what it has begun before it does. As all of the expected servers have to agree, two
proposals cannot both be begun.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from lepa.model.errors import conflict

PROTOCOL: Final = 1
"""Of these messages; servers with another one do not form a cluster."""
HEARD_S: Final = 5.0
"""How long a server counts as being there after it was heard."""
AGREED_S: Final = 10.0
CLOCK_OFF_MAX_S: Final = 30.0


class Peer(msgspec.Struct, frozen=True):
    """A server as others reach it."""

    name: str
    rpc_address: str
    peer_url: str
    client_url: str


class Membership(msgspec.Struct, frozen=True):
    """What a server has begun: kept on its disk, so that it goes on with it after a restart.

    cluster: names the cluster for good. peers: the members with which it began. joins: the cluster was there before.
    """

    cluster: str
    name: str
    peers: tuple[Peer, ...]
    joins: bool = False


class Hello(msgspec.Struct, frozen=True):
    """What a server says of itself. cluster "": it belongs to none yet. known: internal addresses of others."""

    me: Peer
    region: str
    expect: int
    cluster: str = ""
    known: tuple[str, ...] = ()
    now_ns: int = 0
    protocol: int = PROTOCOL


class Propose(NamedTuple):
    """Ask all of them to be the members."""

    peers: tuple[Peer, ...]


class Join(NamedTuple):
    """Ask this member to be taken in."""

    member: Hello


class Wait(NamedTuple):
    """Nothing can be done yet; why."""

    why: str


Step = Propose | Join | Wait


def next_step(me: Hello, heard: Iterable[Hello], silent: Mapping[str, str]) -> Step:
    """What a server without a cluster does now. heard: others, lately. silent: address -> why it does not answer."""
    others = [hello for hello in heard if hello.me.rpc_address != me.me.rpc_address]
    for hello in others:
        if why := misfit(me, hello):
            return Wait(why)
    members = [hello for hello in others if hello.cluster]
    if members:
        return _join(me, members)
    if not me.expect:
        return Wait(f"no server of a cluster is known yet{_unheard(silent)}; to form one, set bootstrap_expect")
    different = next((hello for hello in others if hello.expect not in (0, me.expect)), None)
    if different is not None:
        return Wait(
            f'"{different.me.name}" expects {different.expect} servers, and this one {me.expect}: make them equal'
        )
    fresh = sorted({hello.me.name: hello.me for hello in (me, *others) if hello.expect}.values(), key=_by_name)
    if len(fresh) < me.expect:
        names = ", ".join(peer.name for peer in fresh)
        return Wait(f"{len(fresh)} of {me.expect} servers are here ({names}){_unheard(silent)}")
    chosen = tuple(fresh[: me.expect])
    if chosen[0].name == me.me.name:
        return Propose(chosen)
    return Wait(f'"{chosen[0].name}" forms the cluster')


def _join(me: Hello, members: list[Hello]) -> Step:
    clusters = {hello.cluster: hello.me.name for hello in members}
    if len(clusters) > 1:
        names = " and ".join(f'"{name}"' for name in clusters.values())
        return Wait(f"{names} belong to different clusters; let retry_join name servers of one")
    return Join(min(members, key=lambda hello: hello.me.name))


def misfit(me: Hello, other: Hello) -> str:
    """Why two servers cannot be of one cluster, or ""."""
    name = other.me.name
    if other.protocol != me.protocol:
        return f'"{name}" at {other.me.rpc_address} runs a version of lepa that forms clusters differently'
    if other.region != me.region:
        return (
            f'"{name}" at {other.me.rpc_address} is of the region "{other.region}", this server of "{me.region}": '
            "servers of one cluster have one region"
        )
    if name == me.me.name and other.me.rpc_address != me.me.rpc_address:
        return f'the server at {other.me.rpc_address} is called "{name}" as well: give each a name of its own'
    return ""


def clock_doubt(other: Hello, now_ns: int) -> str:
    """A sentence when another's clock is far from ours, else ""."""
    off_s = (other.now_ns - now_ns) / 1e9
    if not other.now_ns or abs(off_s) <= CLOCK_OFF_MAX_S:
        return ""
    side = "ahead of" if off_s > 0 else "behind"
    return f'the clock of "{other.me.name}" is {abs(off_s):.0f} s {side} ours: times in the state will be wrong'


def check_cluster(mine: Membership, other: Hello) -> None:
    """Raise LepaError(conflict) when a server with data meets one of another cluster."""
    if other.cluster and other.cluster != mine.cluster:
        raise conflict(
            f"the data directory of this server belongs to the cluster {mine.cluster}, and "
            f'"{other.me.name}" at {other.me.rpc_address} to {other.cluster}: to join that one, begin with an empty '
            "data directory; else correct retry_join"
        )


class Agreement:
    """To which proposal this server has agreed. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._cluster = ""
        self._until = 0.0

    def agree(self, me: Hello, proposal: Membership, now: float) -> None:
        """Agree to a proposal. Raises LepaError(conflict) when this server cannot."""
        if me.cluster:
            raise conflict(f'"{me.me.name}" belongs to a cluster already')
        if self._cluster not in ("", proposal.cluster) and now < self._until:
            raise conflict(f'"{me.me.name}" has just agreed to another proposal')
        if me.me not in proposal.peers or len(proposal.peers) != me.expect:
            raise conflict(f'"{me.me.name}" expects to be one of {me.expect} servers, not what is proposed')
        self._cluster, self._until = proposal.cluster, now + AGREED_S

    def begin(self, me: Hello, proposal: Membership) -> None:
        """Raise LepaError(conflict) unless this may be begun: agreed to, or begun already."""
        if proposal.cluster not in (self._cluster, me.cluster) or me.cluster not in ("", proposal.cluster):
            raise conflict(f'"{me.me.name}" has not agreed to this')


def _unheard(silent: Mapping[str, str]) -> str:
    return "".join(f"; {address} does not answer: {why}" for address, why in sorted(silent.items()))


def _by_name(peer: Peer) -> str:
    return peer.name
