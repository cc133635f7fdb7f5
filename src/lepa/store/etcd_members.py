"""The members of an etcd: who they are and how they do; adding, promoting and removing them.

A server that joins is added as a learner first, which counts for no majority, and becomes a voter when it has caught
up. A member that has been silent for a while gives way to a server that wants to join; nobody is removed otherwise
unless an operator says so, because a member that was removed has to begin anew with no data.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, conflict, not_found
from lepa.store import etcd_messages as m
from lepa.store.etcd_connection import (
    MEMBER_ADD,
    MEMBER_LIST,
    MEMBER_PROMOTE,
    MEMBER_REMOVE,
    MEMBER_UPDATE,
    MOVE_LEADER,
    STATUS,
    EtcdConnection,
    Lost,
)
from lepa.store.formation import Membership, Peer

SILENT_S: Final = 10.0
"""A member that has not answered for so long gives way to a server that wants to join."""
CHANGE_S: Final = 5.0
"""Deadline of a change of members: etcd waits until it is agreed on."""


class Member(NamedTuple):
    """One member. client_url "": it has never started. What it says itself is 0 or False when it did not answer."""

    id: int
    name: str
    peer_url: str
    client_url: str
    learner: bool
    answers: bool = False
    leads: bool = False
    version: str = ""
    term: int = 0
    applied: int = 0


class Members:
    """The members of the etcd behind a connection."""

    def __init__(self, connection: EtcdConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._silent_since: dict[int, float] = {}
        self._changing = asyncio.Lock()

    async def list(self) -> tuple[Member, ...]:
        """All members, by name, without asking them how they do. Raises LepaError(timeout)."""
        answer = await self._connection.call(MEMBER_LIST, m.MemberListRequest())
        return tuple(sorted(map(_member, answer.members), key=lambda member: (member.name, member.peer_url)))

    async def look(self) -> tuple[Member, ...]:
        """All members, each asked how it does."""
        return tuple(await asyncio.gather(*map(self._ask, await self.list())))

    async def _ask(self, member: Member) -> Member:
        if not member.client_url:
            return self._heard(member, answers=False)
        try:
            endpoint = member.client_url.partition("://")[2]
            status = await self._connection.once(STATUS, m.StatusRequest(), endpoint=endpoint)
        except (Lost, LepaError):
            return self._heard(member, answers=False)
        return self._heard(
            member._replace(
                leads=bool(status.leader) and status.leader == member.id,
                version=status.version,
                term=status.raftTerm,
                applied=status.raftIndex,
            ),
            answers=True,
        )

    def _heard(self, member: Member, *, answers: bool) -> Member:
        if answers:
            self._silent_since.pop(member.id, None)
        else:
            self._silent_since.setdefault(member.id, self._clock.now())
        return member._replace(answers=answers)

    def silent_s(self, member: Member) -> float:
        """For how long it has not answered, as far as it was asked."""
        since = self._silent_since.get(member.id)
        return 0.0 if since is None else self._clock.now() - since

    async def take_in(self, peer: Peer, cluster: str) -> Membership:
        """Make room for a server and add it as a learner. Raises LepaError(conflict) when it has to ask again later."""
        async with self._changing:
            members = await self.look()
            waiting = next((one for one in members if not one.client_url and one.peer_url == peer.peer_url), None)
            if waiting is None:
                await self._make_room(peer, members)
                await self._change(MEMBER_ADD, m.MemberAddRequest(peerURLs=[peer.peer_url], isLearner=True))
            return self._membership(peer, cluster, await self.list())

    async def _make_room(self, peer: Peer, members: Sequence[Member]) -> None:
        present = next((one for one in members if one.peer_url == peer.peer_url), None)
        if present is not None:  # it has lost its data
            await self.remove(present.id)
            return
        namesake = next((one for one in members if one.name == peer.name), None)
        if namesake is not None and namesake.answers:
            raise conflict(f'a server called "{peer.name}" is a member already, at {namesake.peer_url}')
        unready = next((one for one in members if one.learner), None)
        if unready is not None and not self._gives_way(unready):
            raise conflict(f'"{unready.name or unready.peer_url}" is just being added; one at a time')
        gone = namesake or unready or next((one for one in members if not one.answers), None)
        if gone is None:
            return
        if not self._gives_way(gone):
            raise conflict(f'"{gone.name or gone.peer_url}" does not answer; its place is free in {SILENT_S:g} s')
        await self.remove(gone.id)

    def _gives_way(self, member: Member) -> bool:
        return self.silent_s(member) >= SILENT_S

    def _membership(self, peer: Peer, cluster: str, members: Sequence[Member]) -> Membership:
        peers = tuple(
            peer if one.peer_url == peer.peer_url else Peer(one.name, "", one.peer_url, one.client_url)
            for one in members
        )
        return Membership(cluster, peer.name, peers, joins=True)

    async def standing(self, peer_url: str) -> bool | None:
        """Whether somebody at this address is a member; None: one that has never started."""
        member = next((one for one in await self.list() if one.peer_url == peer_url), None)
        return False if member is None else True if member.client_url else None

    async def admit_back(self, peer: Peer) -> bool:
        """Whether a server with data is still a member. One that is, and has another address now, is followed there."""
        if await self.standing(peer.peer_url) is not False:
            return True
        async with self._changing:
            namesake = next((one for one in await self.look() if one.name == peer.name), None)
            if namesake is None or namesake.answers:
                return False
            await self._change(MEMBER_UPDATE, m.MemberUpdateRequest(ID=namesake.id, peerURLs=[peer.peer_url]))
            return True

    async def promote(self, peer_url: str) -> bool:
        """Make a learner that has caught up a voter; whether it is one now."""
        member = next((one for one in await self.list() if one.peer_url == peer_url), None)
        if member is None:
            raise not_found(f"{peer_url} is no member of the cluster any more")
        if not member.learner:
            return True
        with suppress(LepaError):
            await self._change(MEMBER_PROMOTE, m.MemberPromoteRequest(ID=member.id))
            return True
        return False

    async def remove(self, member_id: int) -> None:
        """Take a member out for good. Raises LepaError: not_found, or invalid when the rest would have no majority."""
        await self._change(MEMBER_REMOVE, m.MemberRemoveRequest(ID=member_id))

    async def lead(self, member: Member) -> None:
        """Let this member lead etcd. Only the present leader can do it."""
        leader = next((one for one in await self.look() if one.leads), None)
        if leader is None:
            raise LepaError("no_leader", "no member of etcd leads")
        endpoint = leader.client_url.partition("://")[2]
        await self._connection.once(MOVE_LEADER, m.MoveLeaderRequest(targetID=member.id), CHANGE_S, endpoint)

    async def _change(self, rpc: Any, request: Any) -> None:
        """One attempt: a change of members that was lost shows in their list."""
        try:
            await self._connection.once(rpc, request, CHANGE_S)
        except Lost as lost:
            raise LepaError("timeout", f"it is not known whether the members were changed: {lost}") from lost


def _member(raw: Any) -> Member:
    return Member(raw.ID, raw.name, next(iter(raw.peerURLs), ""), next(iter(raw.clientURLs), ""), learner=raw.isLearner)
