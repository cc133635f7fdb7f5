"""The leader takes servers that have left for good out of the store's members.

A server leaves for good when it says so (`leave_on_terminate`, `leave_on_interrupt`) or when an operator does
(`lepa server force-leave`). One that has only failed stays a member: it may come back with its data, and until then its
place is kept, or given to a new server that asks for it (`lepa.store.etcd_members`).
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.server.server import Server

if TYPE_CHECKING:  # it comes with grpcio, which a server that is alone does without
    from lepa.store.etcd_members import Member, Members

LOOK_S: Final = 5.0

log = logging.getLogger(__name__)


async def take_out_departed(
    server: Server, members: "Members", left: Callable[[], Collection[str]], clock: Clock
) -> None:
    """Look again and again while this server leads. left: names, with their region, of servers that have left."""
    region = server.roster.me.region
    while True:
        await clock.sleep(LOOK_S)
        names = left() if server.leads else ()
        if not names:
            continue
        try:
            for member in departed(await members.look(), names, region):
                log.warning("server left for good, taken out of the members of etcd name=%s", member.name)
                await members.remove(member.id)
                await server.roster.forget(f"{member.name}.{region}")
        except LepaError as error:
            log.warning("server that left not taken out error=%s", error.message)


def departed(members: "Sequence[Member]", left: Collection[str], region: str) -> "list[Member]":
    """Members to take out: they have left, do not answer, and those that stay have a majority without them."""
    gone = [member for member in members if not member.answers and f"{member.name}.{region}" in left]
    staying = [member for member in members if not member.learner and member not in gone]
    answering = sum(member.answers for member in staying)
    return gone if gone and answering > len(staying) // 2 else []
