"""An agent that dies before or after any write of its state (R5): taken up again or ended cleanly, never lost or twice.

The write is reached in an agent inside the test: from then on nothing is written any more, and the agent is left as if
killed. Modules: lepa.client.local_state, lepa.client.allocations, lepa.client.alloc_runner, lepa.client.task_runner.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.integration.test_client import job_of, shell
from tests.node import WITHIN_S, Servers, own_supervisor, placed, running_client

from lepa.client import secrets_mount
from lepa.client.client import Client
from lepa.client.local_state import LocalState
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

WRITES_MAX = 40
POINTS_MIN = 20


class Crash:
    """The end of an agent at a write. after: once the write is on disk, else before it."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after = at, after
        self.reached = asyncio.Event()
        self._seen = 0
        self._dead = False

    def await_in(self, state: LocalState) -> None:
        loop, commit = asyncio.get_running_loop(), state._commit

        def counted(group: list[Any]) -> None:
            if not self._dead and self._seen == self.at:
                if self.after:
                    commit(group)
                self._dead = True
                loop.call_soon_threadsafe(self.reached.set)
            self._seen += 1
            if not self._dead:
                commit(group)

        state._commit = counted  # type: ignore[method-assign]


def processes(alloc_id: str) -> list[int]:
    """Live processes that say that they are of an allocation."""
    found, wanted = [], f"NOMAD_ALLOC_ID={alloc_id}\0".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes():
                found.append(int(path.parent.name))
    return found


class Node:
    """Agents on one directory and supervisor, one after the other."""

    def __init__(self, folder: Path, servers: Servers, supervisor: Supervisor) -> None:
        self._folder, self._servers, self._supervisor = folder, servers, supervisor

    @contextlib.asynccontextmanager
    async def agent(self) -> AsyncIterator[Client]:
        drivers = {"raw_exec": RawExec(self._supervisor, SystemClock(), RawExecSettings(enabled=True))}
        async with running_client(self._folder, self._servers, drivers) as client:
            yield client


async def life(client: Client, servers: Servers, number: int) -> None:
    """An allocation from its placement to its end, with a restart between."""
    job = job_of(shell("trap 'exit 0' INT; while :; do sleep 0.02; done"))
    servers.place(alloc := placed(job, number))
    await servers.status(alloc.id, "running")
    await client.restart(alloc.id)
    await servers.until(lambda: servers.events(alloc.id).count("Started") == 2)
    servers.stop(alloc.id)
    await servers.status(alloc.id, "complete")
    servers.forget(alloc.id)
    await servers.until(lambda: not processes(alloc.id))


async def test_no_write_of_the_state_is_a_bad_moment_to_die(tmp_path: Path) -> None:
    servers, points = Servers(), 0
    async with own_supervisor(tmp_path) as supervisor:
        node = Node(tmp_path / "node", servers, supervisor)
        async with node.agent():
            pass
        for at in range(WRITES_MAX):
            reached = [await died_at(node, servers, Crash(at, after=after), 2 * at + after) for after in (False, True)]
            points += sum(reached)
            if not any(reached):
                break
    secrets_mount.unmount_below(tmp_path)
    assert points >= POINTS_MIN


async def died_at(node: Node, servers: Servers, crash: Crash, number: int) -> bool:
    """Whether the write was reached; if so, what was left was taken up or ended, and nothing runs twice."""
    alloc_id = placed(job_of(shell("")), number + 1).id
    async with node.agent() as client:
        crash.await_in(client._state)
        living = asyncio.ensure_future(life(client, servers, number + 1))
        dying = asyncio.ensure_future(crash.reached.wait())
        await asyncio.wait({living, dying}, return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN_S)
        for each in (living, dying):
            each.cancel()
        await asyncio.gather(living, dying, return_exceptions=True)
    if not crash.reached.is_set():
        return False
    wanted = servers.allocations.get(alloc_id)
    async with node.agent():
        if wanted is not None and wanted.desired_status == "run":
            await servers.status(alloc_id, "running")
            await servers.until(lambda: len(processes(alloc_id)) == 1, f"one process at {vars(crash)}")
            servers.stop(alloc_id)
        if wanted is not None:
            await servers.status(alloc_id, "complete", "failed")
            servers.forget(alloc_id)
        await servers.until(lambda: not processes(alloc_id), f"no process at {vars(crash)}")
    return True
