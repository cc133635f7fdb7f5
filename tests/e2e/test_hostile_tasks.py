"""Tasks that misbehave harm nobody else (R6, R10, R20): a neighbour and the agent go on through all of it."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests import components
from tests.e2e.agents import Agent, eventually, running
from tests.e2e.jobs import SECOND, shell_job

pytestmark = pytest.mark.oci

PIDS, DISK_MB, DATA_MB = 60, 48, 16
KILLS = 5
"""Of the first process of each of two tasks."""
BUSY_S = 60.0
"""What takes a second may take so long where other tests want the same cores."""
COUNTING = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"
BOMB = "b() { b | b & }; b; sleep 600"
HOG = "x=aaaaaaaa; while :; do x=$x$x; done"
FILL = "dd if=/dev/zero of=/alloc/data/fill bs=1M 2>&1; echo filled; sleep 600"
FLOOD = "yes 'a line of output as programs write them'"
DEAF = "trap '' INT TERM HUP QUIT; echo deaf; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with a small disk of its own, and another one for allocations."""
    components.require_root()
    components.allow_crun()
    tmp_path = tmp_path_factory.mktemp("hostile")
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    disk = tmp_path / "disk"
    disk.mkdir()
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/data").symlink_to(data)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", disk], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DATA_MB}m,mode=755", "tmpfs", data], check=True)
    settings = {
        "client": {"alloc_dir": str(disk), "gc_interval": "1h"},
        "plugin": {"exec": {"config": {"pids_limit": PIDS}}},
    }
    try:
        with running(tmp_path / "agent", settings=settings) as found:
            found.run(shell_job("neighbour", COUNTING))
            found.running("neighbour")
            yield found
    finally:
        subprocess.run(["umount", disk, data], check=True)


def isolated(job_id: str, script: str, **task: Any) -> dict[str, Any]:
    config = {"command": "/bin/sh", "args": ["-c", script]}
    return shell_job(job_id, task={"Driver": "exec", "Config": config, **task})


def neighbour_goes_on(agent: Agent) -> None:
    """It writes, it was never restarted, and the agent answers at once."""
    (stub,) = agent.allocations("neighbour")
    before = agent.output(stub["ID"], "main")[-20:]
    started = time.monotonic()
    alloc = agent.get(f"/v1/allocation/{stub['ID']}")
    assert time.monotonic() - started < 2.0
    assert (alloc["ClientStatus"], alloc["TaskStates"]["main"]["Restarts"]) == ("running", 0)
    eventually(lambda: agent.output(stub["ID"], "main")[-20:] != before, BUSY_S)


def dead(alloc: Any) -> bool:
    return bool(alloc["ClientStatus"] in {"failed", "complete"})


def end_of(alloc: Any) -> Any:
    return [event for event in alloc["TaskStates"]["main"]["Events"] if event["Type"] == "Terminated"][-1]


def purged_within(agent: Agent, job_id: str, seconds: float) -> None:
    started = time.monotonic()
    agent.purge(job_id)
    assert time.monotonic() - started < seconds


def test_a_fork_bomb_stays_within_its_task(agent: Agent) -> None:
    agent.run(isolated("bomb", BOMB))
    (stub,) = agent.running("bomb")
    eventually(lambda: "fork" in agent.output(stub["ID"], "main", "stderr").lower())
    neighbour_goes_on(agent)
    purged_within(agent, "bomb", 2 + 2)
    assert not any("b | b" in name for name in agent.processes())


def test_a_memory_hog_is_ended_alone_and_told_so(agent: Agent) -> None:
    agent.run(isolated("hog", HOG))
    (stub,) = eventually(lambda: agent.allocations("hog"))
    alloc = agent.alloc_until(stub["ID"], dead)
    assert end_of(alloc)["Details"]["oom_killed"] == "true"
    assert "OOM Killed" in end_of(alloc)["DisplayMessage"]
    neighbour_goes_on(agent)


def test_a_full_disk_is_the_fillers_trouble_and_all_goes_on_when_there_is_room(agent: Agent) -> None:
    """R10: the neighbour runs on though its output cannot be kept; it is kept again once the filler is gone."""
    agent.run(isolated("filler", FILL, memory_mb=200))
    (stub,) = agent.running("filler")
    eventually(lambda: os.statvfs(agent.folder.parent / "disk").f_bavail < 256)
    (neighbour,) = agent.allocations("neighbour")
    assert agent.get(f"/v1/allocation/{neighbour['ID']}")["ClientStatus"] == "running"
    assert agent.get(f"/v1/allocation/{stub['ID']}")["ClientStatus"] == "running"
    agent.purge("filler")
    agent.put("/v1/system/gc")
    eventually(lambda: os.statvfs(agent.folder.parent / "disk").f_bavail > 2560)
    neighbour_goes_on(agent)


def test_an_agent_whose_own_disk_is_full_refuses_with_a_reason_and_works_again_when_there_is_room(agent: Agent) -> None:
    """R10, of server and node at once: nothing is acknowledged that is not kept, and what runs goes on."""
    fill = agent.data / "fill"
    with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    def refused() -> str:
        job = shell_job("unkept", Meta={"text": "x" * 100_000})
        answer = agent.request("PUT", "/v1/jobs", {"Job": job})
        return answer.text if answer.status >= 500 else ""

    said = eventually(refused)
    assert "disk" in said.lower() or "full" in said.lower(), said
    neighbour_goes_on(agent)
    fill.unlink()
    agent.run(shell_job("kept"))
    agent.running("kept", within_s=60)
    neighbour_goes_on(agent)
    agent.purge("kept")


