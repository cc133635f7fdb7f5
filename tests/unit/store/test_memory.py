"""What only the memory store does."""

from tests.clocks import ManualClock

from lepa.store.memory import ETCD_LIMITS, MemoryStore
from lepa.store.protocol import Limits, Put, Txn


def test_its_limits_are_etcds_unless_told_otherwise() -> None:
    assert MemoryStore(ManualClock()).limits == ETCD_LIMITS
    assert MemoryStore(ManualClock(), Limits(2, 100)).limits == Limits(2, 100)


async def test_a_commit_is_visible_when_it_returns() -> None:
    store = MemoryStore(ManualClock())
    await store.commit(Txn((Put("a", b"1"),)))
    assert [entry.key for entry in (await store.read("")).entries] == ["a"]
    await store.close()
