"""What goes on beside the faults: callers that write, compare and set, dispatch, follow; and what each of them saw.

    with Load(addresses, witness) as load:      # threads begin
        …faults…
    load.complaints()                           # what the pure checkers make of what was seen

Every caller is a thread with a connection of its own to one server; it goes on at the next one when its own does not
answer. A call that was answered 2xx was acknowledged; one that was refused before it was sent was not made; of any
other nobody knows.
"""

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from tests.cluster import checkers
from tests.cluster.linearizability import Call, Outcome, violation
from tests.e2e.jobs import shell_job

ANSWER_S = 6.0
WATCH_S = 2
LATE_S = 2.0
"""How long events may be on their way."""
REGISTER, COUNTER, PARENT = "register", "counter", "parent"
PAUSE_S = 0.03
VARIABLE = "lepa/load"
SECRET = "canary-of-a-variable"
"""The value of a variable, which is encrypted wherever it is kept."""
PRIVATE = "canary-of-an-environment"
"""In the environment of tasks: who may read the job may read it, but no log and no command line tells it."""


class Answer(NamedTuple):
    """status 0: no answer. sent: whether the server may have got the call."""

    status: int
    index: int = 0
    body: Any = None
    sent: bool = True

    @property
    def outcome(self) -> Outcome:
        """Of a write."""
        if self.status == 200:
            return "done"
        refused = isinstance(self.body, str) and "Enforcing job modify index" in self.body
        return "refused" if refused else "unknown"


