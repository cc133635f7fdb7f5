"""What every driver does that can: tasks without cores of their own keep off those that others have reserved."""

import os
from collections.abc import Awaitable, Callable

from msgspec.structs import replace
from tests.processes import cores_of

from lepa.drivers.protocol import Driver, SharesCores, Started, TaskConfig
from lepa.model.resources import AllocatedCpuResources

FIRST, LAST = (lambda cores: (cores[0], cores[-1]))(sorted(os.sched_getaffinity(0)))
FirstProcess = Callable[[Started], Awaitable[int]]


async def in_handle(started: Started) -> int:
    """The first process of a task under the supervisor."""
    return int(started.handle.state["pid"])


async def tasks_keep_off_cores_of_others(
    driver: Driver, make: Callable[[str], TaskConfig], first_process: FirstProcess = in_handle
) -> None:
    """Also those that run already, with all their processes and threads, and only until the cores are free again."""
    assert isinstance(driver, SharesCores)
    owner = make("owns")
    cpu = AllocatedCpuResources(cpu_shares=100, reserved_cores=(FIRST,))
    owns = replace(owner, resources=replace(owner.resources, cpu=cpu))
    before, after = make("before"), make("after")
    pids = {}

    async def start(task: TaskConfig) -> None:
        pids[task.task_name] = await first_process(await driver.start(task))

    try:
        await start(before)
        await start(owns)
        await driver.share_cores((LAST,))
        await start(after)
        for name, wanted in (("owns", {FIRST}), ("before", {LAST}), ("after", {LAST})):
            _run_on(pids[name], wanted)
        await driver.share_cores((FIRST, LAST))
        for name, wanted in (("owns", {FIRST}), ("before", {FIRST, LAST}), ("after", {FIRST, LAST})):
            _run_on(pids[name], wanted)
    finally:
        for task in (before, owns, after):
            if task.task_name in pids:
                await driver.destroy(task.id)


def _run_on(pid: int, cores: set[int]) -> None:
    found = cores_of(pid)
    assert found
    assert all(each == cores for each in found), found
