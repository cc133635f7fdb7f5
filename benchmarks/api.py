"""How many reads a second does the HTTP API answer, and what do parked long polls cost?

`api.get` reads one evaluation (1 KB of JSON) of a development agent over 32 connections that ask again when they are
answered; a bare aiohttp handler on uvloop answers the same bytes in the same run. `api.parked_polls` is the memory that
2,000 blocking reads of one job take while they wait, beside the same number of bare handlers that wait;
`api.parked_polls.wake_p99_ms` is the time from the write that wakes them all to the end of all but 1 % of the answers.

Expected on two quiet cores: `api.get` 8,000 reads/s or more, at least half of the bare handler; 2,000 parked polls in
60 MB or less; all of them awake within a second.
"""

import resource
import select
import socket
import tempfile
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from benchmarks._agent import HOST, Agent, development_agent
from benchmarks._bare_api import bare_server
from benchmarks._http_get import rate
from benchmarks.harness import Figure

FIGURES = ("api.get", "api.parked_polls", "api.parked_polls.wake_p99_ms")

BODY_BYTES = 1024
CALLERS = 32
RUN_S, RUNS = 3.0, 3
PARKED = 2_000
PARK_S = 30.0


def run() -> list[Figure]:
    """Every figure about the HTTP API."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with development_agent() as agent:
            return [_reads(agent), *_parked(agent)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def job(job_id: str, **fields: Any) -> dict[str, Any]:
    """A job that no node can run, so that nothing happens but what is measured."""
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    nowhere = [{"LTarget": "${attr.kernel.name}", "RTarget": "none", "Operand": "="}]
    group = {"Name": "g", "Tasks": [task], "EphemeralDisk": {"SizeMB": 300}}
    return {"Job": {"ID": job_id, "TaskGroups": [group], "Constraints": nowhere, **fields}}


def _reads(agent: Agent) -> Figure:
    path = _path_of_one_kilobyte(agent)
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body"
        body.write_bytes(_raw(agent.port, path))
        with bare_server(body) as (bare_port, _):
            ours, bare = [], []
            for _ in range(RUNS):
                ours.append(rate(agent.port, path, CALLERS, RUN_S))
                bare.append(rate(bare_port, "/now", CALLERS, RUN_S))
    return Figure("api.get", median(ours), "reads/s", median(bare), "bare aiohttp")


def _path_of_one_kilobyte(agent: Agent) -> str:
    """The evaluation of a job whose name makes it as long as wanted."""

    def path(name: str) -> str:
        answer, _ = agent.request("PUT", "/v1/jobs", job(name))
        sleep(0.5)
        return f"/v1/evaluation/{answer['EvalID']}"

    missing = BODY_BYTES - len(_raw(agent.port, path("e"))) + 1
    return path("e" * max(1, missing))


def _raw(port: int, path: str) -> bytes:
    connection = HTTPConnection(HOST, port)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def _parked(agent: Agent) -> list[Figure]:
    agent.request("PUT", "/v1/jobs", job("parked"))
    sleep(0.5)
    _, index = agent.request("GET", "/v1/job/parked")
    before = agent.memory_mb()
    polls = _park(agent.port, f"/v1/job/parked?index={index}&wait=300s")
    ours_mb = agent.memory_mb() - before
    ours = _wake(polls, lambda: agent.request("PUT", "/v1/jobs", job("parked", Meta={"a": "b"})))
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body"
        body.write_bytes(_raw(agent.port, "/v1/job/parked"))
        with bare_server(body) as (port, pid):
            bare_process = Agent(port, pid)
            _raw(port, "/now")
            before = bare_process.memory_mb()
            polls = _park(port, "/parked")
            bare_mb = bare_process.memory_mb() - before
            bare = _wake(polls, lambda: _raw(port, "/wake"))
    return [
        Figure("api.parked_polls", ours_mb, "MB", bare_mb, "bare aiohttp"),
        Figure("api.parked_polls.wake_p99_ms", ours, "ms", bare, "bare aiohttp"),
    ]


def _park(port: int, path: str) -> list[socket.socket]:
    """Connections that wait for an answer, all of them read by the server already."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    polls = []
    for _ in range(PARKED):
        connection = socket.create_connection((HOST, port), timeout=PARK_S)
        connection.send(request)
        polls.append(connection)
    sleep(1.0)
    return polls


def _wake(polls: list[socket.socket], write: Any) -> float:
    """Milliseconds from the write until 99 % of the polls have their whole answer."""
    poll = select.epoll()
    by_fd = {connection.fileno(): connection for connection in polls}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    missing: dict[int, int] = {}
    began = perf_counter()
    write()
    took = []
    while len(took) < len(polls):
        ready = poll.poll(PARK_S)
        if not ready:
            raise RuntimeError(f"{len(polls) - len(took)} of {len(polls)} polls were not answered")
        for fd, _ in ready:
            raw = by_fd[fd].recv(65536)
            if not raw:
                raise RuntimeError("the server closed a parked connection")
            missing[fd] = missing.get(fd, 0) - len(raw) if fd in missing else _length(raw) - len(raw)
            if missing[fd] == 0:
                took.append((perf_counter() - began) * 1e3)
                poll.unregister(fd)
    for connection in polls:
        connection.close()
    return took[len(took) * 99 // 100]


def _length(raw: bytes) -> int:
    """Bytes of an answer whose head is in `raw`."""
    head, _, _ = raw.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return len(head) + 4 + int(lines[b"content-length"])
