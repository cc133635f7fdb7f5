"""Real agents for tests: each in a process of its own, on free ports, with everything it makes below one folder.

`running(folder)` gives a started agent and, at its end, stops it, ends what it left running on purpose (the tasks of an
agent that is not for development) and fails when anything else is left: a process, a mount, a cgroup, a temporary file.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from tests.processes import command_of

from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

T = TypeVar("T")

HOST = "127.0.0.1"
LEPA = Path(sys.executable).with_name("lepa")
PORT_NAMES = ("http", "rpc", "serf", "dns")
PORTS_FROM, PORTS_TO = 10_000, 19_999
"""Below the ports that tasks get and those that the kernel picks for connections, so that nobody takes one between
looking and listening."""
START_S, STOP_S, ANSWER_S = 30.0, 20.0, 30.0
LEFT_S = 3.0

_next_port = itertools.count(PORTS_FROM + os.getpid() * 37 % (PORTS_TO - PORTS_FROM))


def eventually(found: Callable[[], T], within_s: float = 20.0, every_s: float = 0.02) -> T:
    """The first true value of `found`; fails when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {getattr(found, '__name__', found)}"
        time.sleep(every_s)
    return value


def free_ports() -> dict[str, int]:
    """Ports of loopback, one for each name, that nobody listens on."""
    return {name: _free_port() for name in PORT_NAMES}


def _free_port() -> int:
    while True:
        port = PORTS_FROM + next(_next_port) % (PORTS_TO - PORTS_FROM)
        with contextlib.suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind((HOST, port))
            udp.bind((HOST, port))
            return port


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, map by map."""
    found = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if both else value
    return found


@dataclass(frozen=True)
class Answer:
    """An HTTP response, read whole. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def index(self) -> int:
        return int(self.headers["x-nomad-index"])


