"""`docs/how-to/expose-a-service.md`, tried as its reader would: files and commands are the page's, only ports differ.

Needs dnsmasq, dig, curl and haproxy (Debian: `dnsmasq-base bind9-dnsutils curl haproxy`), and Traefik, which is
installed from PyPI.
"""

import http.client
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dns.exception
import dns.resolver
import pytest
from tests import components
from tests.e2e.agents import HOST, LEPA, Agent, eventually, free_ports
from tests.integration.peers import install

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "expose-a-service.md"
PORTS = ("8600", "9999", "9998", "8500", "8080", "8081", "53")
"""Ports that the page names, and that of the host's resolver, which it need not name."""

PROGRAMS = {"dnsmasq": "dnsmasq-base", "dig": "bind9-dnsutils", "curl": "curl", "haproxy": "haproxy"}
"""Programs and the Debian packages that have them."""

PAUSE_S = 0.01
AFTER_S = 3.0
"""How long requests go on after the last change: longer than any balancer here takes to notice it."""

UPDATED_WITHIN_S = 120.0


class Page:
    """What a page tells to write and to type, with `ports` instead of its own."""

    def __init__(self, path: Path, ports: Mapping[str, int]) -> None:
        self._ports = ports
        text = path.read_text()
        self._files = dict(re.findall(r"`(\S+)`(?: \([^)]*\)\))?:\n\n```\w*\n(.*?)^```$", text, re.S | re.M))
        consoles = re.findall(r"^```console\n(.*?)^```$", text, re.S | re.M)
        self._commands = [line[2:] for block in consoles for line in block.replace("\\\n", "").splitlines()]

    def file(self, name: str) -> str:
        """The text that the page shows for a file."""
        return self._moved(self._files[name])

    def command(self, *words: str) -> str:
        """The one command that begins and goes on with these words."""
        (found,) = (line for line in self._commands if line.startswith(words[0]) and all(w in line for w in words))
        return self._moved(found)

    def _moved(self, text: str) -> str:
        return re.sub(r"\b\d{4}\b", lambda found: str(self._ports.get(found[0], found[0])), text)


