"""The buffer of events: what late, slow and many subscribers get."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import make_job

from lepa.model.errors import LepaError
from lepa.rpc.requests import EventStreamRequest
from lepa.server import event_stream
from lepa.server.acl.access import ALL
from lepa.server.event_stream import EventStream
from lepa.state.reducer import RowChange
from lepa.state.replica import Delivery
from lepa.state.snapshot import empty_snapshot

KEPT = 3


class FedReplica:
    """A replica whose changes the test tells."""

    def __init__(self) -> None:
        self.snapshot = empty_snapshot()
        self.deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

    def subscribe(self) -> Any:
        return self

    def __aiter__(self) -> "FedReplica":
        return self

    async def __anext__(self) -> Delivery:
        return await self.deliveries.get()

    def tell(self, *revisions: int, lagged: bool = False) -> None:
        changes = (RowChange("jobs", ("default", "a"), None, make_job("a"), revision) for revision in revisions)
        self.deliveries.put_nowait(Delivery(self.snapshot, tuple(changes), lagged))


@pytest.fixture
async def fed() -> AsyncIterator[tuple[FedReplica, EventStream]]:
    replica = FedReplica()
    guard = SimpleNamespace(enabled=False, access=lambda snapshot, secret: ALL)
    async with EventStream(replica, KEPT, guard) as stream:  # type: ignore[arg-type]
        yield replica, stream


def following(stream: EventStream, index: int = 0) -> AsyncIterator[Any]:
    return stream.stream(EventStreamRequest(index=index)).__aiter__()


async def taken(coming: AsyncIterator[Any], count: int) -> list[int]:
    async with asyncio.timeout(20.0):
        return [(await anext(coming)).index for _ in range(count)]


async def test_who_follows_misses_nothing_however_much_comes_at_once(fed: tuple[FedReplica, EventStream]) -> None:
    replica, stream = fed
    replica.tell(1)
    coming = following(stream)
    assert await taken(coming, 1) == [1]
    replica.tell(*range(2, 40))
    assert await taken(coming, 38) == list(range(2, 40))


async def test_who_comes_late_begins_with_the_oldest_kept_or_where_it_asks(fed: tuple[FedReplica, EventStream]) -> None:
    replica, stream = fed
    replica.tell(*range(1, 10))
    first = following(stream, 9)
    assert await taken(first, 1) == [9]
    assert await taken(following(stream), KEPT) == [7, 8, 9]
    ahead = following(stream, 11)
    replica.tell(10, 11)
    assert await taken(ahead, 1) == [11]


async def test_who_is_too_far_behind_is_told(
    fed: tuple[FedReplica, EventStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, stream = fed
    replica.tell(1)
    coming = following(stream)
    assert await taken(coming, 1) == [1]
    replica.tell(*range(2, 10))
    assert await taken(following(stream, 9), 1) == [9], "the server has them all"
    monkeypatch.setattr(event_stream, "BEHIND_MAX", 5)
    with pytest.raises(LepaError, match="events were missed"):
        await taken(coming, 1)


async def test_what_the_server_missed_ends_the_streams_and_is_not_offered(fed: tuple[FedReplica, EventStream]) -> None:
    replica, stream = fed
    replica.tell(1)
    coming = following(stream)
    assert await taken(coming, 1) == [1]
    replica.tell(lagged=True)
    with pytest.raises(LepaError, match="events were missed"):
        await taken(coming, 1)
    replica.tell(7)
    assert await taken(following(stream), 1) == [7]
