"""S1 and S2 in their short form: thousands of odd requests, made from the agent's own description of its API.

Whatever is sent, the answer is never a 5xx (but 501, which says that something is not in this version), and neither it
nor the log holds a traceback. Every run of a seed sends the same.
"""

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from tests.e2e.agents import Agent, running
from tests.e2e.jobs import shell_job

REQUESTS, PARSES, SEEDS = 1_000, 200, (1, 2, 3)
PARSE_S_MAX = 5.0
"""Two seconds on a free machine."""
NOMADS_500 = (
    "No path to region",
    "allocation is still running",
    "allocation is not running",
    "no task of the allocation is running",
    "Could not find task runner",
    "Task not running",
)
"""Nomad says these with a 500, and its clients look for it; docs/reference/http-api.md names them."""
ENDLESS = ("event/stream", "agent/monitor", "fs/stream", "fs/logs", "/exec", "agent/pprof")
"""Answers that go on, or take their time: other tests ask for them."""
ODD = ("", ".", "..", "%00", "a/b", "ä☃", " ", "'\"<>", "x" * 300, "-1", "*", "00000000-0000-0000-0000-000000000000")
TEXTS = ("", "web", "service", "1h", "-1s", "${attr.x}", "\x00", "☃" * 20, "a" * 2000, "null", "0001-01-01T00:00:00Z")
NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**70, 1.5, 1e308)
FILTERS = ("ID == web", 'ID matches "("', "not", 'Meta["a"] is empty', "(" * 50, "any X as y { y == 1 }", "A == B == C")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("fuzz")) as started:
        started.run(shell_job("web"))
        started.running("web")
        yield started


class Requests:
    """Odd requests from a seed, and now and then a right one."""

    def __init__(self, seed: int, document: Any, known: list[str]) -> None:
        self._random = random.Random(seed)
        self._schemas = document["components"]["schemas"]
        self._known = known
        self._operations = [
            (verb.upper(), path, operation)
            for path, verbs in sorted(document["paths"].items())
            for verb, operation in sorted(verbs.items())
            if not any(part in path for part in ENDLESS)
        ]

    def __iter__(self) -> Iterator[tuple[str, str, bytes | None]]:
        pick = self._random
        for _ in range(REQUESTS):
            verb, path, operation = pick.choice(self._operations)
            for name in [each["name"] for each in operation["parameters"] if each["in"] == "path"]:
                path = path.replace(f"{{{name}}}", quote(pick.choice([*self._known, *ODD]), safe=""))
            query = {
                each["name"]: self._query(each["name"])
                for each in operation["parameters"]
                if each["in"] == "query" and pick.random() < 0.15
            }
            if "index" in query:
                query["wait"] = "1ms"  # a long poll would keep everybody waiting
            body = self._body(operation) if "requestBody" in operation else None
            if pick.random() < 0.03:
                verb = pick.choice(("GET", "PUT", "POST", "DELETE"))
            yield verb, f"{path}?{urlencode(query)}" if query else path, body

    def _query(self, name: str) -> str:
        if name == "filter":
            return self._random.choice(FILTERS)
        if name == "region":
            return "global"
        return str(self._random.choice([*TEXTS, *NUMBERS, *self._known, "true", "1ms"]))

    def _body(self, operation: Any) -> bytes:
        roll = self._random.random()
        if roll < 0.05:
            return self._random.randbytes(self._random.randrange(200))
        if roll < 0.1:
            return self._random.choice((b"", b"[]", b"null", b"1", b'"x"', b"[" * 5_000, b'{"Job":{"ID":1e999}}'))
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        return json.dumps(self._value(schema, 0)).encode()

    def _value(self, schema: Any, depth: int) -> Any:
        """A value of a schema; here and there one of another kind."""
        pick = self._random
        if pick.random() < 0.04:
            return pick.choice([None, True, [], {}, [[]], {"a": {"b": 1}}, *NUMBERS[:6], *TEXTS])
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return self._value(pick.choice(schema["anyOf"]), depth)
        kind = schema.get("type")
        if kind == "object":
            if depth > 6:
                return {}
            named = schema.get("properties", {})
            some = {name: self._value(inner, depth + 1) for name, inner in named.items() if pick.random() < 0.35}
            inner = schema.get("additionalProperties")
            return some | ({pick.choice(TEXTS): self._value(inner, depth + 1)} if isinstance(inner, dict) else {})
        if kind == "array":
            count = 0 if depth > 6 else pick.randrange(3)
            return [self._value(schema.get("items") or {}, depth + 1) for _ in range(count)]
        if kind == "boolean":
            return pick.random() < 0.5
        if kind in ("integer", "number"):
            return pick.choice(NUMBERS[:5])
        return pick.choice([*TEXTS, *self._known]) if kind == "string" else None


