"""The part of an ingress that carries traffic, and servers behind it, for tests with real sockets."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lepa.catalog.table import Instance, ServiceTable
from lepa.ingress.plane import Plane
from lepa.ingress.routes import RouteTable
from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import SystemClock

HOST = "127.0.0.1"
WAIT_S = 10.0


def eventually(found: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Return as soon as it is true; fail when it is not in time."""
    deadline = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


PORTS_FROM, PORTS_TO = 5_000, 9_900
"""Below the ports that the kernel gives away, so that nobody takes one between looking and listening."""
_next_port = itertools.count(os.getpid() * 37)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    for number in itertools.islice(_next_port, PORTS_TO - PORTS_FROM):
        port = PORTS_FROM + number % (PORTS_TO - PORTS_FROM)
        with suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port
    raise AssertionError("no port is free")


class Server:
    """Accepts connections and gives each to `serve` on a thread of its own; counts them. serve ends the connection."""

    def __init__(self, serve: Callable[[socket.socket], None], port: int = 0) -> None:
        self._serve = serve
        self._listener = socket.create_server((HOST, port))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(WAIT_S)
                self.accepted += 1
                self.open.append(client)
                threading.Thread(target=self._run, args=(client,), daemon=True).start()

    def _run(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            self._serve(client)

    def close(self) -> None:
        """Accept no more and end every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self.open:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[Server]:
    """A server while the block runs."""
    server = Server(serve)
    try:
        yield server
    finally:
        server.close()


def read_head(stream: socket.socket) -> bytes:
    """Bytes up to the end of a head, and what came with them; b"" at an end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = stream.recv(65_536)
        if not more:
            return data
        data += more
    return data


def read_all(stream: socket.socket) -> bytes:
    """Everything until the end."""
    data = b""
    while more := stream.recv(65_536):
        data += more
    return data


def read_size(stream: socket.socket, size: int) -> bytes:
    """So many bytes, fewer only at an end."""
    data = b""
    while len(data) < size and (more := stream.recv(size - len(data))):
        data += more
    return data


def answering(body: bytes, *lines: str) -> Callable[[socket.socket], None]:
    """A server that answers every request without a body with the same."""
    extra = "".join(f"{line}\r\n" for line in lines)
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body

    def serve(client: socket.socket) -> None:
        while read_head(client):
            client.sendall(answer)

    return serve


def scripted(*parts: bytes) -> Callable[[socket.socket], None]:
    """A server that reads one head, sends these parts and ends the connection."""

    def serve(client: socket.socket) -> None:
        if read_head(client):
            for part in parts:
                client.sendall(part)

    return serve


class World:
    """A plane with its own HTTP port. tags and targets are set by `route`."""

    def __init__(self, **settings: Any) -> None:
        self.port = free_port()
        self.settings = IngressSettings(address=HOST, http=self.port, ui=0, **settings)
        self.plane = Plane(self.settings, SystemClock(), 7)
        self.plane.start()
        self.table: RouteTable | None = None
        self._index = 0

    def route(self, *instances: Instance) -> None:
        """Serve these instances, from when this returns."""
        self._index += 1
        services = ServiceTable.build(instances, [], self._index)
        self.table = RouteTable.build(services, self.settings.rules(), self.table)
        self.plane.publish(self.table)
        self.settle()

    def settle(self) -> None:
        """Wait until the loop has done everything that it was told."""
        done = threading.Event()
        self.plane.loop.call(done.set)
        assert done.wait(WAIT_S)

    def connect(self, port: int | None = None) -> socket.socket:
        """A client's connection."""
        return socket.create_connection((HOST, port or self.port), WAIT_S)

    def ask(self, request: str, port: int | None = None) -> bytes:
        """The answer to one request after which the connection ends."""
        with self.connect(port) as client:
            client.sendall(request.replace("\n", "\r\n").encode())
            return read_all(client)

    def get(self, path: str = "/", host: str = "h") -> bytes:
        """The answer to a GET."""
        return self.ask(f"GET {path} HTTP/1.1\nHost: {host}\nConnection: close\n\n")

    def count(self, name: str) -> int:
        """A counter."""
        return self.plane.traffic.counters.totals[name]


def instance(port: int, *tags: str, service: str = "web", number: int = 1, healthy: bool = True) -> Instance:
    """One registered instance on this machine."""
    return Instance(id=f"{service}-{number}", service=service, address=HOST, port=port, tags=tags, healthy=healthy)


@contextmanager
def world(**settings: Any) -> Iterator[World]:
    """A plane while the block runs. It must come to its end by itself, without a bug."""
    settings.setdefault("drain_s", 0.05)
    made = World(**settings)
    try:
        yield made
    finally:
        made.plane.stop()
    assert made.plane.loop.bugs == 0
    assert made.plane.traffic.open == 0
    assert all(state.open == 0 for state in made.plane.traffic.picker.states.values())
