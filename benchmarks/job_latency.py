"""How long is it from registering a job to its task running?

30 raw_exec jobs, one after another, on an idle development agent. `job.run_to_running.*` counts from the first byte of
the registration to the answer in which the job's allocation is seen running, over the HTTP API with blocking reads, as
a program does it. `job.run_to_running.cli_p50_ms` counts from the start of the process `lepa job run -detach FILE`.
Beside them: `posix_spawn` of the same command until it runs.

Expected on two quiet cores: p50 50 ms and p99 150 ms over the API, both at most 250 ms; 250 ms with the command line.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from benchmarks._agent import HOST, LEPA, Agent, development_agent
from benchmarks.harness import Figure

FIGURES = ("job.run_to_running.p50_ms", "job.run_to_running.p99_ms", "job.run_to_running.cli_p50_ms")

JOBS = 30
CLI_JOBS = 10
COMMAND = ("/bin/sleep", "1000")
SETTLE_S = 0.2


def run() -> list[Figure]:
    """Every figure about starting jobs."""
    with development_agent() as agent, tempfile.TemporaryDirectory() as folder:
        _took(agent, "warm-up", lambda job: _register(agent, job))
        api = sorted(_took(agent, f"job-{number}", lambda job: _register(agent, job)) for number in range(JOBS))
        file = Path(folder) / "job.json"
        cli = [_took(agent, f"cli-{number}", lambda job: _run(agent, file, job)) for number in range(CLI_JOBS)]
    spawn = sorted(_spawned() for _ in range(JOBS))
    return [
        Figure("job.run_to_running.p50_ms", median(api), "ms", median(spawn), "posix_spawn"),
        Figure("job.run_to_running.p99_ms", api[-1], "ms", spawn[-1], "posix_spawn"),
        Figure("job.run_to_running.cli_p50_ms", median(cli), "ms", median(spawn), "posix_spawn"),
    ]


def job(job_id: str) -> dict[str, Any]:
    """One raw_exec task that stays."""
    task = {
        "Name": "t",
        "Driver": "raw_exec",
        "Config": {"command": COMMAND[0], "args": list(COMMAND[1:])},
        "Resources": {"CPU": 20, "MemoryMB": 16},
    }
    return {"Job": {"ID": job_id, "TaskGroups": [{"Name": "g", "Tasks": [task]}]}}


def _took(agent: Agent, job_id: str, start: Callable[[dict[str, Any]], None]) -> float:
    """Milliseconds until the job runs; it is purged and everything is quiet again afterwards."""
    began = perf_counter()
    start(job(job_id))
    index = 0
    while True:
        allocations, index = agent.request("GET", f"/v1/job/{job_id}/allocations?index={index}&wait=10s")
        if allocations and allocations[0]["ClientStatus"] == "running":
            break
    took = (perf_counter() - began) * 1e3
    agent.request("DELETE", f"/v1/job/{job_id}?purge=true")
    sleep(SETTLE_S)
    return took


def _register(agent: Agent, wanted: dict[str, Any]) -> None:
    agent.request("PUT", "/v1/jobs", wanted)


def _run(agent: Agent, file: Path, wanted: dict[str, Any]) -> None:
    file.write_text(json.dumps(wanted))
    environment = os.environ | {"LEPA_ADDR": f"http://{HOST}:{agent.port}"}
    command = [LEPA, "job", "run", "-detach", "-json", file]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def _spawned() -> float:
    """Milliseconds until the bare command runs."""
    began = perf_counter()
    pid = os.posix_spawn(COMMAND[0], COMMAND, os.environ)
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
        pass
    took = (perf_counter() - began) * 1e3
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return took