def send(connection: HTTPConnection, verb: str, path: str, body: bytes | None) -> tuple[int, str]:
    connection.request(verb, path, body)
    response = connection.getresponse()
    return response.status, response.read().decode("utf-8", "replace")


def known_ids(agent: Agent) -> list[str]:
    (alloc,) = agent.running("web")
    return ["web", "default", "main", alloc["ID"], alloc["NodeID"], alloc["EvalID"]]


def allow_registrations(agent: Agent) -> None:
    """An odd request may have disabled them."""
    agent.put("/v1/operator/scheduler/configuration", {})


@pytest.mark.parametrize("seed", SEEDS)
def test_odd_requests_are_refused_with_a_sentence(agent: Agent, seed: int) -> None:
    """S2."""
    document = agent.get("/v1/openapi.json")
    allow_registrations(agent)
    agent.run(shell_job("web"))
    known = known_ids(agent)
    connection = HTTPConnection(agent.host, agent.ports["http"], timeout=60)
    wrong = []
    for verb, path, body in Requests(seed, document, known):
        if path.startswith(f"/v1/node/{known[4]}") and verb != "GET":
            continue  # a drained or purged node would stop what other requests look at
        try:
            status, text = send(connection, verb, path, body)
        except (HTTPException, OSError):  # refused before it was read, such as a path with odd bytes
            connection.close()
            continue
        if (status >= 500 and status != 501 and not text.startswith(NOMADS_500)) or "Traceback" in text:
            wrong.append((status, verb, path, body, text[:200]))
    connection.close()
    assert wrong == []
    assert agent.request("GET", "/v1/agent/health").status == 200
    logged = agent.log()
    assert "Traceback" not in logged, logged
    assert "[ERROR]" not in logged, logged


def mutated(text: bytes, pick: random.Random) -> bytes:
    """A job file with some of it cut, doubled, swapped or replaced."""
    for _ in range(pick.randrange(1, 6)):
        at = pick.randrange(len(text) or 1)
        to = min(len(text), at + pick.randrange(1, 40))
        piece = pick.choice(
            (b"", text[at:to] * 2, pick.randbytes(3), b"{", b"}", b'"', b"${", b"<<EOF\n", b"\n", b"9" * 30)
        )
        text = text[:at] + piece + text[to:]
    return text


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_job_files_are_told_with_their_line(agent: Agent, seed: int) -> None:
    """S1."""
    pick = random.Random(seed)
    folder = Path(__file__).parents[2] / "examples"
    files = [path.read_bytes() for path in sorted(folder.rglob("*.hcl"))]
    assert files
    connection = HTTPConnection(agent.host, agent.ports["http"], timeout=60)
    for _ in range(PARSES):
        text = mutated(pick.choice(files), pick).decode("utf-8", "replace")
        body = json.dumps({"JobHCL": text, "Canonicalize": pick.random() < 0.5}).encode()
        started = time.monotonic()
        status, answer = send(connection, "PUT", "/v1/jobs/parse", body)
        assert time.monotonic() - started < PARSE_S_MAX, text
        assert status in (200, 400), (status, answer, text)
        assert status == 200 or "input.hcl:" in answer or "empty" in answer or "Failed" in answer, (answer, text)
        if status == 200:
            job = json.dumps({"Job": json.loads(answer)}).encode()
            for path in ("/v1/validate/job", f"/v1/job/{quote(str(json.loads(answer)['ID']), safe='')}/plan"):
                status, said = send(connection, "PUT", path, job)
                assert status in (200, 400), (status, said, text)
    connection.close()
    assert "Traceback" not in agent.log(), agent.log()


def _job(**fields: Any) -> dict[str, Any]:
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    return {"Job": {"ID": "hostile", "Type": "batch", "TaskGroups": [{"Name": "g", "Tasks": [task]}], **fields}}


def _parse(body: str) -> dict[str, Any]:
    return {"JobHCL": f'job "a" {{\n group "g" {{\n task "t" {{\n driver = "raw_exec"\n {body}\n }}\n }}\n}}'}


