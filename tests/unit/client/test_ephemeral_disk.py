"""The disk of an allocation: whom it waits for, and what comes of the data of the one before."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group

from lepa.client import migration
from lepa.client.alloc_dir import AllocDir
from lepa.client.ephemeral_disk import DiskParts, EphemeralDisk
from lepa.model import job
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.migration import MigrateSource

GROUP = make_group(ephemeral_disk=job.EphemeralDisk(sticky=True, migrate=True))
NEXT = replace(make_alloc("next"), previous_allocation="before")
SOURCE = MigrateSource("192.0.2.1:4646", "token")
TASK = GROUP.tasks[0].name


class Before(NamedTuple):
    """The allocation before, as its runner shows it."""

    alloc: Allocation
    directory: AllocDir
    finished: asyncio.Event
    sticky: bool = True


class Host:
    """A node, and an allocation on it that may be told to end. sources: where data of other nodes are."""

    def __init__(self, root: Path, http: aiohttp.ClientSession) -> None:
        self.root = root
        self.sources: dict[str, MigrateSource] = {}
        self.parts = DiskParts(http, asyncio.Event(), self.sources.get, asyncio.Semaphore(1))
        self.directory = AllocDir(root, NEXT.id)
        self.news = asyncio.Event()
        self.stopped = False
        self.disk = EphemeralDisk(
            NEXT, GROUP, self.directory, self.parts, stopping=lambda: self.stopped, news=self.news
        )

    def before(self, alloc_id: str = "before", *, sticky: bool = True) -> Before:
        """An allocation that runs here and has written something."""
        directory = AllocDir(self.root, alloc_id)
        directory.build([TASK])
        (directory.shared / "data" / "kept").write_text(alloc_id)
        return Before(make_alloc(alloc_id), directory, asyncio.Event(), sticky)

    def stop(self) -> None:
        """Nobody wants the allocation any more."""
        self.stopped = True
        self.news.set()

    def kept(self) -> list[str]:
        """What is in the data of the new allocation."""
        return [file.read_text() for file in (self.directory.shared / "data").iterdir()]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with aiohttp.ClientSession() as http:
        yield Host(tmp_path, http)


def fetching(monkeypatch: pytest.MonkeyPatch, outcome: int | LepaError | None) -> asyncio.Event:
    """Let data come, fail, or never come; tells when they are asked for."""
    asked = asyncio.Event()

    async def fetch(
        _http: object, _source: object, _id: str, into: AllocDir, _tasks: Sequence[str], _mb: int, _tls: object
    ) -> int:
        assert (into.path / migration.INCOMING).exists(), "an agent that starts now has to begin again"
        asked.set()
        if isinstance(outcome, LepaError):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        return outcome or 0

    monkeypatch.setattr(migration, "fetch", fetch)
    return asked


async def prepared(host: Host, earlier: Sequence[Before] = ()) -> str:
    host.parts.may_start.set()
    return await asyncio.wait_for(host.disk.prepare(earlier), 10)


async def test_the_data_of_the_allocation_before_are_taken_once_it_has_ended(host: Host) -> None:
    before, other = host.before(), host.before("other")
    other.finished.set()
    async with asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(prepared(host, [before, other]))
        for _ in range(3):
            host.news.set()
            await asyncio.sleep(0)
        assert host.disk.fresh
        assert not preparing.done()
        before.finished.set()
    assert preparing.result() == ""
    assert host.kept() == ["before"]
    assert not host.disk.fresh


async def test_a_disk_that_is_not_sticky_leaves_its_data(host: Host) -> None:
    before = host.before(sticky=False)
    before.finished.set()
    assert await prepared(host, [before]) == ""
    assert host.kept() == []


async def test_an_allocation_that_is_to_end_waits_for_nobody(host: Host) -> None:
    async with asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(prepared(host, [host.before()]))
        await asyncio.sleep(0)
        host.stop()
    assert preparing.result() == ""


async def test_data_of_another_node_are_fetched_and_told_of(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching(monkeypatch, 42)
    host.sources[NEXT.id] = SOURCE
    assert await prepared(host) == "data of allocation before were moved from 192.0.2.1:4646: 42 bytes"
    assert not host.disk.fresh


async def test_a_disk_is_empty_when_its_data_cannot_be_had(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    fetching(monkeypatch, LepaError("internal", "they are lost"))
    host.sources[NEXT.id] = SOURCE
    assert await prepared(host) == "they are lost; the disk is empty"
    assert not host.disk.fresh


async def test_a_disk_is_empty_when_the_node_of_its_data_is_gone(host: Host) -> None:
    assert await prepared(host) == "data of allocation before are gone with its node; the disk is empty"


async def test_fetching_ends_when_the_allocation_is_stopped(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fetching(monkeypatch, None)
    host.sources[NEXT.id] = SOURCE
    async with asyncio.TaskGroup() as tasks:
        preparing = tasks.create_task(prepared(host))
        await asked.wait()
        host.stop()
    assert preparing.result() == "data were not moved: the allocation was stopped first"


async def test_directories_that_cannot_be_made_are_an_error(host: Host) -> None:
    host.directory.path.write_text("in the way")
    with pytest.raises(LepaError, match="cannot make directories"):
        await prepared(host)
