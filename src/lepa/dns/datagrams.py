"""Takes and sends many datagrams in one system call (`recvmmsg`, `sendmmsg` of Linux, which Python does not offer).

It is not only for speed. Each socket call of Python gives up the interpreter and must win it back, which takes the
whole switch interval (5 ms) while another thread computes: a loop of `recvfrom` and `sendto` would answer less than 200
datagrams a second then. Here only the wait for the first datagram gives it up; the calls that never wait keep it
(`ctypes.PyDLL`), so that one turn of the interpreter answers everything that has arrived.
"""

import ctypes
import errno
import os
import socket
import sys

BATCH_MAX = 64
"""Datagrams in one call: at most about a quarter of a millisecond during which no other thread runs."""
SIZE_MAX = 4_096
"""The longest datagram taken; the rest of a longer one is cut off."""
MSG_WAITFORONE = 0x10000
"""Wait for the first datagram only (linux/socket.h)."""
NAME_SIZES = {socket.AF_INET: 16, socket.AF_INET6: 28}
"""Sizes of sockaddr_in and sockaddr_in6."""


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))
    base: bytes
    length: int


class _Message(ctypes.Structure):
    """struct mmsghdr, with the struct msghdr in it spread out."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vector", ctypes.c_void_p),
        ("vector_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("length", ctypes.c_uint),
    )
    name: int
    name_length: int
    vector: int
    vector_length: int
    length: int


class Datagrams:
    """The datagrams of one UDP socket, in batches. For one thread; the socket stays the caller's."""

    def __init__(self, udp: socket.socket) -> None:
        self._fd = udp.fileno()
        self._family = udp.family
        self._name_size = NAME_SIZES[udp.family]
        self._waiting = ctypes.CDLL(None, use_errno=True)
        self._instant = ctypes.PyDLL(None, use_errno=True)
        self._buffer = bytearray(BATCH_MAX * SIZE_MAX)
        self._view = memoryview(self._buffer)
        self._names = bytearray(BATCH_MAX * self._name_size)
        names = _address_of(self._names)
        self._name_addresses = [names + at * self._name_size for at in range(BATCH_MAX)]
        self._in_vectors = (_IoVector * BATCH_MAX)()
        self._out_vectors = (_IoVector * BATCH_MAX)()
        self._in = self._messages(self._in_vectors)
        self._out = self._messages(self._out_vectors)
        start = _address_of(self._buffer)
        for at, vector in enumerate(self._in_vectors):
            ctypes.c_void_p.from_buffer(vector).value = start + at * SIZE_MAX
            vector.length = SIZE_MAX
        self._received = list(self._in)
        self._sending = list(zip(self._out, self._out_vectors, strict=True))
        self._out_count = 0

    def receive(self, wait: bool) -> list[bytes]:
        """What has arrived, at most BATCH_MAX; with `wait`, at least one. OSError on a time-out or a complaint."""
        if wait:
            count = self._waiting.recvmmsg(self._fd, self._in, BATCH_MAX, MSG_WAITFORONE, None)
        else:
            count = self._instant.recvmmsg(self._fd, self._in, BATCH_MAX, socket.MSG_DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            if not wait and number == errno.EAGAIN:
                return []
            raise OSError(number, os.strerror(number))
        view = self._view
        starts = range(0, count * SIZE_MAX, SIZE_MAX)
        return [
            view[start : start + message.length].tobytes()
            for start, message in zip(starts, self._received, strict=False)
        ]

    def put(self, position: int, answer: bytes) -> None:
        """Lay down the answer to the datagram at `position` of the batch received last."""
        message, vector = self._sending[self._out_count]
        message.name = self._name_addresses[position]
        vector.base = answer
        vector.length = len(answer)
        self._out_count += 1

    def send(self) -> int:
        """Send what was laid down, without waiting; how many could not be sent."""
        count, self._out_count = self._out_count, 0
        sent = failed = 0
        while sent < count:
            start = ctypes.byref(self._out, sent * ctypes.sizeof(_Message))
            done = self._instant.sendmmsg(self._fd, start, count - sent, socket.MSG_DONTWAIT)
            if done <= 0:
                failed += 1
            sent += max(done, 1)
        return failed

    def sender(self, position: int) -> tuple[str, int]:
        """Who sent the datagram at `position` of the batch received last."""
        name = self._names[position * self._name_size : (position + 1) * self._name_size]
        port = int.from_bytes(name[2:4], "big")
        if self._family == socket.AF_INET:
            return socket.inet_ntop(socket.AF_INET, name[4:8]), port
        host = socket.inet_ntop(socket.AF_INET6, name[8:24])
        scope = int.from_bytes(name[24:28], sys.byteorder)
        return (f"{host}%{scope}" if scope else host), port

    def _messages(self, vectors: "ctypes.Array[_IoVector]") -> "ctypes.Array[_Message]":
        messages = (_Message * BATCH_MAX)()
        start = ctypes.addressof(vectors)
        for at, message in enumerate(messages):
            message.name = self._name_addresses[at]
            message.name_length = self._name_size
            message.vector = start + at * ctypes.sizeof(_IoVector)
            message.vector_length = 1
        return messages


def _address_of(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
