"""What `dig` sees: the answers of a running server over UDP and TCP, read by another implementation.

Needs `dig` (Debian: `apt-get install bind9-dnsutils`).
"""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import components

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.dns.server import DnsServer
from lepa.dns.settings import DnsSettings
from lepa.kit.sources import SystemClock

pytestmark = pytest.mark.dig

TABLE = ServiceTable.build(
    [
        Instance(id="1", service="web", datacenter="dc1", address="10.0.0.1", port=8001, tags=("primary",)),
        Instance(id="2", service="web", datacenter="dc1", address="10.0.0.2", port=8002),
        Instance(id="3", service="web", datacenter="dc1", address="10.0.0.3", port=8003, healthy=False),
        *(
            Instance(id=f"big-{n}", service="big", datacenter="dc1", address=f"10.1.{n >> 8}.{n & 255}", port=9_000)
            for n in range(1_000)
        ),
    ],
    [Node(name="n1", address="10.9.0.1", datacenter="dc1", meta=(("rack", "r1"),))],
    7,
)


@pytest.fixture(scope="module")
def server() -> Iterator[DnsServer]:
    running = DnsServer("127.0.0.1", 0, DnsSettings(name_server="127.0.0.1"), SystemClock())
    running.start()
    running.publish(TABLE)
    yield running
    running.stop()


