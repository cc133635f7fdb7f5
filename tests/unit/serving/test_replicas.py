"""lepa.serving.replicas: with a DEALER that speaks as Clipper's own container does."""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import zmq

from lepa.kit.sources import SystemClock
from lepa.serving import replicas
from lepa.serving.container_rpc import (
    HEARTBEAT_FRAMES,
    KEEP_ALIVE_FRAMES,
    WHO_ARE_YOU_FRAMES,
    encode_introduction,
)
from lepa.serving.query import Predictions
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model
from lepa.serving.replicas import ReplicaServer
from lepa.serving.served import Answer

HEARTBEAT = list(HEARTBEAT_FRAMES)


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


class Container:
    """Clipper's container: plain frames, and whatever a test wants it to say."""

    def __init__(self, port: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(f"tcp://127.0.0.1:{port}")

    async def hear(self, tries: int = 500) -> list[bytes]:
        for _ in range(tries):
            try:
                return self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                await asyncio.sleep(0.01)
        raise AssertionError("nothing was heard")

    def say(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    async def register(self, version: bytes = u32(3)) -> None:
        self.say(*HEARTBEAT)
        assert await self.hear() == list(WHO_ARE_YOU_FRAMES)
        self.say(b"", u32(0), b"m", b"1", b"0", version)

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()


class Server:
    """A replica server with an application, and what it needs to be asked."""

    def __init__(self) -> None:
        registry = add_application(Registry(), Application("app", "bytes", "none", 2_000_000))
        registry = add_links(add_model(registry, ModelVersion("m", "1", "bytes")), "app", ("m",))
        self.clock = SystemClock()
        self.predictions = Predictions(10_000, self.clock.now(), lambda: 0.5)
        self.predictions.configure(registry, self.clock.now())
        self.replicas = ReplicaServer(self.predictions, "127.0.0.1", 0, self.clock, self.flush)
        self.answers: list[Answer] = []

    def ask(self, data: bytes) -> None:
        served = self.predictions.applications["app"]
        self.predictions.predict(served, data, "", self.answers.append, self.clock.now())
        self.flush()

    def flush(self) -> None:
        now = self.clock.now()
        for order in self.predictions.dispatch(now):
            self.replicas.send(order)
        self.predictions.reply(now)
        self.predictions.replied(now)

    async def until(self, done: Any) -> None:
        for _ in range(500):
            if done():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not happen")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with made.replicas:
        yield made


@pytest.fixture
async def container(server: Server) -> AsyncIterator[Container]:
    made = Container(server.replicas.port)
    yield made
    made.close()


async def test_clippers_container_registers_predicts_and_is_kept_alive(server: Server, container: Container) -> None:
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    server.ask(b"x")
    frames = await container.hear()
    assert frames == [b"", u32(3), u32(1), u32(0), u32(0), struct.pack("<Q", 24), struct.pack("<3Q", 0, 1, 1), b"x"]
    container.say(b"", u32(1), frames[3], struct.pack("<Q", 16), struct.pack("<2Q", 1, 2), b"42")
    await server.until(lambda: server.answers)
    assert server.answers == [Answer(0, b"42", "")]
    container.say(*HEARTBEAT)
    assert await container.hear() == list(KEEP_ALIVE_FRAMES)
    container.say(b"", u32(0), b"m", b"1", b"0", u32(3))
    container.say(*HEARTBEAT)
    assert await container.hear() == list(KEEP_ALIVE_FRAMES)
    assert len(server.predictions.replicas) == 1


async def test_a_container_that_understands_it_is_told_who_let_it_in(server: Server, container: Container) -> None:
    await container.register(struct.pack("<II", 3, 2))
    assert await container.hear() == encode_introduction(server.replicas.name)
    async with ReplicaServer(server.predictions, "127.0.0.1", 0, server.clock, server.flush) as other:
        assert other.name != server.replicas.name


async def test_the_batch_of_a_container_that_dies_goes_to_another(server: Server, container: Container) -> None:
    other = Container(server.replicas.port)
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    server.ask(b"x")
    await container.hear()
    await other.register()
    await server.until(lambda: len(server.predictions.replicas) == 2)
    container.socket.close(0)
    frames = await other.hear()
    assert frames[-1] == b"x"
    other.say(b"", u32(1), frames[3], struct.pack("<Q", 16), struct.pack("<2Q", 1, 1), b"7")
    await server.until(lambda: server.answers)
    assert server.answers == [Answer(0, b"7", "")]
    assert len(server.predictions.replicas) == 1
    other.close()


async def test_another_version_of_the_protocol_is_refused(server: Server, container: Container) -> None:
    await container.register(version=u32(2))
    container.say(*HEARTBEAT)
    assert await container.hear() == list(WHO_ARE_YOU_FRAMES)
    assert server.predictions.replicas == {}


async def test_answers_that_nobody_waits_for_are_ignored(server: Server, container: Container) -> None:
    container.say(b"", u32(1), u32(9), struct.pack("<Q", 8), struct.pack("<Q", 0))
    await container.register()
    container.say(b"", u32(1), u32(9), struct.pack("<Q", 8), struct.pack("<Q", 0))
    await server.until(lambda: server.predictions.replicas)


async def test_a_container_that_talks_nonsense_is_dropped(server: Server, container: Container) -> None:
    container.say(b"", b"nonsense")
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    container.say(b"", u32(77))
    await server.until(lambda: not server.predictions.replicas)


async def test_a_stranger_sends_small_messages_and_a_container_large_ones(server: Server, container: Container) -> None:
    stranger = Container(server.replicas.port)
    stranger.say(b"", u32(1), bytes(100_000))
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    server.ask(b"x")
    frames = await container.hear()
    large = b'"%b"' % (b"7" * 1_000_000)
    container.say(b"", u32(1), frames[3], struct.pack("<Q", 16), struct.pack("<2Q", 1, len(large)), large)
    await server.until(lambda: server.answers)
    assert server.answers[0].output == large
    with pytest.raises(AssertionError, match="nothing was heard"):
        await stranger.hear(tries=10)
    stranger.close()


async def test_a_peer_that_does_not_say_what_it_serves_is_shown_the_door(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "REGISTER_S", 0.05)
    monkeypatch.setattr(replicas, "TICK_S", 0.02)
    await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.replicas.port)
    async with asyncio.timeout(5):
        assert (await reader.read()).startswith(b"\xff")
    writer.close()


async def test_an_idle_container_that_is_gone_is_noticed(server: Server, container: Container) -> None:
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    container.socket.close(0)
    await server.until(lambda: not server.predictions.replicas)


async def test_a_batch_that_hangs_for_too_long_costs_the_replica_its_place(
    server: Server, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "HANG_S", 0.1)
    monkeypatch.setattr(replicas, "TICK_S", 0.05)
    await container.register()
    await server.until(lambda: server.predictions.replicas)
    server.ask(b"x")
    await server.until(lambda: not server.predictions.replicas)
    assert server.answers[0].explanation == "The model's replica was lost while it predicted"
