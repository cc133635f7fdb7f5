"""How fast is the ingress beside HAProxy doing the same, and what do many routes cost in memory and for a new table?

HAProxy runs with one thread (`nbthread 1`), since the ingress has one. Both stand in front of the same servers: an
HAProxy that answers 200 by itself for HTTP and connections, `iperf3` for bulk. The load comes from `wrk` and `iperf3`.
The two take turns, so that other load on the machine meets both. Needs haproxy, wrk and iperf3 (Debian packages of
these names).

Expected on two cores: `ingress.http_vs_haproxy` 0.9 or more; `ingress.tcp_bulk_vs_haproxy` 1.2 or more at
`ingress.tcp_bulk_cpu_vs_haproxy` 0.5 or less (CPU seconds a gigabyte); `ingress.tcp_conn_vs_haproxy` 0.7 or more;
`ingress.routes_50000_mb`, the resident memory of a whole process that holds a table of 50,000 routes, 250 at most;
`ingress.swap_50000_ms`, the time the loop stops for a new table, 5 at most. Measured alone, twice, with
`script/bench --only 'ingress*'`: HTTP 0.79 and 0.76, which miss; bulk 1.48 at 0.32, and 1.12 at 0.47, which misses;
connections 0.71 and 0.72; 206 MB; 3.9 and 5.1 ms. Beside other work, at a load of 3 and of 2 that rose to 6: HTTP 0.82
and 0.89; bulk 1.57 and 1.11; connections 0.71 and 0.67; 3 and 8 ms. More runnable programs than cores make these ratios
swing.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from threading import Event

from benchmarks.harness import Figure
from lepa.catalog.table import Instance, ServiceTable
from lepa.ingress.__main__ import tune_interpreter
from lepa.ingress.plane import Plane
from lepa.ingress.routes import RouteTable, Rules
from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import SystemClock

HOST = "127.0.0.1"
RUN_S = 1
RUNS = 9
"""Many short turns: other load on the machine comes and goes by the second."""
CONNECTIONS = 64
ROUTES = 50_000
ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


def run() -> list[Figure]:
    """Every figure about the ingress."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        web, iperf = _free_ports(2)
        running.enter_context(_started(_haproxy(folder, "web", _web_config(web)), web))
        running.enter_context(_started([_program("iperf3"), "-s", "-p", str(iperf), "-B", HOST], iperf))
        ours, theirs = _free_ports(3), _free_ports(3)
        our_pid = running.enter_context(_lepa(ours, web, iperf))
        config = _proxy_config(theirs, web, iperf)
        their_pid = running.enter_context(_started(_haproxy(folder, "proxy", config), theirs[0]))
        http = _in_turns(partial(_wrk, ours[0]), partial(_wrk, theirs[0]))
        connections = _in_turns(
            partial(_wrk, ours[1], "-H", "Connection: close"), partial(_wrk, theirs[1], "-H", "Connection: close")
        )
        bulk = _in_turns(partial(_iperf, ours[2], our_pid), partial(_iperf, theirs[2], their_pid))
    rates = [median(gbit for gbit, _ in side) for side in bulk]
    costs = [median(cpu for _, cpu in side) for side in bulk]
    memory_mb, swap_ms = _many_routes()
    return [
        Figure("ingress.http_vs_haproxy", median(http[0]), "requests/s", median(http[1]), "HAProxy, 1 thread"),
        Figure("ingress.tcp_bulk_vs_haproxy", rates[0], "Gbit/s", rates[1], "HAProxy, 1 thread"),
        Figure("ingress.tcp_bulk_cpu_vs_haproxy", costs[0], "s/GB", costs[1], "HAProxy, 1 thread"),
        Figure("ingress.tcp_conn_vs_haproxy", median(connections[0]), "conn/s", median(connections[1]), "HAProxy"),
        Figure("ingress.routes_50000_mb", memory_mb, "MB"),
        Figure("ingress.swap_50000_ms", swap_ms, "ms"),
    ]


def serve(ports: list[int], web: int, iperf: int) -> None:
    """Carry traffic until standard input ends; says so on standard output when it has begun."""
    tune_interpreter()
    settings = IngressSettings(address=HOST, http=ports[0], ui=0)
    plane = Plane(settings, SystemClock())
    plane.start()
    rows = [
        Instance(
            id="web", service="web", address=HOST, port=web, tags=("urlprefix-/", f"urlprefix-:{ports[1]} proto=tcp")
        ),
        Instance(id="bulk", service="bulk", address=HOST, port=iperf, tags=(f"urlprefix-:{ports[2]} proto=tcp",)),
    ]
    plane.publish(RouteTable.build(ServiceTable.build(rows, [], 1), settings.rules()))
    _await_port(ports[2])
    print("begun", flush=True)
    sys.stdin.read()
    plane.stop()


