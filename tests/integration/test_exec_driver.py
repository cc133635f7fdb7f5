"""The exec driver with each OCI runtime, under a real supervisor."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests import components
from tests.cgroup_files import v1_files, v2_files
from tests.integration.conftest import MakeTask
from tests.integration.shared_cores import tasks_keep_off_cores_of_others
from tests.integration.test_raw_exec_driver import processes_with, until

from lepa.drivers import oci
from lepa.drivers.oci import ExecSettings, OciExec
from lepa.drivers.oci_runtime import PROGRAMS
from lepa.drivers.protocol import DriverError, Mount, TaskConfig
from lepa.drivers.supervisor import cgroups
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.resources import AllocatedCpuResources, AllocatedMemoryResources, AllocatedTaskResources, DNSConfig

pytestmark = pytest.mark.oci


@pytest.fixture(params=PROGRAMS)
async def driver(
    request: pytest.FixtureRequest, supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OciExec]:
    components.require_root()
    program = components.require(request.param, components.OCI_PACKAGES)
    components.allow_crun()
    monkeypatch.setattr(oci, "installed", lambda: [program])
    found = OciExec(supervisor, SystemClock(), ExecSettings(), str(tmp_path / "state"))
    yield found
    for task in await supervisor.list_tasks():
        await supervisor.stop(task.id, signal.SIGKILL, 0)
        await found.remove_leftovers(task.id)
    await found.close()


async def run(driver: OciExec, task: TaskConfig) -> str:
    """Run a task to its end; how it ended as "code/signal"."""
    await driver.start(task)
    result = await driver.wait(task.id)
    return f"{result.exit_code}/{result.signal}"


async def test_a_working_runtime_is_detected(driver: OciExec) -> None:
    info = await driver.fingerprint()
    assert info.detected, info.health_description
    assert info.attributes["driver.exec"] == "1"
    assert info.attributes["driver.exec.runtime"] in PROGRAMS


async def test_a_runtime_that_does_not_work_is_undetected_with_the_reason(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oci, "installed", lambda: ["/bin/false"])
    driver = OciExec(supervisor, SystemClock(), ExecSettings(), str(tmp_path / "state"))
    info = await driver.fingerprint()
    assert not info.detected
    assert "false does not work here" in info.health_description
    monkeypatch.setattr(oci, "installed", list)
    assert "neither crun nor runc" in (await driver.fingerprint()).health_description


async def test_a_task_is_nobody_in_a_root_of_its_own(driver: OciExec, make_task: MakeTask, tmp_path: Path) -> None:
    script = (
        "id -un; pwd; echo $GREETING; ls -d /alloc /local /secrets; ls /proc | grep -c '^[0-9]'; echo bad >&2; exit 3"
    )
    assert await run(driver, make_task("sh", "-c", script)) == "3/0"
    out = (tmp_path / "t.stdout.0").read_text().splitlines()
    assert out[:6] == ["nobody", "/", "hello", "/alloc", "/local", "/secrets"]
    assert int(out[6]) <= 4
    assert (tmp_path / "t.stderr.0").read_text() == "bad\n"


async def test_tasks_without_cores_keep_off_those_of_others(driver: OciExec, make_task: MakeTask) -> None:
    await tasks_keep_off_cores_of_others(driver, lambda name: make_task("sleep", "600", name=name))


async def test_limits_are_what_the_kernel_was_told(driver: OciExec, make_task: MakeTask, tmp_path: Path) -> None:
    """In the hierarchy that this host has. CPU weights of v2 are left out: runtimes convert them in several ways."""
    core = min(os.sched_getaffinity(0))
    asked = AllocatedTaskResources(
        cpu=AllocatedCpuResources(cpu_shares=300, reserved_cores=(core,)),
        memory=AllocatedMemoryResources(memory_mb=32, memory_max_mb=64),
    )
    task = replace(make_task("sleep", "600"), resources=asked)
    task = replace(task, config=task.config | {"cpu_hard_limit": True, "pids_limit": 50})
    await driver.start(task)
    config = json.loads((tmp_path / "state/exec/bundles" / task.id / "config.json").read_text())
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    wanted = (v2_files if unified else v1_files)(config["linux"]["resources"])
    places = [Path(mount_point) / "lepa" / task.id for _, mount_point in cgroups.hierarchies()]
    told = {
        name: path.read_text().strip()
        for name in wanted
        if name != "cpu.weight"
        for path in (place / name for place in places)
        if path.exists()
    }
    assert told == {name: wanted[name] for name in told}
    assert {"pids.max", "cpuset.cpus", "memory.max" if unified else "memory.limit_in_bytes"} <= told.keys()
    await driver.destroy(task.id)


async def test_a_task_cannot_change_or_leave_its_surroundings(
    driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    script = """
    touch /usr/x /etc/x /bin/x 2>/dev/null && echo wrote
    mount -t tmpfs none /tmp 2>/dev/null && echo mounted
    unshare --user --map-root-user true 2>/dev/null && echo unshared
    ls /root 2>/dev/null && echo saw
    grep -i -E 'NoNewPrivs|^Seccomp:' /proc/self/status
    echo fine > /local/made && echo fine > /alloc/made && echo fine > /secrets/made
    """
    assert await run(driver, make_task("sh", "-c", script)) == "0/0"
    assert (tmp_path / "t.stdout.0").read_text().split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]
    assert (tmp_path / "alloc/task/local/made").read_text() == "fine\n"
    assert (tmp_path / "alloc/alloc/made").read_text() == "fine\n"


async def test_a_program_of_the_task_is_found_by_its_relative_name(
    driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    program = tmp_path / "alloc/task/local/mine"
    program.write_text("#!/bin/sh\necho mine $1\n")
    program.chmod(0o755)
    assert await run(driver, make_task("mine", "own")) == "0/0"
    assert (tmp_path / "t.stdout.0").read_text() == "mine own\n"


async def test_volumes_name_servers_and_host_name_are_the_tasks(
    driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    (tmp_path / "volume").mkdir(mode=0o755)
    (tmp_path / "volume/f").write_text("kept\n")
    task = make_task(
        "sh",
        "-c",
        "cat /data/f; touch /data/g || echo refused; cat /etc/resolv.conf; hostname",
        mounts=(Mount(host_path=str(tmp_path / "volume"), task_path="/data", read_only=True),),
        dns=DNSConfig(servers=("10.1.2.3",), searches=("lepa",)),
        hostname="box",
    )
    assert await run(driver, task) == "0/0"
    out = (tmp_path / "t.stdout.0").read_text()
    assert out == "kept\nrefused\nnameserver 10.1.2.3\nsearch lepa\nbox\n"


async def test_too_much_memory_is_told_as_such(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task("sh", "-c", "x=$(head -c 200m /dev/zero | tr '\\0' a); echo $?", memory_mb=30)
    await driver.start(task)
    result = await driver.wait(task.id)
    assert result.oom_killed
    assert result.exit_code == 137


async def test_a_fork_bomb_ends_at_the_limit(
    supervisor: Supervisor, driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    limited = OciExec(supervisor, SystemClock(), ExecSettings(pids_limit=20), str(tmp_path / "state"))
    task = make_task(
        "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do sleep 100 & done; wait"
    )
    await limited.start(task)
    await until(lambda: (tmp_path / "t.stderr.0").exists() and "fork" in (tmp_path / "t.stderr.0").read_text().lower())
    await limited.stop(task.id, "SIGKILL", 1)


async def test_a_stopped_task_keeps_the_exit_code_it_chose(
    driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    task = make_task("sh", "-c", "trap 'exit 12' INT; echo up; while :; do sleep 0.05; done")
    await driver.start(task)
    await until((tmp_path / "t.stdout.0").exists)
    await driver.stop(task.id, "", 5)
    assert (await driver.wait(task.id)).exit_code == 12


async def test_everything_inside_dies_with_a_stop(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task(
        "sh", "-c", "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 7501.5' &); while :; do sleep 7501.5; done"
    )
    await driver.start(task)
    await until(lambda: len(processes_with("7501.5")) >= 2)
    before = time.monotonic()
    await driver.stop(task.id, "SIGTERM", 0.3)
    assert time.monotonic() - before < 2.3
    await until(lambda: processes_with("7501.5") == [])


async def test_a_host_pid_namespace_hides_nothing_and_still_ends_whole(driver: OciExec, make_task: MakeTask) -> None:
    config = {
        "command": "sh",
        "args": ["-c", "(setsid sh -c 'trap \"\" TERM; sleep 7502.5' &); sleep 7502.5"],
        "pid_mode": "host",
    }
    task = make_task(config=config)
    await driver.start(task)
    await until(lambda: len(processes_with("7502.5")) >= 2)
    await driver.stop(task.id, "SIGTERM", 1)
    await until(lambda: processes_with("7502.5") == [])


async def test_destroy_leaves_no_container_cgroup_or_file(driver: OciExec, make_task: MakeTask, tmp_path: Path) -> None:
    task = make_task("sleep", "7503.5")
    await driver.start(task)
    assert subprocess.run(["find", "/sys/fs/cgroup", "-name", task.id], capture_output=True, check=False).stdout
    await driver.destroy(task.id)
    assert not subprocess.run(["find", "/sys/fs/cgroup", "-name", task.id], capture_output=True, check=False).stdout
    assert list((tmp_path / "state/exec/bundles").iterdir()) == []
    assert processes_with("7503.5") == []
    assert str(tmp_path / "alloc") not in Path("/proc/self/mountinfo").read_text()


async def test_exec_runs_inside_as_the_tasks_user(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7504.5")
    await driver.start(task)
    session = await driver.exec(
        task.id, ["sh", "-c", "id -un; cat /proc/1/cmdline | tr '\\0' ' '; echo bad >&2; exit 7"], tty=False
    )
    out: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    async for stream, data in session.output():
        out[stream] += data
    assert await session.wait() == 7
    assert out["stdout"] == b"nobody\nsleep 7504.5 "
    assert out["stderr"] == b"bad\n"
    await session.close()


async def test_a_terminal_inside_can_be_resized_and_interrupted(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7505.5")
    await driver.start(task)
    session = await driver.exec(
        task.id, ["sh", "-c", "trap 'stty size; exit 5' INT; echo up; while :; do sleep 0.05; done"], tty=True
    )
    output = session.output()
    assert b"up" in (await anext(output))[1]
    await session.resize(33, 99)
    await asyncio.sleep(0.3)
    await session.write(b"\x03")
    said = b"".join([data async for _, data in output])
    assert b"33 99" in said
    assert await session.wait() == 5
    await session.close()


async def test_closing_a_session_ends_its_command(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task("sleep", "7506.5")
    await driver.start(task)
    session = await driver.exec(task.id, ["sleep", "7506.6"], tty=False)
    await until(lambda: len(processes_with("7506.6")) == 1)
    await session.close()
    await until(lambda: processes_with("7506.6") == [])


async def test_a_killed_supervisor_finds_the_container_again(
    supervisor: Supervisor, driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    script = "i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"
    task = make_task("sh", "-c", script)
    started = await driver.start(task)
    await asyncio.sleep(0.3)
    os.kill(supervisor.pid, signal.SIGKILL)
    await driver.recover(task, started.handle)
    result = await driver.wait(task.id)
    assert "exit code is not known" in result.error
    assert (tmp_path / "t.stdout.0").read_text() == "".join(f"line {number}\n" for number in range(100))


async def test_stats_come_from_the_tasks_cgroup(driver: OciExec, make_task: MakeTask) -> None:
    task = make_task("sh", "-c", "while :; do :; done")
    await driver.start(task)
    await driver.stats(task.id)
    await asyncio.sleep(0.3)
    usage = (await driver.stats(task.id)).resource_usage
    assert usage is not None
    assert usage.cpu_stats is not None
    assert usage.memory_stats is not None
    assert usage.cpu_stats.percent > 5
    assert usage.memory_stats.usage > 0
    assert "Cache" in usage.memory_stats.measured


async def test_starts_that_cannot_be_say_why_and_leave_nothing(
    driver: OciExec, make_task: MakeTask, tmp_path: Path
) -> None:
    for task, reason in (
        (make_task("/nope"), "nope"),
        (make_task("true", user="no-such-user"), "does not exist"),
        (make_task(config={"command": "true", "cap_add": ["sys_admin"]}), "allow_caps"),
        (make_task(config={"command": "true", "pid_mode": "shared"}), "pid_mode must be"),
    ):
        with pytest.raises(DriverError, match=reason):
            await driver.start(task)
    bundles = tmp_path / "state/exec/bundles"
    assert not bundles.exists() or list(bundles.iterdir()) == []
