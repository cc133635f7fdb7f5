"""How many reads a second does the HTTP API answer, and what do parked long polls cost?

`api.get` reads one evaluation (1 KB of JSON) of a development agent over 32 connections that ask again when they are
answered; a bare aiohttp handler on uvloop answers the same bytes in the same run. `api.parked_polls` is the memory that
2,000 blocking reads of one job take while they wait, beside the same number of bare handlers that wait;
`api.parked_polls.wake_p99_ms` is the time from the write that wakes them all to the end of all but 1 % of the answers.

With 10,000 jobs and 100,000 allocations in the state: `api.page_ms` is the first page of 100 of each list, the slower
of the two medians, `api.statuses_ms` that of jobs with their allocations, the slower of the newest first and the oldest
first, whose jobs have 100 allocations each; `api.filter_ms` a filter over all allocations and all jobs, the slower.
`api.wake_p99_ms` is from a write to the answer of a poll that it concerns, the write's own time included.
`api.events_per_s` is how many events 500 subscribers get together while 1,000 a second are committed, 100 commits of
10; beside it that number when none is late.

Expected on two quiet cores: `api.get` 8,000 reads/s or more, at least half of the bare handler; 2,000 parked polls in
60 MB or less; all of them awake within a second; a page in 20 ms, one of statuses in 100 ms, a filter in 500 ms, a wake
in 20 ms; half a million events/s.

Measured while three other processes wanted the two cores (load 4 to 5): a page 1.1 to 1.3 ms, a filter 114 to 186 ms, a
wake 3.8 to 6.7 ms, 500,000 events/s with none late. At a load of 1.5 `api.get` was 11,300 to 12,000 reads/s, beside
27,700 of the bare handler; 2,000 parked polls took 29 MB, and woke in 130 ms.

- A read takes 70 us of the agent's CPU, the bare handler's 36 us, so half of its rate is missed. By a profile 6 % is
  the route, 20 % the call through regions, forwarding and rights to the endpoint, 9 % the reply and its JSON, 9 % were
  the measurements of each (before they were made cheaper); most of the rest is aiohttp's.
- A filter is bound by going to 100,000 rows that lie all over the memory (40 to 60 ms); to ask all of them one or two
  things takes 20 to 70 ms more, a regular expression 130 ms, a loop over the tasks of each 180 ms. In a thread beside
  the event loop it takes about half as long again.
- Statuses of the 100 jobs that were changed last take 9 ms, nearly all of it to order 10,000 jobs; of 100 jobs with
  10,000 allocations 47 ms, which are 2.4 MB of JSON. They took 170 to 190 ms and 110 ms while all allocations were
  looked at to order the jobs.
- A wake is a request, a write, its reduction, and the answer: 2.3 to 3.4 ms of CPU with the next evaluation's. While a
  thousand evaluations replace all 100,000 allocations the slowest wakes take 45 ms: changes are applied in order, those
  of plans for a hundred allocations among them. A page then takes 5 ms, a filter 320 ms.
- Events: 500 subscribers took 1.45 million a second when more were told. The server used a fifth of a core for that,
  0.2 to 0.5 us an event, so the one process that reads for all of them is the limit.
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
from benchmarks._large_state import large_server
from benchmarks.harness import Figure

FIGURES = (
    "api.get", "api.parked_polls", "api.parked_polls.wake_p99_ms",
    "api.page_ms", "api.statuses_ms", "api.filter_ms", "api.wake_p99_ms", "api.events_per_s",
)  # fmt: skip

BODY_BYTES = 1024
CALLERS = 32
RUN_S, RUNS = 3.0, 3
PARKED = 2_000
PARK_S = 30.0
JOBS, ALLOCATIONS = 10_000, 100_000
PAGES, FILTERS, WAKES = 20, 5, 150
SUBSCRIBERS, COMMITS, EVENTS, PAUSE_MS = 500, 300, 10, 10
EVENTS_S_MAX, QUIET_S = 30.0, 2.0


def run() -> list[Figure]:
    """Every figure about the HTTP API."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with development_agent() as agent:
            found = [_reads(agent), *_parked(agent)]
        return [*found, *large()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def large() -> list[Figure]:
    """Figures of a state with many jobs and allocations."""
    with large_server(JOBS, ALLOCATIONS) as (port, bursts):
        connection = HTTPConnection(HOST, port)
        pages = [
            _median_ms(connection, path, PAGES) for path in ("/v1/jobs?per_page=100", "/v1/allocations?per_page=100")
        ]
        statuses = [
            _median_ms(connection, f"/v1/jobs/statuses?per_page=100{order}", PAGES) for order in ("", "&reverse=true")
        ]
        filters = [
            _median_ms(connection, f"/v1/{path}", FILTERS)
            for path in (
                "allocations?per_page=100&filter=ClientStatus+%3D%3D+%22failed%22",
                "jobs?per_page=100&filter=Meta.team+%3D%3D+%22none%22",
            )
        ]
        wake = _wake_p99_ms(port)
        delivered, wanted = _events(port, bursts)
    return [
        Figure("api.page_ms", max(pages), "ms"),
        Figure("api.statuses_ms", max(statuses), "ms"),
        Figure("api.filter_ms", max(filters), "ms"),
        Figure("api.wake_p99_ms", wake, "ms"),
        Figure("api.events_per_s", delivered, "events/s", wanted, "none late"),
    ]


def _median_ms(connection: HTTPConnection, path: str, times: int) -> float:
    took = []
    for _ in range(times):
        began = perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        took.append((perf_counter() - began) * 1e3)
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
    return median(took)


def _wake_p99_ms(port: int) -> float:
    """A poll of one job waits; the job is written; how long until the poll's answer is there."""
    agent, took = Agent(port, 0), []
    for number in range(WAKES):
        name = f"job-{5_000 + number}"
        _, index = agent.request("GET", f"/v1/job/{name}")
        poll = socket.create_connection((HOST, port), timeout=PARK_S)
        poll.send(f"GET /v1/job/{name}?index={index}&wait=60s HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        sleep(0.01)
        began = perf_counter()
        agent.request("DELETE", f"/v1/job/{name}")
        poll.recv(65536)
        took.append((perf_counter() - began) * 1e3)
        poll.close()
    return sorted(took)[len(took) * 99 // 100]


def _events(port: int, bursts: int) -> tuple[float, float]:
    """Events that all subscribers got in a second of the burst, and what would be all of them."""
    request = b"GET /v1/event/stream?topic=Evaluation&index=999999999 HTTP/1.1\r\nHost: bench\r\n\r\n"
    poll = select.epoll()
    streams = [socket.create_connection((HOST, port), timeout=PARK_S) for _ in range(SUBSCRIBERS)]
    for stream in streams:
        stream.send(request.replace(b"999999999", b"1"))
        stream.setblocking(False)
        poll.register(stream.fileno(), select.EPOLLIN)
    sleep(1.0)
    by_fd = {stream.fileno(): stream for stream in streams}
    burst = socket.create_connection((HOST, bursts), timeout=PARK_S)
    path = f"/burst?commits={COMMITS}&events={EVENTS}&pause_ms={PAUSE_MS}"
    wanted, got = SUBSCRIBERS * COMMITS * EVENTS, 0
    began = perf_counter()
    burst.send(f"PUT {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n".encode())
    took = COMMITS * PAUSE_MS / 1e3
    while got < wanted and perf_counter() - began < EVENTS_S_MAX:
        ready = poll.poll(QUIET_S)
        if not ready and perf_counter() - began > took:
            break  # what is missing was lost by those who read too slowly
        for fd, _ in ready:
            got += by_fd[fd].recv(1 << 20).count(b'"Topic":"Evaluation"')
            took = max(took, perf_counter() - began)
    for stream in (*streams, burst):
        stream.close()
    return got / took, wanted / max(COMMITS * PAUSE_MS / 1e3, 1e-9)


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
