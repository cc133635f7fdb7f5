"""Files that a disk has changed (R13), and disks at the moment of a power cut (R14).

Each place is cut short, emptied, zeroed in a block, changed in a bit, or has two blocks swapped. What an agent keeps is
then as it was written, or is refused with a sentence and left as it is, or what is missing is told; and nothing ends in
an error that nobody thought of.
"""

import asyncio
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import pytest
from tests.builders import make_alloc, make_job

from lepa.agent.gossip_settings import KEYRING_FILE, load_keyring
from lepa.agent.member_snapshot import read_snapshot
from lepa.agent.store_settings import CLUSTER_FILE, RECORD, check_cluster_id, read_record, write_record
from lepa.client.local_state import Contents, LocalState, TaskRecord
from lepa.drivers.protocol import TaskHandle
from lepa.drivers.supervisor.journal import read_journal
from lepa.drivers.supervisor.records import encode_record
from lepa.model.allocation import Allocation, TaskState
from lepa.model.errors import LepaError
from lepa.server.key_file import KeyEncryptionKey, load_or_make
from lepa.store import archive
from lepa.store.formation import Membership, Peer
from lepa.store.protocol import Delete, Entry, Image, Put, Read, Txn
from lepa.store.sqlite_file import Request, SqliteFile

T = TypeVar("T")
BLOCK = 512
PLACES = int(os.environ.get("LEPA_DAMAGED_PLACES", "30"))
"""How many places of each kind of file are damaged; 500 is the long form."""
CUTS = int(os.environ.get("LEPA_POWER_CUTS", "30"))


