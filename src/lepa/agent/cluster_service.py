"""This agent's server among the others, for operators: members, health, snapshots.

Where servers run etcds of their own, those are asked: who is a member, who votes, how far each has come. Servers on an
etcd of somebody else's, and a server that is alone, are what the roster says.
"""

import asyncio
import contextlib
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lepa import __version__
from lepa.kit.durations import MILLISECOND, format_duration
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.operator import AutopilotConfiguration
from lepa.rpc.cluster_service import ClusterHealth, Peer, PeerHealth, PeerList
from lepa.rpc.server_requests import ServerRecord
from lepa.server.contact import ALIVE, FAILED
from lepa.server.roster import TABLE
from lepa.server.server import Server
from lepa.state.keys import LEADER
from lepa.store import archive
from lepa.store.protocol import Image, Store

if TYPE_CHECKING:  # it comes with grpcio, which a server that is alone does without
    from lepa.store.etcd_members import Member, Members

RESTORED_S: Final = 60.0
"""How long a restore waits until this server has the restored state and knows a leader."""
LOOK_S: Final = 0.1
TAKE_OVER_S: Final = 10.0
PREFIX: Final = "snapshot-"


class Seen(NamedTuple):
    """What is seen of a server. overdue_ms: of its word to the leader. newest: index of the member that leads etcd."""

    status: str
    overdue_ms: int
    newest: int


def is_healthy(seen: Seen, member: "Member | None", wanted: AutopilotConfiguration) -> bool:
    """Whether a server lives, is heard of, and is not too far behind."""
    if seen.status != ALIVE or seen.overdue_ms > 1e3 * wanted.last_contact_max_s:
        return False
    return member is None or (member.answers and seen.newest - member.applied <= wanted.max_trailing_logs)


