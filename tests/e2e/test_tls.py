"""A server and a node that speak TLS on every port, called by people with and without certificates."""

import json
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import ANSWER_S, HOST, LEPA, Agent, Answer, eventually, merged
from tests.e2e.jobs import SECOND, WAIT, shell_job
from tests.e2e.test_cli import SLEEPER

from lepa.kit.certificate_authority import Pair, Subject, authority, issue
from lepa.kit.tls import client_context
from lepa.kit.tls_settings import ClientTls
from lepa.model.wire import to_msgpack
from lepa.rpc import methods as m
from lepa.rpc.channel import AS, LEADER
from lepa.rpc.requests import ReadRequest

ROLES = ("server", "client", "cli")


def certificates(folder: Path) -> None:
    """An authority, one certificate for each role, and a stranger's."""
    now = datetime.now(UTC)
    ca, other = authority(Subject("ca"), 30, now), authority(Subject("other"), 30, now)
    folder.mkdir()
    write(folder, "ca", ca)
    for role in ROLES:
        name = f"{role}.global.nomad"
        write(folder, role, issue(ca, name, 30, now, dns=[name, "localhost"], addresses=[HOST], server=role != "cli"))
    name = "server.global.nomad"
    write(folder, "stranger", issue(other, name, 30, now, dns=[name], addresses=[HOST], server=True))
    far = "server.far.nomad"
    write(folder, "elsewhere", issue(ca, far, 30, now, dns=[far], addresses=[HOST], server=True))
    write(folder, "newer", issue(ca, name, 30, now, dns=[name, "newer"], addresses=[HOST], server=True))


def write(folder: Path, name: str, pair: Pair) -> None:
    (folder / f"{name}.pem").write_bytes(pair.certificate)
    (folder / f"{name}-key.pem").write_bytes(pair.key)


def caller(folder: Path, name: str = "", **settings: Any) -> ssl.SSLContext:
    """A context that shows certificate `name`."""
    shown = (str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem")) if name else ("", "")
    return client_context(ClientTls(str(folder / "ca.pem"), "", *shown, **settings))


class SecureAgent(Agent):
    """An agent whose HTTP API demands certificates. role: that of its own."""

    def __init__(self, folder: Path, pems: Path, role: str, settings: Mapping[str, Any]) -> None:
        self.pems = pems
        tls = {
            "http": True,
            "rpc": True,
            "verify_server_hostname": True,
            "verify_https_client": True,
            "ca_file": str(pems / "ca.pem"),
            "cert_file": str(pems / f"{role}.pem"),
            "key_file": str(pems / f"{role}-key.pem"),
        }
        roles = {"server": {"enabled": False}, "client": {"enabled": False}}
        super().__init__(folder, dev=False, settings=merged(merged(roles, {"tls": tls}), settings))
        self.address = f"https://{HOST}:{self.ports['http']}"

    def environment(self) -> dict[str, str]:
        shown = {"LEPA_CLIENT_CERT": str(self.pems / "cli.pem"), "LEPA_CLIENT_KEY": str(self.pems / "cli-key.pem")}
        return super().environment() | shown | {"LEPA_CACERT": str(self.pems / "ca.pem")}

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = ANSWER_S,
    ) -> Answer:
        assert not query
        raw = None if body is None else json.dumps(body).encode()
        connection = HTTPSConnection(HOST, self.ports["http"], timeout=timeout_s, context=caller(self.pems, "cli"))
        try:
            connection.request(method, path, raw, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecureAgent, SecureAgent]]:
    """A server, and a node that is another agent."""
    folder = tmp_path_factory.mktemp("tls")
    certificates(folder / "pems")
    with ExitStack() as ending:
        server = SecureAgent(folder / "server", folder / "pems", "server", {"server": {"enabled": True}})
        ending.callback(lambda: check_closed(server))
        server.spawn()
        known = {"client": {"enabled": True, "servers": [f"{HOST}:{server.ports['rpc']}"]}}
        node = SecureAgent(folder / "node", folder / "pems", "client", known)
        ending.callback(lambda: check_closed(node))
        node.start()
        yield server, node


