"""Feeds of events: one pass for all who ask for the same, no gaps, no slow reader that keeps what others wait for."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from lepa.api import event_feeds
from lepa.api.event_feeds import Feeds
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.rpc.requests import Event, EventBatch, EventStreamRequest

WAIT_S = 20.0


class Servers:
    """Streams of a server that has kept some batches; each stream sees what is told from then on."""

    def __init__(self, *kept: int) -> None:
        self.kept = list(kept)
        self.streams: list[EventStreamRequest] = []
        self.grown = asyncio.Event()
        self.ended: LepaError | None = None

    def tell(self, *indexes: int) -> None:
        self.kept += indexes
        self._grow()

    def end(self) -> None:
        self.ended = LepaError("no_leader", "No cluster leader")
        self._grow()

    def _grow(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()

    async def follow(self, request: EventStreamRequest) -> AsyncIterator[EventBatch]:
        self.streams.append(request)
        index = request.index
        while True:
            for at in [at for at in self.kept if at >= index]:
                yield EventBatch(index=at, events=(Event(topic="Job", key="web"),))
                index = at + 1
            if self.ended is not None:
                raise self.ended
            await self.grown.wait()


class Connection(asyncio.Transport):
    """What one subscriber was sent. full: it takes nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.full = False
        self.aborted = False

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.sent.append(data)

    def get_write_buffer_size(self) -> int:
        return event_feeds.BUFFER_MAX + 1 if self.full else 0

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    @property
    def indexes(self) -> list[int]:
        lines = b"".join(self.sent).splitlines()
        return [int(line.split(b":")[1].split(b",")[0]) for line in lines if line.startswith(b'{"Index"')]


class World:
    """Feeds over such servers, and subscribers by name."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.feeds = Feeds(servers.follow)
        self.tasks = Tasks("test")

    def subscribe(self, index: int = 0, topic: str = "Job") -> tuple[Connection, asyncio.Task[None]]:
        connection, call = Connection(), EventStreamRequest(topics={topic: ("*",)}, index=index)
        return connection, self.tasks.start("serve", self.feeds.serve(call, web.StreamResponse(), connection))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(Servers())
    yield made
    await made.tasks.close()


async def until(happens: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while not happens():
        assert asyncio.get_running_loop().time() < deadline, "not seen in time"
        await asyncio.sleep(0.001)


async def test_those_who_ask_for_the_same_share_one_stream_and_the_same_bytes(world: World) -> None:
    first, _ = world.subscribe()
    second, _ = world.subscribe()
    other, _ = world.subscribe(topic="Node")
    world.servers.tell(3, 4)
    await until(lambda: all(one.indexes == [3, 4] for one in (first, second, other)))
    assert len(world.servers.streams) == 2
    assert first.sent[-1] is second.sent[-1]


async def test_a_subscriber_gets_what_comes_from_its_index_on(world: World) -> None:
    world.servers.kept = [1, 2, 3]
    everything, _ = world.subscribe()
    later, _ = world.subscribe(index=3)
    future, _ = world.subscribe(index=5)
    await until(lambda: everything.indexes == [1, 2, 3] and later.indexes == [3])
    world.servers.tell(4, 5, 6)
    await until(lambda: everything.indexes[-1] == 6)
    assert (later.indexes, future.indexes) == ([3, 4, 5, 6], [5, 6])
    assert len(world.servers.streams) == 1


async def test_who_asks_for_older_ones_catches_up_alone_and_then_joins_the_others(world: World) -> None:
    world.servers.kept = [1, 2, 3]
    new, _ = world.subscribe(index=3)
    await until(lambda: new.indexes == [3])
    old, _ = world.subscribe(index=1)
    await until(lambda: old.indexes == [1, 2, 3])
    world.servers.tell(4)
    await until(lambda: old.indexes == [1, 2, 3, 4] and new.indexes == [3, 4])
    assert len(world.servers.streams) == 2
    world.servers.tell(5)
    await until(lambda: old.indexes[-1] == 5 and new.indexes[-1] == 5)
    assert new.sent[-1] is old.sent[-1], "they are served together now"
    assert old.indexes == [1, 2, 3, 4, 5]


async def test_a_slow_reader_is_cut_off_when_its_next_line_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feeds, "RING_BYTES_MAX", 200)
    monkeypatch.setattr(event_feeds, "RING_BYTES_MIN", 200)
    quick, _ = world.subscribe()
    slow, serving = world.subscribe()
    slow.full = True
    for index in range(1, 6):
        world.servers.tell(index)
        await until(lambda index=index: quick.indexes == list(range(1, index + 1)))  # type: ignore[misc]
    await until(serving.done)
    assert (slow.aborted, slow.sent, quick.aborted) == (True, [], False)


async def test_a_reader_that_was_slow_goes_on_without_a_gap(world: World) -> None:
    slow, _ = world.subscribe()
    quick, _ = world.subscribe()
    slow.full = True
    world.servers.tell(1, 2)
    await until(lambda: quick.indexes == [1, 2])
    slow.full = False
    world.servers.tell(3)
    await until(lambda: slow.indexes == [1, 2, 3])


async def test_a_reader_that_takes_nothing_for_long_is_cut_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feeds, "WRITE_S", 0.01)
    slow, serving = world.subscribe()
    slow.full = True
    world.servers.tell(1)
    await until(serving.done)
    assert slow.aborted


async def test_all_hear_that_the_stream_is_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feeds, "HEARTBEAT_S", 0.01)
    first, _ = world.subscribe()
    second, _ = world.subscribe(index=100)
    await until(lambda: first.sent.count(b"{}\n") > 1 and second.sent.count(b"{}\n") > 1)


async def test_the_end_of_the_stream_ends_all_and_the_next_ones_begin_anew(world: World) -> None:
    first, serving = world.subscribe()
    world.servers.kept = [1]
    world.servers.end()
    await until(serving.done)
    assert (first.indexes, first.aborted) == ([1], False)
    world.servers.ended = None
    again, _ = world.subscribe()
    await until(lambda: again.indexes == [1])


async def test_a_stream_that_cannot_be_opened_ends_quietly(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As on an agent whose server is just starting."""

    def refuse(request: EventStreamRequest) -> AsyncIterator[EventBatch]:
        raise LepaError("no_leader", "No cluster leader: the server is starting")

    world.feeds = Feeds(refuse)
    connection, serving = world.subscribe()
    await until(serving.done)
    assert (connection.indexes, connection.aborted) == ([], False)
    assert not caplog.records


async def test_the_last_subscriber_ends_the_stream_and_the_next_one_begins_another(world: World) -> None:
    world.servers.kept = [1]
    _, serving = world.subscribe()
    await until(lambda: len(world.servers.streams) == 1)
    serving.cancel()
    await asyncio.wait({serving})
    again, _ = world.subscribe()
    await until(lambda: again.indexes == [1])
    assert len(world.servers.streams) == 2


async def test_subscribers_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feeds, "SUBSCRIBERS_MAX", 1)
    world.feeds.check_room()
    _, serving = world.subscribe()
    await until(lambda: bool(world.servers.streams))
    with pytest.raises(LepaError, match="open here already"):
        world.feeds.check_room()
    serving.cancel()
    await asyncio.wait({serving})
    world.feeds.check_room()
