"""raw_exec with real processes under a real supervisor."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from tests import components
from tests.integration.conftest import MakeTask
from tests.integration.shared_cores import LAST, tasks_keep_off_cores_of_others

from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.task import LogConfig

ESCAPE = "(setsid sh -c 'trap \"\" TERM HUP; sleep {mark}' &) ; (sh -c 'trap \"\" TERM; sleep {mark}' &) ; "


@pytest.fixture
def driver(supervisor: Supervisor) -> RawExec:
    return RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True))


async def run(driver: RawExec, task: TaskConfig) -> str:
    """Run a task to its end; how it ended as "code/signal"."""
    await driver.start(task)
    result = await driver.wait(task.id)
    return f"{result.exit_code}/{result.signal}"


def processes_with(argument: str) -> list[int]:
    """Live processes that have an argument of their own, such as a peculiar number of seconds to sleep."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if argument.encode() in words and state != "Z":
                found.append(int(entry.name))
    return found


async def until(condition: object, within_s: float = 5.0) -> None:
    """Wait until a callable is true."""
    deadline = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not become so in time"
        await asyncio.sleep(0.02)


async def test_output_and_exit_code_are_kept_apart(driver: RawExec, make_task: MakeTask, tmp_path: Path) -> None:
    assert await run(driver, make_task("sh", "-c", "echo $GREETING; echo bad >&2; exit 3")) == "3/0"
    assert (tmp_path / "t.stdout.0").read_text() == "hello\n"
    assert (tmp_path / "t.stderr.0").read_text() == "bad\n"


async def test_every_way_to_end_is_told_as_a_shell_would(driver: RawExec, make_task: MakeTask) -> None:
    assert await run(driver, make_task("true")) == "0/0"
    assert await run(driver, make_task("sh", "-c", "kill -9 $$")) == "137/9"
    assert await run(driver, make_task("sh", "-c", "kill -TERM $$")) == "143/15"
    assert await run(driver, make_task("sh", "-c", "kill -SEGV $$")) == "139/11"


async def test_a_stopped_task_keeps_the_exit_code_it_chose(driver: RawExec, make_task: MakeTask) -> None:
    """Case B181."""
    task = make_task("sh", "-c", "trap 'exit 123' INT; echo up; while :; do sleep 0.05; done")
    await driver.start(task)
    await until(Path(task.stdout_path + ".0").exists)
    await driver.stop(task.id, "", 5)
    assert (await driver.wait(task.id)).exit_code == 123


async def test_the_whole_tree_of_a_task_that_ignores_signals_is_killed(driver: RawExec, make_task: MakeTask) -> None:
    """Case B180."""
    task = make_task("sh", "-c", "trap '' INT TERM; " + ESCAPE.format(mark="7301.5") + "while :; do sleep 7301.5; done")
    await driver.start(task)
    await until(lambda: len(processes_with("7301.5")) == 3)
    before = time.monotonic()
    await driver.stop(task.id, "SIGINT", 0.5)
    assert 0.4 < time.monotonic() - before < 2.5
    assert processes_with("7301.5") == []
    assert (await driver.wait(task.id)).signal == 9


async def test_what_a_task_leaves_behind_does_not_outlive_it(driver: RawExec, make_task: MakeTask) -> None:
    assert await run(driver, make_task("sh", "-c", ESCAPE.format(mark="7302.5") + "exit 4")) == "4/0"
    assert processes_with("7302.5") == []


async def test_destroy_kills_a_running_task_and_forgets_it(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7303.5")
    await driver.start(task)
    await driver.destroy(task.id)
    assert processes_with("7303.5") == []
    with pytest.raises(LepaError) as caught:
        await driver.wait(task.id)
    assert caught.value.code == "not_found"


async def test_starts_that_cannot_be_are_refused_with_the_step_that_failed(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    script = tmp_path / "alloc/task/local/no-exec"
    script.write_text("#!/bin/sh\n")
    for task, reason in (
        (make_task("/nope"), "run /nope: No such file"),
        (make_task("nope"), "was not found in the task directory or on the PATH"),
        (make_task("no-exec"), "Permission denied"),
        (make_task("true", user="no-such-user"), "user 'no-such-user' does not exist"),
        (make_task(config={"command": "true", "work_dir": "/nope"}), "enter directory /nope: No such file"),
        (make_task(config={"command": ""}), "command must be set"),
        (make_task(config={"command": "true", "arg": "x"}), "no option 'arg'"),
    ):
        with pytest.raises(DriverError, match=reason):
            await driver.start(task)


async def test_a_disabled_driver_is_undetected_and_starts_nothing(supervisor: Supervisor, make_task: MakeTask) -> None:
    """Case B251."""
    driver = RawExec(supervisor, SystemClock(), RawExecSettings())
    info = await driver.fingerprint()
    assert not info.detected
    assert "disabled" in info.health_description
    with pytest.raises(DriverError, match="disabled"):
        await driver.start(make_task("true"))


async def test_task_and_exec_run_as_the_tasks_user(driver: RawExec, make_task: MakeTask, tmp_path: Path) -> None:
    """Case B177."""
    task = make_task("sh", "-c", "id -un; id -G; sleep 7304.5", user="nobody")
    await driver.start(task)
    await until(
        lambda: "65534" in Path(task.stdout_path + ".0").read_text() if Path(task.stdout_path + ".0").exists() else 0
    )
    assert Path(task.stdout_path + ".0").read_text() == "nobody\n65534\n"
    session = await driver.exec(task.id, ["id", "-un"], tty=False)
    assert [piece async for piece in session.output()] == [("stdout", b"nobody\n")]
    assert await session.wait() == 0


async def test_denied_users_cannot_run_tasks(supervisor: Supervisor, make_task: MakeTask) -> None:
    settings = RawExecSettings(enabled=True, denied_host_uids="0,60000-70000")
    driver = RawExec(supervisor, SystemClock(), settings)
    for user in ("", "root", "nobody"):
        with pytest.raises(DriverError, match="denied_host_uids"):
            await driver.start(make_task("true", user=user))


async def test_denied_variables_do_not_reach_the_task(
    supervisor: Supervisor, make_task: MakeTask, tmp_path: Path
) -> None:
    driver = RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True, denied_envvars=("GREE*",)))
    assert await run(driver, make_task("sh", "-c", "echo [$GREETING]")) == "0/0"
    assert (tmp_path / "t.stdout.0").read_text() == "[]\n"


