"""How many SRV questions a second are answered, and how soon?

The load comes from `dnsperf` in another process (one client socket, 100 questions outstanding); the name has three
instances, so an answer holds three SRV and three A records. unbound and dnsmasq answer the same records from their own
configuration in the same run, in turns. Needs dnsperf, unbound and dnsmasq (Debian: `dnsperf unbound
dnsmasq-base`); where one of the latter is missing, its figure has nothing beside it.

Expected on two cores: `dns.srv` 50,000 or more (40,000 at the least), no less than 0.8 x unbound, several times
dnsmasq; `dns.srv_p99_ms` below 5 at 20,000 a second; `dns.srv_busy`, while another thread of the same interpreter
computes without a pause, 10,000 or more (a loop of `recvfrom` and `sendto` reaches 200); `dns.srv_1000_ms`, from the
publishing of a changed set of 1,000 instances until a client has read the whole answer over TCP, below 10. Measured
beside other work at a load of 2: 65,600 (unbound 68,400, dnsmasq 62,000), p99 0.75 ms, busy 26,400, 1,000 instances
in 4.5 ms.
"""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.harness import Figure
from lepa.catalog.table import Instance, ServiceTable
from lepa.dns.message import wire_name
from lepa.dns.server import DnsServer
from lepa.dns.settings import DnsSettings
from lepa.kit.sources import SystemClock

NAME = "web.service.consul"
RUN_S = 2
RUNS = 3
PACED_RATE = 20_000
LARGE_SET = 1_000
CHANGES = 30
ROOT = Path(__file__).resolve().parent.parent


def run() -> list[Figure]:
    """Every figure about DNS."""
    with ExitStack() as servers:
        folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
        port = servers.enter_context(_lepa())
        unbound_port = servers.enter_context(_started(_unbound(folder)))
        dnsmasq_port = servers.enter_context(_started(_dnsmasq()))
        ours, unbound, dnsmasq = _srv_rates(port, unbound_port, dnsmasq_port)
        latency_ms = _paced_p99_ms(port)
    with _lepa("--busy") as port:
        (busy,) = _srv_rates(port)
    assert ours is not None
    assert busy is not None
    return [
        Figure("dns.srv", ours, "queries/s", unbound, "unbound"),
        Figure("dns.srv_vs_unbound", ours, "queries/s", unbound, "unbound"),
        Figure("dns.srv_vs_dnsmasq", ours, "queries/s", dnsmasq, "dnsmasq"),
        Figure("dns.srv_busy", busy, "queries/s", ours, "the same with an idle interpreter"),
        Figure("dns.srv_p99_ms", latency_ms, "ms"),
        Figure("dns.srv_1000_ms", _large_set_ms(), "ms"),
    ]


