"""How long does nobody take writes when the server that leads is killed?

`cluster.failover_s`: three servers with an etcd each, as processes on this machine; a caller registers a small job
again and again, and goes on at the next server when one does not answer. The leader's agent is killed (-9), and started
again after that; the figure is the longest gap between two acknowledged writes in two such rounds. Expected <= 3 s.
Beside: the longest gap between commits to three etcds alone, when the one that leads them is killed, twice.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.etcd import EtcdServer, etcd_servers

from benchmarks._agent import HOST, LEPA, STOP_S, _free_ports, memory_mb
from benchmarks.harness import Figure
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.store.etcd import EtcdStore
from lepa.store.etcd_connection import STATUS
from lepa.store.etcd_messages import StatusRequest
from lepa.store.protocol import Put, Txn

FIGURES = ("cluster.failover_s",)
ROUNDS = 2
FORM_S = 30.0
SETTLE_S = 2.0
HEALED_S = 25.0
ANSWER_S = 8.0


def run() -> list[Figure]:
    """Both in one run."""
    with three_servers() as servers:
        failover = longest_gap(servers)
    bare = asyncio.run(_bare())
    return [Figure("cluster.failover_s", failover, "s", bare, "etcd alone")]


class Server:
    """One agent that is a server; `ports` stay the same when it starts again."""

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder = folder
        self.ports = ports
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [LEPA, "agent", "-config", self.folder / "agent.json", "-data-dir", self.folder / "data"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def memory_mb(self) -> float:
        """Resident memory of the agent's process now, in MiB."""
        assert self.process is not None
        return memory_mb(self.process.pid)

    def leader(self) -> str:
        """Who leads, as this server knows; "" when it does not answer."""
        connection = HTTPConnection(HOST, self.ports["http"], timeout=2.0)
        with contextlib.suppress(OSError, HTTPException, ValueError), contextlib.closing(connection):
            connection.request("GET", "/v1/status/leader")
            return str(json.loads(connection.getresponse().read()))
        return ""


def three_servers(**more: object) -> AbstractContextManager[list[Server]]:
    """Three servers that have formed a cluster. more: settings of each."""
    return some_servers(3, {}, **more)


@contextmanager
def some_servers(count: int, server_settings: Mapping[str, object], **more: object) -> Iterator[list[Server]]:
    """Servers that have formed a cluster; one alone has SQLite. server_settings, more: settings of each."""
    names = ("http", "rpc", "serf", "dns", "etcd", "etcd_peer")
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as folder, ExitStack() as stack:
        ports = [_free_ports(*names) for _ in range(count)]
        join = [f"{HOST}:{one['serf']}" for one in ports]
        servers = [Server(Path(folder) / f"s{number}", one) for number, one in enumerate(ports)]
        for server in servers:
            server.folder.mkdir()
            settings = {
                "name": server.folder.name,
                "bind_addr": HOST,
                "log_level": "WARN",
                "dns": {"enabled": False},
                "ports": server.ports,
                "server": {"enabled": True, "bootstrap_expect": count, "retry_join": join, **server_settings},
            }
            (server.folder / "agent.json").write_text(json.dumps(settings | more))
            server.start()
            stack.callback(_end, server)
        _wait(lambda: len({server.leader() for server in servers} - {""}) == 1, FORM_S)
        yield servers


def _end(server: Server) -> None:
    assert server.process is not None
    if server.process.poll() is None:
        os.killpg(server.process.pid, signal.SIGTERM)
        server.process.wait(STOP_S)


def _wait(true: object, within_s: float) -> None:
    assert callable(true)
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {within_s:g} s")
        time.sleep(0.05)


def longest_gap(servers: list[Server]) -> float:
    """Between two acknowledged writes while leaders are killed and come back."""
    times: list[float] = []
    over = threading.Event()
    caller = threading.Thread(target=_write, args=(servers, times, over))
    caller.start()
    try:
        for _ in range(ROUNDS):
            time.sleep(SETTLE_S)
            leader = next(one.leader() for one in servers if one.leader())
            victim = next(one for one in servers if str(one.ports["rpc"]) == leader.rpartition(":")[2])
            victim.kill()
            time.sleep(SETTLE_S)
            victim.start()
            _wait(lambda victim=victim: victim.leader(), HEALED_S)
    finally:
        over.set()
        caller.join()
    return max(after - before for before, after in itertools.pairwise(times))


def _write(servers: list[Server], times: list[float], over: threading.Event) -> None:
    """Register a job that is never dispatched, with another meta each time."""
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    for number, server in zip(itertools.count(), itertools.cycle(servers), strict=False):
        connection = HTTPConnection(HOST, server.ports["http"], timeout=ANSWER_S)
        with contextlib.suppress(OSError, HTTPException), contextlib.closing(connection):
            for turn in itertools.count():
                job = {
                    "ID": "written",
                    "Type": "batch",
                    "ParameterizedJob": {},
                    "Meta": {"n": f"{number}-{turn}"},
                    "TaskGroups": [{"Name": "g", "Tasks": [task]}],
                }
                connection.request("PUT", "/v1/jobs", json.dumps({"Job": job}))
                response = connection.getresponse()
                response.read()
                if over.is_set():
                    return
                if response.status != 200:
                    break
                times.append(time.monotonic())
                time.sleep(0.01)
        time.sleep(0.01)


async def _bare() -> float:
    """Between two commits to etcd while the one that leads is killed and comes back."""
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as folder, etcd_servers(Path(folder), 3) as etcds:
        store = await EtcdStore.open([etcd.endpoint for etcd in etcds], SystemClock(), random=SystemRandom())
        times: list[float] = []
        async with Tasks("bench") as tasks:
            tasks.start("commit", _commit(store, times))
            for _ in range(ROUNDS):
                await asyncio.sleep(SETTLE_S)
                victim = await _leading(store, etcds)
                victim.kill()
                await asyncio.sleep(SETTLE_S)
                victim.start(etcds)
                await asyncio.sleep(SETTLE_S)
        await store.close()
        return max(after - before for before, after in itertools.pairwise(times))


async def _commit(store: EtcdStore, times: list[float]) -> None:
    for number in itertools.count():
        with contextlib.suppress(LepaError):
            await store.commit(Txn((Put("written", str(number).encode()),)))
            times.append(time.monotonic())
        await asyncio.sleep(0.01)


async def _leading(store: EtcdStore, etcds: list[EtcdServer]) -> EtcdServer:
    for etcd in etcds:
        status = await store.connection.once(STATUS, StatusRequest(), endpoint=etcd.endpoint)
        if status.leader == status.header.member_id:
            return etcd
    raise RuntimeError("no etcd leads")
