"""The ingress beside an agent (lepa.agent.ingress_process): a service is reached at one place while it is scaled and
updated."""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import pytest
from tests.e2e.agents import HOST, LEPA, Agent, eventually, free_ports, running
from tests.e2e.jobs import SECOND, quick_update, shell_job

SERVE = """
import http.server, os, signal, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = os.environ["VERSION"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server((os.environ["NOMAD_IP_http"], int(os.environ["NOMAD_PORT_http"])), Handler).serve_forever()
"""


def web(count: int, version: str, *tags: str) -> dict[str, Any]:
    """A web service that says its version, with checks, and a delay between leaving the catalog and the signal."""
    return shell_job(
        "web",
        f"exec {sys.executable} -c '{SERVE}'",
        count=count,
        task={"Env": {"VERSION": version}},
        group={
            "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
            "ShutdownDelay": 3 * SECOND,
            "Services": [
                {
                    "Name": "web",
                    "PortLabel": "http",
                    "Provider": "nomad",
                    "Tags": list(tags),
                    "Checks": [{"Name": "up", "Type": "http", "Path": "/", "Interval": SECOND, "Timeout": 10 * SECOND}],
                }
            ],
        },
        Update=quick_update(HealthCheck="checks", MaxParallel=2),
    )


class Load:
    """Clients that ask again and again, over kept connections and new ones. failed: everything but 200."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._stop = threading.Event()
        self.failed: list[str] = []
        self.served = 0
        self.seen: set[str] = set()
        self._threads = [threading.Thread(target=self._run, args=(kept,)) for kept in (True, True, False)]

    def _run(self, kept: bool) -> None:
        client = http.client.HTTPConnection(HOST, self._port, timeout=10)
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                if number % 2:
                    client.request("GET", self._path)
                else:
                    client.request("POST", self._path, b"x" * 1_000)
                answer = client.getresponse()
                body = answer.read().decode()
                if answer.status == 200:
                    self.served += 1
                    self.seen.add(body)
                else:
                    self.failed.append(f"{answer.status} {body}")
            except OSError as error:
                self.failed.append(repr(error))
                client.close()
            if not kept:
                client.close()
            time.sleep(0.005)
        client.close()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Place:
    """An agent with an ingress. http, ui, tcp: its ports."""

    def __init__(self, agent: Agent, http_port: int, ui: int, tcp: int) -> None:
        self.agent, self.http, self.ui, self.tcp = agent, http_port, ui, tcp

    def get(self, path: str, port: int = 0) -> tuple[int, str]:
        """Status and body; (0, "") when nobody answers."""
        client = http.client.HTTPConnection(HOST, port or self.http, timeout=10)
        with contextlib.suppress(OSError):
            client.request("GET", path)
            answer = client.getresponse()
            found = answer.status, answer.read().decode()
            client.close()
            return found
        return 0, ""

    def cli(self, *words: str) -> str:
        """What a command prints."""
        command = [LEPA, *words]
        environment = self.agent.environment() | {"LEPA_INGRESS_ADDR": f"http://{HOST}:{self.ui}"}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    spare = free_ports()
    ingress = {"enabled": True, "http": spare["http"], "ui": spare["rpc"]}
    with running(tmp_path, settings={"ingress": ingress}) as agent:
        found = Place(agent, spare["http"], spare["rpc"], spare["serf"])
        eventually(lambda: found.get("/health", found.ui)[0] == 200)
        yield found


def test_a_service_is_scaled_and_updated_under_load_without_a_failed_request(place: Place) -> None:
    tags = ("urlprefix-/web strip=/web", f"urlprefix-:{place.tcp} proto=tcp")
    place.agent.run(web(2, "one", *tags))
    place.agent.running("web", 2)
    eventually(lambda: place.get("/web/")[0] == 200)
    with Load(place.http, "/web/x") as over_http, Load(place.tcp, "/x") as over_tcp:
        place.agent.run(web(5, "one", *tags))
        place.agent.running("web", 5)
        # An update takes any instances first: it must not meet two that answer beside three that do not yet.
        place.agent.deployment("web", lambda found: found["JobVersion"] == 1 and found["Status"] == "successful", 60)
        place.agent.run(web(5, "two", *tags))
        eventually(lambda: over_http.seen == {"one", "two"}, 60)
        place.agent.deployment("web", lambda found: found["JobVersion"] == 2 and found["Status"] == "successful", 90)
        place.agent.running("web", 5)
    assert over_http.failed == []
    assert over_http.served > 100
    # A client of a TCP port must come again when its instance leaves; nothing else may fail.
    assert [reason for reason in over_tcp.failed if "Reset" not in reason and "Remote" not in reason] == []


def test_a_tag_that_is_not_followed_is_named_and_the_others_work(place: Place) -> None:
    place.agent.run(web(1, "one", "urlprefix-/web", "urlprefix-no-slash"))
    eventually(lambda: place.get("/web")[0] == 200)
    shown = place.cli("ingress", "routes")
    assert "/web" in shown
    assert "urlprefix-no-slash" in shown
    assert "has no slash" in shown


def test_the_ingress_is_found_by_name_and_started_again(place: Place) -> None:
    place.agent.run(web(1, "one", "urlprefix-/web register=front"))
    eventually(lambda: place.get("/web")[0] == 200)
    for name in ("fabio", "ingress", "front"):
        eventually(lambda name=name: _addresses(place.agent, name) != [])
    pids = [int(line.split()[1]) for line in place.agent.processes() if "lepa.ingress" in line]
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)
    eventually(lambda: place.get("/web")[0] == 200)


def _addresses(agent: Agent, name: str) -> list[str]:
    asked = dns.message.make_query(f"{name}.service.consul", "A")
    answer = dns.query.udp(asked, HOST, 5, agent.ports["dns"])
    return [str(row) for found in answer.answer for row in found]


def test_an_agent_that_is_killed_takes_its_ingress_along(tmp_path: Path) -> None:
    spare = free_ports()
    ingress = {"enabled": True, "http": spare["http"], "ui": spare["rpc"]}
    with running(tmp_path, dev=False, settings={"ingress": ingress}) as agent:
        found = Place(agent, spare["http"], spare["rpc"], 0)
        eventually(lambda: found.get("/health", found.ui)[0] == 200)
        agent.kill9()
        eventually(lambda: not any("lepa.ingress" in line for line in agent.processes()))
        agent.start()
        eventually(lambda: found.get("/health", found.ui)[0] == 200)


def test_a_port_that_is_taken_stops_the_agent_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        agent = Agent(tmp_path, settings={"ingress": {"enabled": True, "http": port, "ui": 0}})
        agent.spawn()
        assert agent.wait() == 1
        assert agent.close() == []
    assert f"cannot listen on {HOST} port {port} (http): another program has it" in agent.log()
