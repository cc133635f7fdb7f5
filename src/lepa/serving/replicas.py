"""The connected model containers: one ROUTER socket, read through the event loop, and who is alive behind it.

zmq's file descriptor is edge-triggered: it tells that something has changed, once. So everything is read whenever it
fires, and once more after each send, for a send may swallow the edge.

Alive. A container that predicts says nothing, for as long as its batch takes; Clipper dropped those that were busy
for 30 s. Here the connection itself is asked: ROUTER_MANDATORY makes a send to a peer that is gone fail at once, so a
keep-alive is sent to replicas whose batch is late, often, and to idle ones now and then. ZeroMQ's own pings (answered
by the container's I/O thread, also while the model runs) end connections to hosts that vanished.
"""

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

import zmq

from lepa.kit.sources import Clock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.serving.batching import SendBatch
from lepa.serving.container_rpc import (
    KEEP_ALIVE_FRAMES,
    RPC_VERSION,
    WHO_ARE_YOU_FRAMES,
    Heartbeat,
    Malformed,
    NewContainer,
    Outputs,
    decode_from_container,
    encode_batch,
    encode_introduction,
)
from lepa.serving.inputs import INPUT_TYPES
from lepa.serving.query import Predictions

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 1 << 30
SEND_QUEUE_MAX = 1000
"""Messages that wait for one connection before it counts as lost."""
READS_PER_TURN = 1000
"""Messages read before other work of the loop gets its turn."""
TICK_S = 0.05
"""Between two looks at replicas whose batch is late."""
PROBE_IDLE_S = 2.0
PROBE_SHARE = 0.25
"""Of a batch's age: the time between two probes of its replica."""
HANG_S = 600.0
"""A batch older than this is given up with its replica."""
PING_MS = 2000
PING_TIMEOUT_MS = 6000


class _Connection:
    """One registered container. sent_at: when its batch left, None while it is idle."""

    __slots__ = ("failures", "id", "message_id", "packed", "probed_at", "routing_id", "sent_at")

    def __init__(self, routing_id: bytes, connection_id: int, packed: bool, now: float) -> None:
        self.routing_id = routing_id
        self.id = connection_id
        self.packed = packed
        self.message_id = -1
        self.sent_at: float | None = None
        self.probed_at = now