class Cluster:
    """Fits `lepa.rpc.cluster_service.ClusterService`."""

    def __init__(
        self, store: Store, server: Server, members: "Members | None", folder: Path, cluster_id: str, clock: Clock
    ) -> None:
        """members: None where there is no etcd of our own. folder: for archives that come and go."""
        self._store = store
        self._server = server
        self._members = members
        self._folder = folder
        self._cluster_id = cluster_id
        self._clock = clock
        self._since: dict[str, tuple[bool, int]] = {}
        for left in folder.glob(f"{PREFIX}*"):  # of an agent that was killed
            left.unlink(missing_ok=True)

    # Members

    async def peers(self) -> PeerList:
        members = await self._look()
        servers = tuple(
            self._peer(name, record, member) for name, (record, member) in sorted(self._known(members).items())
        )
        return PeerList(servers=servers, index=self._server.replica.snapshot.index)

    async def _look(self) -> "tuple[Member, ...]":
        return await self._members.look() if self._members is not None else ()

    def _known(self, members: "tuple[Member, ...]") -> "dict[str, tuple[ServerRecord | None, Member | None]]":
        """Servers by name: those that keep the state where that is known, else all of the roster."""
        records = {record.name: record for record in self._server.roster.servers()}
        if self._members is None:
            return {name: (record, None) for name, record in records.items()}
        region = self._server.roster.me.region
        named = {f"{member.name or f'{member.id:x}'}.{region}": member for member in members}
        return {name: (records.get(name), member) for name, member in named.items()}

    def _peer(self, name: str, record: ServerRecord | None, member: "Member | None") -> Peer:
        address = record.rpc_address if record else ""
        return Peer(
            id=name,
            node=name,
            address=address,
            leader=bool(address) and address == self._server.leader_address,
            voter=member is None or not member.learner,
        )

    async def remove_peer(self, peer_id: str) -> None:
        if self._members is None:
            await self._forget(peer_id)
            return
        known = self._known(await self._look())
        found = {name: member for name, (_, member) in known.items() if peer_id in (name, name.rpartition(".")[0])}
        name, member = next(iter(found.items()), ("", None))
        if member is None:
            listed = ", ".join(sorted(known))
            raise not_found(f'no server "{peer_id}" keeps the state; these do: {listed}')
        await self._members.remove(member.id)
        if name != self._server.roster.me.name:
            with contextlib.suppress(LepaError):
                await self._server.roster.forget(name)

    async def _forget(self, name: str) -> None:
        if self._server.roster.named(name) is None:
            raise not_found(f'no server is called "{name}"')
        if name == self._server.roster.me.name:
            raise invalid(f'"{name}" is the server that was asked, and it runs; stop it first')
        await self._server.roster.forget(name)

    def near(self, peer_id: str) -> str | None:
        roster = self._server.roster
        if peer_id == roster.me.name:
            return None
        record = roster.named(peer_id)
        return record.http_address if record is not None else ""

    async def take_over(self) -> None:
        await self._server.take_over(TAKE_OVER_S)

    # Health

    async def health(self) -> ClusterHealth:
        members = await self._look()
        wanted = self._server.replica.snapshot.autopilot()
        statuses, overdue = self._server.contact.statuses(), self._server.contact.overdue_ms()
        newest = next((member.applied for member in members if member.leads), 0)
        servers = tuple(
            self._health(name, record, member, Seen(statuses.get(name, FAILED), overdue.get(name, 0), newest), wanted)
            for name, (record, member) in sorted(self._known(members).items())
        )
        voters = [one for one in servers if one.voter]
        healthy = [one for one in voters if one.healthy]
        leader = next((one.id for one in servers if one.leader), "")
        return ClusterHealth(
            healthy=bool(leader) and all(one.healthy for one in servers),
            failure_tolerance=max(0, len(healthy) - len(voters) // 2 - 1),
            servers=servers,
            leader=leader,
            voters=tuple(one.id for one in voters),
        )

    def _health(
        self,
        name: str,
        record: ServerRecord | None,
        member: "Member | None",
        seen: "Seen",
        wanted: AutopilotConfiguration,
    ) -> PeerHealth:
        peer = self._peer(name, record, member)
        healthy = is_healthy(seen, member, wanted)
        return PeerHealth(
            id=name,
            name=name,
            address=peer.address,
            serf_status=seen.status,
            last_contact=format_duration(seen.overdue_ms * MILLISECOND),
            version=record.build if record else "",
            leader=peer.leader,
            last_term=member.term if member else 0,
            last_index=member.applied if member else self._server.replica.snapshot.index,
            healthy=healthy,
            voter=peer.voter,
            stable_since=self._stable_since(name, healthy),
        )

    def _stable_since(self, name: str, healthy: bool) -> str:
        """Since when this server has seen it as healthy, or not, as it is now."""
        before = self._since.get(name)
        if before is None or before[0] != healthy:
            before = self._since[name] = healthy, self._clock.now_ns()
        return datetime.fromtimestamp(before[1] // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    # Snapshots

    def scratch(self) -> Path:
        handle, name = tempfile.mkstemp(prefix=PREFIX, dir=self._folder)
        with open(handle, "wb"):
            return Path(name)

    async def save_snapshot(self) -> Path:
        read = await self._store.read("")
        entries = [entry for entry in read.entries if not _of_servers(entry.key)]
        path = self.scratch()
        try:
            await asyncio.to_thread(self._write, path, Image(read.revision, entries), self._clock.now_ns())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _write(self, path: Path, image: Image, now_ns: int) -> None:
        try:
            with open(path, "wb") as file:
                region = self._server.roster.me.region
                for piece in archive.write(image, now_ns, self._cluster_id, region, __version__):
                    file.write(piece)
        except OSError as error:
            raise LepaError("internal", f"the snapshot cannot be written to {path}: {error.strerror}") from error

    async def restore_snapshot(self, archive: Path) -> int:
        found = await asyncio.to_thread(_read, archive)
        region = self._server.roster.me.region
        if found.meta.region not in ("", region):
            raise invalid(f'the snapshot is of the region "{found.meta.region}", and this region is "{region}"')
        image = found.image._replace(entries=[entry for entry in found.entries if not _of_servers(entry.key)])
        index = await self._store.replace(image)
        await self._server.replica.wait_for(index, RESTORED_S)
        deadline = self._clock.now() + RESTORED_S
        while not self._server.leader_address:
            if self._clock.now() >= deadline:
                raise LepaError("no_leader", f"the state was restored, and no server leads after {RESTORED_S:g} s")
            await self._clock.sleep(LOOK_S)
        return index


def _read(path: Path) -> archive.Archive:
    with open(path, "rb") as file:
        return archive.read(file)


def _of_servers(key: str) -> bool:
    """What servers write about themselves: no part of the state that is saved."""
    return key == LEADER or key.startswith(f"{TABLE}/")
