"""Answers DNS over UDP and TCP on two threads of its own, so that it answers while the agent's loop is busy.

The first thread is a plain blocking loop over the UDP socket: receive, look up, send, a batch at a time. The second
waits on a selector for everything slower: TCP connections, and questions forwarded to recursors. Both take their
answers from the same `Responder`; `publish` builds one for a new table on the caller's thread and swaps it in with one
assignment.
"""

import logging
import socket
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL
from functools import partial
from ipaddress import ip_address
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import pack
from threading import Event, Thread

from lepa.catalog.table import ServiceTable
from lepa.dns.datagrams import Datagrams
from lepa.dns.forwarder import Attempt, Deliver, Forwarder
from lepa.dns.responder import Answer, Chase, Responder, Verdict
from lepa.dns.settings import DnsSettings, recursor_address
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid

log = logging.getLogger(__name__)

BATCHES_MAX = 4
"""Batches of datagrams that are answered before other threads get the interpreter for certain."""
SOCKET_BUFFER = 4 << 20
"""Room for datagrams that arrive while another thread has the interpreter; the kernel may grant less."""
STOP_CHECK_S = 0.5
"""How long a thread waits at most before it looks whether it is to stop, should waking it have failed."""
BACKLOG = 128
TCP_READ_SIZE = 65_536
TCP_PENDING_MAX = 64
"""Forwarded questions of one connection that wait; until some are answered nothing more is read from it."""
TCP_UNSENT_MAX = 256 << 10
"""Octets of answers that wait for a slow reader; until they are gone nothing more is read from it."""
HANDOVER_MAX = 512
"""Datagrams to be forwarded that wait for the second thread; further ones are dropped."""
PORT_TRIES_MAX = 16
"""With port 0: how many free UDP ports are tried for one whose TCP port is free as well."""


