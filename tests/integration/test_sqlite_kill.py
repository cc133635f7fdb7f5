"""kill -9 at any moment: whatever was acknowledged is there, and the next start comes up by itself."""

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from lepa.kit.sources import SystemClock
from lepa.store.protocol import Entry
from lepa.store.sqlite import SqliteStore

WRITER = """
import asyncio, sys
from pathlib import Path
from lepa.kit.sources import SystemClock
from lepa.store.protocol import Put, Txn
from lepa.store.sqlite import SqliteStore

async def write(store, who, start):
    for at in range(start, start + 1_000_000):
        value = f"{who}-{at}".encode() * 50
        done = await store.commit(Txn((Put(f"last/{who}", value), Put(f"all/{who}/{at}", value))))
        print(done.revision, who, at, flush=True)

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]), SystemClock())
    print("open", flush=True)
    await asyncio.gather(*(write(store, who, int(sys.argv[2])) for who in range(8)))

asyncio.run(main())
"""


async def write_until_killed(path: Path, start: int, acknowledged: int) -> list[tuple[int, int, int]]:
    """Run the writer, kill it after so many acknowledgements; returns all that it printed: (revision, who, at)."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), str(start), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"open\n"
    lines = [await writer.stdout.readline() for _ in range(acknowledged)]
    assert all(lines), "the writer ended by itself"
    writer.send_signal(signal.SIGKILL)
    lines += [line async for line in writer.stdout]
    assert await writer.wait() == -signal.SIGKILL
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return [(int(revision), int(who), int(at)) for revision, who, at in whole]


async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    chance = random.Random(9)
    promised: dict[tuple[int, int], int] = {}
    for round_number in range(6):
        acknowledged = chance.randrange(1, 400)
        told = await write_until_killed(path, round_number * 1_000_000, acknowledged)
        assert len(told) >= acknowledged
        assert not promised or min(revision for revision, _, _ in told) > max(promised.values())
        promised |= {(who, at): revision for revision, who, at in told}
        store = await SqliteStore.open(path, SystemClock())
        read = await store.read("")
        await store.close()
        stored = {entry.key: entry for entry in read.entries}
        for (who, at), revision in promised.items():
            entry = stored[f"all/{who}/{at}"]
            assert (entry.modified, entry.value) == (revision, f"{who}-{at}".encode() * 50)
        assert read.revision >= max(promised.values())
        assert_transactions_are_whole(read.entries)


def assert_transactions_are_whole(entries: Sequence[Entry]) -> None:
    """Each transaction put `last/WHO` and `all/WHO/AT` together: the newest of both has to agree."""
    stored = {entry.key: entry for entry in entries}
    newest: dict[str, Entry] = {}
    for entry in entries:
        table, who, *_ = entry.key.split("/")
        if table == "all" and (who not in newest or entry.modified > newest[who].modified):
            newest[who] = entry
    assert {key for key in stored if key.startswith("last/")} == {f"last/{who}" for who in newest}
    for who, entry in newest.items():
        last = stored[f"last/{who}"]
        assert (last.value, last.modified) == (entry.value, entry.modified)
