"""Whatever people, programs and broken disks hand to an agent: a sentence saying what and where, and nothing lost."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.agents import HOST, LEPA, Agent, eventually, free_ports, running
from tests.e2e.jobs import SECOND, shell_job

WRONG_VALUES: tuple[Any, ...] = ("text", -1, 1.5, True, [], {}, [[]], {"a": {"b": 1}}, 2**70)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("input")) as made:
        yield made


@pytest.fixture(autouse=True)
def _still_well(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that talks to the shared agent leaves it alive and without a traceback in its log."""
    yield
    if "agent" in request.fixturenames:
        shared: Agent = request.getfixturevalue("agent")
        assert shared.request("GET", "/v1/agent/health").status == 200
        logged = shared.log()
        shared.log_path.write_text("")
        assert "Traceback" not in logged, logged
        assert "[ERROR]" not in logged, logged


# Jobs


def test_broken_hcl_is_told_with_places(agent: Agent) -> None:
    text = 'job "web" {\n  group "g" {\n    count = \n    task "t" {\n      driver = "raw_exec\n    }\n  }\n}\n'
    answer = agent.request("PUT", "/v1/jobs/parse", {"JobHCL": text})
    assert answer.status == 400
    assert answer.text.startswith("Failed to parse job: ")
    assert "input.hcl:3," in answer.text


