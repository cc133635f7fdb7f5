"""Real receivers of output: rsyslog, and the Fluentd project's receiver of its forward protocol.

Fluentd itself and Fluent Bit are in no registry that test machines reach; the receiver of the same project's library
for Node.js speaks the same protocol: all modes, event times, acknowledgements.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import components
from tests.e2e.agents import eventually
from tests.integration.peers import install_npm

RSYSLOG = """
module(load="imudp")
module(load="imtcp")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{socket}" UseSpecialParser="off" ParseHostname="on")
input(type="imudp" port="{udp}" address="127.0.0.1")
input(type="imtcp" port="{tcp}" address="127.0.0.1")
template(name="all" type="string"
  string="%pri%|%hostname%|%app-name%|%procid%|%msgid%|%structured-data%|%msg%\\n")
action(type="omfile" file="{out}" template="all" flushOnTXEnd="on")
"""


class Rsyslog:
    """A running rsyslogd. ports: UDP and TCP."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "received"
        self.socket = f"/tmp/lepa-test-syslog-{os.getpid()}.sock"
        self.ports = components.free_ports(2)
        udp, tcp = self.ports
        config = folder / "rsyslog.conf"
        config.write_text(RSYSLOG.format(socket=self.socket, udp=udp, tcp=tcp, out=self.out))
        command = [components.require("rsyslogd", "rsyslog"), "-n", "-f", str(config), "-i", str(folder / "pid")]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def lines(self) -> list[list[str]]:
        """What came so far: priority, host, application, process, message id, structured data, text."""
        text = self.out.read_text() if self.out.exists() else ""
        return [line.split("|") for line in text.splitlines() if not line.split("|")[2].startswith("rsyslogd")]


@contextmanager
def rsyslog(folder: Path) -> Iterator[Rsyslog]:
    """A receiver of syslog, once it is ready."""
    found = Rsyslog(folder)
    try:
        eventually(lambda: Path(found.socket).exists() and components.listens(found.ports[1]))
        yield found
    finally:
        found.process.send_signal(signal.SIGTERM)
        found.process.wait(20)
        Path(found.socket).unlink(missing_ok=True)


class Fluentd:
    """A receiver of the forward protocol. address: `host:port`."""

    def __init__(self, port: int, out: Path) -> None:
        self.address = f"127.0.0.1:{port}"
        self._out = out

    def entries(self) -> list[tuple[str, dict[str, Any]]]:
        """Tags and records of what came so far."""
        whole, _, _ = self._out.read_text().rpartition("\n")
        found = [json.loads(line) for line in whole.splitlines()]
        return [(entry["tag"], entry["record"]) for entry in found if "tag" in entry]


@contextmanager
def fluentd(folder: Path, port: int = 0) -> Iterator[Fluentd]:
    """A receiver, once it is ready."""
    components.require("npm", "npm")
    place = install_npm("fluentd", folder)
    port = port or components.free_ports(1)[0]
    out = folder / "fluentd-entries"
    with out.open("ab") as file:
        process = subprocess.Popen(["node", "receiver.js", str(port)], cwd=place, stdout=file)
    try:
        eventually(lambda: components.listens(port))
        yield Fluentd(port, out)
    finally:
        process.terminate()
        process.wait(20)
