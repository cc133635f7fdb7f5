"""What former versions kept is read (R15), from files that were written down when their formats were the present ones.

`python -m tests.golden` adds the files of a new format.
"""

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.__main__ import ALLOC, FACTS, GOLDEN, JOB, RECORD, ROWS, restore

from lepa.client import local_state
from lepa.client.local_state import LocalState
from lepa.model.errors import LepaError
from lepa.model.wire import Wire, from_msgpack
from lepa.server.key_file import load_or_make
from lepa.state import keys
from lepa.state.reducer import reduce
from lepa.state.snapshot import empty_snapshot
from lepa.store import archive, sqlite_file
from lepa.store.protocol import Change, Entry, Put, Txn
from lepa.store.sqlite_file import Request, SqliteFile

OBJECTS: dict[str, Any] = json.loads((GOLDEN / "objects.json").read_text())
SERVERS = sorted(GOLDEN.glob("server-*.sql"))
CLIENTS = sorted(GOLDEN.glob("client-*.sql"))


def test_the_present_formats_are_written_down() -> None:
    """R15: whoever raises a format leaves a file of it here."""
    assert GOLDEN / f"server-{sqlite_file.FORMAT}.sql" in SERVERS
    assert GOLDEN / f"client-{local_state.FORMAT}.sql" in CLIENTS
    assert (GOLDEN / f"saved-{archive.VERSION}.snap").exists()
    assert sorted(keys.KINDS) == sorted(OBJECTS)


def lost(before: Any, now: Any, place: str = "") -> list[str]:
    """What was shown and is not shown any more, or is shown as something else."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [each for name, value in before.items() for each in lost(value, now.get(name), f"{place}.{name}")]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [each for at, value in enumerate(before) for each in lost(value, now[at], f"{place}[{at}]")]
    return [] if before == now else [f"{place}: {before!r} was kept, {now!r} is read"]


@pytest.mark.parametrize("table", sorted(OBJECTS))
def test_every_field_of_an_object_is_read_as_it_was_kept(table: str) -> None:
    """R15."""
    found: Wire = from_msgpack(base64.b64decode(OBJECTS[table]["stored"]), keys.KINDS[table])
    assert lost(OBJECTS[table]["shown"], json.loads(msgspec.json.encode(found))) == []


def assert_rows(entries: list[Entry]) -> None:
    snapshot = reduce(empty_snapshot(), [Change(each.key, each.value, each.created, each.modified) for each in entries])
    found = {each.key: from_msgpack(each.value, keys.KINDS[keys.split(each.key)[0]]) for each in entries}
    kept = {key: from_msgpack(keys.put(key, row).value, type(row)) for key, row in ROWS.items()}
    assert found == kept
    job = snapshot.snapshot.job("default", "web")
    assert job is not None
    assert job.task_groups == JOB.task_groups


@pytest.mark.parametrize("golden", SERVERS, ids=lambda path: path.stem)
def test_a_servers_state_is_read_and_written_on(tmp_path: Path, golden: Path) -> None:
    """R15."""
    restore(golden.read_text(), tmp_path / "state.db")
    for _ in range(2):
        file = SqliteFile(tmp_path / "state.db")
        assert file.revision >= len(ROWS)
        assert_rows([*file.read("").entries])
        file.commit([Request(Txn((Put("leader", b"two", 9),)))])
        file.close()


@pytest.mark.parametrize("golden", CLIENTS, ids=lambda path: path.stem)
def test_a_nodes_state_is_read_and_written_on(tmp_path: Path, golden: Path) -> None:
    """R15."""
    restore(golden.read_text(), tmp_path / "state.db")
    for _ in range(2):
        state = LocalState(tmp_path / "state.db")
        assert state.facts() == FACTS
        contents = state.load()
        state.close()
        assert contents.unreadable == {}
        ((alloc, tasks),) = contents.allocations
        assert alloc == ALLOC
        assert tasks == {"web": RECORD}


def test_a_saved_state_is_read() -> None:
    """R15."""
    for path in GOLDEN.glob("saved-*.snap"):
        found = archive.read(io.BytesIO(path.read_bytes()))
        assert found.meta.cluster == "cluster-1"
        assert_rows([*found.entries])


def test_a_key_file_is_read(tmp_path: Path) -> None:
    """R15."""
    for path in GOLDEN.glob("root-*.key"):
        shutil.copy(path, tmp_path / "root.key")
        assert base64.b64encode(load_or_make(tmp_path).key) == path.read_bytes().split()[0]


def test_a_version_before_is_told_that_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: going back is refused and changes nothing."""
    restore(SERVERS[-1].read_text(), tmp_path / "server.db")
    restore(CLIENTS[-1].read_text(), tmp_path / "client.db")
    monkeypatch.setattr(sqlite_file, "FORMAT", sqlite_file.FORMAT - 1)
    monkeypatch.setattr(local_state, "FORMAT", local_state.FORMAT - 1)
    before = [(tmp_path / name).read_bytes() for name in ("server.db", "client.db")]
    with pytest.raises(LepaError, match="written by a newer lepa"):
        SqliteFile(tmp_path / "server.db")
    with pytest.raises(LepaError, match="written by a newer lepa"):
        LocalState(tmp_path / "client.db")
    assert [(tmp_path / name).read_bytes() for name in ("server.db", "client.db")] == before