def check_closed(agent: Agent) -> None:
    left = agent.close()
    assert not left, left


def lepa(agent: Agent, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = agent.environment() | environment
    return subprocess.run([LEPA, *words], env=env, input="", capture_output=True, text=True, timeout=60, check=False)


def test_a_job_runs_and_is_reached_through_the_server(pair: tuple[SecureAgent, SecureAgent], tmp_path: Path) -> None:
    server, node = pair
    (tmp_path / "sleeper.hcl").write_text(SLEEPER)
    assert lepa(server, "job", "run", "-detach", str(tmp_path / "sleeper.hcl")).returncode == 0
    (alloc,) = server.running("sleeper")
    # Both are asked of the server, whose HTTP API asks the node's.
    eventually(lambda: lepa(server, "alloc", "logs", alloc["ID"]).stdout == "started\n")
    done = lepa(server, "alloc", "exec", alloc["ID"], "echo", "hi")
    assert (done.stdout, done.returncode) == ("hi\n", 0), done.stderr
    # The node asks the server on the internal port.
    assert "sleeper" in lepa(node, "job", "status").stdout
    assert lepa(server, "job", "stop", "-detach", "-purge", "sleeper").returncode == 0
    server.alloc_until(alloc["ID"], lambda found: found["ClientStatus"] == "complete")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"LEPA_CLIENT_CERT": "", "LEPA_CLIENT_KEY": ""}, "-client-cert"),
        ({"LEPA_CACERT": ""}, "-ca-cert"),
        ({"LEPA_TLS_SERVER_NAME": "other"}, "-tls-server-name"),
        ({"LEPA_ADDR": "http"}, "https://"),
        ({"LEPA_CACERT": "/nowhere.pem"}, "/nowhere.pem cannot be read"),
        ({"LEPA_SKIP_VERIFY": "perhaps"}, "expected true or false"),
    ],
)
def test_a_caller_without_what_is_needed_is_told(
    pair: tuple[SecureAgent, SecureAgent], environment: dict[str, str], words: str
) -> None:
    server, _ = pair
    if "LEPA_ADDR" in environment:
        environment = {"LEPA_ADDR": server.address.replace("https", "http")}
    done = lepa(server, "status", **environment)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_flags_say_the_same_as_variables(pair: tuple[SecureAgent, SecureAgent]) -> None:
    server, _ = pair
    bare = {"LEPA_CLIENT_CERT": "", "LEPA_CLIENT_KEY": "", "LEPA_CACERT": ""}
    shown = ("-client-cert", str(server.pems / "cli.pem"), "-client-key", str(server.pems / "cli-key.pem"))
    named = ("-ca-cert", str(server.pems / "ca.pem"), "-tls-server-name", "server.global.nomad")
    assert lepa(server, "node", "status", *shown, *named, **bare).returncode == 0
    assert lepa(server, "node", "status", *shown, "-tls-skip-verify", **bare).returncode == 0


@pytest.mark.parametrize(
    ("name", "as_server", "status"),
    [
        ("client", False, 200),
        ("server", False, 200),
        ("server", True, 200),
        ("client", True, 403),
        ("cli", False, 403),
        ("cli", True, 403),
        ("elsewhere", True, 403),
        ("elsewhere", False, 403),
        ("stranger", True, 0),
        ("", False, 0),
    ],
)
def test_the_internal_port_takes_everybody_for_what_the_certificate_says(
    pair: tuple[SecureAgent, SecureAgent], name: str, as_server: bool, status: int
) -> None:
    """B250: a node does not pass for a server, nor a server of a region that nobody knows for one of this."""
    server, _ = pair
    context = caller(server.pems, name, server_name="server.global.nomad")
    connection = HTTPSConnection(HOST, server.ports["rpc"], timeout=10, context=context)
    headers = {AS: LEADER} if as_server else {}
    try:
        connection.request("POST", f"/rpc/{m.STATUS_LEADER.name}", to_msgpack(ReadRequest()), headers)
        found = connection.getresponse().status
    except OSError:
        found = 0
    finally:
        connection.close()
    assert found == status


