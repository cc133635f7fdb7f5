"""A dispatched job's payload."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.payload import PayloadHook
from lepa.client.hooks.protocol import HookError, Setup, TaskControl
from lepa.client.task_env import Directories, Place
from lepa.model.task import DispatchPayloadConfig


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[AllocDir]:
    found = AllocDir(tmp_path, "a")
    found.build(["web"])
    yield found
    found.destroy()


def setup_of(payload: bytes, file: str | None) -> Setup:
    task = make_task(dispatch_payload=DispatchPayloadConfig(file=file) if file else None)
    group = make_group(tasks=(task,))
    job = make_job(groups=(group,), payload=payload)
    place = Place(make_node(), "global", job, group, task, make_alloc("a", job=job), Directories("", "", ""))
    return Setup(place, {}, cast(TaskControl, cast(Any, None)))


async def test_it_is_written_where_the_task_wants_it(directory: AllocDir) -> None:
    assert await PayloadHook(directory).prestart(setup_of(b"data", "in/put.json")) == {}
    assert (directory.task("web").local / "in/put.json").read_bytes() == b"data"


async def test_nothing_is_written_without_payload_or_wish(directory: AllocDir) -> None:
    await PayloadHook(directory).prestart(setup_of(b"", "x"))
    await PayloadHook(directory).prestart(setup_of(b"data", None))
    assert list(directory.task("web").local.iterdir()) == []


async def test_a_file_outside_is_refused_for_good(directory: AllocDir) -> None:
    with pytest.raises(HookError, match="escapes") as raised:
        await PayloadHook(directory).prestart(setup_of(b"data", "../../../x"))
    assert not raised.value.recoverable