def serve(busy: bool) -> None:
    """Answer until standard input ends; the port is the first line of output."""
    server = DnsServer("127.0.0.1", 0, DnsSettings(), SystemClock())
    server.start()
    server.publish(ServiceTable.build([_instance(number) for number in range(3)], [], 1))
    print(server.port, flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while busy and not ended.is_set():
        sum(range(1_000))
    ended.wait()
    server.stop()


def _instance(number: int) -> Instance:
    address = f"10.0.{number >> 8}.{number & 255}"
    return Instance(id=str(number), service="web", datacenter="dc1", address=address, port=20_000 + number)


@contextmanager
def _lepa(*arguments: str) -> Iterator[int]:
    code = f"from benchmarks.dns import serve; serve({bool(arguments)})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


@contextmanager
def _started(command: list[str] | None) -> Iterator[int | None]:
    """The port of a server started by `command`, whose last argument it is; None when the program is missing."""
    if command is None:
        yield None
        return
    *command, port = command
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _await_answer(int(port))
            yield int(port)
        finally:
            process.terminate()


def _unbound(folder: Path) -> list[str] | None:
    program = _program("unbound")
    port = _free_port()
    records = "".join(f"  local-data: '{record}'\n" for record in _zone())
    configuration = folder / "unbound.conf"
    configuration.write_text(
        f'server:\n  interface: 127.0.0.1@{port}\n  do-daemonize: no\n  username: ""\n  chroot: ""\n'
        f'  directory: "{folder}"\n  pidfile: ""\n  use-syslog: no\n  num-threads: 1\n  module-config: "iterator"\n'
        f"  local-zone: 'consul.' static\n{records}"
    )
    return [program, "-d", "-c", str(configuration), str(port)] if program else None


def _zone() -> Iterator[str]:
    for row in map(_instance, range(3)):
        target = f"0a0000{int(row.id):02x}.addr.dc1.consul."
        yield f"{NAME}. 0 IN SRV 1 1 {row.port} {target}"
        yield f"{target} 0 IN A {row.address}"


def _dnsmasq() -> list[str] | None:
    program = _program("dnsmasq")
    port = _free_port()
    options = [f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts"]
    for row in map(_instance, range(3)):
        target = f"0a0000{int(row.id):02x}.addr.dc1.consul"
        options += [f"--srv-host={NAME},{target},{row.port},1,1", f"--host-record={target},{row.address}"]
    return [program, "--no-daemon", "--conf-file=/dev/null", *options, str(port)] if program else None


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _question(over_tcp: bool = False) -> bytes:
    message = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + wire_name(NAME) + b"\0\x21\0\x01"
    return len(message).to_bytes(2, "big") + message if over_tcp else message


def _await_answer(port: int) -> None:
    deadline = time.monotonic() + 10
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.1)
        while time.monotonic() < deadline:
            try:
                client.sendto(_question(), ("127.0.0.1", port))
                client.recv(4_096)
                return
            except OSError:
                time.sleep(0.05)
    raise RuntimeError(f"nothing answered on port {port} within 10 s")


def _srv_rates(*ports: int | None) -> list[float | None]:
    """The median rate of each server. They take turns, so that other load on the machine meets all of them."""
    rounds = [[None if port is None else _dnsperf(port) for port in ports] for _ in range(RUNS)]
    return [None if None in rates else median(rates) for rates in zip(*rounds, strict=True)]


def _dnsperf(port: int, *options: str) -> float:
    """Answers a second; every one must be NOERROR."""
    program = _program("dnsperf")
    if program is None:
        raise RuntimeError("dnsperf is missing: apt-get install -y --no-install-recommends dnsperf")
    with tempfile.NamedTemporaryFile("w", suffix=".questions") as questions:
        questions.write(f"{NAME} SRV\n")
        questions.flush()
        command = [program, "-s", "127.0.0.1", "-p", str(port), "-d", questions.name, "-l", str(RUN_S), "-c", "1"]
        output = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    codes = re.search(r"Response codes:\s+NOERROR \d+ \(100\.00%\)", output)
    rate = re.search(r"Queries per second:\s+([\d.]+)", output)
    if codes is None or rate is None:
        raise RuntimeError(f"dnsperf did not get right answers only:\n{output}")
    return float(rate[1])


def _paced_p99_ms(port: int) -> float:
    """How long one more client waits for an answer while others ask 20,000 a second."""
    others = threading.Thread(target=_dnsperf, args=(port, "-Q", str(PACED_RATE)))
    others.start()
    waits = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.settimeout(5)
        while others.is_alive():
            start = time.perf_counter()
            client.send(_question())
            client.recv(4_096)
            waits.append(time.perf_counter() - start)
    others.join()
    return quantiles(waits, n=100)[98] * 1_000


def _large_set_ms() -> float:
    """From publishing a large set in which one instance has moved to the end of the whole answer."""
    server = DnsServer("127.0.0.1", 0, DnsSettings(), SystemClock())
    server.start()
    table = ServiceTable.build(map(_instance, range(LARGE_SET)), [], 1)
    waits = []
    try:
        for change in range(CHANGES):
            rows = [_instance(number) for number in range(change, change + LARGE_SET)]
            table = table.with_service("default", "web", rows, change + 2)
            start = time.perf_counter()
            server.publish(table)
            with socket.create_connection(("127.0.0.1", server.port)) as client, client.makefile("rb") as reader:
                client.sendall(_question(over_tcp=True))
                answer = reader.read(int.from_bytes(reader.read(2), "big"))
            waits.append(time.perf_counter() - start)
            assert int.from_bytes(answer[6:8], "big") == LARGE_SET
    finally:
        server.stop()
    return median(waits) * 1_000


if __name__ == "__main__":
    for figure in run():
        print(figure.line())