LOOPS = "[for a in range(0, 1000) : [for b in range(0, 1000) : [for c in range(0, 1000) : c]]]"
HOSTILE: dict[str, tuple[str, str, Any]] = {
    "deep JSON": ("PUT", "/v1/jobs", b'{"Job":' + b"[" * 100_000),
    "deep JSON that ends": ("PUT", "/v1/jobs", b'{"Job":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "a huge integer": ("PUT", "/v1/jobs", b'{"Job":{"ID":"a","Priority":' + b"9" * 100_000 + b"}}"),
    "a filter of a megabyte": ("DELETE", "/v1/evaluations", {"Filter": "ID is empty and " * 60_000 + "ID is empty"}),
    "a regular expression that backtracks": (
        "GET",
        "/v1/jobs?filter=ID+matches+%22%28a%2B%29%2B%28a%2B%29%2B%24%22",
        None,
    ),
    "a constraint that backtracks": (
        "PUT",
        "/v1/job/hostile/plan",
        _job(Constraints=[{"LTarget": "a" * 200 + "!", "Operand": "regexp", "RTarget": "(a|a)*(a|a)*$"}]),
    ),
    "a schedule that never comes": (
        "PUT",
        "/v1/job/hostile/plan",
        _job(Periodic={"Enabled": True, "Specs": ["0 0 30 2 *"]}),
    ),
    "a billion numbers": ("PUT", "/v1/jobs/parse", _parse('env = { a = join(",", range(0, 1000000000)) }')),
    "loops in loops": ("PUT", "/v1/jobs/parse", _parse(f"env = {{ a = length({LOOPS}) }}")),
    "a template of itself": ("PUT", "/v1/jobs/parse", _parse('env = { a = "' + "${" * 3_000 + "}" * 3_000 + '" }')),
    "ten thousand groups": (
        "PUT",
        "/v1/validate/job",
        _job(TaskGroups=[{"Name": f"g{n}", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]} for n in range(10_000)]),
    ),
    "a path of slashes": ("GET", "/v1/job/" + "/" * 5_000, None),
    "many parameters": ("GET", "/v1/jobs?" + "&".join(f"a{n}=b" for n in range(500)), None),
}
STREAMS_UNREAD, STREAM_CHANGES, CHANGE_BYTES = 90, 40, 100_000
HOSTILE_S_MAX = 20.0
"""Two seconds on a free machine."""


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_cost_much_is_bounded_and_others_are_answered_meanwhile(agent: Agent, name: str) -> None:
    """S11."""
    verb, path, body = HOSTILE[name]
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    waited: list[float] = []
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            started = time.monotonic()
            assert agent.request("GET", "/v1/status/leader").status == 200
            waited.append(time.monotonic() - started)

    beside = threading.Thread(target=others)
    beside.start()
    started = time.monotonic()
    try:
        connection = HTTPConnection(agent.host, agent.ports["http"], timeout=60)
        status, text = send(connection, verb, path, raw)
        connection.close()
    finally:
        took = time.monotonic() - started
        done.set()
        beside.join()
    assert took < HOSTILE_S_MAX
    assert status in (200, 400, 404, 413, 414), (status, text[:200])
    assert "Traceback" not in text
    assert max(waited) < HOSTILE_S_MAX / 2
    assert "Traceback" not in agent.log(), agent.log()


def test_streams_that_nobody_reads_keep_nobody_waiting(agent: Agent) -> None:
    """S11: as many event streams as one address may open, and a change for each of them to tell."""
    allow_registrations(agent)
    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS_UNREAD):
            stream = stack.enter_context(socket.create_connection((agent.host, agent.ports["http"])))
            stream.sendall(b"GET /v1/event/stream?index=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        before_kb = resident_kb(agent)
        took = []
        for number in range(STREAM_CHANGES):
            started = time.monotonic()
            agent.run(_job(ID="unread", Meta={"text": "x" * CHANGE_BYTES, "n": str(number)}, Stop=True)["Job"])
            took.append(time.monotonic() - started)
        assert max(took) < HOSTILE_S_MAX / 2
        assert resident_kb(agent) - before_kb < 300_000
    assert "Traceback" not in agent.log(), agent.log()


def resident_kb(agent: Agent) -> int:
    assert agent.process is not None
    with open(f"/proc/{agent.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