def program(name: str, package: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        pytest.fail(f"{name} is missing: apt-get install -y --no-install-recommends {package}")
    return path


def dig(port: int, *arguments: str) -> str:
    command = [program("dig", "bind9-dnsutils"), "@127.0.0.1", "-p", str(port), "+tries=1", "+time=5", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout


def short(port: int, *arguments: str) -> list[str]:
    return sorted(dig(port, "+short", *arguments).splitlines())


@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
@pytest.mark.parametrize("domain", ["consul", "lepa"])
def test_dig_finds_the_healthy_instances(server: DnsServer, domain: str, transport: str) -> None:
    assert short(server.port, transport, f"web.service.{domain}", "A") == ["10.0.0.1", "10.0.0.2"]
    assert short(server.port, transport, f"web.service.{domain}", "SRV") == [
        f"1 1 8001 0a000001.addr.dc1.{domain}.",
        f"1 1 8002 0a000002.addr.dc1.{domain}.",
    ]
    assert short(server.port, transport, f"_web._primary.{domain}", "SRV") == [f"1 1 8001 0a000001.addr.dc1.{domain}."]


def test_dig_has_nothing_to_complain_about(server: DnsServer) -> None:
    for question in (("web.service.consul", "SRV"), ("consul", "NS"), ("n1.node.consul", "ANY"), ("-x", "10.9.0.1")):
        text = dig(server.port, "+norecurse", *question)
        assert "status: NOERROR" in text
        assert "flags: qr aa" in text
        assert "WARNING" not in text
        assert "malformed" not in text
        assert "ANSWER: 0" not in text


@pytest.mark.parametrize(
    ("name", "rtype", "status"), [("web.service.consul", "AAAA", "NOERROR"), ("none.service.consul", "A", "NXDOMAIN")]
)
def test_negative_answers_have_the_soa(server: DnsServer, name: str, rtype: str, status: str) -> None:
    text = dig(server.port, name, rtype)
    assert f"status: {status}" in text
    assert "ns.consul. hostmaster.consul. 7 3600 600 86400 0" in text


def test_another_domain_is_refused(server: DnsServer) -> None:
    assert "status: REFUSED" in dig(server.port, "example.com", "A")


def test_a_thousand_instances_arrive_over_tcp_after_truncation(server: DnsServer) -> None:
    assert len(short(server.port, "big.service.consul", "SRV")) == 1_000
    cut = dig(server.port, "+ignore", "+noedns", "big.service.consul", "SRV")
    assert "flags: qr aa tc rd" in cut
    assert int(cut.split("MSG SIZE  rcvd: ")[1].split()[0]) <= 512


def test_cookies_subnets_and_unknown_options_are_tolerated(server: DnsServer) -> None:
    for option in ("+cookie", "+subnet=10.1.0.0/16", "+ednsopt=65001:abcd", "+dnssec", "+nsid", "+ednsflags=0x4000"):
        assert short(server.port, option, "web.service.consul", "A") == ["10.0.0.1", "10.0.0.2"]


async def test_dig_is_answered_while_the_event_loop_is_busy(server: DnsServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(short, server.port, "web.service.consul", "A")
        while not asking.done():
            sum(range(200_000))
    assert asking.result() == ["10.0.0.1", "10.0.0.2"]


def free_port() -> int:
    """A port that is free for UDP and for TCP."""
    for _ in range(100):
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            udp.bind(("127.0.0.1", 0))
            port = int(udp.getsockname()[1])
            with contextlib.suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                return port
    pytest.fail("no port of loopback is free for UDP and TCP")


def until_answered(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        if short(port, "+time=1", "web.service.consul", "A") == ["10.0.0.1", "10.0.0.2"]:
            return
    pytest.fail("the forwarder did not answer within 20 s")


def dnsmasq_command(port: int, upstream: int, folder: Path) -> list[str]:
    return [
        program("dnsmasq", "dnsmasq-base"),
        "--no-daemon",
        f"--port={port}",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        f"--server=/consul/127.0.0.1#{upstream}",
        f"--rev-server=10.0.0.0/8,127.0.0.1#{upstream}",
    ]


def unbound_command(port: int, upstream: int, folder: Path) -> list[str]:
    path = folder / "unbound.conf"
    path.write_text(f"""
server:
  interface: 127.0.0.1@{port}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  do-not-query-localhost: no
  domain-insecure: "consul"
  local-zone: "10.in-addr.arpa." nodefault
forward-zone:
  name: "consul."
  forward-addr: 127.0.0.1@{upstream}
forward-zone:
  name: "10.in-addr.arpa."
  forward-addr: 127.0.0.1@{upstream}
""")
    return [program("unbound", "unbound"), "-d", "-c", str(path)]


@pytest.mark.parametrize("command", [dnsmasq_command, unbound_command])
def test_names_are_found_through_a_forwarder_of_the_host(
    server: DnsServer, tmp_path: Path, command: Callable[[int, int, Path], list[str]]
) -> None:
    port = free_port()
    output = (tmp_path / "output").open("wb")
    with output, subprocess.Popen(command(port, server.port, tmp_path), stdout=output, stderr=output) as process:
        try:
            until_answered(port, process)
            assert len(short(port, "+tcp", "web.service.consul", "SRV")) == 2
            assert len(short(port, "big.service.consul", "SRV")) == 1_000
            assert "status: NXDOMAIN" in dig(port, "none.service.consul", "A")
            assert "status: NOERROR" in dig(port, "web.service.consul", "AAAA")
            assert short(port, "-x", "10.9.0.1") == ["n1.node.dc1.consul."]
        finally:
            process.terminate()


def test_a_host_name_is_followed_through_a_real_recursor(tmp_path: Path) -> None:
    port = free_port()
    command = [
        *(program("dnsmasq", "dnsmasq-base"), "--no-daemon", f"--port={port}", "--listen-address=127.0.0.1"),
        *("--bind-interfaces", "--no-resolv", "--no-hosts", "--conf-file=/dev/null"),
        *("--cname=db.example.org,host7.example.org", "--host-record=host7.example.org,10.7.7.7,30"),
    ]
    row = Instance(id="1", service="db", datacenter="dc1", address="db.example.org", port=5432)
    settings = DnsSettings(recursors=(f"127.0.0.1:{port}",))
    with (tmp_path / "output").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        server = DnsServer("127.0.0.1", 0, settings, SystemClock())
        server.start()
        try:
            server.publish(ServiceTable.build([row], [], 1))
            deadline = time.monotonic() + 20
            while not dig(port, "+short", "host7.example.org") and time.monotonic() < deadline:
                time.sleep(0.05)
            expected = ["db.example.org.", "host7.example.org.", "10.7.7.7"]
            for transport in ("+notcp", "+tcp"):
                assert dig(server.port, "+short", transport, "db.service.consul").split() == expected
                assert dig(server.port, "+short", transport, "db.service.consul", "AAAA").split() == expected[:1]
        finally:
            server.stop()
            process.terminate()


def test_programs_of_the_host_find_names_by_its_libc(server: DnsServer, tmp_path: Path) -> None:
    """The whole way: getent, glibc with a search list, dnsmasq on port 53 of an address of loopback, our server."""
    components.require_root()
    address, output = "127.0.0.153", (tmp_path / "output").open("wb")
    command = dnsmasq_command(53, server.port, tmp_path)
    resolver = [argument.replace("--listen-address=127.0.0.1", f"--listen-address={address}") for argument in command]
    (tmp_path / "resolv.conf").write_text(
        f"nameserver {address}\nsearch service.consul\noptions ndots:5 timeout:2 attempts:1\n"
    )

    def getent(name: str) -> list[str]:
        command = f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && exec getent ahostsv4 {name}"
        done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, check=False)
        return sorted({line.split()[0] for line in done.stdout.splitlines()})

    with output, subprocess.Popen(resolver, stdout=output, stderr=output) as process:
        try:
            deadline = time.monotonic() + 20
            while (found := getent("web.service.consul")) == [] and time.monotonic() < deadline:
                assert process.poll() is None, (tmp_path / "output").read_text()
            assert found == getent("web") == ["10.0.0.1", "10.0.0.2"]
            assert getent("none.service.consul") == []
        finally:
            process.terminate()
