"""What a node knows after its agent was restarted."""

from pathlib import Path

import pytest
from tests.builders import make_alloc, make_job

from lepa.client.local_state import LocalState, TaskRecord
from lepa.drivers.protocol import TaskHandle
from lepa.model.allocation import TaskState
from lepa.model.errors import LepaError

RECORD = TaskRecord(
    driver="raw_exec",
    task_id="t",
    handle=TaskHandle(driver="raw_exec", task_id="t", state={"pid": 1}),
    state=TaskState(state="running"),
)


async def test_everything_is_there_after_opening_again(tmp_path: Path) -> None:
    state = LocalState(tmp_path / "state.db")
    await state.save_facts({"node_id": "n"})
    await state.save_facts({"gone": "x"})
    await state.drop_facts(["gone"])
    alloc = make_alloc("a", job=make_job())
    await state.save_allocation(alloc)
    await state.save_task("a", "web", TaskRecord(driver="raw_exec"))
    state.note_task("a", "web", RECORD)
    await state.save_allocation(make_alloc("b"))
    await state.forget("b")
    state.close()
    again = LocalState(tmp_path / "state.db")
    contents = again.load()
    assert [(found.alloc, found.tasks) for found in contents.allocations] == [(alloc, {"web": RECORD})]
    assert again.facts() == {"node_id": "n"}
    again.close()


async def test_an_unreadable_allocation_is_told_apart_with_its_tasks(tmp_path: Path) -> None:
    state = LocalState(tmp_path / "state.db")
    await state.save_task("bad", "web", RECORD)
    await state.save_allocation(make_alloc("good"))
    for raw in (b"", b"\xc1", b"\x93\x01"):
        await state._put("allocations", "bad", raw)
        contents = state.load()
        assert [found.alloc.id for found in contents.allocations] == ["good"]
        assert contents.unreadable == {"bad": {"web": RECORD}}
    state.close()


def test_a_file_that_is_no_state_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database, and long enough to look like one" * 100)
    with pytest.raises(LepaError, match="move it away"):
        LocalState(tmp_path / "state.db")


def test_nobody_else_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch(mode=0o644)
    state = LocalState(path)
    try:
        modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}
    finally:
        state.close()
    assert set(modes) == {"state.db", "state.db-wal", "state.db-shm"}
    assert set(modes.values()) == {0o600}
