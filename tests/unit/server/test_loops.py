"""Deciders are asked when something changes, and their orders carried out."""

from typing import NamedTuple

from tests.builders import make_eval, make_node
from tests.clocks import ManualClock, settle

from lepa.kit.sources import SeededRandom
from lepa.kit.tasks import Tasks
from lepa.model.errors import invalid
from lepa.server.loops import LOOK_AGAIN_S, carry_out, run_decider
from lepa.server.writer import Writer
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Put, Txn


class Note(NamedTuple):
    """Stores an evaluation, or refuses."""

    eval_id: str
    reason: str = "asked to"

    def apply(self, draft: Draft) -> None:
        if not self.eval_id:
            raise invalid("no id")
        if draft.evaluation(self.eval_id) is None:
            draft.put_evaluation(make_eval(self.eval_id))


class Decision(NamedTuple):
    orders: tuple[Note, ...]
    wake_at_ns: int | None


class Parts:
    """A store with a leader key, a replica and a writer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.replica = Replica(self.store, self.clock)
        self.writer = Writer(self.store, self.replica, self.clock, SeededRandom(1))

    async def lead(self) -> None:
        committed = await self.store.commit(Txn((Put("leader", b"me"),)))
        self.writer.fence = Fence("leader", committed.revision)
        await self.replica.wait_for(committed.revision, 1)


async def test_a_decider_is_asked_at_a_change_and_at_its_time() -> None:
    parts = Parts()
    looks: list[int] = []

    def decide(snapshot: Snapshot, now_ns: int) -> Decision:
        looks.append(len(snapshot.tables["nodes"]))
        return Decision((Note(f"eval-{len(looks)}"),) if len(looks) < 3 else (), now_ns + 5_000_000_000)

    async with parts.replica, Tasks("test") as tasks:
        await parts.lead()
        run = run_decider("notes", decide, ("nodes",), parts.replica, parts.writer, parts.clock)
        tasks.start("notes", run)
        for _ in range(4):
            await parts.clock.advance(0.1)
        assert looks == [0, 0, 0]
        assert parts.replica.snapshot.evaluation("eval-2") is not None
        await parts.store.commit(Txn((keys.put(keys.node_key("n"), make_node("n")),)))
        await parts.clock.advance(0.2)
        assert looks == [0, 0, 0, 1]
        await parts.clock.advance(6)
        assert len(looks) == 5
    await parts.store.close()


async def test_a_decider_that_breaks_is_asked_again_later() -> None:
    parts = Parts()
    looks: list[int] = []

    def decide(snapshot: Snapshot, now_ns: int) -> Decision:
        looks.append(now_ns)
        raise ZeroDivisionError

    async with parts.replica, Tasks("test") as tasks:
        await parts.lead()
        tasks.start("notes", run_decider("notes", decide, ("nodes",), parts.replica, parts.writer, parts.clock))
        await settle()
        await parts.clock.advance(LOOK_AGAIN_S + 1)
        assert len(looks) == 2
    await parts.store.close()


async def test_an_order_that_is_refused_does_not_keep_the_others_from_being_carried_out() -> None:
    parts = Parts()
    async with parts.replica:
        await parts.lead()
        assert not await carry_out("notes", [Note(""), Note("eval-1")], parts.writer)
        assert parts.replica.snapshot.evaluation("eval-1") is not None
        assert await carry_out("notes", [Note("eval-1")], parts.writer)
    await parts.store.close()