async def test_tasks_have_their_own_oom_score_and_default_signals(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    """Case B185."""
    script = "cat /proc/self/oom_score_adj; grep SigIgn /proc/self/status; ulimit -c"
    assert await run(driver, make_task("sh", "-c", script)) == "0/0"
    score, ignored, _ = (tmp_path / "t.stdout.0").read_text().splitlines()
    assert score == "0"
    of_the_c_library = 0b11 << 31  # 32 and 33: posix_spawn(3) leaves them ignored, and programs cannot use them
    assert int(ignored.split()[1], 16) & ~of_the_c_library == 0
    assert (
        await run(
            driver,
            make_task(config={"command": "cat", "args": ["/proc/self/oom_score_adj"], "oom_score_adj": 500}, name="u"),
        )
        == "0/0"
    )
    assert (tmp_path / "u.stdout.0").read_text() == "500\n"


async def test_much_output_is_rotated_at_line_ends_and_nothing_is_lost(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    """Case B171."""
    task = make_task("seq", "1", "600000", logs=LogConfig(max_files=10, max_file_size_mb=1))
    assert await run(driver, task) == "0/0"
    files = sorted(tmp_path.glob("t.stdout.*"), key=lambda path: int(path.suffix[1:]))
    assert [path.name for path in files] == [f"t.stdout.{number}" for number in range(4)]
    assert all(path.read_bytes().endswith(b"\n") for path in files)
    assert all(path.stat().st_size < 1024 * 1024 + len("600000\n") for path in files)
    numbers = "".join(path.read_text() for path in files).split()
    assert numbers == [str(number) for number in range(1, 600001)]


async def test_only_the_newest_files_are_kept_and_a_restart_goes_on_in_the_newest(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    logs = LogConfig(max_files=2, max_file_size_mb=1)
    assert await run(driver, make_task("seq", "1", "600000", logs=logs)) == "0/0"
    assert sorted(path.name for path in tmp_path.glob("t.stdout.*")) == ["t.stdout.2", "t.stdout.3"]
    assert await run(driver, make_task("echo", "again", logs=logs)) == "0/0"
    assert (tmp_path / "t.stdout.3").read_text().endswith("600000\nagain\n")


async def test_disabled_logs_are_not_written(driver: RawExec, make_task: MakeTask, tmp_path: Path) -> None:
    assert await run(driver, make_task("seq", "1", "100000", logs=LogConfig(disabled=True))) == "0/0"
    assert list(tmp_path.glob("t.std*")) == []


async def test_a_full_log_disk_does_not_stop_the_task(driver: RawExec, make_task: MakeTask, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mount = await asyncio.create_subprocess_exec("mount", "-t", "tmpfs", "-o", "size=512k", "none", str(full))
    assert await mount.wait() == 0, "tmpfs could not be mounted: run this test as root"
    try:
        task = make_task("sh", "-c", "seq 1 400000; exit 9", stdout_path=str(full / "t.stdout"))
        assert await run(driver, task) == "9/0"
        kept = (full / "t.stdout.0").read_text()
        assert kept.startswith("1\n2\n3\n")
    finally:
        umount = await asyncio.create_subprocess_exec("umount", str(full))
        assert await umount.wait() == 0


async def test_exec_shares_directory_environment_and_gives_all_output_before_the_exit_code(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    """Case B174."""
    (tmp_path / "alloc/task/big").write_bytes(os.urandom(10_000_000))
    task = make_task("sleep", "7305.5")
    await driver.start(task)
    for _ in range(5):
        session = await driver.exec(task.id, ["sh", "-c", "cat big; echo $GREETING >&2; exit 7"], tty=False)
        received = {"stdout": bytearray(), "stderr": bytearray()}
        async for stream, data in session.output():
            received[stream] += data
        assert await session.wait() == 7
        assert received["stdout"] == (tmp_path / "alloc/task/big").read_bytes()
        assert received["stderr"] == b"hello\n"
        await session.close()


async def test_exec_takes_input_until_it_is_closed(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7306.5")
    await driver.start(task)
    session = await driver.exec(task.id, ["sh", "-c", "wc -c"], tty=False)
    await session.write(b"x" * 3_000_000)
    await session.write(b"")
    assert [data async for _, data in session.output()] == [b"3000000\n"]
    assert await session.wait() == 0


async def test_a_command_that_does_not_read_holds_up_its_writer_and_nothing_else(
    driver: RawExec, make_task: MakeTask
) -> None:
    task = make_task("sleep", "7307.5")
    await driver.start(task)
    session = await driver.exec(task.id, ["sleep", "7307.6"], tty=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.write(b"x" * 50_000_000), 0.5)
    assert await run(driver, make_task("echo", "fine", name="u")) == "0/0"
    await session.close()
    await until(lambda: processes_with("7307.6") == [])


async def test_a_terminal_has_a_size_and_passes_interrupts_on(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7308.5")
    await driver.start(task)
    session = await driver.exec(
        task.id, ["sh", "-c", "trap 'stty size; exit 5' INT; tty; while :; do sleep 0.05; done"], tty=True
    )
    output = session.output()
    assert (await anext(output))[1].startswith(b"/dev/pts/")
    await session.resize(33, 99)
    await session.write(b"\x03")
    said = b"".join([data async for _, data in output])
    assert b"33 99" in said
    assert await session.wait() == 5


async def test_closing_a_session_ends_its_command(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7309.5")
    await driver.start(task)
    session = await driver.exec(task.id, ["sh", "-c", "trap '' TERM; sleep 7309.6; sleep 7309.6"], tty=False)
    await until(lambda: len(processes_with("7309.6")) == 1)
    await session.close()
    await until(lambda: processes_with("7309.6") == [])
    await until(lambda: len(processes_with("7309.5")) == 1)


async def test_a_session_with_an_unknown_command_says_so(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7310.5")
    await driver.start(task)
    with pytest.raises(LepaError, match="not found"):
        await driver.exec(task.id, ["no-such-command"], tty=False)
    session = await driver.exec(task.id, ["/no/such/command"], tty=False)
    with pytest.raises(LepaError, match="No such file"):
        await session.wait()


async def test_stats_see_what_a_task_uses(driver: RawExec, make_task: MakeTask) -> None:
    task = make_task("sh", "-c", "while :; do :; done")
    await driver.start(task)
    await driver.stats(task.id)
    await asyncio.sleep(0.3)
    usage = (await driver.stats(task.id)).resource_usage
    assert usage is not None
    assert usage.cpu_stats is not None
    assert usage.memory_stats is not None
    assert usage.cpu_stats.percent > 5
    assert usage.memory_stats.rss > 100_000


async def test_tasks_without_cores_keep_off_those_of_others(driver: RawExec, make_task: MakeTask) -> None:
    components.require_root()
    script = "trap 'kill 0' INT; sleep 600 & (sleep 600 & wait) & wait"
    await tasks_keep_off_cores_of_others(driver, lambda name: make_task("sh", "-c", script, name=name))


async def test_a_task_cannot_leave_its_cores_and_a_session_beside_it_is_held_to_them(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    components.require_root()
    await driver.share_cores((LAST,))
    escape = "import os; os.sched_setaffinity(0, range(os.cpu_count())); print(os.sched_getaffinity(0))"
    assert await run(driver, make_task(sys.executable, "-c", escape)) == "0/0"
    assert (tmp_path / "t.stdout.0").read_text() == f"{{{LAST}}}\n"
    task = make_task("sleep", "600")
    await driver.start(task)
    session = await driver.exec(task.id, [sys.executable, "-c", escape], tty=False)
    assert [data async for _, data in session.output()] == [f"{{{LAST}}}\n".encode()]
    await session.close()
    await driver.destroy(task.id)
    assert list(Path("/sys/fs/cgroup").glob(f"*/lepa/{task.id}")) == []


async def test_a_cgroup_of_the_operators_is_joined_and_left_alone(
    driver: RawExec, make_task: MakeTask, tmp_path: Path
) -> None:
    root = Path("/sys/fs/cgroup/unified") if Path("/sys/fs/cgroup/unified").exists() else Path("/sys/fs/cgroup")
    group = root / f"lepa-test-{os.getpid()}"
    group.mkdir()
    try:
        task = make_task(
            config={
                "command": "sh",
                "args": ["-c", "cat /proc/self/cgroup; " + ESCAPE.format(mark="7311.5") + "sleep 7311.5"],
                "cgroup_v2_override": group.name,
            }
        )
        await driver.start(task)
        await until(lambda: len(processes_with("7311.5")) == 3)
        assert f"0::/{group.name}\n" in (tmp_path / "t.stdout.0").read_text()
        await driver.stop(task.id, "SIGKILL", 1)
        assert processes_with("7311.5") == []
        await driver.destroy(task.id)
        assert group.exists()
    finally:
        group.rmdir()
