"""A closed-loop HTTP load generator in one small process: `callers` connections, each sends again when it is answered.

    python -m benchmarks._http_load PORT PATH CALLERS SECONDS

Every request carries another input, so no cache can answer. One epoll loop, no parsing beyond what the end of an answer
needs; it prints JSON: answers, defaults (answers marked as default), errors, seconds, p50_ms, p99_ms.
"""

import json
import select
import socket
import subprocess
import sys
from time import perf_counter, time_ns
from typing import Any

_WARM_UP_SHARE = 0.25


def measure(port: int, path: str, callers: int, seconds: float, width: int = 1) -> dict[str, Any]:
    """Run the generator in a process of its own and return what it prints. width: numbers in one input."""
    command = [sys.executable, "-m", "benchmarks._http_load", str(port), path, str(callers), str(seconds), str(width)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(printed)
    return result


def requests_for(path: str, width: int) -> Any:
    rest = ",0.5" * (width - 1)
    number = 1_000_000_000 + (time_ns() // 1000) % 8_000_000_000  # Other inputs than the run before.
    body = '{"input":[%d.5%s]}'
    length = len(body % (number, rest))
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    template = (head + '{"input":[%d.5' + rest + "]}").encode()
    while True:
        number += 1
        yield template % number


def connections_to(port: int, callers: int) -> list[socket.socket]:
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(callers)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connections


def run(port: int, path: str, callers: int, seconds: float, width: int) -> dict[str, Any]:
    """Load the server; the first quarter warms it up and is not counted."""
    requests = requests_for(path, width)
    poll = select.epoll()
    by_fd = {connection.fileno(): connection for connection in connections_to(port, callers)}
    sent_at: dict[int, float] = {}
    for fd, connection in by_fd.items():
        poll.register(fd, select.EPOLLIN)
        sent_at[fd] = perf_counter()
        connection.send(next(requests))
    start = perf_counter() + seconds * _WARM_UP_SHARE
    end = start + seconds * (1 - _WARM_UP_SHARE)
    latencies: list[float] = []
    defaults = errors = 0
    now = perf_counter()
    while now < end:
        for fd, _ in poll.poll(1.0):
            connection = by_fd[fd]
            answer = connection.recv(65536)
            now = perf_counter()
            if not answer:
                raise SystemExit("the server closed a connection")
            if now >= start:
                latencies.append(now - sent_at[fd])
                errors += not answer.startswith(b"HTTP/1.1 200")
                defaults += b'"default":true' in answer
            sent_at[fd] = now
            connection.send(next(requests))
        now = perf_counter()
    latencies.sort()
    return {
        "answers": len(latencies),
        "defaults": defaults,
        "errors": errors,
        "seconds": now - start,
        "rate": len(latencies) / (now - start),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))))
