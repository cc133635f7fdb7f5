"""The test bed itself: machines that reach each other and nobody else, faults in one direction, and nothing left."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import machines
from tests.cluster.bed import NETWORK, Bed, ClusterAgent

SEND = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'here', ('{}', 9))"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with Bed(tmp_path / "bed") as made:
        yield made


def agents(bed: Bed) -> tuple[ClusterAgent, ClusterAgent]:
    """Two machines whose agents are not started."""
    return bed.agent("one", {}, start=False), bed.agent("two", {}, start=False)


def arrives(source: ClusterAgent, target: ClusterAgent) -> bool:
    """Whether a datagram that is sent on one machine arrives at the other."""
    with target.machine.standing_here(), socket.socket(type=socket.SOCK_DGRAM) as listener:
        listener.settimeout(0.5)
        listener.bind((target.host, 9))
        source.machine.attempt("python3", "-c", SEND.format(target.host))
        try:
            return listener.recv(16) == b"here"
        except TimeoutError:
            return False


def test_machines_have_names_addresses_and_processes_of_their_own(bed: Bed) -> None:
    one, two = agents(bed)
    assert one.machine.run("hostname") == "one\n"
    assert one.host.startswith(f"{NETWORK}.")
    assert one.host != two.host
    listed = one.machine.run("ps", "-eo", "pid,comm").split()
    assert listed[2:4] == ["1", "sleep"]
    assert one.machine.run("cat", "/etc/resolv.conf") == "nameserver 127.0.0.1\n"
    assert arrives(one, two)
    outside = one.machine.attempt("python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80), 5)")
    assert "unreachable" in outside.stderr


def test_packets_are_lost_in_one_direction_in_both_or_with_the_cable(bed: Bed) -> None:
    one, two = agents(bed)
    bed.cut(one, two)
    assert not arrives(one, two)
    assert arrives(two, one)
    bed.isolate(two)
    assert not arrives(two, one)
    bed.heal()
    assert arrives(one, two)
    assert arrives(two, one)
    bed.unplug(one)
    assert not arrives(one, two)
    bed.plug(one)
    assert arrives(one, two)


def test_nothing_is_left_of_a_bed_whose_test_fails(tmp_path: Path) -> None:
    before = (subprocess.check_output(["ip", "link"]), os.readlink("/proc/thread-self/ns/net"))
    with contextlib.suppress(ZeroDivisionError), Bed(tmp_path / "bed") as bed:
        one, two = agents(bed)
        left = subprocess.Popen(one.machine.command("sleep", "300"))
        bed.cut(one, two)
        raise ZeroDivisionError
    assert left.wait(10) != 0
    assert (subprocess.check_output(["ip", "link"]), os.readlink("/proc/thread-self/ns/net")) == before
    assert not any(str(tmp_path) in line for line in Path("/proc/self/mounts").read_text().splitlines())
    assert not any(os.path.exists(f"/proc/{machine.pid}") for machine in bed.machines.values())


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines.os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="run it as root"):
        machines.check_host()
    monkeypatch.setattr(machines.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machines.shutil, "which", lambda tool: None if tool == "ip" else tool)
    with pytest.raises(RuntimeError, match="apt-get install iproute2"):
        machines.check_host()
