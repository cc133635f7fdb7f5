"""A connected, non-blocking TCP socket that speaks `zmtp`: messages in, messages out, for whatever loop watches it.

What the kernel does not take at once waits here, within a bound. A peer whose host has vanished is noticed by the
kernel, also while the process at its other end is busy: it answers no probes, or acknowledges nothing that was sent.
"""

import socket
from collections.abc import Sequence

from lepa.serving import zmtp
from lepa.serving.zmtp import Decoder, ZmtpError

RECEIVE_BYTES = 1 << 18
UNSENT_BYTES_MAX = 256 << 20
"""What waits for one peer; one that takes no more is as good as gone."""
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 2, 1, 4
"""Of silence on the wire; between two probes; those that may stay unanswered."""
UNACKNOWLEDGED_MS = 6000
"""The longest that sent bytes may go without the peer's kernel acknowledging them."""


class PeerGone(Exception):
    """The connection is of no use any more: why."""


class MessageSocket:
    """See the module. closed: it was closed on this side."""

    def __init__(self, connection: socket.socket, hello: bytes) -> None:
        connection.setblocking(False)
        for level, option, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS),
        ):
            connection.setsockopt(level, option, value)
        self._socket = connection
        self._decoder = Decoder()
        self._unsent = bytearray(hello)
        self._early = bytearray()
        self.closed = False

    def limit(self, bytes_max: int) -> None:
        """Take messages of at most so many bytes from now on."""
        self._decoder.bytes_max = bytes_max

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def pending(self) -> bool:
        """Whether something waits until the socket can be written to; then `flush` is due."""
        return bool(self._unsent)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message, now or as soon as the peer takes it. Raises PeerGone."""
        data = zmtp.encode(frames)
        if not self._decoder.ready:
            self._early += data
            self._check(self._early)
        elif self._unsent:
            self._unsent += data
            self._check(self._unsent)
        else:
            self._send(data)

    def _check(self, waiting: bytearray) -> None:
        if len(waiting) > UNSENT_BYTES_MAX:
            raise PeerGone(f"it has left more than {UNSENT_BYTES_MAX} bytes unread")

    def _send(self, data: "bytes | bytearray") -> None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise PeerGone(str(error)) from error
        self._unsent = bytearray(data[sent:])

    def flush(self) -> None:
        """Send what waits, as far as the peer takes it. Raises PeerGone."""
        if self._unsent:
            self._send(self._unsent)

    def receive(self) -> list[list[bytes]]:
        """The messages that have come in. Raises PeerGone when there will be no more, or none that can be read."""
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise PeerGone(str(error)) from error
        if not data:
            raise PeerGone("it closed the connection")
        decoder = self._decoder
        was_ready = decoder.ready
        try:
            messages = decoder.feed(data)
        except ZmtpError as error:
            raise PeerGone(str(error)) from error
        if not was_ready and decoder.ready:
            self._queue(self._early)
            self._early = bytearray()
        if decoder.to_send:
            self._queue(decoder.to_send)
            decoder.to_send = b""
        return messages

    def _queue(self, data: "bytes | bytearray") -> None:
        self._unsent += data
        self._check(self._unsent)
        self.flush()

    def close(self) -> None:
        self.closed = True
        self._socket.close()