def hold_routes() -> None:
    """Build a table of ROUTES routes, serve it, swap it; prints resident megabytes and the longest stop of the loop."""
    tune_interpreter()
    clock = SystemClock()
    plane = Plane(IngressSettings(address=HOST, http=_free_ports(1)[0], ui=0), clock)
    plane.start()
    services = ServiceTable.build(map(_tagged, range(ROUTES)), [], 1)
    table = RouteTable.build(services, Rules())
    stops = []
    for change in range(3):
        services = services.with_service("default", "service-0", [_tagged(0, f"10.9.9.{change}")], change + 2)
        table = RouteTable.build(services, Rules(), table)
        begun = Event()
        plane.loop.call(begun.set)
        begun.wait()
        swapped, start = Event(), time.perf_counter()
        plane.publish(table)
        plane.loop.call(swapped.set)
        swapped.wait()
        stops.append(time.perf_counter() - start)
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    plane.stop()
    print(json.dumps([int(found[1]) / 1024, max(stops) * 1_000]))


def _tagged(number: int, address: str = "10.0.0.1") -> Instance:
    tag = f"urlprefix-host-{number}.example.com/path strip=/path"
    return Instance(id=f"_task-{number:08}", service=f"service-{number}", address=address, port=20_000, tags=(tag,))


def _many_routes() -> tuple[float, float]:
    code = "from benchmarks.ingress import hold_routes; hold_routes()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    memory_mb, swap_ms = json.loads(done.stdout)
    return memory_mb, swap_ms


def _in_turns(*measures: Callable[[], float]) -> list[list[float]]:
    """The results of each, taken in turns."""
    rounds = [[measure() for measure in measures] for _ in range(RUNS)]
    return [list(results) for results in zip(*rounds, strict=True)]


def _wrk(port: int, *options: str) -> float:
    """Requests a second; every one must succeed."""
    url = f"http://{HOST}:{port}/"
    command = [_program("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{RUN_S}s", *options, url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if rate is None or "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(f"wrk did not get right answers only:\n{output}")
    return float(rate[1])


def _iperf(port: int, pid: int) -> tuple[float, float]:
    """Gbit/s over one connection, and the proxy's CPU seconds for a gigabyte."""
    before = _cpu_s(pid)
    command = [_program("iperf3"), "-c", HOST, "-p", str(port), "-t", str(RUN_S), "-J"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    received = report["end"]["sum_received"]
    return received["bits_per_second"] / 1e9, (_cpu_s(pid) - before) / (received["bytes"] / 1e9)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def _lepa(ports: list[int], web: int, iperf: int) -> Iterator[int]:
    code = f"from benchmarks.ingress import serve; serve({ports}, {web}, {iperf})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


@contextmanager
def _started(command: list[str], port: int) -> Iterator[int]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _await_port(port)
            yield process.pid
        finally:
            process.terminate()


def _haproxy(folder: Path, name: str, sections: str) -> list[str]:
    path = folder / f"{name}.cfg"
    path.write_text(
        "global\n  nbthread 1\n  maxconn 4000\n"
        "defaults\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n" + sections
    )
    return [_program("haproxy"), "-db", "-f", str(path)]


def _web_config(port: int) -> str:
    answer = 'http-request return status 200 content-type text/plain string "hello from an instance of web"'
    return f"frontend web\n  mode http\n  bind {HOST}:{port}\n  {answer}\n"


def _proxy_config(ports: list[int], web: int, iperf: int) -> str:
    return (
        f"frontend http\n  mode http\n  option forwardfor\n  bind {HOST}:{ports[0]}\n  default_backend http\n"
        f"backend http\n  mode http\n  http-reuse always\n  balance roundrobin\n  server a {HOST}:{web}\n"
        f"listen tcp\n  mode tcp\n  bind {HOST}:{ports[1]}\n  server a {HOST}:{web}\n"
        f"listen bulk\n  mode tcp\n  bind {HOST}:{ports[2]}\n  server a {HOST}:{iperf}\n"
    )


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise RuntimeError(f"{name} is missing: apt-get install -y --no-install-recommends {name}")
    return found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as open_sockets:
        probes = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"nothing listens on port {port} within 10 s")
