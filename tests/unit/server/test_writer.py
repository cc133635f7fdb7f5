"""Commands are written, again when they were overtaken, and only by a leader."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_eval
from tests.clocks import ManualClock

from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.server.writer import Writer
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.replica import Replica
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Fence, Fenced, Put, Txn


async def leading(store: MemoryStore, replica: Replica) -> Writer:
    writer = Writer(store, replica, ManualClock(), SeededRandom(1))
    committed = await store.commit(Txn((Put("leader", b"me"),)))
    writer.fence = Fence("leader", committed.revision)
    return writer


async def test_a_write_can_be_read_when_it_returns() -> None:
    store = MemoryStore(ManualClock())
    async with Replica(store, ManualClock()) as replica:
        writer = await leading(store, replica)
        written = await writer.write(lambda draft: draft.put_evaluation(make_eval()))
        assert replica.snapshot.index == written.revision
        assert replica.snapshot.evaluation("eval-1") is not None
    await store.close()


async def test_nothing_to_write_is_no_write() -> None:
    store = MemoryStore(ManualClock())
    async with Replica(store, ManualClock()) as replica:
        writer = await leading(store, replica)
        before = (await store.read("")).revision
        assert (await writer.write(lambda draft: "value")).value == "value"
        assert (await store.read("")).revision == before
    await store.close()


async def test_an_overtaken_command_runs_again_on_what_the_other_wrote() -> None:
    store = MemoryStore(ManualClock())
    async with Replica(store, ManualClock()) as replica:
        writer = await leading(store, replica)
        await writer.write(lambda draft: draft.put_allocation(make_alloc()))
        tries = 0

        def restart(draft: Draft) -> None:
            nonlocal tries
            tries += 1
            alloc = draft.allocation("alloc-1")
            assert alloc is not None
            if tries == 1:
                overtake = replace(alloc, client_status="failed")
                store.apply([keys.put(keys.alloc_key("alloc-1"), overtake)])
            draft.put_allocation(replace(alloc, desired_status="stop"))

        await writer.write(restart)
        alloc = replica.snapshot.allocation("alloc-1")
        assert alloc is not None
        assert (tries, alloc.client_status, alloc.desired_status) == (2, "failed", "stop")
    await store.close()


async def test_large_commands_are_written_in_parts() -> None:
    store = MemoryStore(ManualClock())
    async with Replica(store, ManualClock()) as replica:
        writer = await leading(store, replica)
        await writer.write(lambda draft: [draft.put_evaluation(make_eval(f"e{n}")) for n in range(300)])
        assert len(replica.snapshot.tables["evals"]) == 300
    await store.close()


async def test_whoever_does_not_lead_cannot_write() -> None:
    store = MemoryStore(ManualClock())
    async with Replica(store, ManualClock()) as replica:
        writer = await leading(store, replica)
        await store.commit(Txn((Put("leader", b"me"),)))
        writer.fence = Fence("leader", 77)
        with pytest.raises(Fenced):
            await writer.write(lambda draft: draft.put_evaluation(make_eval()))
        writer.fence = None
        with pytest.raises(LepaError, match="No cluster leader"):
            await writer.write(lambda draft: draft.put_evaluation(make_eval()))
    await store.close()