class Connection:
    """One caller's connection, to one server after the other."""

    def __init__(self, name: str, addresses: Sequence[str], indexes: dict[str, list[int]], first: int = 0) -> None:
        self.name = name
        self._addresses = itertools.cycle(addresses[first:] + addresses[:first])
        self._indexes = indexes
        self._http: HTTPConnection | None = None
        self.address = ""

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        if self._http is None:
            self.address = next(self._addresses)
            host, _, port = urlsplit(self.address).netloc.rpartition(":")
            self._http = HTTPConnection(host, int(port), timeout=ANSWER_S)
            try:
                self._http.connect()
            except OSError:
                self.close()
                return Answer(0, sent=False)
        try:
            self._http.request(method, path, json.dumps(body) if body is not None else None)
            response = self._http.getresponse()
            text = response.read()
        except (OSError, HTTPException):
            self.close()
            return Answer(0)
        answer = Answer(response.status, int(response.headers.get("X-Nomad-Index", "0")), _decoded(text))
        if answer.status >= 500 and answer.outcome != "refused":
            self.close()  # another server may know more
        elif method == "GET" and answer.index:
            self._indexes.setdefault(f"{self.name} {self.address} {path.partition('?')[0]}", []).append(answer.index)
        return answer

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def _decoded(text: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text.decode(errors="replace")


def holder(job_id: str, value: str) -> dict[str, Any]:
    """A job that only holds a value: it is parameterized and never dispatched."""
    return shell_job(job_id, "true", kind="batch", ParameterizedJob={"Payload": "optional"}, Meta={"value": value})


class Load:
    """Callers while it is entered. addresses: of the servers' APIs. witness: the one whose event stream is followed."""

    def __init__(self, addresses: Sequence[str], witness: str = "", *, jobs: bool = True, setters: int = 3) -> None:
        self.addresses = list(addresses)
        self.acknowledged: list[str] = []
        self.indexes: dict[str, list[int]] = {}
        self.calls: list[Call] = []
        self.successes: list[tuple[str, int]] = []
        self.children: dict[str, list[str]] = {}
        self.written: list[int] = []
        self.read: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.statuses: dict[str, list[str]] = {}
        self.times: list[float] = []
        """When a write of a job was acknowledged, by time.monotonic."""
        self.errors: list[str] = []
        self.stream_broke = False
        self._over = threading.Event()
        self._closed = threading.Event()
        self._stream: socket.socket | None = None
        self._witness = witness
        work: list[Callable[[], None]] = [self._count, self._watch, self._dispatch, self._look]
        work += [lambda number=number: self._compare_and_set(number) for number in range(setters)]  # type: ignore[misc]
        work += [self._write] if jobs else []
        work += [self._follow] if witness else []
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in work]

    def __enter__(self) -> "Load":
        prepare = self._connection("prepare")
        for job in (holder(REGISTER, "first"), holder(COUNTER, "0"), holder(PARENT, "")):
            _until_done(prepare, "PUT", "/v1/jobs", {"Job": job})
        _until_done(prepare, "PUT", f"/v1/var/{VARIABLE}", {"Path": VARIABLE, "Items": {"password": SECRET}})
        prepare.close()
        for thread in self._threads:
            thread.start()
        return self

    def end_calls(self) -> None:
        """No more writes and reads; only the event stream is still followed."""
        self._over.set()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        time.sleep(LATE_S)
        self._closed.set()
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30.0)
        assert not any(thread.is_alive() for thread in self._threads), "a caller hangs"

    def _connection(self, name: str, first: int = 0) -> Connection:
        return Connection(name, self.addresses, self.indexes, first % len(self.addresses))

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # shown by complaints
            self.errors.append(f"a caller failed: {error!r}")

    @property
    def longest_gap_s(self) -> float:
        """Between two acknowledged writes of jobs."""
        return max((after - before for before, after in itertools.pairwise(self.times)), default=0.0)

    # Callers

    def _write(self) -> None:
        """Registers small services, and retries each until it is acknowledged: registering twice is harmless."""
        with contextlib.closing(self._connection("write")) as connection:
            for number in itertools.count():
                task = {"Resources": {"CPU": 5, "MemoryMB": 10}, "Env": {"PASSWORD": PRIVATE}}
                job = shell_job(f"load-{number}", "exec sleep 1000", count=2, task=task)
                while not self._over.is_set():
                    if connection.call("PUT", "/v1/jobs", {"Job": job}).status == 200:
                        self.acknowledged.append(f"load-{number}")
                        self.times.append(time.monotonic())
                        break
                    time.sleep(PAUSE_S)
                if self._over.wait(0.2) or number >= 60:
                    return

    def _count(self) -> None:
        """One writer counts in a job's meta, from what is there: a write that it gave up and that comes late, when the
        network is whole again, is refused then."""
        with contextlib.closing(self._connection("count", 1)) as connection:
            while not self._over.wait(PAUSE_S):
                answer = connection.call("GET", f"/v1/job/{COUNTER}")
                if answer.status != 200:
                    continue
                number = int(answer.body["Meta"]["value"]) + 1
                body = {"Job": holder(COUNTER, str(number)), "EnforceIndex": True}
                body["JobModifyIndex"] = answer.body["JobModifyIndex"]
                if connection.call("PUT", "/v1/jobs", body).status == 200:
                    self.written.append(number)
                    self.times.append(time.monotonic())

    def _watch(self) -> None:
        """Follows the counter with blocking reads; goes on a little after the writer has ended."""
        index, late = 1, 0
        with contextlib.closing(self._connection("watch", 2)) as connection:
            while late < 2:
                late += self._over.is_set()
                answer = connection.call("GET", f"/v1/job/{COUNTER}?index={index}&wait={WATCH_S}s")
                if answer.status == 200:
                    index = max(1, answer.index)
                    self.read.append(int(answer.body["Meta"]["value"]))
                else:
                    time.sleep(PAUSE_S)

    def _compare_and_set(self, number: int) -> None:
        """Reads the register, and half of the time replaces what it has read."""
        name = f"setter-{number}"
        with contextlib.closing(self._connection(name, number)) as connection:
            for turn in itertools.count():
                if self._over.is_set():
                    return
                began = time.monotonic()
                answer = connection.call("GET", f"/v1/job/{REGISTER}")
                if answer.status != 200:
                    time.sleep(PAUSE_S)
                    continue
                seen, at = answer.body["Meta"]["value"], answer.body["JobModifyIndex"]
                self.calls.append(Call(name, "read", began, time.monotonic(), seen))
                time.sleep(PAUSE_S * (1 + number % 2))
                if turn % 2:
                    self._set(name, connection, seen, at, f"{name}-{turn}")

    def _set(self, name: str, connection: Connection, seen: str, at: int, value: str) -> None:
        body = {"Job": holder(REGISTER, value), "EnforceIndex": True, "JobModifyIndex": at}
        began = time.monotonic()
        answer = connection.call("PUT", "/v1/jobs", body)
        if answer.sent:
            self.calls.append(Call(name, "cas", began, time.monotonic(), value, seen, answer.outcome))
        if answer.outcome == "done":
            self.successes.append((REGISTER, at))

    def _dispatch(self) -> None:
        """Dispatches with a token, and again with the same one, until two answers have come."""
        with contextlib.closing(self._connection("dispatch", 1)) as connection:
            for number in range(40):
                token, answered = f"token-{number}", 0
                while answered < 2 and not self._over.is_set():
                    answer = connection.call("PUT", f"/v1/job/{PARENT}/dispatch?idempotency_token={token}", {})
                    if answer.status == 200:
                        answered += 1
                        self.children.setdefault(token, []).append(answer.body["DispatchedJobID"])
                    time.sleep(PAUSE_S)
                if self._over.wait(0.3):
                    return

    def _look(self) -> None:
        """Notes what becomes of allocations."""
        with contextlib.closing(self._connection("look", 2)) as connection:
            while not self._over.wait(0.4):
                answer = connection.call("GET", "/v1/allocations")
                for alloc in answer.body if answer.status == 200 else ():
                    seen = self.statuses.setdefault(alloc["ID"], [])
                    if not seen or seen[-1] != alloc["ClientStatus"]:
                        seen.append(alloc["ClientStatus"])

    def _follow(self) -> None:
        """The event stream of the witness."""
        host, _, port = urlsplit(self._witness).netloc.rpartition(":")
        with contextlib.closing(HTTPConnection(host, int(port), timeout=40.0)) as http:
            http.connect()
            self._stream = http.sock
            http.request("GET", "/v1/event/stream?topic=Job&topic=Allocation&topic=Node")
            for line in self._lines(http.getresponse()):
                batch = json.loads(line)
                for event in batch.get("Events") or ():
                    self.events.append({key: event[key] for key in ("Topic", "Key", "Index", "Type")})
        self.stream_broke = not self._closed.is_set()

    def _lines(self, response: Any) -> Iterator[bytes]:
        """Lines until the connection ends; the load ends it when what has happened may be supposed to have come."""
        while True:
            try:
                line = response.readline()
            except (OSError, HTTPException, ValueError):
                return
            if not line:
                return
            yield line

    # What is wrong

    def complaints(self) -> list[str]:
        """V2, V3, V4, V8, and what callers stumbled over."""
        self.calls.sort(key=lambda call: call.began)
        wrong = violation(self.calls, "first")
        return [
            *self.errors,
            *checkers.indexes_went_back(self.indexes),
            *checkers.missed_changes(self.written, self.read),
            *([wrong] if wrong else []),
            *checkers.honoured_twice(self.successes, self.children),
            *checkers.ran_again(self.statuses),
        ]


def _until_done(connection: Connection, method: Literal["PUT"], path: str, body: Any) -> None:
    deadline = time.monotonic() + 20.0
    while (answer := connection.call(method, path, body)).status != 200:
        assert time.monotonic() < deadline, answer
        time.sleep(PAUSE_S)
