import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests import components

from lepa.drivers.supervisor import cgroups
from lepa.drivers.supervisor.messages import Command, Identity
from lepa.drivers.supervisor.processes import Home, born, family, spawn

SHOW = "cat /proc/self/cgroup; pwd; umask; ulimit -Sn; grep SigCgt /proc/self/status; ps -o sid= -p $$"


def test_a_process_is_known_by_pid_and_time_of_birth() -> None:
    assert born(os.getpid()) > 0
    assert born(os.getpid()) == born(os.getpid())
    assert born(2**22 + 1) == 0


def test_no_leader_and_an_unknown_mark_match_nobody() -> None:
    assert family(0, "no-such-task") == set()


def test_a_session_is_a_family() -> None:
    # A session of its own: inside a pid namespace that of the tests may have no number.
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as leader:
        try:
            assert family(leader.pid, "no-such-task") == {leader.pid}
        finally:
            leader.kill()


def said(command: Command, cgroups: tuple[str, ...] = (), home: Home | None = None) -> tuple[int, list[str]]:
    """Whether a fork was needed (its status descriptor), and what the command wrote."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    reader, writer = os.pipe()
    child = spawn(command, (null, writer, null), cgroups, home or Home("", ""))
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    os.waitpid(child.pid, 0)
    if child.status_fd >= 0:
        text += os.read(child.status_fd, 4096).decode()
        os.close(child.status_fd)
    os.close(null)
    return child.status_fd, text.splitlines()


def test_a_plain_command_starts_without_a_fork_and_is_where_a_forked_one_would_be(tmp_path: Path) -> None:
    """In its cgroup, directory, session; we are back where we were."""
    components.require_root()
    root = cgroups.tracking_root()
    home, place = Home(root, cgroups.home(root)), f"{root}/test-{os.getpid()}"
    assert home.can_leave_for((place,))
    assert not home.can_leave_for(("/sys/fs/cgroup/of/the/operator",))
    before = (os.getcwd(), Path("/proc/self/cgroup").read_text())
    assert cgroups.make(place)
    command = Command(("/bin/sh", "-c", SHOW), {"PATH": "/bin:/usr/bin"}, str(tmp_path))
    try:
        fast, forked = said(command, (place,), home), said(command, (place,))
    finally:
        home.close()
        assert cgroups.remove(place)
    assert fast[0] == -1
    assert forked[0] >= 0
    assert f"lepa/test-{os.getpid()}" in "".join(fast[1])
    assert fast[1][:-1] == forked[1][:-1]
    assert (os.getcwd(), Path("/proc/self/cgroup").read_text()) == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"argv": ("/nowhere",)}, "cannot run /nowhere: No such file or directory"),
        ({"cwd": "/nowhere"}, "cannot enter directory /nowhere: No such file or directory"),
        ({"identity": Identity(65534, 65534, ())}, ""),
        ({"oom_score_adj": 500}, ""),
    ],
)
def test_what_it_cannot_do_or_fails_to_do_is_done_and_told_by_a_fork(change: dict[str, object], reason: str) -> None:
    components.require_root()
    handler = signal.getsignal(signal.SIGINT)
    status_fd, text = said(Command(("/bin/true",), {}, "/")._replace(**change))  # type: ignore[arg-type]
    assert (status_fd >= 0, "".join(text)) == (True, reason)
    assert signal.getsignal(signal.SIGINT) is handler
