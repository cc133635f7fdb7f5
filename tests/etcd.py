"""Real etcd servers on loopback, alone or as a cluster: started, stopped, continued and killed by the test."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.components import require

READY_WITHIN_S = 30.0


class EtcdServer:
    """One etcd. `start` may be called again after `kill`: it keeps its data."""

    def __init__(self, name: str, folder: Path, client_port: int, peer_port: int, flags: Sequence[str] = ()) -> None:
        self.name = name
        self.folder = folder
        self.client_port = client_port
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.flags = tuple(flags)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def start(self, cluster: Sequence["EtcdServer"]) -> None:
        """Start it as a member of `cluster`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        scheme = "https" if "--cert-file" in self.flags else "http"
        client = f"{scheme}://{self.endpoint}"
        options = {
            "--name": self.name,
            "--data-dir": self.folder / "data",
            "--listen-peer-urls": self.peer_url,
            "--initial-advertise-peer-urls": self.peer_url,
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--initial-cluster": ",".join(f"{one.name}={one.peer_url}" for one in cluster),
            "--initial-cluster-state": "new",
        }
        words = [require("etcd", "etcd-server"), *(str(word) for pair in options.items() for word in pair)]
        words += self.flags
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def answers(self) -> bool:
        """Whether it takes connections."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.client_port), 0.2):
            return True
        return False

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stall(self) -> None:
        """Stop it where it is: connections stay, answers do not come."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """The end of `stall`."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would, and wait until it is gone."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def etcd_servers(folder: Path, count: int = 1, flags: Sequence[str] = ()) -> Iterator[list[EtcdServer]]:
    """A cluster that takes connections; ended with its processes."""
    ports = _free_ports(2 * count)
    servers = [EtcdServer(f"e{at}", folder / f"e{at}", ports[2 * at], ports[2 * at + 1], flags) for at in range(count)]
    try:
        for server in servers:
            server.start(servers)
        deadline = time.monotonic() + READY_WITHIN_S
        while not all(server.answers() for server in servers):
            assert time.monotonic() < deadline, (servers[0].folder / "log").read_text()[-2000:]
            time.sleep(0.02)
        yield servers
    finally:
        for server in servers:
            server.kill()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
