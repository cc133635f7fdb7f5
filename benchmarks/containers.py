"""How fast isolated tasks and containers start, beside the bare tool.

Expected: `tasks.start.exec` at least 0.8 of bare crun (the same configuration, as many at a time),
`tasks.start.docker` at least 0.9 of a `docker run -d` loop (one after the other, the same image and limits). Both need
root; without crun, or without a Docker daemon and its programs, the figure is left out.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from tests import components

from benchmarks.harness import Figure
from lepa.drivers.docker import DockerDriver
from lepa.drivers.docker_settings import DockerSettings
from lepa.drivers.oci import ExecSettings, OciExec
from lepa.drivers.oci_runtime import ENVIRONMENT
from lepa.drivers.protocol import TaskConfig
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.resources import AllocatedCpuResources, AllocatedMemoryResources, AllocatedTaskResources
from lepa.model.task import LogConfig

FIGURES = ("tasks.start.exec", "tasks.start.docker")
ISOLATED, AT_ONCE = 40, 4
CONTAINERS = 6
ROUNDS = 3
PATH = ENVIRONMENT["PATH"]


def run() -> list[Figure]:
    """Every figure about isolated starts that this machine can give."""
    folder = Path(tempfile.mkdtemp(prefix="lepa-bench-"))
    folder.chmod(0o755)
    figures: list[Figure] = []
    try:
        if os.geteuid() == 0 and shutil.which("crun", path=PATH):
            components.allow_crun()
            figures.append(asyncio.run(_isolated(folder)))
        if os.geteuid() == 0 and shutil.which("dockerd", path=PATH) and shutil.which("docker"):
            with components.docker_daemon(folder) as endpoint:
                figures.append(asyncio.run(_docker(folder, endpoint)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def _task(folder: Path, config: dict[str, object]) -> TaskConfig:
    number = uuid.uuid4().hex
    directory = folder / number
    for name in ("alloc", "local", "secrets"):
        (directory / name).mkdir(parents=True)
    return TaskConfig(
        id=f"bench-{number}",
        alloc_id=number,
        task_name="bench",
        config=config,
        env={"PATH": "/usr/bin:/bin"},
        alloc_dir=str(directory / "alloc"),
        task_dir=str(directory),
        local_dir=str(directory / "local"),
        secrets_dir=str(directory / "secrets"),
        stdout_path=str(directory / "out"),
        stderr_path=str(directory / "err"),
        logs=LogConfig(max_files=1, max_file_size_mb=1),
        resources=AllocatedTaskResources(
            cpu=AllocatedCpuResources(cpu_shares=100), memory=AllocatedMemoryResources(memory_mb=64)
        ),
    )


async def _isolated(folder: Path) -> Figure:
    ours, bare = [], []
    async with await Supervisor.connect(str(folder / "supervisor"), clock=SystemClock()) as supervisor:
        driver = OciExec(supervisor, SystemClock(), ExecSettings(), str(folder / "state"))
        await driver.fingerprint()
        for _ in range(ROUNDS):
            tasks = [_task(folder, {"command": "/bin/sleep", "args": ["600"]}) for _ in range(ISOLATED)]
            bundles = {task.id: folder / "state" / "exec" / "bundles" / task.id for task in tasks}
            ours.append(await _rate(ISOLATED, lambda number, tasks=tasks: driver.start(tasks[number])))  # type: ignore[misc]
            configs = [json.loads((bundles[task.id] / "config.json").read_text()) for task in tasks]
            await _at_once(ISOLATED, lambda number, tasks=tasks: driver.destroy(tasks[number].id))  # type: ignore[misc]
            bare.append(await _bare_crun(folder, configs))
        await supervisor.shutdown(kill=True)
        await driver.close()
    return Figure("tasks.start.exec", median(ours), "tasks/s", median(bare), "bare crun")


async def _bare_crun(folder: Path, configs: list[dict[str, object]]) -> float:
    """Starts a second of the same containers by nobody but crun."""
    root = folder / "bare"
    names = [f"bare-{uuid.uuid4().hex[:12]}" for _ in configs]
    for name, config in zip(names, configs, strict=True):
        config["linux"]["cgroupsPath"] = f"/lepa-bench/{name}"  # type: ignore[index]
        (root / name).mkdir(parents=True)
        (root / name / "config.json").write_text(json.dumps(config))

    async def start(number: int) -> None:
        name = names[number]
        where = ("--bundle", str(root / name), "--pid-file", str(root / name / "pid"))
        await _call("crun", "--root", str(root / "state"), "run", "--detach", *where, name)

    rate = await _rate(len(names), start)
    await _at_once(
        len(names), lambda number: _call("crun", "--root", str(root / "state"), "delete", "--force", names[number])
    )
    for directory in Path("/sys/fs/cgroup").glob("*/lepa-bench"):
        directory.rmdir()
    shutil.rmtree(root)
    return rate


async def _docker(folder: Path, endpoint: str) -> Figure:
    ours, bare = [], []
    image = components.BUSYBOX_IMAGE
    limits = ("--memory", "64m", "--cpu-shares", "100", "--log-opt", "max-size=2m")
    driver = DockerDriver(SystemClock(), DockerSettings(endpoint=endpoint), str(folder / "state"))
    for _ in range(ROUNDS):
        config: dict[str, object] = {"image": image, "command": "/bin/sleep", "args": ["600"]}
        tasks = [_task(folder, config) for _ in range(CONTAINERS)]
        started = time.perf_counter()
        for task in tasks:
            await driver.start(task)
        ours.append(CONTAINERS / (time.perf_counter() - started))
        for task in tasks:
            await driver.destroy(task.id)
        started = time.perf_counter()
        names = []
        for _ in range(CONTAINERS):
            run = ("docker", "-H", endpoint, "run", "-d", *limits, image, "/bin/sleep", "600")
            done = await asyncio.to_thread(subprocess.run, run, check=True, capture_output=True, text=True)
            names.append(done.stdout.strip())
        bare.append(CONTAINERS / (time.perf_counter() - started))
        await _call("docker", "-H", endpoint, "rm", "--force", *names)
    await driver.close()
    return Figure("tasks.start.docker", median(ours), "tasks/s", median(bare), "a `docker run -d` loop")


async def _rate(count: int, call: Callable[[int], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await _at_once(count, call)
    return count / (time.perf_counter() - started)


async def _at_once(count: int, call: Callable[[int], Awaitable[object]]) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def guarded(number: int) -> None:
        async with gate:
            await call(number)

    await asyncio.gather(*(guarded(number) for number in range(count)))


async def _call(*words: str) -> None:
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*words, stdin=null, stdout=null, stderr=null)
    assert await process.wait() == 0, words
