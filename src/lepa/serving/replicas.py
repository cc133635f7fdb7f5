"""The connected model containers: the RPC port, and who is alive behind it.

Containers speak ZeroMQ's protocol, as Clipper's do (`zmtp`, `message_socket`); this end is its ROUTER. A batch is
written to the socket the moment it is ordered, not at the end of the loop's turn, so that the model works while answers
to the batch before are still being written.

Alive. A container that predicts says nothing, for as long as its batch takes; Clipper dropped those that were busy
for 30 s. Here the connection itself is asked: when a process ends its kernel closes the connection at once, and a host
that has vanished no longer answers the kernel's probes. Only a batch of `HANG_S` counts as hung.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from lepa.kit.sources import Clock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.serving import zmtp
from lepa.serving.batching import SendBatch
from lepa.serving.container_rpc import (
    KEEP_ALIVE_FRAMES,
    RPC_VERSION,
    WHO_ARE_YOU_FRAMES,
    Frames,
    Heartbeat,
    Malformed,
    NewContainer,
    Outputs,
    decode_from_container,
    encode_batch,
    encode_introduction,
)
from lepa.serving.inputs import INPUT_TYPES
from lepa.serving.message_socket import MessageSocket, PeerGone
from lepa.serving.query import REPLICAS_MAX, Predictions
from lepa.serving.zmtp import MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)

PEERS_MAX = REPLICAS_MAX + 1000
"""Connections, of containers that are registered and that are not yet."""
BACKLOG = 1024
ACCEPT_PAUSE_S = 0.5
"""Until connections are taken again, when there was no room for one."""
TICK_S = 0.5
"""Between two looks at peers that are overdue."""
STRANGER_BYTES_MAX = 1 << 16
"""Of a message from a peer that has not said yet which model it serves."""
REGISTER_S = 60.0
"""For a peer to say which model it serves. Clipper's containers ask again every 5 s."""
HANG_S = 600.0
"""A batch older than this is given up with its replica."""
HELLO = zmtp.hello("ROUTER")


