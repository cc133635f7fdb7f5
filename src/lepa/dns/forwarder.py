"""Asks other resolvers (recursors) about names that are not ours, and hands back what they say.

A question goes to the first recursor, and to the next when one is late, fails or answers with an error, in the order
they are configured. It travels as it came: by UDP from a socket of its own (so from a port hard to guess), or by TCP
when the client came by TCP. Truncated replies are passed on, for the client to act on.

Everything runs on the thread that owns the selector; nothing here waits.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector

from lepa.dns import message as wire
from lepa.kit.sources import Clock

PENDING_MAX = 512
"""Questions under way at once; one more is answered SERVFAIL at once."""
RECEIVE_SIZE = 65_535

Deliver = Callable[[bytes | None], None]
"""Takes the reply, or None when every recursor failed."""


class Forwarder:
    """Questions on their way to the recursors."""

    def __init__(
        self, selector: BaseSelector, clock: Clock, recursors: tuple[tuple[str, int], ...], timeout_s: float
    ) -> None:
        self.failed = 0
        self._selector = selector
        self._clock = clock
        self._recursors = recursors
        self._timeout_s = timeout_s
        self._attempts: dict[int, Attempt] = {}

    def submit(self, message: bytes, over_tcp: bool, deliver: Deliver) -> None:
        """Ask about `message`; `deliver` is called once, perhaps at once."""
        if len(self._attempts) >= PENDING_MAX:
            self._give_up(deliver)
        else:
            self._try_from(0, message, over_tcp, deliver)

    def ready(self, attempt: "Attempt", events: int) -> None:
        """Go on with an attempt whose socket the selector reported."""
        try:
            reply = attempt.advance(events)
        except OSError:
            self._next(attempt)
            return
        if reply is None:
            self._selector.modify(attempt.socket, attempt.wants(), attempt)
        elif _is_reply_to(attempt.message, reply):
            if reply[3] & 0xF in (wire.NOERROR, wire.NXDOMAIN):
                self._end(attempt)
                attempt.deliver(reply)
            else:
                self._next(attempt)

    def expire(self) -> None:
        """Move on from attempts that are late."""
        now = self._clock.now()
        for attempt in [attempt for attempt in self._attempts.values() if attempt.deadline <= now]:
            self._next(attempt)

    def wake_at(self) -> float | None:
        """When `expire` has something to do."""
        return min((attempt.deadline for attempt in self._attempts.values()), default=None)

    def close(self) -> None:
        """Forget everything that is under way."""
        for attempt in list(self._attempts.values()):
            self._end(attempt)

    def _try_from(self, number: int, message: bytes, over_tcp: bool, deliver: Deliver) -> None:
        for candidate in range(number, len(self._recursors)):
            with suppress(OSError):
                deadline = self._clock.now() + self._timeout_s
                attempt = Attempt(self._recursors[candidate], candidate, message, over_tcp, deliver, deadline)
                self._attempts[attempt.socket.fileno()] = attempt
                self._selector.register(attempt.socket, attempt.wants(), attempt)
                return
        self._give_up(deliver)

    def _next(self, attempt: "Attempt") -> None:
        self._end(attempt)
        self._try_from(attempt.number + 1, attempt.message, attempt.over_tcp, attempt.deliver)

    def _give_up(self, deliver: Deliver) -> None:
        self.failed += 1
        deliver(None)

    def _end(self, attempt: "Attempt") -> None:
        del self._attempts[attempt.socket.fileno()]
        self._selector.unregister(attempt.socket)
        attempt.socket.close()


class Attempt:
    """One question to one recursor, on a connected socket that never blocks."""

    def __init__(
        self,
        recursor: tuple[str, int],
        number: int,
        message: bytes,
        over_tcp: bool,
        deliver: Deliver,
        deadline: float,
    ) -> None:
        self.number = number
        self.message = message
        self.over_tcp = over_tcp
        self.deliver = deliver
        self.deadline = deadline
        self._unsent = len(message).to_bytes(2, "big") + message if over_tcp else message
        self._received = bytearray()
        family = socket.AF_INET6 if ":" in recursor[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM if over_tcp else socket.SOCK_DGRAM)
        try:
            self.socket.setblocking(False)
            with suppress(BlockingIOError):
                self.socket.connect(recursor)
        except OSError:
            self.socket.close()
            raise

    def wants(self) -> int:
        """The events to wait for."""
        return EVENT_WRITE if self._unsent else EVENT_READ

    def advance(self, events: int) -> bytes | None:
        """Send or receive what is possible; the reply when it is whole. OSError when the recursor is of no use."""
        with suppress(BlockingIOError):
            if events & EVENT_WRITE and self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            elif events & EVENT_READ:
                return self._receive()
        return None

    def _receive(self) -> bytes | None:
        data = self.socket.recv(RECEIVE_SIZE)
        if not self.over_tcp:
            return data
        if not data:
            raise ConnectionResetError("the recursor closed the connection before it had answered")
        self._received += data
        end = 2 + int.from_bytes(self._received[:2], "big")
        return bytes(self._received[2:end]) if len(self._received) >= max(end, 3) else None


def _is_reply_to(message: bytes, reply: bytes) -> bool:
    return len(reply) >= wire.HEADER_SIZE and reply[:2] == message[:2] and bool(reply[2] & 0x80)