class ReplicaServer:
    """Binds the RPC port, tells `predictions` who joins, leaves and answers, and carries out its orders.

    name: tells this server from all others.
    """

    def __init__(
        self, predictions: Predictions, host: str, port: int, clock: Clock, on_event: Callable[[], None]
    ) -> None:
        self._predictions = predictions
        self._on_event = on_event
        self._host = host
        self._clock = clock
        self._tasks = Tasks("replicas")
        self._context = zmq.Context(io_threads=1)
        self._socket = self._context.socket(zmq.ROUTER)
        self._by_routing_id: dict[bytes, _Connection] = {}
        self._by_id: dict[int, _Connection] = {}
        self._next_message = 0
        self.name = SystemRandom().uuid().encode()
        self.port = port
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        socket = self._socket
        socket.linger = 0
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MAX)
        socket.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, PING_TIMEOUT_MS)
        if ":" in self._host:
            socket.setsockopt(zmq.IPV6, 1)
        socket.bind(f"tcp://{self._host}:{self.port or '*'}")
        self.port = int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(socket.fileno(), self._read_all)
        self._tasks.start("watch", self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._tasks.close()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._context.term()

    # Out

    def send(self, order: SendBatch) -> None:
        """Carry out an order of `predictions`."""
        connection = self._by_id[order.replica]
        replica = self._predictions.replicas[order.replica]
        record = replica.model.record
        kind = INPUT_TYPES[record.input_type].code if record else replica.input_type
        message_id = self._next_message
        self._next_message = (message_id + 1) & 0xFFFFFFFF
        connection.message_id = message_id
        connection.sent_at = connection.probed_at = self._clock.now()
        frames = encode_batch(message_id, kind, [task.data for task in order.tasks], connection.packed)
        if not self._sent(connection.routing_id, frames):
            self._drop(connection, "its connection is gone")
        self._loop.call_soon(self._read_all)

    def _sent(self, routing_id: bytes, frames: "list[bytes] | tuple[bytes, ...]") -> bool:
        """False when the peer is gone, or takes no more."""
        try:
            self._socket.send_multipart([routing_id, *frames], zmq.DONTWAIT)
        except zmq.ZMQError:
            return False
        return True

    def _drop(self, connection: _Connection, reason: str) -> None:
        replica = self._predictions.replicas[connection.id]
        del self._by_id[connection.id], self._by_routing_id[connection.routing_id]
        log.info("replica left model=%s replica=%d reason=%s", replica.model.key, replica.replica_id, reason)
        self._predictions.replica_left(connection.id, self._clock.now())
        self.changed.set()
        self._on_event()

    # In

    def _read_all(self) -> None:
        socket = self._socket
        if socket.closed:
            return
        for _ in range(READS_PER_TURN):
            try:
                frames = socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._received(frames[0], frames[1:])
        self._loop.call_soon(self._read_all)

    def _received(self, routing_id: bytes, frames: list[bytes]) -> None:
        connection = self._by_routing_id.get(routing_id)
        message = decode_from_container(frames)
        if isinstance(message, Outputs):
            self._answered(connection, message)
        elif isinstance(message, Heartbeat):
            self._sent(routing_id, WHO_ARE_YOU_FRAMES if connection is None else KEEP_ALIVE_FRAMES)
        elif isinstance(message, NewContainer):
            self._registered(connection, routing_id, message)
        else:
            self._malformed(connection, message)

    def _answered(self, connection: _Connection | None, message: Outputs) -> None:
        if connection is None or connection.sent_at is None or message.message_id != connection.message_id:
            return  # An answer to a batch that was given up, or from a container that was dropped.
        connection.sent_at = None
        self._predictions.batch_answered(connection.id, message.outputs, self._clock.now())
        self._on_event()

    def _registered(self, connection: _Connection | None, routing_id: bytes, message: NewContainer) -> None:
        if connection is not None:
            return
        if message.rpc_version != RPC_VERSION:
            log.warning("container refused model=%s rpc_version=%d", message.model_name, message.rpc_version)
            return
        now = self._clock.now()
        replica = self._predictions.replica_joined(message.model_name, message.model_version, message.input_type, now)
        if replica is None:
            log.warning("container refused model=%s reason=too many replicas", message.model_name)
            return
        connection = _Connection(routing_id, replica.id, message.packed, now)
        self._by_routing_id[routing_id] = self._by_id[replica.id] = connection
        if message.introduced:
            self._sent(routing_id, encode_introduction(self.name))
        log.info("replica joined model=%s replica=%d", replica.model.key, replica.replica_id)
        self.changed.set()
        self._on_event()

    def _malformed(self, connection: _Connection | None, message: Malformed) -> None:
        log.warning("container message was malformed reason=%s", message.reason)
        if connection is not None:
            self._drop(connection, "it sent a malformed message")

    # Alive

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            now = self._clock.now()
            for connection in list(self._by_id.values()):
                self._probe(connection, now)

    def _probe(self, connection: _Connection, now: float) -> None:
        age = None if connection.sent_at is None else now - connection.sent_at
        if age is not None and age > HANG_S:
            self._drop(connection, f"its batch has taken {HANG_S:.0f} s")
            return
        pause = PROBE_IDLE_S if age is None else max(TICK_S, age * PROBE_SHARE)
        if now - connection.probed_at < pause:
            return
        connection.probed_at = now
        if not self._sent(connection.routing_id, KEEP_ALIVE_FRAMES):
            self._drop(connection, "its connection is gone")
        self._loop.call_soon(self._read_all)
