"""The supervisor as a process: what survives the agent, a replacement, and the supervisor's own death.

Here and in test_raw_exec_driver, lepa.drivers.supervisor.client talks to lepa.drivers.supervisor.server, which runs
lepa.drivers.supervisor.tasks, lepa.drivers.supervisor.sessions and lepa.drivers.supervisor.reaper.
"""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.conftest import MakeTask
from tests.integration.test_raw_exec_driver import ESCAPE, processes_with, until

from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor import client
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, LogFiles, TaskSpec
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError

TASK = f"t{os.getpid()}-"
"""The id of a task, or its beginning: cgroups are named by it, and other test runs have theirs beside."""

COUNTER = "i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 5"


def lines(count: int) -> str:
    """What COUNTER prints."""
    return "".join(f"line {number}\n" for number in range(count))


def spec(tmp_path: Path, task_id: str, script: str) -> TaskSpec:
    """A shell script as a task with a log file."""
    command = Command(("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, str(tmp_path))
    return TaskSpec(task_id, command, stdout=LogFiles(str(tmp_path / f"{task_id}.stdout")))


AGENT = """
import asyncio, sys
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, LogFiles, TaskSpec
from lepa.kit.sources import SystemClock

async def main(folder, script, task):
    supervisor = await Supervisor.connect(folder + "/supervisor", clock=SystemClock())
    for number in range(20):
        command = Command(("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}, folder)
        await supervisor.start(TaskSpec(f"{task}{number}", command, stdout=LogFiles(f"{folder}/{task}{number}.stdout")))
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_twenty_tasks_survive_a_killed_agent_without_losing_a_line(tmp_path: Path) -> None:
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(tmp_path), COUNTER.format(lines=150), TASK], stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == "started\n"
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as before:
        pids = {task.id: task.pid for task in await before.list_tasks()}
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as supervisor:
        tasks = await supervisor.list_tasks()
        assert {task.id: task.pid for task in tasks} == pids
        assert all(task.exit is None for task in tasks)
        for task in tasks:
            ended = await supervisor.wait(task.id)
            assert ended.exit is not None
            assert ended.exit.code == 5
            assert (tmp_path / f"{task.id}.stdout.0").read_text() == lines(150)
        await supervisor.shutdown()


async def test_a_replaced_supervisor_keeps_tasks_logs_and_exit_codes(supervisor: Supervisor, tmp_path: Path) -> None:
    await supervisor.start(spec(tmp_path, TASK, COUNTER.format(lines=150)))
    waiting = asyncio.ensure_future(supervisor.wait(TASK))
    for _ in range(3):
        await asyncio.sleep(0.2)
        await supervisor.upgrade()
    ended = await waiting
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.error) == (5, "")
    assert (tmp_path / f"{TASK}.stdout.0").read_text() == lines(150)


async def test_an_agent_of_another_version_replaces_the_supervisor(supervisor: Supervisor, tmp_path: Path) -> None:
    info = await supervisor.start(spec(tmp_path, TASK, COUNTER.format(lines=100)))
    assert b"--handover" not in Path(f"/proc/{supervisor.pid}/cmdline").read_bytes()
    newer = await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock(), version="newer")
    async with newer:
        ended = await newer.wait(TASK)
    assert b"--handover" in Path(f"/proc/{supervisor.pid}/cmdline").read_bytes()
    assert ended.pid == info.pid
    assert (tmp_path / f"{TASK}.stdout.0").read_text() == lines(100)


async def test_a_replacement_that_cannot_run_is_refused(supervisor: Supervisor) -> None:
    with pytest.raises(LepaError, match="cannot be run"):
        await supervisor.upgrade(("/no/such/python",))
    assert await supervisor.list_tasks() == []


async def test_a_deadline_outlives_a_replacement(supervisor: Supervisor, tmp_path: Path) -> None:
    await supervisor.start(spec(tmp_path, TASK, "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    await until((tmp_path / f"{TASK}.stdout.0").exists)
    stopping = asyncio.ensure_future(supervisor.stop(TASK, signal.SIGTERM, 0.8))
    await asyncio.sleep(0.1)
    await supervisor.upgrade()
    await asyncio.wait_for(stopping, 5)


async def test_after_its_own_death_it_finds_the_tasks_again_and_no_line_is_lost(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    info = await supervisor.start(spec(tmp_path, TASK, COUNTER.format(lines=200)))
    waiting = asyncio.ensure_future(supervisor.wait(TASK))
    await asyncio.sleep(0.3)
    first = supervisor.pid
    os.kill(first, signal.SIGKILL)
    ended = await asyncio.wait_for(waiting, 20)
    assert supervisor.pid != first
    assert ended.pid == info.pid
    assert ended.exit is not None
    assert ended.exit.code != 0
    assert "exit code is not known" in ended.exit.error
    assert (tmp_path / f"{TASK}.stdout.0").read_text() == lines(200)


async def test_a_dead_supervisor_is_replaced_once_the_host_can_start_processes_again(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a fork bomb has taken them all."""
    refused = []

    def run_quietly(command: list[str]) -> subprocess.CompletedProcess[bytes]:
        if len(refused) < 3:
            refused.append(command)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return unhindered(command)

    unhindered = client._run_quietly
    monkeypatch.setattr(client, "_run_quietly", run_quietly)
    await supervisor.start(spec(tmp_path, TASK, "sleep 600"))
    os.kill(supervisor.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        await supervisor.stop(TASK, signal.SIGTERM, 0)
    assert len(refused) == 3


async def test_a_task_that_ended_while_nobody_watched_is_not_called_a_success(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Case B182."""
    info = await supervisor.start(spec(tmp_path, TASK, ESCAPE.format(mark="7401.5") + "sleep 7401.5"))
    await until(lambda: len(processes_with("7401.5")) == 3)
    os.kill(supervisor.pid, signal.SIGSTOP)
    os.kill(info.pid, signal.SIGKILL)
    os.kill(supervisor.pid, signal.SIGKILL)
    ended = await asyncio.wait_for(supervisor.wait(TASK), 10)
    assert ended.exit is not None
    assert ended.exit.code == -1
    assert "exit code is not known" in ended.exit.error
    assert processes_with("7401.5") == []


async def test_an_exit_told_once_is_told_again_after_death_until_it_is_forgotten(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    await supervisor.start(spec(tmp_path, TASK, "exit 9"))
    await supervisor.wait(TASK)
    os.kill(supervisor.pid, signal.SIGKILL)
    found = await supervisor.inspect(TASK)
    assert found.exit is not None
    assert found.exit.code == 9
    await supervisor.forget(TASK)
    os.kill(supervisor.pid, signal.SIGKILL)
    with pytest.raises(LepaError) as caught:
        await supervisor.inspect(TASK)
    assert caught.value.code == "not_found"


async def test_told_to_terminate_it_leaves_the_tasks_alone(supervisor: Supervisor, tmp_path: Path) -> None:
    info = await supervisor.start(spec(tmp_path, TASK, COUNTER.format(lines=100)))
    await asyncio.sleep(0.2)
    os.kill(supervisor.pid, signal.SIGTERM)
    ended = await asyncio.wait_for(supervisor.wait(TASK), 10)
    assert ended.pid == info.pid
    assert (tmp_path / f"{TASK}.stdout.0").read_text() == lines(100)


async def test_the_same_start_asked_twice_starts_once(supervisor: Supervisor, tmp_path: Path) -> None:
    first, second = await asyncio.gather(*(supervisor.start(spec(tmp_path, TASK, "sleep 100")) for _ in range(2)))
    assert first.pid == second.pid
    assert (await supervisor.start(spec(tmp_path, TASK, "sleep 100"))).pid == first.pid


async def test_it_does_not_end_while_tasks_run_unless_they_are_to_be_killed(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    await supervisor.start(spec(tmp_path, TASK, "sleep 7402.5"))
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as another:
        with pytest.raises(LepaError, match="1 tasks run"):
            await another.shutdown()
    await until(lambda: len(processes_with("7402.5")) == 1)


async def test_a_shut_down_supervisor_leaves_nothing_behind(tmp_path: Path, make_task: MakeTask) -> None:
    supervisor = await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock())
    pid = supervisor.pid
    await supervisor.start(spec(tmp_path, TASK, ESCAPE.format(mark="7403.5") + "sleep 7403.5"))
    await until(lambda: len(processes_with("7403.5")) == 3)
    await supervisor.shutdown(kill=True)
    assert processes_with("7403.5") == []
    await until(lambda: not Path(f"/proc/{pid}/exe").exists())
    assert sorted(path.name for path in (tmp_path / "supervisor").iterdir()) == [
        "journal",
        "lock",
        "supervisor.log",
    ]
    assert (tmp_path / "supervisor/supervisor.log").read_text() == ""


async def test_its_files_are_its_users_alone(supervisor: Supervisor, tmp_path: Path) -> None:
    folder = tmp_path / "supervisor"
    assert stat.S_IMODE(folder.stat().st_mode) & 0o022 == 0
    assert stat.S_IMODE((folder / "supervisor.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "journal").stat().st_mode) == 0o600
    stranger = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    (folder / "supervisor.sock").chmod(0o777)
    connecting = subprocess.run(
        [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            sys.executable,
            "-c",
            stranger + "; s.sendall(b'x'); print(len(s.recv(1)))",
            str(folder / "supervisor.sock"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1" not in connecting.stdout.split()
    assert await supervisor.list_tasks() == []


async def test_a_directory_is_served_by_one_supervisor_only(supervisor: Supervisor, tmp_path: Path) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "lepa.drivers.supervisor", "--state", str(tmp_path / "supervisor")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 3
    assert "another supervisor" in second.stderr
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as another:
        assert another.pid == supervisor.pid


async def test_garbage_on_the_socket_costs_only_its_own_connection(supervisor: Supervisor, tmp_path: Path) -> None:
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\0\0\0\x02\0\0\0\0[]", b"\0\0\0\x02\0\0\0\0{}"):
        reader, writer = await connected(tmp_path / "supervisor")
        writer.write(rubbish)
        await asyncio.wait_for(reader.read(10), 5)
        writer.close()
    assert await supervisor.list_tasks() == []


async def connected(folder: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the supervisor in a directory, however long its path is."""
    directory = os.open(folder, os.O_PATH)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/supervisor.sock")
    finally:
        os.close(directory)


async def test_it_keeps_nothing_open_that_was_its_starters(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    starting = [sys.executable, "-m", "lepa.drivers.supervisor", "--state", str(tmp_path / "supervisor")]
    assert subprocess.run(starting, close_fds=False, check=False).returncode == 0
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as supervisor:
        await supervisor.shutdown()


async def test_its_own_descriptors_are_many_and_its_tasks_get_the_usual_number(tmp_path: Path) -> None:
    limited = "ulimit -S -n 300; exec {} -m lepa.drivers.supervisor --state {}"
    starting = limited.format(sys.executable, tmp_path / "supervisor")
    assert subprocess.run(["sh", "-c", starting], check=False).returncode == 0
    async with await Supervisor.connect(str(tmp_path / "supervisor"), clock=SystemClock()) as supervisor:
        await supervisor.upgrade()
        await asyncio.gather(
            *(supervisor.start(spec(tmp_path, f"{TASK}{number}", "sleep 100")) for number in range(200))
        )
        await supervisor.start(spec(tmp_path, TASK, "ulimit -S -n"))
        await supervisor.wait(TASK)
        await supervisor.shutdown(kill=True)
    assert (tmp_path / f"{TASK}.stdout.0").read_text() == "300\n"


async def test_descriptors_return_to_their_base_number(supervisor: Supervisor, tmp_path: Path) -> None:
    """Case B173."""

    async def burst() -> int:
        for number in range(30):
            await supervisor.start(spec(tmp_path, f"{TASK}{number}", "seq 1 1000; exit 0"))
        for number in range(30):
            await supervisor.wait(f"{TASK}{number}")
            await supervisor.forget(f"{TASK}{number}")
        return len(os.listdir(f"/proc/{supervisor.pid}/fd"))

    assert await burst() == await burst()


async def test_without_cgroups_a_tree_is_still_found_and_killed(tmp_path: Path, make_task: MakeTask) -> None:
    folder = tmp_path / "supervisor"
    hidden = "umount -R -l /sys/fs/cgroup && exec {} -m lepa.drivers.supervisor --state {}"
    starting = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hidden.format(sys.executable, folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert starting.returncode == 0, starting.stderr
    async with await Supervisor.connect(str(folder), clock=SystemClock()) as supervisor:
        driver = RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True))
        task = make_task("sh", "-c", "trap '' TERM; " + ESCAPE.format(mark="7404.5") + "sleep 7404.5; sleep 7404.5")
        await driver.start(task)
        await until(lambda: len(processes_with("7404.5")) == 3)
        assert (await supervisor.inspect(task.id)).cgroups == ()
        await driver.stop(task.id, "SIGTERM", 0.3)
        assert processes_with("7404.5") == []
        os.kill(supervisor.pid, signal.SIGTERM)


async def test_requests_are_answered_in_time_while_a_task_floods_its_logs(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    await supervisor.start(spec(tmp_path, "flood", "exec yes"))
    await asyncio.sleep(0.2)
    before = time.monotonic()
    for _ in range(20):
        await supervisor.list_tasks()
    assert time.monotonic() - before < 2
    await supervisor.stop("flood", signal.SIGKILL, 1)
