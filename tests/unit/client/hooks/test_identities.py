"""Identities of tasks: what they are handed, when it is renewed, and what they are told (`lepa.client.identities`)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task
from tests.clocks import ManualClock
from tests.unit.client.hooks.test_templates import FakeTask

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.identities import IdentityHook, shown
from lepa.client.hooks.protocol import HookError, Setup
from lepa.client.identities import Identities
from lepa.client.task_env import Directories, Place
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.model.identity import WorkloadIdentity
from lepa.rpc.acl_requests import SignedIdentity
from lepa.rpc.requests import Reply

SECOND = 1_000_000_000


class Bench:
    """A hook, the servers that sign, and the sockets of the agent."""

    def __init__(self, root: Path) -> None:
        self.clock, self.task = ManualClock(), FakeTask()
        self.asked: list[Any] = []
        self.error: LepaError | None = None
        self.refused = ""
        self.ttls: dict[str, int] = {}
        self.sockets: list[Path] = []
        self.no_sockets = False
        self.node = make_node()
        self.directory = AllocDir(root, "a")
        self.directory.build(["web"])
        signer = Identities(self, lambda: self.node)
        self.hook = IdentityHook(self.directory, signer, self, self.clock, SeededRandom(1))

    async def call(self, method: Any, request: Any) -> Reply[Any]:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        now = self.clock.now_ns()
        number = len(self.asked)
        return Reply(
            value=tuple(
                SignedIdentity(
                    wanted=each,
                    jwt=f"{each.identity}-{number}",
                    expires_at=now + self.ttls[each.identity] if each.identity in self.ttls else 0,
                    error=self.refused,
                )
                for each in request.wanted
            )
        )

    def stream(self, method: Any, request: Any) -> Any:
        raise AssertionError

    async def open(self, path: Path) -> None:
        if self.no_sockets:
            raise OSError(1, "no room")
        self.sockets.append(path)

    async def close(self, path: Path) -> None:
        self.sockets.remove(path)

    def setup(self, *identities: WorkloadIdentity) -> Setup:
        task = make_task(driver="raw_exec", identities=identities)
        group = make_group(tasks=(task,))
        job = make_job(groups=(group,))
        place = Place(self.node, "global", job, group, task, make_alloc("a", job=job), Directories("", "", "/s"))
        return Setup(place, {}, self.task)

    def read(self, name: str) -> str:
        return (self.directory.task("web").secrets / name).read_text()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = Bench(tmp_path)
    yield found
    await found.hook.close()
    found.directory.destroy()


async def test_a_task_gets_what_its_blocks_say_and_a_socket(bench: Bench) -> None:
    setup = bench.setup(
        WorkloadIdentity(env=True, file=True),
        WorkloadIdentity(name="aws", file=True),
        WorkloadIdentity(name="elsewhere", env=True, filepath="local/it.jwt"),
        WorkloadIdentity(name="hidden"),
    )
    added = await bench.hook.prestart(setup)
    assert added == {
        "NOMAD_TOKEN": "default-1",
        "NOMAD_TOKEN_elsewhere": "elsewhere-1",
        "NOMAD_UNIX_ADDR": "unix:///s/api.sock",
    }
    assert bench.read("nomad_token") == "default-1"
    assert bench.read("nomad_aws.jwt") == "aws-1"
    assert (bench.directory.task("web").local / "it.jwt").read_text() == "elsewhere-1"
    assert (bench.directory.task("web").secrets / "nomad_token").stat().st_mode & 0o777 == 0o600
    (asked,) = bench.asked
    assert (asked.node_id, asked.secret_id) == (bench.node.id, bench.node.secret_id)
    assert [each.identity for each in asked.wanted] == ["default", "aws", "elsewhere"]
    assert [path.name for path in bench.sockets] == ["api.sock"]
    await bench.hook.exited()
    assert bench.sockets == []


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        (WorkloadIdentity(name="x", file=True, ttl=100 * SECOND), []),
        (WorkloadIdentity(name="x", file=True, ttl=100 * SECOND, change_mode="restart"), ["restart"]),
        (
            WorkloadIdentity(name="x", file=True, ttl=100 * SECOND, change_mode="signal", change_signal="SIGHUP"),
            ["signal SIGHUP"],
        ),
    ],
)
async def test_an_identity_with_an_end_is_renewed_after_half_its_life(
    bench: Bench, change: WorkloadIdentity, heard: list[str]
) -> None:
    bench.ttls["x"] = 100 * SECOND
    await bench.hook.prestart(bench.setup(change))
    await bench.clock.advance(45)
    assert bench.read("nomad_x.jwt") == "x-1"
    await bench.clock.advance(20)
    await asyncio.sleep(0.05)
    assert bench.read("nomad_x.jwt") == "x-2"
    assert bench.task.asked == heard


async def test_a_renewal_that_fails_is_tried_again(bench: Bench) -> None:
    bench.ttls["x"] = 100 * SECOND
    await bench.hook.prestart(bench.setup(WorkloadIdentity(name="x", file=True, ttl=100 * SECOND)))
    bench.error = LepaError("no_leader", "away")
    await bench.clock.advance(65)
    assert len(bench.asked) > 2
    assert bench.read("nomad_x.jwt") == "x-1"
    bench.error = None
    await bench.clock.advance(60)
    await asyncio.sleep(0.05)
    assert bench.read("nomad_x.jwt") == f"x-{len(bench.asked)}"


async def test_after_a_restart_of_the_agent_the_socket_is_back_and_identities_with_an_end_are_renewed(
    bench: Bench,
) -> None:
    bench.ttls["x"] = 100 * SECOND
    setup = bench.setup(WorkloadIdentity(env=True), WorkloadIdentity(name="x", file=True, ttl=100 * SECOND))
    await bench.hook.recovered(setup)
    await bench.clock.advance(0.1)
    await asyncio.sleep(0.05)
    assert [path.name for path in bench.sockets] == ["api.sock"]
    assert bench.read("nomad_x.jwt") == "x-1"


async def test_refusals_fail_the_task_with_the_reason(bench: Bench) -> None:
    setup = bench.setup(WorkloadIdentity(env=True))
    bench.refused = "unknown allocation"
    with pytest.raises(HookError, match='identity "default": unknown allocation'):
        await bench.hook.prestart(setup)
    bench.error = LepaError("denied", "Permission denied")
    with pytest.raises(HookError) as caught:
        await bench.hook.prestart(setup)
    assert not caught.value.recoverable
    bench.error = LepaError("no_leader", "away")
    with pytest.raises(HookError) as caught:
        await bench.hook.prestart(setup)
    assert caught.value.recoverable


async def test_a_task_without_a_socket_runs_all_the_same(bench: Bench) -> None:
    bench.no_sockets = True
    assert "NOMAD_TOKEN" in await bench.hook.prestart(bench.setup(WorkloadIdentity(env=True)))
    assert bench.task.asked == ["note the task's socket api.sock cannot be opened: no room"]


async def test_the_default_identity_is_signed_for_whoever_asks_for_the_task(bench: Bench) -> None:
    place = bench.setup().place
    assert await Identities(bench, lambda: bench.node).default(place) == "default-1"
    bench.refused = "no"
    with pytest.raises(LepaError, match="no"):
        await Identities(bench, lambda: bench.node).default(place)


def test_only_what_is_shown_counts() -> None:
    assert shown(make_task()) == []
    seen = WorkloadIdentity(env=True)
    assert shown(make_task(identity=seen, identities=(WorkloadIdentity(name="x"),))) == [seen]