def test_unknown_attributes_are_told_all_at_once_with_the_nearest_known_one(agent: Agent) -> None:
    lines = (
        'job "web" {', 'datacentres = ["a"]', 'group "g" {', "cuont = 1", 'task "t" {', 'drivr = "x"', "}", "}", "}",
    )  # fmt: skip
    answer = agent.request("PUT", "/v1/jobs/parse", {"JobHCL": "\n".join(lines)})
    assert answer.status == 400
    for place, nearest in (("input.hcl:2,", "datacenters"), ("input.hcl:4,", "count"), ("input.hcl:6,", "driver")):
        assert place in answer.text
        assert nearest in answer.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('job "web" {', "web.hcl:1"),
        ("\0\xff\xfe", "web.hcl"),
        ("", "job"),
        ('{"Job": {"ID": 5', "web.hcl:1"),
        ("job " * 50_000, "web.hcl:1"),
        ("a = " + "[" * 100_000, "web.hcl:1"),
        ('job "a" {}\njob "b" {}', "web.hcl:2"),
    ],
    ids=["unclosed", "binary", "empty", "cut-json", "words", "nested", "two-jobs"],
)
def test_command_line_refuses_a_broken_file_with_a_sentence(agent: Agent, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "web.hcl"
    file.write_text(text, encoding="latin-1")
    for verb, code in (("run", 1), ("plan", 255), ("validate", 1)):
        command = [LEPA, "job", verb, file]
        done = subprocess.run(command, env=agent.environment(), capture_output=True, text=True, timeout=20)
        assert done.returncode == code
        assert said in done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert "internal error" not in done.stderr
        assert len(done.stderr) < 20_000
    assert agent.get("/v1/jobs") == []


def test_impossible_constraint_blocks_with_its_reasons(agent: Agent) -> None:
    constraints = [{"LTarget": "${attr.kernel.name}", "RTarget": "plan9", "Operand": "="}]
    evaluation = agent.evaluation(agent.run(shell_job("plan9", Constraints=constraints)))
    metric = evaluation["FailedTGAllocs"]["main"]
    assert (metric["NodesEvaluated"], metric["NodesFiltered"]) == (1, 1)
    assert metric["ConstraintFiltered"] == {"${attr.kernel.name} = plan9": 1}
    assert agent.get(f"/v1/evaluation/{evaluation['BlockedEval']}")["Status"] == "blocked"
    assert agent.get("/v1/job/plan9")["Status"] == "pending"
    missing = agent.evaluation(agent.run(shell_job("driver", task={"Driver": "warp_drive"})))
    assert missing["FailedTGAllocs"]["main"]["ConstraintFiltered"] == {"missing drivers": 1}
    nowhere = agent.evaluation(agent.run(shell_job("nowhere", Datacenters=["mars"])))
    assert nowhere["FailedTGAllocs"]["main"]["NodesEvaluated"] == 0
    for job_id in ("plan9", "driver", "nowhere"):
        agent.purge(job_id)


def group_with(group: dict[str, Any], **task: Any) -> dict[str, Any]:
    """The groups of a job, with one thing that differs."""
    return {"TaskGroups": shell_job("wrong", group=group, task=task)["TaskGroups"]}


def template(change_mode: str, **fields: Any) -> dict[str, Any]:
    return {"EmbeddedTmpl": "a=1", "DestPath": "local/x", "ChangeMode": change_mode, "ChangeSignal": "SIGHUP", **fields}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ID": 5}, "ID"),
        ({"ID": "has space"}, "space"),
        ({"Priority": "high"}, "Priority"),
        ({"Priority": 1000}, "priority"),
        ({"Type": "cron"}, "type"),
        ({"Datacenters": {"a": 1}}, "Datacenters"),
        ({"TaskGroups": "main"}, "TaskGroups"),
        ({"TaskGroups": []}, "task group"),
        ({"TaskGroups": [5]}, "TaskGroups"),
        ({"Meta": {"a": 5}}, "Meta"),
        ({"Constraints": [{"Operand": "~"}]}, "onstraint"),
        ({"Periodic": {"Spec": "every day"}, "Type": "batch"}, "every day"),
        ({"NodePool": "ghost"}, "ghost"),
        ({"Namespace": "ghost"}, "ghost"),
        ({"Update": {"MaxParallel": "two"}}, "MaxParallel"),
        pytest.param({"Type": "srvice"}, "must be one of service, batch, system, sysbatch", id="B107"),
        pytest.param(group_with({}, Name="a/b"), "slashes", id="B104"),
        pytest.param(group_with({}, Name="alloc"), 'cannot be named "alloc"', id="B111"),
        pytest.param(group_with({}, Templates=[template("signal", Envvars=True)]), "cannot use signals", id="B109"),
        pytest.param(group_with({}, Templates=[template("script")]), "must specify change script", id="B110"),
        pytest.param(group_with({"Scaling": {"Min": 1}}), "maximum count must be specified", id="B113"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_job_is_refused_with_the_name_of_what_is_wrong(agent: Agent, change: dict[str, Any], said: str) -> None:
    answer = agent.request("PUT", "/v1/jobs", {"Job": shell_job("wrong") | change})
    assert answer.status == 400, answer.text
    assert said in answer.text
    assert agent.get("/v1/jobs", namespace="*") == []


def test_any_wrong_value_anywhere_in_a_job_is_taken_or_refused_and_never_our_fault(agent: Agent) -> None:
    full = _full_job()
    blamed = []
    for path in _paths(full):
        for value in WRONG_VALUES:
            job = deepcopy(full)
            _put(job, path, value)
            answer = agent.request("PUT", "/v1/job/whole/plan", {"Job": job})
            if answer.status not in {200, 400} or not answer.body:
                blamed.append((path, value, answer.status, answer.text))
    assert blamed == []


def _full_job() -> dict[str, Any]:
    service = {
        "Name": "page",
        "PortLabel": "http",
        "Provider": "nomad",
        "Tags": ["one"],
        "Meta": {"a": "b"},
        "Checks": [{"Type": "http", "Path": "/", "Interval": SECOND, "Timeout": SECOND, "Header": {"A": ["b"]}}],
    }
    group = {
        "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "http", "To": 80}], "ReservedPorts": []}],
        "Services": [service],
        "Scaling": {"Min": 1, "Max": 3, "Policy": {"cooldown": "1m"}},
        "Spreads": [
            {"Attribute": "${node.datacenter}", "Weight": 50, "SpreadTarget": [{"Value": "dc1", "Percent": 50}]}
        ],
        "Affinities": [{"LTarget": "${node.class}", "RTarget": "a", "Operand": "=", "Weight": 10}],
    }
    task = {
        "Templates": [{"EmbeddedTmpl": "x", "DestPath": "local/x", "ChangeMode": "noop"}],
        "Artifacts": [{"GetterSource": "http://127.0.0.1:1/x", "RelativeDest": "local/"}],
        "Env": {"A": "b"},
        "Lifecycle": None,
    }
    return shell_job("whole", group=group, task=task, Meta={"a": "b"}, Datacenters=["dc1"])


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place below a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*above, key)
        yield from _paths(item, (*above, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


# Requests

BODIES: tuple[bytes, ...] = (
    b"", b"null", b"[]", b"5", b'"x"', b"{", b"\xff\xfe", b'{"Job": null}', b'{"Job": 5}', b"{}" * 2, b'{"a": NaN}',
    b'{"Job": {"ID": "\xed\xa0\x80"}}', b"[" * 200_000, b'{"a":' * 100_000, b'{"DrainSpec": 5, "Meta": 7, "Target": 9}',
    b'{"Count": "x", "Eligibility": [], "Prefix": {}, "Text": 5, "Context": [], "Payload": 5, "JobHCL": 7}',
    b'{"DeploymentID": 5, "Pause": "x", "Groups": 7, "Signal": 5, "TaskName": 7, "Name": {}, "Jobs": [5]}',
    b'{"SchedulerAlgorithm": 5, "PreemptionConfig": 7, "EvalOptions": 7, "JobVersion": "x", "JobID": 7}',
)  # fmt: skip

WRITES = (
    "jobs", "jobs/parse", "jobs/statuses", "validate/job", "job/x", "job/x/plan", "job/x/evaluate", "job/x/revert",
    "job/x/stable", "job/x/scale", "job/x/dispatch", "job/x/dispatch/payload", "job/x/periodic/force", "search",
    "search/fuzzy", "node/x/drain", "node/x/eligibility", "node/x/evaluate", "node/x/purge", "node/pools", "namespaces",
    "namespace", "namespace/x", "node/pool/x", "deployment/fail/x", "deployment/pause/x", "deployment/promote/x",
    "deployment/allocation-health/x", "operator/scheduler/configuration", "client/metadata", "allocation/x/stop",
    "client/allocation/x/restart", "client/allocation/x/signal", "agent/join", "agent/force-leave",
)  # fmt: skip


@pytest.mark.parametrize("path", WRITES)
def test_wrong_body_is_refused_with_a_sentence(agent: Agent, path: str) -> None:
    for body in BODIES:
        answer = agent.request("PUT", f"/v1/{path}", body)
        assert answer.status < 500, (path, body[:40], answer.status, answer.text)
        if answer.status >= 400:
            assert answer.text, (path, body[:40])
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    agent.put("/v1/operator/scheduler/configuration", {"SchedulerAlgorithm": "binpack"})


READS = (
    "jobs", "allocations", "evaluations", "deployments", "nodes", "node/pools", "namespaces", "services",
    "scaling/policies", "job/x", "job/x/allocations", "allocation/x", "evaluation/x", "deployment/x", "node/x",
    "service/x", "agent/self", "event/stream", "client/stats", "operator/scheduler/configuration",
)  # fmt: skip

QUERIES = (
    "index=-1", "index=abc", "index=1e3", "index=99999999999999999999999", "wait=abc&index=0", "wait=-5s",
    "stale=maybe", "per_page=-1", "per_page=x", "per_page=99999999999999999999", "next_token=%00%ff",
    "next_token=..", "prefix=%00", "prefix=%ff%fe", "filter=%28", "filter=Nope+%3D%3D+1",
    "filter=ID+matches+%22%28%22", "filter=" + "%28" * 2000, "filter=ID+matches+%22%28a%2B%29%2B%24%22",
    "namespace=%00", "namespace=ghost", "reverse=x", "topic=a:b:c", "topic=:", "choose=x", "choose=-1%7Ca",
    "node_id=ghost", "meta=x", "resources=x", "%ff=%ff", "=", "&&&",
)  # fmt: skip


@pytest.mark.parametrize("path", READS)
def test_wrong_parameter_is_refused_or_ignored(agent: Agent, path: str) -> None:
    for query in QUERIES:
        if path == "event/stream" and "topic" not in query and "index" not in query:
            continue
        with contextlib.suppress(TimeoutError):
            answer = agent.request("GET", f"/v1/{path}?{query}", timeout_s=1)
            assert answer.status < 500, (path, query, answer.status, answer.text)
            assert answer.text or path == "agent/self", (path, query)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/allocation/zz", "/v1/client/fs/ls/e719", "/v1/client/fs/logs/%00?task=a&type=stdout", "/v1/job/%00",
        "/v1/job/", "/v1/job//allocations", "/v1/node/%ff", "/v1/deployment/", "/v1/", "/v1/nothing", "//v1/jobs",
        "/v1/jobs/", "/v1/job/%2e%2e%2f%2e%2e/plan", "/v1/job/" + "a" * 7000, "/%", "/v1/job/%zz", "/../etc/passwd",
        "/v1/client/fs/cat/x?path=../../etc/passwd", "/v1/client/allocation/x/exec?task=a&command=[]",
    ],
)  # fmt: skip
def test_odd_path_is_not_found_or_refused(agent: Agent, path: str) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        if method == "DELETE" and path.startswith("/v1/job/"):
            continue  # removing a job that is not there is a success, as with Nomad
        answer = agent.request(method, path)
        assert 400 <= answer.status < 500, (method, path, answer.status, answer.text)


def test_region_that_does_not_exist_has_no_path(agent: Agent) -> None:
    elsewhere = {"Job": shell_job("there", Region="mars")}
    for answer in (agent.request("GET", "/v1/jobs?region=mars"), agent.request("PUT", "/v1/jobs", elsewhere)):
        assert (answer.status, answer.text) == (500, "No path to region")


def test_huge_body_is_refused_whether_its_length_is_told_or_not(agent: Agent) -> None:
    piece = b" " * (1 << 20)
    told = agent.request("PUT", "/v1/jobs", piece * 17)
    assert told.status == 413
    assert "16777216" in told.text
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=20)
    with contextlib.suppress(ConnectionError):
        connection.request("PUT", "/v1/jobs", iter([piece] * 20), encode_chunked=True)
    with contextlib.suppress(ConnectionError):
        assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"GET\r\n\r\n", b"\r\n" * 1000, b"A" * 100_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5000 + b"\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"PUT /v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PUT /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
        b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /v1/client/allocation/x/exec HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=["tls", "short", "newlines", "endless", "headers", "version", "length", "chunk", "cut", "header", "upgrade"],
)  # fmt: skip
def test_noise_on_a_port_disturbs_nobody(agent: Agent, data: bytes) -> None:
    for name in ("http", "rpc", "dns"):
        with socket.create_connection((HOST, agent.ports[name]), timeout=2) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
    with socket.socket(type=socket.SOCK_DGRAM) as datagram:
        datagram.sendto(data[:1400], (HOST, agent.ports["dns"]))
    assert agent.request("GET", "/v1/jobs").status == 200