class DnsServer:
    """One address and port, UDP and TCP.

    bind: an IP address. port: 0 for any free one; `port` tells which after `start`. Before the first `publish` our
    names are answered with SERVFAIL.
    """

    def __init__(self, bind: str, port: int, settings: DnsSettings, clock: Clock) -> None:
        self.bind = bind
        self.port = port
        self._settings = settings
        self._clock = clock
        self._responder = Responder(None, settings, clock.now_ns())
        self._table: ServiceTable | None = None
        self._stopping = Event()
        self._threads: list[Thread] = []
        self._udp: _UdpLoop | None = None
        self._streams: _StreamLoop | None = None

    def start(self) -> None:
        """Take the port and begin to answer. LepaError when the port cannot be had."""
        udp, tcp = self._open()
        self.port = udp.getsockname()[1]
        self._stopping = Event()
        self._streams = _StreamLoop(tcp, udp, self._current, self._settings, self._clock, self._stopping)
        self._udp = _UdpLoop(udp, self._current, self._streams.forward, self._stopping)
        self._threads = [
            Thread(target=self._udp.run, name="dns-udp", daemon=True),
            Thread(target=self._streams.run, name="dns-tcp", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        log.info("dns started address=%s port=%d", self.bind, self.port)

    def publish(self, table: ServiceTable) -> None:
        """Answer from `table` from now on. To be called from one thread only."""
        if table is not self._table:
            self._responder = self._responder.renewed(table)
            self._table = table

    def stop(self) -> None:
        """Stop answering; both threads have ended and the port is free when it returns."""
        self._stopping.set()
        if self._udp is not None and self._streams is not None:
            self._udp.wake()
            self._streams.wake()
            for thread in self._threads:
                thread.join()
            self._udp.close()
        self._threads = []
        self._udp = self._streams = None

    def metrics(self) -> dict[str, int]:
        """Counters since the start: messages taken, kinds of answers composed, connections, failures."""
        counts: Counter[str] = Counter(self._responder.counts.copy())
        if self._udp is not None and self._streams is not None:
            counts.update(self._udp.counters())
            counts.update(self._streams.counters())
        return dict(counts)

    def _current(self) -> Responder:
        return self._responder

    def _open(self) -> tuple[socket.socket, socket.socket]:
        """Both sockets, on the same port."""
        try:
            family = socket.AF_INET6 if ip_address(self.bind).version == 6 else socket.AF_INET
        except ValueError:
            raise invalid(f"dns: the address to listen on must be an IP address, not {self.bind!r}") from None
        for _ in range(PORT_TRIES_MAX):
            udp = self._bound(family, socket.SOCK_DGRAM, self.port)
            try:
                return udp, self._bound(family, socket.SOCK_STREAM, udp.getsockname()[1])
            except LepaError as error:
                udp.close()
                if self.port or error.code != "conflict":
                    raise
        raise LepaError("conflict", f"dns: found no port on {self.bind} that is free for UDP and TCP")

    def _bound(self, family: int, kind: int, port: int) -> socket.socket:
        listener = socket.socket(family, kind)
        try:
            if kind == socket.SOCK_STREAM:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.setblocking(False)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pack("ll", 0, int(STOP_CHECK_S * 1e6)))
            listener.bind((self.bind, port))
            if kind == socket.SOCK_STREAM:
                listener.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            listener.close()
            raise self._refusal(error, "UDP" if kind == socket.SOCK_DGRAM else "TCP", port) from error
        return listener

    def _refusal(self, error: OSError | OverflowError, protocol: str, port: int) -> LepaError:
        wanted = f"dns: cannot listen on {self.bind} port {port} ({protocol})"
        number = error.errno if isinstance(error, OSError) else None
        if number == EADDRINUSE:
            return LepaError("conflict", f"{wanted}: another program has it; stop that one or set another DNS port")
        if number == EACCES:
            return LepaError("denied", f"{wanted}: ports below 1024 need root or CAP_NET_BIND_SERVICE")
        if number == EADDRNOTAVAIL:
            return invalid(f"{wanted}: this host does not have the address")
        return invalid(f"{wanted}: {error}")


Forward = Callable[[bytes, Answer, tuple[str, int]], bool]
"""Takes a datagram, what is to be asked about it, and its sender; says whether it will be answered."""


class _UdpLoop:
    """Receives datagrams and sends answers, on one thread."""

    def __init__(
        self,
        udp: socket.socket,
        responder: Callable[[], Responder],
        forward: "Forward",
        stopping: Event,
    ) -> None:
        self._socket = udp
        self._datagrams = Datagrams(udp)
        self._responder = responder
        self._forward = forward
        self._stopping = stopping
        self._received = 0
        self._unanswered = 0
        self._bugs = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._answer_what_comes()
            except OSError:
                # A time-out, to look whether to stop; or a complaint about a datagram sent earlier.
                continue
            except Exception:
                # Whatever a message does to us, the next one must be answered.
                self._bugs += 1
                log.exception("dns query failed")

    def _answer_what_comes(self) -> None:
        """Wait for datagrams, then answer them and those that came meanwhile, a few batches at most."""
        messages = self._datagrams.receive(wait=True)
        for _ in range(BATCHES_MAX):
            self._answer(messages)
            if self._stopping.is_set() or not (messages := self._datagrams.receive(wait=False)):
                return
        self._answer(messages)

    def _answer(self, messages: list[bytes]) -> None:
        answer_to = self._responder().udp
        put = self._datagrams.put
        self._received += len(messages)
        for position, message in enumerate(messages):
            answer = answer_to(message)
            if type(answer) is bytes:
                put(position, answer)
            elif answer is not Verdict.DROP and not self._forward(message, answer, self._datagrams.sender(position)):
                self._unanswered += 1
        self._unanswered += self._datagrams.send()

    def wake(self) -> None:
        """Make the thread look whether it is to stop."""
        # Raises ENOTCONN for UDP, but wakes the receiver all the same (net/ipv4/af_inet.c, inet_shutdown).
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def counters(self) -> dict[str, int]:
        return {"udp_queries": self._received, "udp_unsent": self._unanswered, "udp_errors": self._bugs}


class _Connection:
    """One TCP client. Messages are framed by two octets of length (RFC 1035, 4.2.2), and may be pipelined."""

    def __init__(self, stream: socket.socket, now: float) -> None:
        self.socket = stream
        self.inbound = bytearray()
        self.outbound = bytearray()
        self.active_at = now
        self.ended = False
        self.closed = False
        self.pending = 0
        self.watched = 0

    def next_message(self) -> bytes | None:
        """Take the next whole message out of what was read; None when there is none, or too much waits to be sent."""
        if len(self.inbound) < 2 or self.is_clogged():
            return None
        end = 2 + int.from_bytes(self.inbound[:2], "big")
        if len(self.inbound) < end:
            return None
        message = bytes(self.inbound[2:end])
        del self.inbound[:end]
        return message

    def is_clogged(self) -> bool:
        return len(self.outbound) >= TCP_UNSENT_MAX or self.pending >= TCP_PENDING_MAX

    def is_finished(self) -> bool:
        """Whether the client has said its last and got everything."""
        return self.ended and not self.outbound and not self.pending

    def wants(self) -> int:
        """The events to wait for; none while all depends on recursors."""
        read = 0 if self.ended or self.is_clogged() else EVENT_READ
        return read | (EVENT_WRITE if self.outbound else 0)


class _StreamLoop:
    """TCP connections and forwarded questions, on one thread with a selector."""

    def __init__(
        self,
        listener: socket.socket,
        udp: socket.socket,
        responder: Callable[[], Responder],
        settings: DnsSettings,
        clock: Clock,
        stopping: Event,
    ) -> None:
        self._listener = listener
        self._udp = udp
        self._responder = responder
        self._settings = settings
        self._clock = clock
        self._stopping = stopping
        self._selector = DefaultSelector()
        recursors = tuple(recursor_address(text) for text in settings.recursors)
        self._forwarder = Forwarder(self._selector, clock, recursors, settings.recursor_timeout_s)
        self._connections: dict[int, _Connection] = {}
        self._handover: deque[tuple[bytes, Answer, tuple[str, int]]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._counts: Counter[str] = Counter()

    def forward(self, message: bytes, answer: Answer, sender: tuple[str, int]) -> bool:
        """Ask the recursors what a datagram takes; called on the UDP thread. False when too many wait already."""
        if len(self._handover) >= HANDOVER_MAX:
            return False
        self._handover.append((message, answer, sender))
        self.wake()
        return True

    def wake(self) -> None:
        """Make the thread look at what there is to do."""
        # A full buffer means that it has been told often enough.
        with suppress(OSError):
            self._wake_in.send(b"\0", socket.MSG_DONTWAIT)

    def counters(self) -> dict[str, int]:
        return {
            **self._counts,
            "tcp_connections": len(self._connections),
            "forward_failed": self._forwarder.failed,
        }

    def run(self) -> None:
        self._selector.register(self._listener, EVENT_READ, self._accept)
        self._selector.register(self._wake_out, EVENT_READ, self._take_handover)
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._patience_s()):
            try:
                if isinstance(key.data, _Connection):
                    self._serve(key.data, events)
                elif isinstance(key.data, Attempt):
                    self._forwarder.ready(key.data, events)
                else:
                    key.data()
            except Exception:
                # Whatever one peer does to us, the others must be answered.
                self._counts["tcp_errors"] += 1
                log.exception("dns stream failed")
                if isinstance(key.data, _Connection):
                    self._end(key.data)
        self._forwarder.expire()
        self._end_idle()

    def _patience_s(self) -> float:
        wake_at = self._forwarder.wake_at()
        return STOP_CHECK_S if wake_at is None else max(0.0, min(STOP_CHECK_S, wake_at - self._clock.now()))

    def _accept(self) -> None:
        try:
            stream, _ = self._listener.accept()
        except OSError:
            return
        stream.setblocking(False)
        if len(self._connections) >= self._settings.tcp_connections_max:
            self._counts["tcp_evicted"] += 1
            self._end(min(self._connections.values(), key=lambda connection: connection.active_at))
        connection = _Connection(stream, self._clock.now())
        self._connections[stream.fileno()] = connection
        self._watch(connection)
        self._counts["tcp_accepted"] += 1

    def _take_handover(self) -> None:
        self._wake_out.recv(4_096)
        while self._handover:
            message, answer, sender = self._handover.popleft()
            self._ask(message, answer, False, partial(self._send_datagram, sender))

    def _send_datagram(self, sender: tuple[str, int], answer: bytes | None) -> None:
        if answer is not None:
            with suppress(OSError):
                self._udp.sendto(answer, sender)

    def _ask(self, message: bytes, answer: Answer, over_tcp: bool, send: Deliver) -> None:
        """Put a client's question, or the one behind its answer, to the recursors; `send` takes what it is told."""

        def deliver(reply: bytes | None) -> None:
            responder = self._responder()
            if isinstance(answer, Chase):
                further = responder.chased(answer, reply)
                if isinstance(further, Chase):
                    self._ask(message, further, over_tcp, send)
                else:
                    send(further)
            else:
                told = responder.servfail(message) if reply is None else reply
                send(told if isinstance(told, bytes) else None)

        self._forwarder.submit(answer.question if isinstance(answer, Chase) else message, over_tcp, deliver)

    def _serve(self, connection: _Connection, events: int) -> None:
        if connection.closed:
            return
        try:
            if events & EVENT_READ:
                self._read(connection)
            self._answer(connection)
        except OSError:
            self._end(connection)

    def _read(self, connection: _Connection) -> None:
        with suppress(BlockingIOError):
            data = connection.socket.recv(TCP_READ_SIZE)
            connection.inbound += data
            connection.ended = not data

    def _answer(self, connection: _Connection) -> None:
        """Answer what was asked so far, as far as the client takes answers."""
        while (message := connection.next_message()) is not None:
            self._counts["tcp_queries"] += 1
            connection.active_at = self._clock.now()
            answer = self._responder().tcp(message)
            if type(answer) is bytes:
                _append(connection, answer)
            elif answer is Verdict.DROP:
                self._end(connection)
                return
            else:
                connection.pending += 1
                self._ask(message, answer, True, partial(self._send_later, connection))
            self._send(connection)
        self._send(connection)
        if connection.is_finished():
            self._end(connection)
        else:
            self._watch(connection)

    def _watch(self, connection: _Connection) -> None:
        """Wait for what the connection wants; the selector takes no empty set of events."""
        wanted, watched = connection.wants(), connection.watched
        connection.watched = wanted
        if wanted and watched:
            self._selector.modify(connection.socket, wanted, connection)
        elif wanted:
            self._selector.register(connection.socket, wanted, connection)
        elif watched:
            self._selector.unregister(connection.socket)

    def _send_later(self, connection: _Connection, answer: bytes | None) -> None:
        connection.pending -= 1
        if not connection.closed and answer is not None:
            _append(connection, answer)
            self._watch(connection)

    def _send(self, connection: _Connection) -> None:
        if not connection.outbound:
            return
        with suppress(BlockingIOError):
            del connection.outbound[: connection.socket.send(connection.outbound)]
        if not connection.outbound:
            connection.active_at = self._clock.now()

    def _end_idle(self) -> None:
        late = self._clock.now() - self._settings.tcp_idle_s
        for connection in [row for row in self._connections.values() if row.active_at < late]:
            self._counts["tcp_idle_closed"] += 1
            self._end(connection)

    def _end(self, connection: _Connection) -> None:
        if not connection.closed:
            connection.closed = True
            del self._connections[connection.socket.fileno()]
            if connection.watched:
                self._selector.unregister(connection.socket)
            connection.socket.close()

    def _close(self) -> None:
        self._forwarder.close()
        for connection in list(self._connections.values()):
            self._end(connection)
        self._selector.close()
        self._listener.close()
        self._wake_in.close()
        self._wake_out.close()


def _append(connection: _Connection, answer: bytes) -> None:
    connection.outbound += len(answer).to_bytes(2, "big") + answer
