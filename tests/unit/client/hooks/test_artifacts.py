"""Fetching: what the hook does around it. Real servers and repositories: tests/integration/test_client_hooks.py."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.artifacts import ArtifactHook
from lepa.client.hooks.protocol import HookError, Setup, TaskControl
from lepa.client.task_env import Directories, Place
from lepa.model.task import TaskArtifact


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[AllocDir]:
    found = AllocDir(tmp_path, "a")
    found.build(["web"])
    yield found
    found.destroy()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Notes:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def note(self, kind: str, message: str) -> None:
        self.kinds.append(kind)


def setup_of(notes: Notes, *artifacts: TaskArtifact) -> Setup:
    task = make_task(artifacts=artifacts)
    group = make_group(tasks=(task,))
    job = make_job(groups=(group,))
    place = Place(make_node(), "global", job, group, task, make_alloc("a", job=job), Directories("", "", ""))
    return Setup(place, {}, cast(TaskControl, cast(Any, notes)))


async def test_what_was_fetched_once_is_not_fetched_at_a_restart(
    directory: AllocDir, http: aiohttp.ClientSession
) -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hook, notes = ArtifactHook(directory, http), Notes()
        setup = setup_of(notes, TaskArtifact(getter_source=f"http://127.0.0.1:{port}/x"))
        await hook.prestart(setup)
        await hook.prestart(setup)
    assert asked == 1
    assert notes.kinds == ["Downloading Artifacts"]
    assert (directory.task("web").local / "x").read_bytes() == b"ok"


@pytest.mark.parametrize(
    ("artifact", "recoverable"),
    [
        (TaskArtifact(getter_source="http://127.0.0.1:1/x"), True),
        (TaskArtifact(getter_source="ftp://h/x"), False),
        (TaskArtifact(getter_source="http://127.0.0.1:1/x", relative_dest="../../../x"), False),
        (TaskArtifact(getter_source="git::file:///no/such/repository"), False),
        (TaskArtifact(getter_source="git::git://127.0.0.1:1/repository"), True),
    ],
)
async def test_a_failure_says_whether_it_may_pass(
    directory: AllocDir, http: aiohttp.ClientSession, artifact: TaskArtifact, recoverable: bool
) -> None:
    with pytest.raises(HookError) as raised:
        await ArtifactHook(directory, http).prestart(setup_of(Notes(), artifact))
    assert raised.value.recoverable == recoverable
    assert raised.value.event == "Failed Artifact Download"
    assert list(directory.task("web").private.iterdir()) == []