def damage(content: bytes, chance: random.Random) -> bytes:
    """The same with one thing wrong."""
    raw = bytearray(content)
    blocks = max(1, len(raw) // BLOCK)

    def block() -> slice:
        at = chance.randrange(blocks) * BLOCK
        return slice(at, at + BLOCK)

    match chance.choice(("cut", "zero", "bit", "bit", "bit", "swap", "swap page", "empty")):
        case "cut":
            del raw[chance.randrange(len(raw)) :]
        case "zero":
            found = block()
            raw[found] = bytes(len(raw[found]))
        case "bit":
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        case "swap" if blocks > 1:
            first, second = block(), block()
            raw[first], raw[second] = raw[second], raw[first]
        case "swap page" if len(raw) >= 4 * 4096:
            one, other = (4096 * chance.randrange(len(raw) // 4096) for _ in range(2))
            pages = raw[one : one + 4096], raw[other : other + 4096]
            raw[other : other + 4096], raw[one : one + 4096] = pages
        case _:
            raw.clear()
    return bytes(raw)


def damaged_folders(whole: Path, names: list[str], to: Path, seed: int = 13) -> Iterator[tuple[Path, str]]:
    """Copies of a folder in each of which one of the files is damaged, and which one it is."""
    chance = random.Random(seed)
    for number in range(PLACES * len(names)):
        name = names[number % len(names)]
        folder = to / str(number)
        shutil.copytree(whole, folder)
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(damage(before, chance))
        yield folder, name
        shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """What is worth keeping: an empty log is as good as none."""
    found = {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith(("-shm", ".lock"))}
    return {name: raw for name, raw in found.items() if raw}


def outcome(read: Callable[[Path], T], folder: Path) -> tuple[T | None, str]:
    """What is read, or the sentence with which it is refused; then everything is left as it was."""
    before = contents(folder)
    try:
        return read(folder), ""
    except LepaError as error:
        said = error
    assert said.code in ("invalid", "conflict"), said.message
    assert str(folder) in said.message
    assert contents(folder) == before, said.message
    return None, said.message


# The store


def store_in_use(folder: Path) -> Read:
    """A store as a killed agent leaves it, with a part in the file and a part in the log; what was acknowledged."""
    chance = random.Random(5)
    folder.mkdir()
    file = SqliteFile(folder / "state.db")
    file._writer.execute("PRAGMA wal_autocheckpoint = 0")
    for at in range(60):
        size = chance.choice((10, 200, 3_000, 9_000))
        file.commit([Request(Txn((Put(f"jobs/{at % 40}", chance.randbytes(size)), Put(f"evals/{at}", b"e" * 100))))])
        file.commit([Request(Txn((Delete(f"evals/{at - 7}"),)))])
        if at == 40:
            file._writer.execute("PRAGMA wal_checkpoint(RESTART)")
    read = file.read("")
    for name in ("state.db", "state.db-wal", "state.db-shm", "state.db.lock"):
        shutil.copy(folder / name, folder / f"{name}.copy")
    file.close()
    for name in ("state.db", "state.db-wal", "state.db-shm", "state.db.lock"):
        (folder / f"{name}.copy").rename(folder / name)
    return read


def opened(folder: Path) -> Read:
    """What the store holds. Raises LepaError when it is refused."""
    file = SqliteFile(folder / "state.db")
    try:
        return file.read("")
    finally:
        file.close()


def test_a_damaged_store_is_refused_as_it_is_or_whole(tmp_path: Path) -> None:
    """R13: neither less nor anything else than was acknowledged, whichever of its files is damaged."""
    acknowledged = store_in_use(tmp_path / "whole")
    names = ["state.db", "state.db-wal", "state.db-wal", "state.db-shm", "state.db.lock"]
    refused = dict.fromkeys(names, 0)
    for folder, name in damaged_folders(tmp_path / "whole", names, tmp_path):
        found, sentence = outcome(opened, folder)
        refused[name] += bool(sentence)
        assert sentence or found == acknowledged, f"{folder.name} {name}"
    assert refused["state.db"] > PLACES * 0.3
    assert refused["state.db-wal"] > PLACES
    assert refused["state.db-shm"] == 0


def test_a_store_without_one_of_its_files_is_refused(tmp_path: Path) -> None:
    """R13."""
    store_in_use(tmp_path / "whole")
    for name in ("state.db", "state.db-wal"):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "whole", folder)
        (folder / name).unlink()
        with pytest.raises(LepaError, match=re.escape(str(folder / "state.db"))):
            opened(folder)


def test_what_a_store_lost_is_gone_on_without_only_when_somebody_says_so(tmp_path: Path) -> None:
    """R13: the sentence says how."""
    whole = tmp_path / "whole"
    acknowledged = store_in_use(whole)
    (whole / "state.db-wal").unlink()
    with pytest.raises(LepaError, match=rf"up to {acknowledged.revision} were acknowledged.* remove .*state.db.lock"):
        opened(whole)
    (whole / "state.db.lock").unlink()
    assert opened(whole).revision < acknowledged.revision


def test_a_value_that_changes_under_a_running_store_is_told_when_it_is_read(tmp_path: Path) -> None:
    """R13."""
    file = SqliteFile(tmp_path / "state.db")
    file.commit([Request(Txn((Put("a", b"right"), Put("b", b"right"))))])
    file._writer.execute("UPDATE objects SET value = ? WHERE key = 'b'", (b"wrong",))
    assert [entry.key for entry in file.read("a").entries] == ["a"]
    with pytest.raises(LepaError, match="object b does not fit its checksum"):
        file.read("")
    file.close()


# Power cuts


def sectors(before: bytes, after: bytes) -> list[int]:
    """Where what was written differs, by sector."""
    size = max(len(before), len(after))
    return [at for at in range(0, size, BLOCK) if before[at : at + BLOCK] != after[at : at + BLOCK]]


def half_written(before: bytes, after: bytes, chance: random.Random) -> bytes:
    """Some of the sectors that were written after the last sync, in no order; the file may have grown already."""
    changed = sectors(before, after)
    share = chance.random()
    kept = [at for at in changed if chance.random() < share]
    grown = chance.choice((len(before), len(after), min(len(after), max([*kept, 0]) + BLOCK)))
    raw = bytearray(before[: max(len(before), grown)].ljust(grown, b"\0"))
    for at in kept:
        raw[at : at + BLOCK] = after[at : at + BLOCK]
    return bytes(raw)


def test_whatever_a_power_cut_leaves_starts_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """R14: the writes since the last sync got to the disk in part and in any order."""
    chance, names = random.Random(14), ("state.db", "state.db-wal", "state.db.lock")
    (tmp_path / "live").mkdir()
    file = SqliteFile(tmp_path / "live" / "state.db")
    file._writer.execute("PRAGMA wal_autocheckpoint = 0")

    def on_disk() -> dict[str, bytes]:
        return {name: (tmp_path / "live" / name).read_bytes() for name in names}

    synced, held = on_disk(), file.read("")
    for number in range(CUTS):
        checkpoint = number % 5 == 4
        if checkpoint:
            file._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        else:
            puts = tuple(
                Put(f"k/{chance.randrange(30)}/{at}", chance.randbytes(chance.choice((20, 9_000)))) for at in (1, 2)
            )
            file.commit([Request(Txn(puts))])
        written, after = on_disk(), file.read("")
        for attempt in range(3):
            folder = tmp_path / f"{number}-{attempt}"
            folder.mkdir()
            new_head = written["state.db-wal"][:32] != synced["state.db-wal"][:32]  # it is synced before its frames
            for name in names:
                before = synced[name]
                if new_head and name == "state.db-wal":
                    before = written[name][:32] + before[32:]
                (folder / name).write_bytes(half_written(before, written[name], chance))
            if not checkpoint:  # the number is written when the commit is on the disk
                (folder / "state.db.lock").write_bytes(synced["state.db.lock"])
            assert opened(folder) in (held, after), folder.name
            shutil.rmtree(folder)
        synced, held = written, after
    file.close()


# What a node keeps


def node_in_use(folder: Path, *, logged: bool) -> list[tuple[Allocation, dict[str, TaskRecord]]]:
    """A node's state with ten allocations, in its file or still in its log."""
    (folder / "x").mkdir(parents=True)
    state = LocalState(folder / "x" / "state.db")
    known = []
    run = state._db.execute
    for at in range(10):
        alloc = make_alloc(f"alloc-{at}", job=make_job(f"job-{at}"))
        handle = TaskHandle(driver="raw_exec", task_id=f"t-{at}", state={"pid": at})
        record = TaskRecord(driver="raw_exec", task_id=f"t-{at}", handle=handle, state=TaskState(state="running"))
        known.append((alloc, {"web": record}))

    async def save() -> None:
        await state.save_facts({"node_id": "n" * 36, "node_secret": "s" * 36})
        for alloc, records in known:
            await state.save_allocation(alloc)
            await state.save_task(alloc.id, "web", records["web"])

    asyncio.run(save())
    if not logged:
        run("pragma wal_checkpoint(truncate)")
    for name in ("state.db", "state.db-wal"):
        shutil.copy(folder / "x" / name, folder / name)
    state.close()
    shutil.rmtree(folder / "x")
    return known


def known_to_node(folder: Path) -> tuple[Contents, dict[str, str]]:
    state = LocalState(folder / "state.db")
    try:
        return state.load(), state.facts()
    finally:
        state.close()


@pytest.mark.parametrize("logged", [False, True])
def test_a_damaged_state_of_a_node_is_refused_or_loses_only_what_it_tells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, logged: bool
) -> None:
    """R13: an allocation is as it was or is told as unreadable; who the node is, is right or refused."""
    known = node_in_use(tmp_path / "whole", logged=logged)
    dropped = refused = 0
    for folder, _ in damaged_folders(tmp_path / "whole", ["state.db-wal" if logged else "state.db"], tmp_path):
        read, _ = outcome(known_to_node, folder)
        if read is None:
            refused += 1
            continue
        found, facts = read
        assert facts or logged or "is empty: this is a new node" in caplog.text
        caplog.clear()
        assert facts.items() <= {"node_id": "n" * 36, "node_secret": "s" * 36}.items()
        for each in found.allocations:
            expected = next(pair for pair in known if pair[0].id == each.alloc.id)
            assert logged or each == expected
        dropped += len(found.unreadable)
        if facts and not logged:
            assert len(found.allocations) + len(found.unreadable) == len(known)
    assert refused > PLACES * 0.15
    assert logged or dropped > 0


# Small files


def kept_keys(folder: Path) -> object:
    keyring = load_keyring(folder, "")
    return None if keyring is None else keyring.keys


def former_members(folder: Path) -> list[str]:
    return read_snapshot(folder / "snapshot", after_leave=False)


def journal(folder: Path) -> object:
    return read_journal(str(folder)).tasks


SMALL: Final[dict[str, tuple[bytes, Callable[[Path], object]]]] = {
    KEYRING_FILE: (json.dumps(["A" * 43 + "=", "B" * 43 + "="]).encode(), kept_keys),
    RECORD: (b"", read_record),
    CLUSTER_FILE: (b"0f1e2d3c-cluster\n", lambda folder: check_cluster_id(folder, "0f1e2d3c-cluster")),
    "root.key": (b"", lambda folder: load_or_make(folder).key),
    "snapshot": (b"alive: one.global 10.0.0.1:4648\nalive: two.global 10.0.0.2:4648\n", former_members),
    "journal": (b"".join(encode_record({"op": "start", "id": str(at)}) for at in range(3)), journal),
}
EXACT: Final = ("root.key",)
"""Those that are as they were if they are read at all."""


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_damaged_small_file_is_told_by_a_sentence_or_passed_over(tmp_path: Path, name: str) -> None:
    """R13."""
    content, read = SMALL[name]
    whole = tmp_path / "whole"
    whole.mkdir()
    if name == RECORD:
        peers = (
            *(Peer(name, f"{name}:4647", f"http://{name}:2380", f"http://{name}:2379") for name in ("one", "two")),
        )
        write_record(whole, Membership("0f1e2d3c", "one", peers))
    elif name == "root.key":
        load_or_make(whole)
    else:
        (whole / name).write_bytes(content)
    right = read(whole)
    for folder, _ in damaged_folders(whole, [name], tmp_path, seed=len(name)):
        found, sentence = outcome(read, folder)
        assert sentence or name not in EXACT or found == right


def test_a_key_file_of_one_line_is_taken_as_it_is(tmp_path: Path) -> None:
    """What another program made, or a lepa before: a key without its name."""
    made = load_or_make(tmp_path)
    first, second = (tmp_path / "root.key").read_text().split()
    assert second == made.id
    (tmp_path / "root.key").write_text(f"{first}\n")
    assert load_or_make(tmp_path).key == made.key
    assert isinstance(made, KeyEncryptionKey)


def test_a_damaged_saved_state_is_refused_or_whole(tmp_path: Path) -> None:
    """R13."""
    chance = random.Random(3)
    entries = [Entry(f"jobs/{at}", chance.randbytes(300), at + 1, at + 5) for at in range(20)]
    whole = b"".join(archive.write(Image(30, entries), 0, "c", "global", "1"))
    refused = 0
    for _ in range(PLACES):
        try:
            found = archive.read(io.BytesIO(damage(whole, chance)))
        except LepaError:
            refused += 1
        else:
            assert found.entries == entries
    assert refused > PLACES * 0.7