class Agent:
    """One agent. It is made stopped; its folder, ports and data stay the same over restarts."""

    def __init__(
        self,
        folder: Path,
        *,
        dev: bool = True,
        settings: Mapping[str, Any] | None = None,
        ports: Mapping[str, int] | None = None,
        host: str = HOST,
    ) -> None:
        self.folder = folder
        self.dev = dev
        self.host = host
        self.ports = dict(ports or free_ports())
        self.data = folder / "data"
        self.temporary = folder / "tmp"
        self.log_path = folder / "agent.log"
        self.config = folder / "agent.json"
        self.address = f"http://{host}:{self.ports['http']}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        role = {} if dev else SERVER_AND_CLIENT
        self.configure(merged({"bind_addr": host, "ports": self.ports, **role}, settings or {}))

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration that the next start reads."""
        self.config.write_text(json.dumps(settings))

    # Life

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for anything."""
        mode = ["-dev"] if self.dev else []
        command = [LEPA, "agent", *mode, "-config", self.config, "-data-dir", self.data]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=self.environment()
            )
        return self.process

    def environment(self) -> dict[str, str]:
        """Where its commands find it, and where it puts temporary files."""
        return os.environ | {"LEPA_ADDR": self.address, "TMPDIR": str(self.temporary)}

    def start(self) -> None:
        """Start, and return once the agent is well and its node ready."""
        process = self.spawn()

        def ready() -> bool:
            assert process.poll() is None, f"the agent ended with code {process.returncode}:\n{self.log()}"
            with contextlib.suppress(OSError):
                if self.request("GET", "/v1/agent/health").status == 200:
                    return any(node["Status"] == "ready" for node in self.get("/v1/nodes"))
            return False

        eventually(ready, START_S)

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        assert self.process is not None
        return self.process.wait(START_S)

    def stop(self) -> int:
        """Stop as a person would, with SIGTERM; the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(STOP_S)
        self.process = None
        return code

    def kill9(self) -> None:
        """End the agent, and only it, without a warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def close(self) -> list[str]:
        """Stop everything; what was left that should not be."""
        if self.process is not None:
            if self.process.poll() is None:
                self.stop()
            self.process = None
        if not self.dev:
            self._end_what_outlives_the_agent()
        deadline = time.monotonic() + LEFT_S
        while (left := self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def leftovers(self) -> list[str]:
        """Processes, mounts, cgroups and temporary files of this agent that exist now."""
        return [
            *self.processes(),
            *(f"mount {place}" for place in self.mounts()),
            *(f"cgroup {group}" for group in self.cgroups()),
            *(f"temporary file {path}" for path in self.temporary.iterdir()),
        ]

    def _end_what_outlives_the_agent(self) -> None:
        """The tasks, their supervisor, and the secrets that stay mounted for them."""
        if any("lepa.drivers.supervisor" in process for process in self.processes()):
            asyncio.run(_end_tasks(self.data / "supervisor"))
        for place in self.mounts():
            subprocess.run(["umount", place], check=True)

    def mounts(self) -> list[str]:
        """Mount points below this agent's folder."""
        places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return [place for place in places if place.startswith(f"{self.folder}/")]

    def processes(self) -> list[str]:
        """Processes whose command or environment names this agent's folder."""
        return [f"process {pid} {command_of(pid)}" for pid in self._pids()]

    def _pids(self) -> list[int]:
        mark = f"{self.folder}/".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in (entry / "cmdline").read_bytes() or mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def cgroups(self) -> list[str]:
        """Control groups of this agent's allocations, empty ones too."""
        allocations = [entry.name for entry in (self.data / "alloc").glob("*-*")]
        roots = [Path("/sys/fs/cgroup"), *(entry for entry in Path("/sys/fs/cgroup").iterdir() if entry.is_dir())]
        groups = [str(group) for root in roots for group in root.glob("lepa/*")]
        return sorted(group for group in groups if any(alloc_id in group for alloc_id in allocations))

    def log(self) -> str:
        """Everything that the agent has written to its two outputs."""
        return self.log_path.read_text(errors="replace")

    # HTTP

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
        """Any request; a body that is not bytes is sent as JSON."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path
        connection = HTTPConnection(self.host, self.ports["http"], timeout=timeout_s)
        try:
            connection.request(method, target, raw, dict(headers or {}))
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, /, **query: Any) -> Any:
        """The JSON of a read that succeeds."""
        return self._succeeds("GET", path, None, query)

    def put(self, path: str, body: Any = None, /, **query: Any) -> Any:
        """The JSON of a write that succeeds, None when it has no body."""
        return self._succeeds("PUT", path, body, query)

    def delete(self, path: str, /, **query: Any) -> Any:
        """The JSON of a removal that succeeds."""
        return self._succeeds("DELETE", path, None, query)

    def _succeeds(self, method: str, path: str, body: Any, query: Mapping[str, Any]) -> Any:
        answer = self.request(method, path, body, query=query)
        assert answer.status == 200, f"{method} {path}: {answer.status} {answer.text}"
        return answer.json if answer.body else None

    # Jobs

    def run(self, job: Mapping[str, Any]) -> str:
        """Register a job; the id of its evaluation."""
        return str(self.put("/v1/jobs", {"Job": job})["EvalID"])

    def purge(self, job_id: str) -> None:
        """Stop a job, forget it, and wait until none of its tasks runs."""
        allocations = self.allocations(job_id)
        self.delete(f"/v1/job/{quote(job_id, safe='')}", purge="true")
        for allocation in allocations:
            self.alloc_until(allocation["ID"], lambda alloc: alloc["ClientStatus"] not in {"pending", "running"})

    def allocations(self, job_id: str) -> list[Any]:
        """Allocations of a job, oldest first."""
        found: list[Any] = self.get(f"/v1/job/{quote(job_id, safe='')}/allocations")
        return sorted(found, key=lambda alloc: (alloc["CreateIndex"], alloc["Name"]))

    def running(self, job_id: str, count: int = 1, within_s: float = 20.0) -> list[Any]:
        """Wait until exactly `count` allocations of a job run and are meant to; those."""

        def enough() -> list[Any]:
            runs = [
                alloc
                for alloc in self.allocations(job_id)
                if alloc["ClientStatus"] == "running" and alloc["DesiredStatus"] == "run"
            ]
            return runs if len(runs) == count else []

        return eventually(enough, within_s)

    def alloc_until(self, alloc_id: str, condition: Callable[[Any], bool], within_s: float = 20.0) -> Any:
        """Wait for a state of one allocation; the allocation then. The condition may name what is not there yet, as the
        states of its tasks are not before its node reports."""

        def read() -> Any:
            alloc = self.get(f"/v1/allocation/{alloc_id}")
            with contextlib.suppress(KeyError):
                return alloc if condition(alloc) else None
            return None

        return eventually(read, within_s)

    def evaluation(self, eval_id: str, within_s: float = 20.0) -> Any:
        """An evaluation once it is no longer pending."""

        def read() -> Any:
            found = self.get(f"/v1/evaluation/{eval_id}")
            return found if found["Status"] != "pending" else None

        return eventually(read, within_s)

    def deployment(self, job_id: str, condition: Callable[[Any], bool], within_s: float = 30.0) -> Any:
        """Wait for a state of a job's newest deployment; the deployment then."""

        def read() -> Any:
            found = self.get(f"/v1/job/{job_id}/deployment")
            return found if found and condition(found) else None

        return eventually(read, within_s)

    def output(self, alloc_id: str, task: str, stream: str = "stdout") -> str:
        """What a task has written, all of it, as plain text; "" while it has not started."""
        query = {"task": task, "type": stream, "plain": "true"}
        answer = self.request("GET", f"/v1/client/fs/logs/{alloc_id}", query=query)
        return answer.text if answer.status == 200 else ""


SERVER_AND_CLIENT = {
    "server": {"enabled": True, "bootstrap_expect": 1},
    "client": {"enabled": True, "network_interface": "lo"},
    "plugin": {"raw_exec": {"config": {"enabled": True}}},
}
"""An agent that is not for development: its tasks outlive it."""


async def _end_tasks(directory: Path) -> None:
    supervisor = await Supervisor.connect(str(directory), clock=SystemClock())
    await supervisor.shutdown(kill=True)


@contextlib.contextmanager
def running(folder: Path, *, dev: bool = True, settings: Mapping[str, Any] | None = None) -> Iterator[Agent]:
    """A started agent that leaves nothing behind and never writes a traceback."""
    agent = Agent(folder, dev=dev, settings=settings)
    try:
        agent.start()
        yield agent
    finally:
        left = agent.close()
    assert left == [], f"left behind:\n{agent.log()}"
    assert "Traceback" not in agent.log(), agent.log()