def test_callers_that_leave_in_the_middle_leave_nothing_behind(agent: Agent) -> None:
    (node,) = agent.get("/v1/nodes")
    index = agent.request("GET", "/v1/jobs").index
    before = len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())) if agent.process else 0
    paths = [f"/v1/jobs?index={index}", "/v1/event/stream", "/v1/agent/monitor", f"/v1/node/{node['ID']}?index=999999"]
    for path in paths * 5:
        with socket.create_connection((HOST, agent.ports["http"])) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert agent.process is not None
    directory = Path(f"/proc/{agent.process.pid}/fd")
    eventually(lambda: len(list(directory.iterdir())) <= before + 2)


async def test_wrong_exec_requests_are_refused(agent: Agent) -> None:
    agent.run(shell_job("target"))
    (stub,) = agent.running("target")
    url = f"{agent.address}/v1/client/allocation/{stub['ID']}/exec"
    plain = agent.request("GET", f"/v1/client/allocation/{stub['ID']}/exec?task=main&command=[]")
    assert (plain.status, "websocket" in plain.text) == (400, True)
    async with aiohttp.ClientSession() as session:
        for query in ({"task": "", "command": '["a"]'}, {"task": "main", "command": "date"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(url, params=query)
            assert refused.value.status == 400
        for query in ({"task": "ghost", "command": '["date"]'}, {"task": "main", "command": '["/no/such"]'}):
            async with session.ws_connect(url, params=query) as socket_:
                closed = [message async for message in socket_]
                assert socket_.close_code in {1008, 1011, 1000}, closed
        async with session.ws_connect(url, params={"task": "main", "command": '["cat"]'}) as socket_:
            await socket_.send_str('{"stdin": {"data": "not base64!"}}')
            assert [message async for message in socket_] == []
            assert socket_.close_code == 1008
    agent.purge("target")


# Starting


def refused(agent: Agent, within_s: float = 20.0) -> str:
    """What an agent that cannot start says; it ends by itself, not with success, and not with a traceback."""
    process = agent.spawn()
    try:
        code = process.wait(within_s)
    finally:
        agent.process = None
    said = agent.log()
    assert code not in {0, -signal.SIGABRT, -signal.SIGSEGV}, said
    assert "Traceback" not in said, said
    assert "Unclosed" not in said, said
    assert "internal error" not in said, said
    assert not agent.dev or agent.processes() == []
    agent.log_path.write_text("")
    return said


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("agent.hcl", b'server {\n  enabled = \n}\n', ["agent.hcl:2,"]),
        ("agent.hcl", b'sevrer {\n  enabled = true\n}\n', ["sevrer", "server"]),
        ("agent.hcl", b'server {\n  enabled = "perhaps"\n}\n', ["server.enabled"]),
        ("agent.hcl", b'ports {\n  http = 70000\n}\n', ["ports.http", "70000"]),
        ("agent.hcl", b'log_level = "LOUD"\n', ["log_level", "LOUD"]),
        ("agent.hcl", b'bind_addr = "192.0.2.77"\n', ["192.0.2.77"]),
        ("agent.hcl", b'bind_addr = "not an address"\n', ["not an address"]),
        ("agent.hcl", b'client {\n  gc_interval = "soon"\n}\n', ["client.gc_interval", "soon"]),
        ("agent.hcl", b'plugin "raw_exec" {\n  config {\n    enabled = "maybe"\n  }\n}\n', ["raw_exec", "enabled"]),
        ("agent.hcl", b'client {\n  reserved {\n    reserved_ports = "80,x"\n  }\n}\n', ["reserved_ports", "x"]),
        ("agent.hcl", b"\x7fELF\x02\x01\x01\x00\xff\xfe", ["agent.hcl"]),
        ("agent.json", b'{"server": {"enabled": true}', ["agent.json:1,"]),
        ("agent.json", b"[]", ["agent.json"]),
        ("agent.json", b"[" * 100_000, ["agent.json"]),
        ("agent.hcl", b"a = " + b"[" * 100_000, ["agent.hcl"]),
        ("agent.hcl", b"#" * 2_000_000, ["agent.hcl", "1048576"]),
    ],
    ids=[
        "syntax", "unknown-key", "wrong-type", "port-range", "log-level", "foreign-address", "no-address", "duration",
        "plugin", "reserved-ports", "binary", "cut-json", "json-list", "nested-json", "nested-hcl", "huge",
    ],
)  # fmt: skip
def test_wrong_configuration_is_refused_with_its_place(
    tmp_path: Path, name: str, content: bytes, words: list[str]
) -> None:
    agent = Agent(tmp_path / "a", dev=False)
    agent.config = tmp_path / "a" / name
    ports = {"bind_addr": HOST, "ports": agent.ports}
    (tmp_path / "a" / "base.json").write_text(json.dumps(ports))
    agent.config.write_bytes(content)
    command = [LEPA, "agent", "-dev", "-config", agent.folder / "base.json", "-config", agent.config]
    done = subprocess.run(
        [*command, "-data-dir", agent.data], env=agent.environment(), capture_output=True, text=True, timeout=20
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert "internal error" not in said
    for word in words:
        assert word in said, said
    assert agent.leftovers() == []


def test_configuration_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a")
    agent.config.unlink()
    said = refused(agent)
    assert "agent.json" in said
    assert "No such file" in said
    agent.config = tmp_path / "a" / "tmp" / "nothing" / "agent.hcl"
    assert "agent.hcl" in refused(agent)


def test_directory_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a")
    agent.data.mkdir()
    (agent.data / "photos").mkdir()
    (agent.data / "letter.txt").write_text("dear")
    said = refused(agent)
    assert str(agent.data) in said
    assert "letter.txt" in said
    assert sorted(entry.name for entry in agent.data.iterdir()) == ["letter.txt", "photos"]


def test_data_directory_of_another_orchestrator_is_refused_and_left_alone(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a")
    (agent.data / "server" / "raft").mkdir(parents=True)
    (agent.data / "client").mkdir()
    (agent.data / "alloc").mkdir()
    (agent.data / "server" / "raft" / "raft.db").write_bytes(bytes(4096))
    (agent.data / "client" / "state.db").write_bytes(b"\xed\xda\x0c\xed" * 1024)
    before = _tree(agent.data)
    assert str(agent.data) in refused(agent)
    assert _tree(agent.data) == before


def test_file_in_place_of_the_data_directory_is_refused(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a")
    agent.data.write_text("dear")
    assert str(agent.data) in refused(agent)
    assert agent.data.read_text() == "dear"


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["http", "rpc", "dns"])
def test_port_in_use_is_named_with_the_setting_that_changes_it(tmp_path: Path, name: str) -> None:
    agent = Agent(tmp_path / "a", ports=free_ports())
    with socket.socket() as taken, socket.socket(type=socket.SOCK_DGRAM) as taken_udp:
        taken.bind((HOST, agent.ports[name]))
        taken.listen()
        if name == "dns":
            taken_udp.bind((HOST, agent.ports[name]))
        said = refused(agent)
    assert str(agent.ports[name]) in said
    assert f"ports {{ {name} = … }}" in said or "set another DNS port" in said
    agent.start()
    assert agent.close() == []


def test_second_agent_on_a_data_directory_is_refused_and_the_first_goes_on(agent: Agent, tmp_path: Path) -> None:
    agent.run(shell_job("first"))
    agent.running("first")
    second = Agent(tmp_path / "second")
    second.data = agent.data
    said = refused(second)
    assert str(agent.data) in said
    assert agent.process is not None
    assert str(agent.process.pid) in said
    agent.running("first")
    agent.purge("first")


def test_damaged_state_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a", dev=False)
    agent.start()
    for number in range(30):
        agent.run(shell_job(f"job-{number}", count=0, Meta={"text": "x" * 2000}))
    agent.stop()
    path = agent.data / "server" / "state.db"
    whole = path.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        os.urandom(len(whole)),
        whole[:8192] + os.urandom(len(whole) - 8192),
        _foreign_database(tmp_path / "foreign.db"),
    ):
        path.write_bytes(damaged)
        agent.log_path.write_text("")
        assert str(path) in refused(agent)
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    agent.start()
    assert len(agent.get("/v1/jobs")) == 30
    assert agent.close() == []


def _foreign_database(path: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table birds (name text)")
        db.execute("insert into birds values ('wren')")
        db.commit()
    return path.read_bytes()


def test_node_with_damaged_state_says_what_to_do_while_its_tasks_go_on(tmp_path: Path) -> None:
    with running(tmp_path / "a", dev=False) as agent:
        agent.run(shell_job("steady"))
        (stub,) = agent.running("steady")
        agent.stop()
        path = agent.data / "client" / "state.db"
        whole = path.read_bytes()
        for damaged in (whole[: len(whole) // 2], os.urandom(8192)):
            path.write_bytes(damaged)
            said = refused(agent)
            assert str(path) in said
            assert "move it away" in said
            assert path.read_bytes() == damaged
        path.write_bytes(whole)
        agent.start()
        assert agent.running("steady")[0]["ID"] == stub["ID"]


def test_node_that_lost_its_state_comes_back_as_another(tmp_path: Path) -> None:
    quick = {"min_heartbeat_ttl": "1s", "heartbeat_grace": "1s", "failover_heartbeat_ttl": "1s"}
    with running(tmp_path / "a", dev=False, settings={"server": quick}) as agent:
        agent.run(shell_job("moved", group={"ReschedulePolicy": {"Unlimited": True, "Delay": 5 * SECOND}}))
        (stub,) = agent.running("moved")
        agent.stop()
        (agent.data / "client" / "state.db").unlink()
        agent.start()
        eventually(lambda: sorted(node["Status"] for node in agent.get("/v1/nodes")) == ["down", "ready"])
        agent.alloc_until(stub["ID"], lambda alloc: alloc["ClientStatus"] == "lost")
        assert agent.running("moved")[0]["NodeID"] != stub["NodeID"]
