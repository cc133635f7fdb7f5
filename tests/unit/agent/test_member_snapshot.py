"""Who the members were."""

from pathlib import Path

from lepa.agent.member_snapshot import read_snapshot, write_snapshot
from lepa.gossip.serf_members import Member, Status


def member(name: str, status: Status = "alive", addr: bytes = bytes([10, 0, 0, 1])) -> Member:
    return Member(name, addr, 4648, {}, status, bytes(6), 0.0)


def test_those_who_may_come_back_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "serf" / "snapshot"
    six = bytes(15) + b"\x01"
    members = [member("a.eu"), member("b.eu", "left"), member("c.eu", "failed"), member("d d.eu", addr=six)]
    write_snapshot(path, members, left=False)
    wanted = ["a.eu/10.0.0.1:4648", "c.eu/10.0.0.1:4648", "d d.eu/[::1]:4648"]
    assert read_snapshot(path, after_leave=False) == wanted
    write_snapshot(path, members, left=True)
    assert read_snapshot(path, after_leave=False) == []
    assert read_snapshot(path, after_leave=True) == wanted


def test_a_file_of_serf_is_read_and_nonsense_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    assert read_snapshot(path, after_leave=False) == []
    path.write_bytes(
        b"alive: foo 127.0.0.1:5000\nclock: 7\n# comment\nalive: bar 127.0.0.1:5001\nnot-alive: foo\n"
        b"coordinate: {}\nalive:\nalive: x\n\xff\xfe\n"
    )
    assert read_snapshot(path, after_leave=False) == ["bar/127.0.0.1:5001"]