def test_a_flood_of_output_is_rotated_and_holds_nobody_up(agent: Agent) -> None:
    agent.run(shell_job("flood", FLOOD))
    (stub,) = agent.running("flood")
    folder = agent.folder.parent / "disk" / stub["ID"] / "alloc" / "logs"
    number = re.compile(r"main\.stdout\.(\d+)")
    eventually(lambda: max((int(m[1]) for p in folder.iterdir() if (m := number.fullmatch(p.name))), default=0) > 100)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 1024 * 1024
    neighbour_goes_on(agent)
    purged_within(agent, "flood", 2 + 2)


def test_a_task_that_ignores_signals_is_killed_in_time(agent: Agent) -> None:
    agent.run(isolated("deaf", DEAF, KillTimeout=SECOND))
    (stub,) = agent.running("deaf")
    eventually(lambda: "deaf" in agent.output(stub["ID"], "main"))
    purged_within(agent, "deaf", 1 + 2)


def test_every_deadly_signal_is_told_and_a_task_that_ends_at_once_is_restarted_within_bounds(agent: Agent) -> None:
    for name in ("KILL", "SEGV", "ABRT", "TERM", "HUP", "BUS"):
        agent.run(shell_job(f"dies-{name}", f"kill -{name} $$; sleep 600", kind="batch"))
    policy = {"Attempts": 3, "Interval": 60 * SECOND, "Delay": 1_000_000, "Mode": "fail"}
    agent.run(shell_job("loop", "exit 1", kind="batch", group={"RestartPolicy": policy}))
    for name in ("KILL", "SEGV", "ABRT", "TERM", "HUP", "BUS"):
        (stub,) = eventually(lambda name=name: agent.allocations(f"dies-{name}"))  # type: ignore[misc]
        end = end_of(agent.alloc_until(stub["ID"], dead))
        assert int(end["Details"]["signal"]) == getattr(signal, f"SIG{name}"), name
    (stub,) = eventually(lambda: agent.allocations("loop"))
    assert agent.alloc_until(stub["ID"], dead)["TaskStates"]["main"]["Restarts"] == 3
    neighbour_goes_on(agent)


def test_what_kills_the_first_process_of_a_task_is_told_and_its_tree_goes_too(agent: Agent) -> None:
    """R6, ten times: kill -9 of a task's first process: the true reason within two seconds, then the restart policy."""
    policy = {"Attempts": KILLS - 1, "Interval": 60 * SECOND, "Delay": 1_000_000, "Mode": "fail"}
    script = "sleep 599 & wait # victim"
    jobs = (isolated("contained", script), shell_job("plain", script))
    for job in jobs:
        job["TaskGroups"][0]["RestartPolicy"] = policy
        agent.run(job)
        (stub,) = agent.running(job["ID"])
        for attempt in range(1, KILLS + 1):
            first = _pid(agent, lambda command: command.endswith("# victim") and "sleep 599" in command)
            killed = time.monotonic()
            os.kill(first, signal.SIGKILL)
            alloc = agent.alloc_until(stub["ID"], dead if attempt == KILLS else _restarted(attempt))
            assert time.monotonic() - killed < 2.0
            assert end_of(alloc)["Details"]["signal"] == "9"
        assert alloc["ClientStatus"] == "failed"
        eventually(lambda: not any("sleep 599" in each for each in agent.processes()))


def _restarted(times: int) -> Callable[[Any], bool]:
    return lambda alloc: bool(alloc["TaskStates"]["main"]["Restarts"] == times)


def test_a_killed_supervisor_is_replaced_and_the_tasks_go_on(agent: Agent) -> None:
    """R6: what pumps output and keeps exit codes dies; no task does, and an end that nobody saw is no success.

    Case B182.
    """
    agent.run(isolated("guest", "echo up; while [ ! -e /alloc/data/end ]; do sleep 0.05; done; exit 0"))
    (stub,) = agent.running("guest", within_s=BUSY_S)
    eventually(lambda: agent.output(stub["ID"], "main"), BUSY_S)
    os.kill(_pid(agent, lambda command: "lepa.drivers.supervisor" in command), signal.SIGKILL)
    neighbour_goes_on(agent)
    assert agent.get(f"/v1/allocation/{stub['ID']}")["ClientStatus"] == "running"
    (agent.folder.parent / "disk" / stub["ID"] / "alloc" / "data" / "end").touch()
    alloc = agent.alloc_until(stub["ID"], dead, within_s=BUSY_S)
    assert alloc["ClientStatus"] == "failed"
    assert "not known" in end_of(alloc)["Details"]["exit_message"]


def _pid(agent: Agent, wanted: Callable[[str], bool]) -> int:
    """Of the one process: a shell that forks has a child of its own command line until that becomes another program."""
    found: list[str] = []

    def one() -> bool:
        found[:] = [each for each in agent.processes() if wanted(each)]
        return len(found) == 1

    eventually(one)
    return int(found[0].split()[1])
