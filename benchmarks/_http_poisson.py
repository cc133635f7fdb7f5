"""An open-loop HTTP load generator in one small process: requests arrive by chance, whether or not others are answered.

    python -m benchmarks._http_poisson PORT PATH RATE SECONDS WIDTH OBJECTIVE_MS SEED

Arrivals are a Poisson process. Each takes a free connection, or waits for one; its latency counts from when it was due,
so a server that falls behind is not spared. It prints JSON: answers, defaults, within (share of answers that are no
default and came within the objective), p99_ms.
"""

import json
import random
import select
import subprocess
import sys
from collections import deque
from time import perf_counter
from typing import Any

from benchmarks._http_load import connections_to, requests_for

CONNECTIONS = 128
GRACE_S = 2.0


def measure(
    port: int, path: str, rate: float, seconds: float, width: int, objective_ms: float, seed: int
) -> dict[str, Any]:
    """Run the generator in a process of its own and return what it prints. width: numbers in one input."""
    words = map(str, (port, path, rate, seconds, width, objective_ms, seed))
    command = [sys.executable, "-m", "benchmarks._http_poisson", *words]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, Any] = json.loads(printed)
    return result


def run(
    port: int, path: str, rate: float, seconds: float, width: int, objective_ms: float, seed: int
) -> dict[str, Any]:
    """Let requests arrive for so long, and wait for the last answers."""
    gaps, requests = random.Random(seed), requests_for(path, width)
    poll = select.epoll()
    by_fd = {connection.fileno(): connection for connection in connections_to(port, CONNECTIONS)}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    free, waiting, due_at = list(by_fd), deque[float](), dict[int, float]()
    latencies: list[float] = []
    defaults = 0
    start = perf_counter()
    next_at, end, give_up = start + gaps.expovariate(rate), start + seconds, start + seconds + GRACE_S
    while (now := perf_counter()) < give_up and (next_at < end or waiting or due_at):
        while next_at <= now and next_at < end:
            waiting.append(next_at)
            next_at += gaps.expovariate(rate)
        while waiting and free:
            fd = free.pop()
            due_at[fd] = waiting.popleft()
            by_fd[fd].send(next(requests))
        timeout = min(next_at, end) - perf_counter() if next_at < end else 0.01
        for fd, _ in poll.poll(max(0.0, timeout)):
            answer = by_fd[fd].recv(65536)
            latencies.append(perf_counter() - due_at.pop(fd))
            free.append(fd)
            if b'"default":true' in answer:
                defaults += 1
                latencies[-1] = float("inf")
    asked = len(latencies) + len(waiting) + len(due_at)
    latencies.sort()
    return {
        "answers": len(latencies),
        "defaults": defaults,
        "within": sum(latency <= objective_ms / 1e3 for latency in latencies) / max(1, asked),
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3 if latencies else 0.0,
    }


if __name__ == "__main__":
    numbers = map(float, sys.argv[3:5])
    print(
        json.dumps(run(int(sys.argv[1]), sys.argv[2], *numbers, int(sys.argv[5]), float(sys.argv[6]), int(sys.argv[7])))
    )
