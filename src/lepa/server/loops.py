"""Runs deciders: when what they look at has changed, or when they asked to be woken.

A decider is pure: (snapshot, now) -> orders and a time to look again. Here its orders are carried out, each as one
write, and it is asked again; it comes to rest when it has no orders left. An order that cannot be carried out any more
is logged and left: the next look tells what is true then.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.server.writer import Writer
from lepa.state.commands.draft import Draft
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

PAUSE_S: Final = 0.05
"""A decider looks at most twenty times a second, however fast things change."""

LOOK_AGAIN_S: Final = 60.0
"""A decider looks at least this often."""

RETRY_S: Final = 1.0
"""Pause after orders that could not be carried out."""

THREAD_ROWS: Final = 2_000
"""Above this many rows in the tables a decider looks from a thread."""

log = logging.getLogger(__name__)


class Order(Protocol):
    """Something to carry out, and why."""

    @property
    def reason(self) -> str:
        """For the log."""

    def apply(self, draft: Draft) -> None:
        """Add it to a draft; adds nothing when it is not needed any more."""


class Decided(Protocol):
    """What a decider answers."""

    @property
    def orders(self) -> Iterable[Any]:
        """In the order in which they are carried out; each is an Order."""

    @property
    def wake_at_ns(self) -> int | None:
        """When to look again though nothing has changed, Unix nanoseconds."""


async def run_decider(
    name: str,
    decide: Callable[[Snapshot, int], Decided],
    tables: Iterable[str],
    replica: Replica,
    writer: Writer,
    clock: Clock,
) -> None:
    """Ask `decide` whenever one of `tables` has changed, until cancelled."""
    watches = tuple(Watch(table) for table in tables)
    while True:
        snapshot = replica.snapshot
        try:
            decided = await _decide(decide, snapshot, watches, clock.now_ns())
        except Exception:
            log.exception("decider failed decider=%s", name)
            await clock.sleep(LOOK_AGAIN_S)
            continue
        orders = list(decided.orders)
        if orders and not await carry_out(name, orders, writer):
            await clock.sleep(RETRY_S)
        elif not orders:
            await replica.changed(watches, max(map(snapshot.index_of, watches)), _wait_s(decided, clock))
        await clock.sleep(PAUSE_S)


async def _decide(
    decide: Callable[[Snapshot, int], Decided], snapshot: Snapshot, watches: Iterable[Watch], now_ns: int
) -> Decided:
    """In a thread where there is much to look at, so that the event loop keeps its time."""
    if sum(len(snapshot.tables[watch.table]) for watch in watches) > THREAD_ROWS:
        return await asyncio.to_thread(decide, snapshot, now_ns)
    return decide(snapshot, now_ns)


async def carry_out(name: str, orders: Iterable[Order], writer: Writer) -> bool:
    """Write orders down one by one; False when one of them was refused."""
    fine = True
    for order in orders:
        try:
            await writer.write(order.apply)
            log.info("order carried out decider=%s %s", name, _told(order))
        except LepaError as error:
            if error.code == "no_leader":
                return False  # the next leader will see what there is to do
            log.warning("order not carried out decider=%s %s error=%r", name, _told(order), error.message)
            fine = False
    return fine


def _told(order: Order) -> str:
    """Its fields as the log writes them."""
    fields = order._asdict() if hasattr(order, "_asdict") else {"order": order}
    return " ".join(f"{key}={value!r}" for key, value in fields.items() if value not in ((), None))


def _wait_s(decided: Decided, clock: Clock) -> float:
    if decided.wake_at_ns is None:
        return LOOK_AGAIN_S
    return min(LOOK_AGAIN_S, max(0.0, (decided.wake_at_ns - clock.now_ns()) / SECOND))