def test_certificates_are_changed_under_load_without_a_lost_request(pair: tuple[SecureAgent, SecureAgent]) -> None:
    server, _ = pair
    problems: list[str] = []
    ending = threading.Event()

    def ask() -> None:
        while not ending.is_set():
            try:
                status = server.request("GET", "/v1/status/leader").status
            except OSError as error:
                problems.append(str(error))
            else:
                problems.extend([f"status {status}"] if status != 200 else [])

    def names() -> tuple[str, ...]:
        connection = HTTPSConnection(HOST, server.ports["http"], timeout=10, context=caller(server.pems, "cli"))
        connection.connect()
        found = dict(connection.sock.getpeercert())
        connection.close()
        return tuple(value for _, value in found["subjectAltName"])

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for each in callers:
        each.start()
    try:
        for part in ("", "-key"):
            (server.pems / f"server{part}.pem").write_bytes((server.pems / f"newer{part}.pem").read_bytes())
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: "newer" in names())
        (server.pems / "server.pem").write_text("broken")
        os.kill(server.process.pid, signal.SIGHUP)
        eventually(lambda: "the certificate before stays in use" in server.log())
        assert "newer" in names()
    finally:
        ending.set()
        for each in callers:
            each.join()
    assert problems == []


def test_a_node_of_the_wrong_kind_is_refused(pair: tuple[SecureAgent, SecureAgent], tmp_path: Path) -> None:
    server, _ = pair
    known = {"client": {"enabled": True, "servers": [f"{HOST}:{server.ports['rpc']}"]}}
    node = SecureAgent(tmp_path / "person", server.pems, "cli", known)
    node.spawn()
    try:
        eventually(lambda: "the certificate bears cli.global.nomad" in node.log())
        assert len(json.loads(lepa(server, "node", "status", "-json").stdout)) == 1
    finally:
        check_closed(node)


def test_the_data_of_a_disk_move_to_another_node(pair: tuple[SecureAgent, SecureAgent], tmp_path: Path) -> None:
    """The new node fetches them from the old one's HTTP API, which demands its certificate."""
    server, node = pair
    known = {"client": {"enabled": True, "servers": [f"{HOST}:{server.ports['rpc']}"]}}
    other = SecureAgent(tmp_path / "other", node.pems, "client", known)
    other.start()
    try:
        disk = {"Sticky": True, "Migrate": True, "SizeMB": 20}
        script = f"cd $NOMAD_ALLOC_DIR/data; echo $NOMAD_ALLOC_ID >> log; cat log; {WAIT}"
        server.run(shell_job("disk", script, group={"EphemeralDisk": disk}))
        (first,) = server.running("disk")
        eventually(lambda: first["ID"] in lepa(server, "alloc", "logs", first["ID"]).stdout)
        server.put(f"/v1/node/{first['NodeID']}/drain", {"DrainSpec": {"Deadline": 60 * SECOND}})
        server.alloc_until(first["ID"], lambda alloc: alloc["ClientStatus"] == "complete")
        (second,) = server.running("disk")
        assert second["NodeID"] != first["NodeID"]
        moved = f"{first['ID']}\n{second['ID']}\n"
        eventually(lambda: lepa(server, "alloc", "logs", second["ID"]).stdout == moved)
        told = [event["DisplayMessage"] for event in second["TaskStates"]["main"]["Events"]]
        assert any("were moved from" in text for text in told), told
        assert lepa(server, "job", "stop", "-detach", "-purge", "disk").returncode == 0
        server.alloc_until(second["ID"], lambda alloc: alloc["ClientStatus"] == "complete")
    finally:
        check_closed(other)
