"""A closed-loop load of GET requests from one small process: each of `callers` connections asks again when answered.

    python -m benchmarks._http_get PORT PATH CALLERS SECONDS

One epoll loop that looks no deeper into an answer than its length; the first quarter warms up and is not counted.
"""

import select
import socket
import subprocess
import sys
from time import perf_counter

HOST = "127.0.0.1"
WARM_UP_SHARE = 0.25


def rate(port: int, path: str, callers: int, seconds: float) -> float:
    """Answers a second, measured by a process of its own."""
    command = [sys.executable, "-m", "benchmarks._http_get", str(port), path, str(callers), str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run(port: int, path: str, callers: int, seconds: float) -> float:
    """Load the server from this process."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    length = _answer_length(port, request)
    poll = select.epoll()
    connections = {}
    for _ in range(callers):
        connection = socket.create_connection((HOST, port))
        connections[connection.fileno()] = connection
        poll.register(connection, select.EPOLLIN)
        connection.send(request)
    pending = dict.fromkeys(connections, length)
    start = perf_counter() + seconds * WARM_UP_SHARE
    end = start + seconds * (1 - WARM_UP_SHARE)
    answers = 0
    while (now := perf_counter()) < end:
        for fd, _ in poll.poll(1.0):
            received = len(connections[fd].recv(65536))
            if not received:
                raise SystemExit("the server closed a connection")
            pending[fd] -= received
            if pending[fd] == 0:
                pending[fd] = length
                answers += now >= start
                connections[fd].send(request)
    return answers / (end - start)


def _answer_length(port: int, request: bytes) -> int:
    """Bytes of one answer with its head; the same each time, because only the date in it changes."""
    with socket.create_connection((HOST, port)) as connection:
        connection.send(request)
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += connection.recv(65536)
        head, _, _ = raw.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"not answered: {head[:200]!r}")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        return len(head) + 4 + int(lines[b"content-length"])


if __name__ == "__main__":
    print(run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