class _Peer:
    """One connected container. id: of its replica, None until it is registered. sent_at: when its batch left, None
    while it is idle."""

    __slots__ = ("connected_at", "id", "message_id", "packed", "sent_at", "socket", "writing")

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.socket = MessageSocket(connection, HELLO)
        self.socket.limit(STRANGER_BYTES_MAX)
        self.id: int | None = None
        self.packed = False
        self.message_id = -1
        self.sent_at: float | None = None
        self.connected_at = now
        self.writing = False


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
        self._peers: set[_Peer] = set()
        self._by_id: dict[int, _Peer] = {}
        self._next_message = 0
        self.name = SystemRandom().uuid().encode()
        self.port = port
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = socket.create_server((self._host, self.port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener, self._accept)
        self._tasks.start("watch", self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._tasks.close()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for peer in list(self._peers):
            self._forget(peer)

    # Connections

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._pause(str(error))
            return
        if len(self._peers) >= PEERS_MAX:
            connection.close()
            self._pause(f"{PEERS_MAX} containers are connected")
            return
        try:
            peer = _Peer(connection, self._clock.now())
        except OSError:
            connection.close()
            return
        self._peers.add(peer)
        self._loop.add_reader(peer.socket, self._readable, peer)
        self._flush(peer)

    def _pause(self, reason: str) -> None:
        """Take no connections for a moment, rather than fail at the same one over and over."""
        log.warning("container was not let in reason=%s", reason)
        self._loop.remove_reader(self._listener)
        self._loop.call_later(ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _readable(self, peer: _Peer) -> None:
        try:
            messages = peer.socket.receive()
        except PeerGone as gone:
            self._drop(peer, str(gone))
            return
        for frames in messages:
            if peer.socket.closed:
                return
            self._received(peer, frames)
        self._watch_writable(peer)

    def _send(self, peer: _Peer, frames: Frames) -> None:
        try:
            peer.socket.send(frames)
        except PeerGone as gone:
            self._drop(peer, str(gone))
        else:
            self._watch_writable(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            peer.socket.flush()
        except PeerGone as gone:
            self._drop(peer, str(gone))
        else:
            self._watch_writable(peer)

    def _watch_writable(self, peer: _Peer) -> None:
        """Be told when the rest of what was sent can go, as long as there is one."""
        if peer.socket.closed or peer.socket.pending == peer.writing:
            return
        peer.writing = not peer.writing
        if peer.writing:
            self._loop.add_writer(peer.socket, self._flush, peer)
        else:
            self._loop.remove_writer(peer.socket)

    def _forget(self, peer: _Peer) -> None:
        self._peers.discard(peer)
        self._loop.remove_reader(peer.socket)
        self._loop.remove_writer(peer.socket)
        peer.socket.close()

    def _drop(self, peer: _Peer, reason: str) -> None:
        if peer.socket.closed:
            return
        self._forget(peer)
        if peer.id is None:
            log.debug("container left before it was registered reason=%s", reason)
            return
        replica = self._predictions.replicas[peer.id]
        del self._by_id[peer.id]
        log.info("replica left model=%s replica=%d reason=%s", replica.model.key, replica.replica_id, reason)
        self._predictions.replica_left(peer.id, self._clock.now())
        self.changed.set()
        self._on_event()

    # Out

    def send(self, order: SendBatch) -> None:
        """Carry out an order of `predictions`."""
        peer = self._by_id.get(order.replica)
        if peer is None:
            return  # It was lost by an order before this one; its tasks were given back then.
        replica = self._predictions.replicas[order.replica]
        record = replica.model.record
        kind = INPUT_TYPES[record.input_type].code if record else replica.input_type
        message_id = self._next_message
        self._next_message = (message_id + 1) & 0xFFFFFFFF
        peer.message_id = message_id
        peer.sent_at = self._clock.now()
        self._send(peer, encode_batch(message_id, kind, [task.data for task in order.tasks], peer.packed))

    # In

    def _received(self, peer: _Peer, frames: list[bytes]) -> None:
        message = decode_from_container(frames)
        if isinstance(message, Outputs):
            self._answered(peer, message)
        elif isinstance(message, Heartbeat):
            self._send(peer, WHO_ARE_YOU_FRAMES if peer.id is None else KEEP_ALIVE_FRAMES)
        elif isinstance(message, NewContainer):
            self._registered(peer, message)
        else:
            self._malformed(peer, message)

    def _answered(self, peer: _Peer, message: Outputs) -> None:
        if peer.id is None or peer.sent_at is None or message.message_id != peer.message_id:
            return  # An answer to a batch that was given up, or from a container that was dropped.
        peer.sent_at = None
        self._predictions.batch_answered(peer.id, message.outputs, self._clock.now())
        self._on_event()

    def _registered(self, peer: _Peer, message: NewContainer) -> None:
        if peer.id is not None:
            return
        if message.rpc_version != RPC_VERSION:
            log.warning("container refused model=%s rpc_version=%d", message.model_name, message.rpc_version)
            return
        now = self._clock.now()
        replica = self._predictions.replica_joined(
            message.model_name, message.model_version, message.input_type, now, message.instance
        )
        if replica is None:
            log.warning("container refused model=%s reason=too many replicas", message.model_name)
            return
        peer.id = replica.id
        peer.packed = message.packed
        peer.socket.limit(MESSAGE_BYTES_MAX)
        self._by_id[replica.id] = peer
        if message.introduced:
            self._send(peer, encode_introduction(self.name))
        log.info("replica joined model=%s replica=%d", replica.model.key, replica.replica_id)
        self.changed.set()
        self._on_event()

    def _malformed(self, peer: _Peer, message: Malformed) -> None:
        log.warning("container message was malformed reason=%s", message.reason)
        if peer.id is not None:
            self._drop(peer, "it sent a malformed message")

    # Alive

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            now = self._clock.now()
            for peer in list(self._peers):
                if peer.sent_at is not None and now - peer.sent_at > HANG_S:
                    self._drop(peer, f"its batch has taken {HANG_S:.0f} s")
                elif peer.id is None and now - peer.connected_at > REGISTER_S:
                    self._drop(peer, f"it did not say within {REGISTER_S:.0f} s which model it serves")
