"""Pure: the supervisor's journal: lines that say which tasks were started and how they ended.

A line is the CRC-32 of its JSON in hexadecimal, a space, the JSON. A torn or damaged line is skipped: it costs the
record it held, never the others.

    {"op": "boot", "boot_id"}                              written first; process ids of another boot mean nothing
    {"op": "start", "id", logs, pipes, cgroups}            before the process exists; no command, no environment
    {"op": "run", "id", "pid", "born", "at"}               `born` is its start time in clock ticks since boot
    {"op": "exit", "id", "exit"}                           made durable before anyone hears of it
    {"op": "forget", "id"}                                 acknowledged by the agent
"""

import json
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from lepa.drivers.supervisor.messages import Exit, LogFiles, exit_from, log_files, to_json

_encode = json.JSONEncoder(separators=(",", ":")).encode


class TaskRecord(NamedTuple):
    """What the journal knows of a task. pid 0: its process was never seen to exist. pipes: their inode numbers."""

    id: str
    stdout: LogFiles | None = None
    stderr: LogFiles | None = None
    launched: bool = False
    pid: int = 0
    born: int = 0
    started_at: int = 0
    cgroups: tuple[str, ...] = ()
    own_cgroup: str = ""
    pipes: dict[str, int] = {}
    exit: Exit | None = None


class Replayed(NamedTuple):
    """Everything read back. damaged: lines that could not be used."""

    boot_id: str
    tasks: dict[str, TaskRecord]
    damaged: int


def encode_record(record: dict[str, Any]) -> bytes:
    """One line of the journal."""
    text = _encode(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_record(line: bytes) -> dict[str, Any] | None:
    """The inverse of `encode_record`; None for a damaged line."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def start_record(task: TaskRecord) -> dict[str, Any]:
    """The line written before a task's process exists."""
    return {
        "op": "start",
        "id": task.id,
        "stdout": to_json(task.stdout),
        "stderr": to_json(task.stderr),
        "launched": task.launched,
        "cgroups": list(task.cgroups),
        "own_cgroup": task.own_cgroup,
        "pipes": task.pipes,
    }


def run_record(task: TaskRecord) -> dict[str, Any]:
    """The line written when a task's process exists."""
    return {"op": "run", "id": task.id, "pid": task.pid, "born": task.born, "at": task.started_at}


def exit_record(task_id: str, exit: Exit) -> dict[str, Any]:
    """The line written when a task has ended."""
    return {"op": "exit", "id": task_id, "exit": to_json(exit)}


def forget_record(task_id: str) -> dict[str, Any]:
    """The line written when nobody will ask for a task again."""
    return {"op": "forget", "id": task_id}


def boot_record(boot_id: str) -> dict[str, Any]:
    """The first line."""
    return {"op": "boot", "boot_id": boot_id}


def snapshot_records(boot_id: str, tasks: Iterable[TaskRecord]) -> Iterable[dict[str, Any]]:
    """The shortest journal that says the same."""
    yield boot_record(boot_id)
    for task in tasks:
        yield start_record(task)
        if task.pid:
            yield run_record(task)
        if task.exit is not None:
            yield exit_record(task.id, task.exit)


def replay(lines: Iterable[bytes]) -> Replayed:
    """What the journal says, line after line."""
    boot_id, damaged = "", 0
    tasks: dict[str, TaskRecord] = {}
    for line in lines:
        record = decode_record(line)
        try:
            if record is None:
                raise KeyError("damaged")
            if record["op"] == "boot":
                boot_id = str(record["boot_id"])
            else:
                _apply(tasks, record)
        except (KeyError, TypeError, ValueError):
            damaged += 1
    return Replayed(boot_id, tasks, damaged)


def _apply(tasks: dict[str, TaskRecord], record: dict[str, Any]) -> None:
    task_id = str(record["id"])
    match record["op"]:
        case "start":
            tasks[task_id] = TaskRecord(
                task_id,
                log_files(record["stdout"]),
                log_files(record["stderr"]),
                bool(record["launched"]),
                cgroups=tuple(record["cgroups"]),
                own_cgroup=str(record["own_cgroup"]),
                pipes=dict(record["pipes"]),
            )
        case "run":
            tasks[task_id] = tasks[task_id]._replace(pid=record["pid"], born=record["born"], started_at=record["at"])
        case "exit":
            tasks[task_id] = tasks[task_id]._replace(exit=exit_from(record["exit"]))
        case "forget":
            tasks.pop(task_id, None)
        case unknown:
            raise ValueError(unknown)
