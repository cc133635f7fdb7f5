"""Pure: what the HTTP edge may ask of this agent's server as one of a cluster: its members, and snapshots.

The agent implements it; an agent without a server passes the request on to one.
"""

from pathlib import Path
from typing import Protocol

import msgspec

from lepa.model.wire import Wire


class Peer(Wire, frozen=True):
    """A server that keeps the state. id: what `remove-peer` takes; address: of its internal port."""

    id: str = ""
    node: str = ""
    address: str = ""
    leader: bool = False
    voter: bool = True
    raft_protocol: str = "3"


class PeerList(Wire, frozen=True):
    """All of them, at an index."""

    servers: tuple[Peer, ...] = ()
    index: int = 0


class Transfer(Wire, frozen=True):
    """Who led, and who leads now. noop: it did before."""

    from_: Peer = msgspec.field(name="From", default=Peer())
    to: Peer = Peer()
    noop: bool = False
    err: str | None = None


class PeerHealth(Wire, frozen=True):
    """How one of them does. last_contact: how long its word to the leader, which comes twice a second, is overdue, as a
    text. last_index: what its part of the store has reached."""

    id: str = ""
    name: str = ""
    address: str = ""
    serf_status: str = "alive"
    version: str = ""
    leader: bool = False
    last_contact: str = "0s"
    last_term: int = 0
    last_index: int = 0
    healthy: bool = False
    voter: bool = True
    stable_since: str = ""


class ClusterHealth(Wire, frozen=True):
    """How the cluster does. failure_tolerance: how many voters it can lose and still have a majority."""

    healthy: bool = False
    failure_tolerance: int = 0
    servers: tuple[PeerHealth, ...] = ()
    leader: str = ""
    voters: tuple[str, ...] = ()


class ClusterService(Protocol):
    """This agent's server among the others."""

    async def peers(self) -> PeerList:
        """The servers that keep the state."""

    async def remove_peer(self, peer_id: str) -> None:
        """Take a server out for good. Raises LepaError: not_found, or invalid when the rest would have no majority."""

    def near(self, peer_id: str) -> str | None:
        """None for this server; the HTTP address of another one, "" where none is known."""

    async def take_over(self) -> None:
        """Let this server lead. Raises LepaError(timeout)."""

    async def health(self) -> ClusterHealth:
        """How they do."""

    async def save_snapshot(self) -> Path:
        """The whole state of one moment as an archive in a file, which is the caller's to remove."""

    async def restore_snapshot(self, archive: Path) -> int:
        """Put an archive in the place of everything; the index from which it stands.

        Raises LepaError(invalid) for a damaged one; then nothing was changed.
        """

    def scratch(self) -> Path:
        """A fresh file for an archive that arrives."""
