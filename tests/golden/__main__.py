"""How an agent of today keeps what it knows: `python -m tests.golden` writes files of the present formats.

    objects.json        for each table of the state an object with every field filled, as stored and as shown
    server-FORMAT.sql   a server's state file        client-FORMAT.sql   a node's
    saved-FORMAT.snap   a saved state                root-FORMAT.key     a key-encryption key

Files of former formats stay: whoever reads the present one has to read them too (R15).
"""

import asyncio
import base64
import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect
from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_job, make_node

from lepa.client import local_state
from lepa.client.local_state import LocalState, TaskRecord
from lepa.drivers.protocol import TaskHandle
from lepa.model.allocation import TaskState
from lepa.model.wire import Wire, to_msgpack
from lepa.server.key_file import load_or_make
from lepa.state import keys
from lepa.store import archive, sqlite_file
from lepa.store.protocol import Image, Put, Txn
from lepa.store.sqlite_file import Request, SqliteFile

GOLDEN: Final = Path(__file__).parent
DEEPEST: Final = 12

JOB = make_job("web")
ROWS: Final[dict[str, Wire]] = {
    keys.job_key("default", "web"): JOB,
    keys.node_key("node-1"): make_node("node-1"),
    keys.eval_key("eval-1"): make_eval("eval-1", job=JOB),
    keys.alloc_key("alloc-1"): make_alloc("alloc-1", job=JOB),
}
ALLOC: Final = replace(make_alloc("alloc-1", job=JOB), job=JOB)
RECORD: Final = TaskRecord(
    driver="raw_exec",
    task_id="t",
    handle=TaskHandle(driver="raw_exec", task_id="t", state={"pid": 1}),
    state=TaskState(state="running"),
)
FACTS: Final = {"node_id": "node-1", "secret_id": "secret-1"}


def filled(kind: inspect.Type, depth: int = 0) -> Any:
    """A value of a type with all that may be there."""
    match kind:
        case inspect.StructType():
            fields = [field for field in kind.fields if depth < DEEPEST or field.required]
            return {field.encode_name: filled(field.type, depth + 1) for field in fields}
        case inspect.DictType():
            return {filled(kind.key_type, depth + 1): filled(kind.value_type, depth + 1)}
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            return [filled(kind.item_type, depth + 1)]
        case inspect.TupleType():
            return [filled(item, depth + 1) for item in kind.item_types]
        case inspect.UnionType():
            return filled(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), depth + 1)
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.NoneType():
            return None
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 1.5
        case inspect.BytesType():
            return b"octets"
        case _:
            return "text"


def objects() -> dict[str, Any]:
    """An object of each table, filled."""
    found = {}
    for table, kind in keys.KINDS.items():
        made = msgspec.convert(filled(inspect.type_info(kind)), kind, strict=False)
        stored = to_msgpack(made)
        found[table] = {"stored": base64.b64encode(stored).decode(), "shown": shown(made)}
    return found


def shown(value: Wire) -> Any:
    """As JSON."""
    return json.loads(msgspec.json.encode(value))


def dump(path: Path) -> str:
    """A closed SQLite file as SQL, with the numbers in its header."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        numbers = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};" for name in NUMBERS]
        return "\n".join([*db.iterdump(), *numbers]) + "\n"


NUMBERS: Final = ("application_id", "user_version")


def restore(text: str, path: Path) -> None:
    """The inverse of `dump`."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(text)


async def _node(path: Path) -> None:
    state = LocalState(path)
    await state.save_facts(FACTS)
    await state.save_allocation(ALLOC)
    await state.save_task("alloc-1", "web", RECORD)
    state.close()


def main() -> None:
    """Write the files of the present formats."""
    with tempfile.TemporaryDirectory() as folder:
        server, client = Path(folder, "server.db"), Path(folder, "client.db")
        file = SqliteFile(server)
        file.commit([Request(Txn((keys.put(key, row),))) for key, row in ROWS.items()])
        read = file.read("")
        file.commit([Request(Txn((Put("leader", b"one", 3),)))])
        file.close()
        asyncio.run(_node(client))
        (GOLDEN / f"server-{sqlite_file.FORMAT}.sql").write_text(dump(server))
        (GOLDEN / f"client-{local_state.FORMAT}.sql").write_text(dump(client))
        load_or_make(Path(folder))
        if not (GOLDEN / "root-2.key").exists():  # made by chance, so it would be another one each time
            Path(folder, "root.key").rename(GOLDEN / "root-2.key")
    saved = b"".join(archive.write(Image(read.revision, read.entries), 0, "cluster-1", "global", "0.1.0"))
    (GOLDEN / f"saved-{archive.VERSION}.snap").write_bytes(saved)
    tables = ",\n".join(f"{json.dumps(table)}: {json.dumps(found)}" for table, found in objects().items())
    (GOLDEN / "objects.json").write_text("{" + tables + "}\n")


if __name__ == "__main__":
    main()
