"""A development agent in a process of its own, for benchmarks."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
LIMITS = {"http_max_conns_per_client": 0, "rpc_max_conns_per_client": 0}
LEPA = Path(sys.executable).with_name("lepa")
START_S, STOP_S = 20.0, 20.0


class Agent:
    """An agent that answers on `port`, and DNS on `dns_port`; `pid` is its process."""

    def __init__(self, port: int, pid: int, dns_port: int = 0) -> None:
        self.port = port
        self.pid = pid
        self.dns_port = dns_port
        self._connection = HTTPConnection(HOST, port, timeout=60)

    def request(self, method: str, path: str, body: Any = None) -> tuple[Any, int]:
        """The decoded answer, and its index (0 where there is none). One connection is used again and again."""
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body))
            response = self._connection.getresponse()
            raw = response.read()
        except OSError:
            self._connection.close()
            raise
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {raw.decode()}")
        return json.loads(raw) if raw else None, int(response.headers.get("X-Nomad-Index", 0))

    def memory_mb(self) -> float:
        """Resident memory of the agent's process now, in MiB."""
        return memory_mb(self.pid)


def memory_mb(pid: int) -> float:
    """Resident memory of a process now, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def development_agent(**settings: Any) -> Iterator[Agent]:
    """An agent that is well and whose node is ready; everything of it is gone afterwards. settings: more of them.

    All callers of a benchmark come from one address, which may hold as many connections as they need.
    """
    with tempfile.TemporaryDirectory(prefix="lepa-bench-") as name:
        folder = Path(name)
        ports = _free_ports("http", "rpc", "serf", "dns")
        config = folder / "agent.json"
        usual = {"bind_addr": HOST, "ports": ports, "log_level": "WARN", "limits": LIMITS}
        config.write_text(json.dumps(usual | settings))
        command = [LEPA, "agent", "-dev", "-config", config, "-data-dir", folder / "data"]
        with (folder / "agent.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            agent = Agent(ports["http"], process.pid, ports["dns"])
            _wait_until_ready(agent, process, folder / "agent.log")
            yield agent
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)


def _free_ports(*names: str) -> dict[str, int]:
    with ExitStack() as stack:
        probes = {name: stack.enter_context(socket.socket()) for name in names}
        for probe in probes.values():
            probe.bind((HOST, 0))
        return {name: probe.getsockname()[1] for name, probe in probes.items()}


def _wait_until_ready(agent: Agent, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError, RuntimeError):
            nodes, _ = agent.request("GET", "/v1/nodes")
            if any(node["Status"] == "ready" for node in nodes):
                return
        time.sleep(0.05)
    raise RuntimeError(f"the agent was not ready within {START_S:g} s:\n{log.read_text()}")
