"""The file behind the SQLite store: what it refuses, and what a full disk does."""

import os
import sqlite3
from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.store.protocol import Committed, Compare, Put, Txn
from lepa.store.sqlite_file import EndLease, Request, SqliteFile


def request(key: str, value: bytes = b"1", lease: int = 0) -> Request:
    return Request(Txn((Put(key, value, lease),)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def written(path: Path, count: int = 200) -> dict[str, bytes]:
    """A closed file with `count` entries of 1 KB; returns them."""
    entries = {f"allocs/{at}": os.urandom(1_000) for at in range(count)}
    file = SqliteFile(path)
    file.commit([request(key, value) for key, value in entries.items()])
    file.close()
    return entries


def refusal(path: Path) -> LepaError:
    with pytest.raises(LepaError) as caught:
        SqliteFile(path)
    return caught.value


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".lock"}


def test_what_was_committed_is_there_after_opening_again(path: Path) -> None:
    entries = written(path)
    file = SqliteFile(path)
    read = file.read("")
    assert {entry.key: entry.value for entry in read.entries} == entries
    assert read.revision == file.revision == 200
    file.close()


def test_a_new_file_can_be_read_by_its_owner_only(path: Path) -> None:
    written(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_keys_of_leases_do_not_outlive_their_process(path: Path) -> None:
    file = SqliteFile(path)
    file.commit([request("leader", lease=3), request("a")])
    file.close()
    file = SqliteFile(path)
    assert [entry.key for entry in file.read("").entries] == ["a"]
    assert file.revision == 3
    file.close()


def test_a_lease_is_ended_in_its_turn(path: Path) -> None:
    file = SqliteFile(path)
    group = file.commit([request("a", lease=3), Request(EndLease(3)), request("b")])
    assert [(change.key, change.value, change.revision) for change in group.changes] == [
        ("a", b"1", 1),
        ("a", None, 2),
        ("b", b"1", 3),
    ]
    file.close()


def test_later_requests_of_a_group_see_the_earlier_ones(path: Path) -> None:
    file = SqliteFile(path)
    txn = Txn((Put("a", b"1"),), (Compare("a", created=0),))
    assert file.commit([Request(txn), Request(txn)]).results == [Committed(True, 1), Committed(False, 1)]
    file.close()


def test_a_second_agent_is_refused_and_told_who_is_there(path: Path) -> None:
    file = SqliteFile(path)
    error = refusal(path)
    assert error.code == "conflict"
    assert f"in use by another agent (process {os.getpid()})" in error.message
    file.close()
    SqliteFile(path).close()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused_and_left_as_it_is(path: Path, share: float) -> None:
    written(path)
    os.truncate(path, int(path.stat().st_size * share))
    before = bytes_of(path.parent)
    error = refusal(path)
    assert error.code == "invalid"
    assert "damaged" in error.message
    assert "backup" in error.message
    assert {name: data for name, data in bytes_of(path.parent).items() if name in before} == before
    assert refusal(path).message == error.message


def test_an_emptied_file_is_refused(path: Path) -> None:
    written(path)
    os.truncate(path, 0)
    assert "damaged" in refusal(path).message


def test_a_file_with_scrambled_pages_is_refused(path: Path) -> None:
    written(path)
    with path.open("r+b") as file:
        for page in range(4, 40):
            file.seek(page * 4096)
            file.write(os.urandom(64))
    assert "damaged" in refusal(path).message


def test_a_log_without_its_file_is_refused(path: Path) -> None:
    written(path)
    path.rename(f"{path}-wal")
    assert "is missing but its log" in refusal(path).message


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("region = 'global'\n" * 100)
    error = refusal(path)
    assert error.message.startswith(f"{path} is not a lepa state file")


def test_a_database_of_something_else_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE music (name)")
    other.commit()
    other.close()
    assert "is not a lepa state file" in refusal(path).message


def test_a_file_of_a_newer_lepa_is_refused(path: Path) -> None:
    written(path)
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert "newer lepa (format 99)" in refusal(path).message


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    assert str(path) in refusal(path).message


def test_a_refused_file_is_not_kept_locked(path: Path) -> None:
    path.write_text("not ours" * 1_000)
    refusal(path)
    path.unlink()
    SqliteFile(path).close()


def test_a_half_made_file_is_made_again(path: Path) -> None:
    Path(f"{path}.new").write_bytes(b"SQLite format 3\0")
    SqliteFile(path).close()
    assert not Path(f"{path}.new").exists()


def limit_pages(file: SqliteFile, pages: int) -> None:
    file._writer.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_an_error_that_loses_nothing(path: Path) -> None:
    file = SqliteFile(path)
    limit_pages(file, 64)
    kept = 0
    while isinstance(result := file.commit([request(f"k/{kept}", bytes(20_000))]).results[0], Committed):
        kept += 1
    assert isinstance(result, LepaError)
    assert "disk" in result.message
    assert "full" in result.message
    assert {entry.key for entry in file.read("").entries} == {f"k/{at}" for at in range(kept)}
    limit_pages(file, 10_000)
    assert file.commit([request("later")]).results == [Committed(True, kept + 1)]
    file.close()


def test_a_full_disk_refuses_the_whole_group(path: Path) -> None:
    file = SqliteFile(path)
    limit_pages(file, 64)
    group = file.commit([request(f"k/{at}", bytes(20_000)) for at in range(30)])
    assert all(isinstance(result, LepaError) for result in group.results)
    assert len({id(result) for result in group.results}) == 30
    assert group.changes == ()
    assert file.read("") == (0, [])
    file.close()


def test_a_value_that_cannot_be_stored_does_not_take_its_group_along(path: Path) -> None:
    file = SqliteFile(path)
    group = file.commit([request("a"), request("lone surrogate \ud800"), request("b")])
    assert [getattr(result, "code", "kept") for result in group.results] == ["kept", "internal", "kept"]
    assert [change.key for change in group.changes] == ["a", "b"]
    assert [entry.key for entry in file.read("").entries] == ["a", "b"]
    file.close()


class LostSync(sqlite3.OperationalError):
    sqlite_errorname = "SQLITE_IOERR_FSYNC"


def test_after_a_lost_sync_nothing_is_acknowledged_any_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SqliteFile(path)

    def fail(_: object) -> None:
        raise LostSync("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(file, "_commit", fail)
        assert file.commit([request("a")]).results[0].code == "timeout"  # type: ignore[union-attr]
    result = file.commit([request("b")]).results[0]
    assert isinstance(result, LepaError)
    assert "check the disk" in result.message
    file.close()
