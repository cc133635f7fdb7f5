"""The leader takes servers that have left for good, and those that are gone where it may, out of the store's members.

A server leaves for good when it says so (`leave_on_terminate`, `leave_on_interrupt`) or when an operator does
(`lepa server force-leave`). One that has only failed stays a member: it may come back with its data, and until then its
place is kept, or given to a new server that asks for it (`lepa.store.etcd_members`). With `cleanup_dead_servers` of
autopilot's settings its place is kept for DEAD_S only; a server that was taken out has to begin anew with no data.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.server.contact import ALIVE
from lepa.server.server import Server

if TYPE_CHECKING:  # it comes with grpcio, which a server that is alone does without
    from lepa.store.etcd_members import Member, Members

LOOK_S: Final = 5.0
DEAD_S: Final = 30.0
"""For how long a server has to be silent, to its etcd and to the leader, until it counts as gone."""

log = logging.getLogger(__name__)


async def take_out_departed(
    server: Server, members: "Members", left: Callable[[], Collection[str]], clock: Clock
) -> None:
    """Look again and again while this server leads. left: names, with their region, of servers that have left."""
    region = server.roster.me.region
    while True:
        await clock.sleep(LOOK_S)
        wanted = server.replica.snapshot.autopilot()
        names = set(left()) if server.leads else set()
        if not names and not (server.leads and wanted.cleanup_dead_servers):
            continue
        try:
            found = await members.look()
            gone = departed(found, names, region)
            if wanted.cleanup_dead_servers:
                statuses = server.contact.statuses()
                silent = [one for one in found if members.silent_s(one) >= DEAD_S]
                dead = {name for one in silent if statuses.get(name := f"{one.name}.{region}") != ALIVE}
                gone = [*gone, *dead_members(found, dead, region, gone, wanted.min_quorum)]
            for member in gone:
                log.warning("server gone for good, taken out of the members of etcd name=%s", member.name)
                await members.remove(member.id)
                await server.roster.forget(f"{member.name}.{region}")
        except LepaError as error:
            log.warning("server that is gone not taken out error=%s", error.message)


def departed(members: "Sequence[Member]", left: Collection[str], region: str) -> "list[Member]":
    """Members to take out: they have left, do not answer, and those that stay have a majority without them."""
    gone = [member for member in members if not member.answers and f"{member.name}.{region}" in left]
    return gone if gone and _majority(members, gone) else []


def dead_members(
    members: "Sequence[Member]", dead: Collection[str], region: str, gone: "Sequence[Member]", min_quorum: int
) -> "list[Member]":
    """Members to take out besides `gone`: as many of the dead as leave min_quorum voters, most of whom answer."""
    found: list[Member] = []
    for member in members:
        if member in gone or member.answers or not member.name or f"{member.name}.{region}" not in dead:
            continue
        out = [*gone, *found, member]
        voters = sum(not one.learner for one in members if one not in out)
        if (member.learner or voters >= min_quorum) and _majority(members, out):
            found.append(member)
    return found


def _majority(members: "Sequence[Member]", gone: "Sequence[Member]") -> bool:
    """Whether most of those that stay and vote answer."""
    staying = [member for member in members if not member.learner and member not in gone]
    return sum(member.answers for member in staying) > len(staying) // 2
