"""An agent that dies without a warning comes back by itself: tasks never notice, and nothing acknowledged is lost."""

import os
import re
import signal
import threading
import time
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import Agent, eventually, running
from tests.e2e.jobs import shell_job
from tests.processes import command_of

COUNTING = "echo pid $$; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"
SLOWLY = COUNTING.replace("sleep 0.1", "sleep 0.5")
"""For many tasks at once."""
TASKS = 100
TAKEN_UP_S = 10.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agent"


def done(alloc: Any) -> bool:
    return alloc["ClientStatus"] in {"complete", "failed", "lost"}


def pid_of(agent: Agent, alloc_id: str) -> int:
    """The process that a counting task said it is."""
    text = eventually(lambda: re.match(r"pid (\d+)\n", agent.output(alloc_id, "main")))
    return int(text[1])


def is_there(pid: int) -> bool:
    """Whether a process lives: one that has ended stays listed until whoever is process 1 takes note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def numbers(text: str) -> list[int]:
    """The numbers of a counting task's lines."""
    return [int(number) for number in re.findall(r"^line (\d+)$", text, re.MULTILINE)]


def test_a_hundred_tasks_do_not_notice_that_their_agent_was_killed_twice(folder: Path) -> None:
    """R4, case B179."""
    with running(folder, dev=False) as agent:
        agent.run(shell_job("counters", SLOWLY, count=TASKS, task={"cpu": 1, "memory_mb": 10}))
        waits = f"while [ ! -e {folder}/end ]; do sleep 0.05; done; echo ended; exit "
        for code in (0, 5):
            agent.run(shell_job(f"ends-{code}", waits + str(code), kind="batch"))
        stubs = agent.running("counters", TASKS, within_s=60)
        pids = {stub["ID"]: pid_of(agent, stub["ID"]) for stub in stubs}
        enders = {code: agent.running(f"ends-{code}")[0]["ID"] for code in (0, 5)}
        node = agent.get("/v1/nodes")[0]["ID"]

        agent.kill9()
        (folder / "end").touch()
        time.sleep(1.0)
        agent.start()
        agent.kill9()
        started = time.monotonic()
        agent.start()
        assert {stub["ID"] for stub in agent.running("counters", TASKS)} == set(pids)
        assert time.monotonic() - started < TAKEN_UP_S

        assert agent.get("/v1/nodes")[0]["ID"] == node
        for alloc_id, pid in pids.items():
            assert f"NOMAD_ALLOC_ID={alloc_id}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
            alloc = agent.get(f"/v1/allocation/{alloc_id}")
            assert alloc["TaskStates"]["main"]["Restarts"] == 0
            types = [event["Type"] for event in alloc["TaskStates"]["main"]["Events"]]
            assert types == ["Received", "Task Setup", "Started"]
        for code, status in ((0, "complete"), (5, "failed")):
            alloc = agent.alloc_until(enders[code], done)
            (end,) = [e for e in alloc["TaskStates"]["main"]["Events"] if e["Type"] == "Terminated"]
            assert (alloc["ClientStatus"], end["Details"]["exit_code"]) == (status, str(code))
            assert agent.output(enders[code], "main") == "ended\n"
        for alloc_id in pids:
            eventually(lambda a=alloc_id: len(numbers(agent.output(a, "main"))) > 5)  # type: ignore[misc]
            found = numbers(agent.output(alloc_id, "main"))
            assert found == list(range(1, len(found) + 1))

        agent.purge("counters")
        eventually(lambda: not any(is_there(pid) for pid in pids.values()))
        agent.restart()
        assert not [stub for stub in agent.get("/v1/allocations") if stub["ClientStatus"] in {"pending", "running"}]


def test_tasks_outlive_a_stopped_agent_and_their_files_are_served_again(folder: Path) -> None:
    with running(folder, dev=False) as agent:
        agent.run(shell_job("counter", COUNTING))
        (stub,) = agent.running("counter")
        pid = pid_of(agent, stub["ID"])
        assert agent.stop() == 0
        assert is_there(pid)
        agent.start()
        (again,) = agent.running("counter")
        assert (again["ID"], pid_of(agent, stub["ID"])) == (stub["ID"], pid)
        agent.put(f"/v1/client/allocation/{stub['ID']}/restart", {"TaskName": "main"})
        agent.alloc_until(stub["ID"], lambda found: found["TaskStates"]["main"]["Restarts"] == 1)
        agent.running("counter")
        eventually(lambda: not is_there(pid))


def test_every_acknowledged_job_is_there_after_a_kill_in_a_burst_of_registrations(folder: Path) -> None:
    nowhere = [{"LTarget": "${attr.kernel.name}", "RTarget": "plan9", "Operand": "="}]
    with running(folder, dev=False) as agent:
        acknowledged: dict[str, int] = {}

        def register(worker: int, life: int) -> None:
            number = 0
            try:
                while True:
                    job_id = f"burst-{life}-{worker}-{number}"
                    job = shell_job(job_id, Constraints=nowhere, Meta={"number": str(number)})
                    acknowledged[job_id] = agent.put("/v1/jobs", {"Job": job})["JobModifyIndex"]
                    number += 1
            except (OSError, HTTPException):
                return

        for life in (1, 2):
            before = len(acknowledged)
            workers = [threading.Thread(target=register, args=(worker, life)) for worker in range(4)]
            for worker in workers:
                worker.start()
            eventually(lambda before=before: len(acknowledged) >= before + 100)
            agent.kill9()
            for worker in workers:
                worker.join()
            agent.start()
            listed = agent.request("GET", "/v1/jobs")
            found = {job["ID"]: job for job in listed.json}
            assert acknowledged.keys() <= found.keys()
            assert len(found) <= len(acknowledged) + 4 * life
            assert listed.index >= max(acknowledged.values())
            for job_id, index in acknowledged.items():
                assert found[job_id]["JobModifyIndex"] == index, job_id

        def settled() -> bool:
            statuses = {evaluation["Status"] for evaluation in agent.get("/v1/evaluations")}
            return statuses == {"complete", "blocked"}

        eventually(settled)
        number = {job_id.rpartition("-")[2] for job_id in acknowledged}
        assert agent.get(f"/v1/job/{next(iter(acknowledged))}")["Meta"]["number"] in number