class Reader:
    """Somebody who follows the page in a folder of their own."""

    def __init__(self, folder: Path, agent: Agent, page: Page, ports: Mapping[str, int], traefik: Path) -> None:
        self.page, self.folder = page, folder
        self._environment = agent.environment()
        self._environment["LEPA_INGRESS_ADDR"] = f"http://{HOST}:{ports['9998']}"
        self._environment["PATH"] = os.pathsep.join(
            [str(LEPA.parent), str(traefik / "bin"), os.environ["PATH"], "/usr/sbin"]
        )
        self._resolver = f"dig @{HOST} -p {ports['53']}"

    def types(self, *words: str) -> str:
        """What a command of the page prints; it must succeed."""
        done = self._run(*words)
        assert done.returncode == 0, f"$ {done.args[-1]}\n{done.stdout}{done.stderr}"
        return done.stdout

    def tries(self, *words: str) -> str:
        """What a command of the page prints, whether it succeeds or not."""
        return self._run(*words).stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = self.page.command(*words).replace("dig ", f"{self._resolver} ")
        shell = ["/bin/bash", "-c", command]
        return subprocess.run(
            shell, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )

    @contextmanager
    def leaves_running(self, command: str) -> Iterator[None]:
        """A command that runs until the end."""
        name = command.partition(" ")[0]
        with (
            (self.folder / f"{name}.log").open("wb") as log,
            subprocess.Popen(
                ["/bin/bash", "-c", f"exec {command}"], cwd=self.folder, env=self._environment, stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)


class Load:
    """A client that asks again and again. failed: everything but an answer of the job. seen: the different answers."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed: list[str] = []
        self.answered = 0
        self.seen: set[str] = set()

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            try:
                answer = self._ask()
            except (OSError, http.client.HTTPException, dns.exception.DNSException) as error:
                self.failed.append(f"{time.strftime('%X')} {error!r}")
                continue
            if answer.startswith("version "):
                self.answered += 1
                self.seen.add(answer)
            else:
                self.failed.append(f"{time.strftime('%X')} {answer}")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def by_connection(port: int, path: str, host: str) -> Callable[[], str]:
    """Ask a balancer, ten times over one connection and then over the next."""
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    asked = 0

    def ask() -> str:
        nonlocal asked
        asked += 1
        if asked % 10 == 0:
            connection.close()
        try:
            return _answer(connection, path, host)
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    return ask


def by_name(port: int) -> Callable[[], str]:
    """Ask the resolver for an instance, and it by a connection of its own, each time."""
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [HOST], port

    def ask() -> str:
        first = resolver.resolve("web.service.consul", "SRV")[0]
        address = resolver.resolve(first.target, "A")[0]
        connection = http.client.HTTPConnection(str(address), first.port, timeout=10)
        try:
            return _answer(connection, "/", "web")
        finally:
            connection.close()

    return ask


def _answer(connection: http.client.HTTPConnection, path: str, host: str) -> str:
    connection.request("GET", path, headers={"Host": host})
    response = connection.getresponse()
    body = response.read().decode()
    return body.strip() if response.status == 200 else f"{response.status} {body}"


@pytest.fixture
def ports() -> dict[str, int]:
    spare = [*free_ports().values(), *free_ports().values()]
    return dict(zip(PORTS, spare, strict=False))


@pytest.fixture
def traefik(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = install("traefik", tmp_path_factory.getbasetemp())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def reader(tmp_path: Path, ports: dict[str, int], traefik: Path) -> Iterator[Reader]:
    """The page is followed up to a job that runs, with each of the four ways open."""
    for program, package in PROGRAMS.items():
        components.require(program, package)
    page = Page(PAGE, ports)
    agent = Agent(tmp_path / "agent", ports=free_ports() | {"dns": ports["8600"]})
    agent.config = agent.folder / "agent.hcl"
    own = "\n".join(f"  {name} = {port}" for name, port in agent.ports.items())
    agent.config.write_text(page.file("agent.hcl") + f'\nbind_addr = "{HOST}"\nports {{\n{own}\n}}\n')
    folder = tmp_path / "reader"
    folder.mkdir()
    for name in ("web.nomad.hcl", "haproxy.cfg"):
        (folder / name).write_text(page.file(name))
    (folder / "dnsmasq.conf").write_text(page.file("/etc/dnsmasq.d/lepa.conf"))
    try:
        agent.start()
        found = Reader(folder, agent, page, ports, traefik)
        found.types("lepa job run", "run web.nomad.hcl")
        found.types("lepa service config")
        dnsmasq = f"dnsmasq --no-daemon --conf-file=dnsmasq.conf --no-resolv --no-hosts --port={ports['53']}"
        with (
            found.leaves_running(f"{dnsmasq} --listen-address={HOST} --bind-interfaces"),
            found.leaves_running(page.command("haproxy")),
            found.leaves_running(page.command("traefik")),
        ):
            yield found
    finally:
        left = agent.close()
    assert left == [], agent.log()
    assert "Traceback" not in agent.log(), agent.log()


def test_a_service_is_reached_in_four_ways_while_it_is_scaled_and_updated(
    reader: Reader, ports: dict[str, int]
) -> None:
    assert "2" in reader.types("lepa service info")
    ways = ("set --", "curl -s http://127.0.0.1:9999", "curl -s http://127.0.0.1:8080", "curl -s -H")
    eventually(lambda: all(reader.tries(way).startswith("version 1, instance ") for way in ways))
    assert len(eventually(lambda: reader.types("dig +short").splitlines())) == 2
    assert "/web" in reader.types("lepa ingress routes")

    loads = {
        "by name": Load(by_name(ports["53"])),
        "ingress": Load(by_connection(ports["9999"], "/web/", "any.example.com")),
        "haproxy": Load(by_connection(ports["8080"], "/", "any.example.com")),
        "traefik": Load(by_connection(ports["8081"], "/", "web.example.com")),
    }
    five = {f"version {version}, instance {number}" for version in (1, 2) for number in range(5)}
    with ExitStack() as asking:
        for load in loads.values():
            asking.enter_context(load)
        reader.types("lepa job scale")
        eventually(lambda: all(len(load.seen) == 5 for load in loads.values()))
        reader.types("lepa job run", "-preserve-counts")
        eventually(lambda: all(load.seen == five for load in loads.values()), UPDATED_WITHIN_S)
        time.sleep(AFTER_S)
    assert {way: load.failed for way, load in loads.items() if load.failed} == {}
    assert all(load.answered > 100 for load in loads.values())
