import os
import subprocess

from lepa.drivers.supervisor.processes import born, family


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