def test_collected_and_ended_allocations_do_not_run_again(folder: Path) -> None:
    """Case B205."""
    with running(folder, dev=False) as agent:
        agent.run(shell_job("once", f"echo ran >> {folder}/runs", kind="batch", count=5))
        eventually(lambda: len(agent.allocations("once")) == 5)
        for stub in agent.allocations("once"):
            agent.alloc_until(stub["ID"], done)
        agent.put("/v1/client/gc")
        eventually(lambda: not list((agent.data / "alloc").iterdir()))
        agent.kill9()
        agent.start()
        assert (folder / "runs").read_text() == "ran\n" * 5
        assert {stub["ClientStatus"] for stub in agent.allocations("once")} == {"complete"}


def test_end_that_nobody_saw_is_not_taken_for_success(folder: Path) -> None:
    """Case B182."""
    with running(folder, dev=False) as agent:
        agent.run(shell_job("unseen", COUNTING, kind="batch"))
        (stub,) = agent.running("unseen")
        pid = pid_of(agent, stub["ID"])
        supervisor = next(int(line.split()[1]) for line in agent.processes() if "lepa.drivers.supervisor" in line)
        agent.kill9()
        os.kill(supervisor, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not is_there(pid))
        agent.start()
        assert agent.alloc_until(stub["ID"], done)["ClientStatus"] == "failed"


def test_killed_supervisor_is_replaced_and_its_tasks_go_on(folder: Path) -> None:
    with running(folder, dev=False) as agent:
        agent.run(shell_job("orphans", COUNTING, count=3))
        pids = {stub["ID"]: pid_of(agent, stub["ID"]) for stub in agent.running("orphans", 3)}
        supervisor = next(int(line.split()[1]) for line in agent.processes() if "lepa.drivers.supervisor" in line)
        os.kill(supervisor, signal.SIGKILL)
        before = {alloc_id: len(numbers(agent.output(alloc_id, "main"))) for alloc_id in pids}
        for alloc_id, pid in pids.items():
            eventually(lambda a=alloc_id: len(numbers(agent.output(a, "main"))) > before[a] + 3)
            assert pid_of(agent, alloc_id) == pid
            found = numbers(agent.output(alloc_id, "main"))
            assert all(later == earlier + 1 for earlier, later in pairwise(found))
        agent.purge("orphans")
        eventually(lambda: not any(is_there(pid) for pid in pids.values()))


def test_tasks_of_a_node_that_lost_its_state_do_not_run_on_unseen(folder: Path) -> None:
    with running(folder, dev=False) as agent:
        agent.run(shell_job("lonely", COUNTING))
        [stub] = agent.running("lonely")
        pid = pid_of(agent, stub["ID"])
        agent.kill9()
        for file in (folder / "data" / "client").glob("state.db*"):
            file.unlink()
        agent.start()
        eventually(lambda: not command_of(pid))


def test_an_agent_killed_at_any_moment_of_starts_and_stops_loses_no_process(folder: Path) -> None:
    """R5: whatever the agent was about to write, each task runs once and nothing runs that nobody knows (V7)."""
    script = f"echo $$ >> {folder}/pids-$NOMAD_ALLOC_ID; trap 'exit 0' INT TERM; while :; do sleep 0.05; done"
    with running(folder, dev=False) as agent:
        for round_number, delay_s in enumerate((0.02, 0.1, 0.3)):
            job = f"crash-{round_number}"
            agent.run(shell_job(job, script, count=4, task={"cpu": 5, "memory_mb": 10}))
            if round_number:
                agent.delete(f"/v1/job/crash-{round_number - 1}")
            time.sleep(delay_s)
            agent.kill9()
            agent.start()
            stubs = agent.running(job, 4, within_s=60)
        wanted = {stub["ID"] for stub in stubs}

        def alive() -> dict[str, list[int]]:
            """Live processes by the allocation they say they are of."""
            found: dict[str, list[int]] = {}
            for path in folder.glob("pids-*"):
                pids = [int(pid) for pid in path.read_text().split()]
                if live := [pid for pid in pids if _runs(pid, path.name.removeprefix("pids-"))]:
                    found[path.name.removeprefix("pids-")] = live
            return found

        eventually(lambda: set(alive()) == wanted, 30)
        assert all(len(pids) == 1 for pids in alive().values()), "a task runs twice"
        agent.purge("crash-2")
        eventually(lambda: not alive())


def _runs(pid: int, alloc_id: str) -> bool:
    try:
        return f"NOMAD_ALLOC_ID={alloc_id}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
