"""`lepa alloc logs` and `lepa alloc fs`: reading what an allocation has written."""

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import NamedTuple

from lepa.cli.alloc import choose_allocation, task_of
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, size, table
from lepa.cli.session import Session, api
from lepa.model.errors import LepaError, invalid
from lepa.sdk.connection import Connection

LINES_DEFAULT = 10
WINDOW_BYTES = 4 * 1024
WINDOW_MAX = 64 * 1024 * 1024
"""The end of a file is read in windows that double until the wanted lines are in one."""

Write = Callable[[bytes], None]


class Tail(NamedTuple):
    """How much of the end is wanted: lines, or bytes."""

    lines: int = 0
    size: int = 0


def _tail(tail: bool, n: int | None, c: int | None) -> Tail | None:
    if n is not None and c is not None:
        raise invalid("-n and -c exclude each other: give one of them")
    if any(number is not None and number < 0 for number in (n, c)):
        raise invalid("-n and -c are numbers from 0 on")
    if c is not None:
        return Tail(size=c)
    return Tail(lines=LINES_DEFAULT if n is None else n) if tail or n is not None else None


# lepa alloc logs


@command()
@argument("allocation", shown="<allocation>")
@argument("named", required=False, shown="[task]")
@flag("f", "Follow: print what is written from now on, too. Without -stdout and -stderr, both.")
@flag("tail", "Only the end: the last 10 lines, unless -n or -c say otherwise.")
@option("n", "Only the last so many lines.", kind=int, metavar="lines")
@option("c", "Only the last so many bytes.", kind=int, metavar="bytes")
@flag("stderr", "What the task writes to standard error.")
@flag("stdout", "What the task writes to standard output; this is meant without -f.")
@option("task", "Name of the task.", metavar="name")
@option("group", "With -job: only allocations of this group.", metavar="name")
@flag("job", "The name is a job's: take its newest running allocation.")
@flag("verbose", "Accepted: ids are not printed.", hidden=True)
@api
def logs(
    session: Session,
    allocation: str,
    named: str | None,
    f: bool,
    tail: bool,
    n: int | None,
    c: int | None,
    stderr: bool,
    stdout: bool,
    task: str | None,
    group: str | None,
    job: bool,
    verbose: bool,
) -> None:
    """Print what a task writes. It has to be named when the allocation has several tasks."""
    chosen = choose_allocation(session, allocation, job=job, group=group)
    name = task_of(chosen, task or named)
    wanted = _tail(tail, n, c)
    kinds = [kind for kind, asked in (("stdout", stdout or not (stderr or f)), ("stderr", stderr)) if asked]
    logs = [Log(session, chosen, name, kind) for kind in kinds or ("stdout", "stderr")]
    if f:
        _follow_all(logs, wanted)
        return
    for each in logs:
        each.print(wanted)


def _follow_all(logs: list["Log"], tail: Tail | None) -> None:
    """Follow every log in a thread of its own, until all have ended or one has failed."""
    outcomes: SimpleQueue[Exception | None] = SimpleQueue()

    def follow(log: "Log") -> None:
        try:
            log.follow(tail)
        except (LepaError, OSError) as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    for each in logs:
        threading.Thread(target=follow, args=(each,), daemon=True, name=f"follow-{each.kind}").start()
    for _ in logs:
        if failure := outcomes.get():
            raise failure


class Log:
    """One stream of a task, standard output or standard error."""

    def __init__(self, session: Session, allocation: Json, task: str, kind: str) -> None:
        self.kind = kind
        self._session = session
        self._path = f"/v1/client/fs/logs/{allocation['ID']}"
        self._query = {"namespace": allocation["Namespace"], "task": task, "type": kind, "plain": "true"}
        self._write: Write = session.out.write_error if kind == "stderr" else session.out.write

    def print(self, tail: Tail | None) -> None:
        """Print what has been written so far, or the end of it."""
        if tail is None:
            for chunk in self._session.nomad.chunks(self._path, self._query):
                self._write(chunk)
        else:
            self._write(self._end(tail).text)

    def follow(self, tail: Tail | None) -> None:
        """Print what has been written, or the end of it, and then what comes."""
        with Connection(self._session.nomad.target, timeout_s=None) as nomad:
            if tail is None:
                self._copy(nomad.chunks(self._path, {**self._query, "follow": "true", "origin": "start"}))
                return
            end = self._end(tail)
            query = {**self._query, "follow": "true", "origin": "end", "offset": end.asked}
            self._copy(_skip_to_end(nomad.chunks(self._path, query), end.found, tail))

    def _copy(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            self._write(chunk)

    def _end(self, tail: Tail) -> "End":
        """The wanted end of what has been written so far."""

        def window(count: int) -> bytes:
            query = {**self._query, "origin": "end", "offset": count}
            return b"".join(self._session.nomad.chunks(self._path, query))

        return _last(window, tail)


class End(NamedTuple):
    """The wanted end of a text. asked: bytes of the window that holds it; found: bytes that were there."""

    text: bytes
    asked: int
    found: int


def _last(window: Callable[[int], bytes], tail: Tail) -> End:
    """The wanted end of a text of which `window(count)` gives the last `count` bytes."""
    count = WINDOW_BYTES if tail.lines else tail.size
    while True:
        data = window(count)
        cut = _cut(data, tail)
        if not tail.lines or len(data) < count or len(cut) < len(data) or count >= WINDOW_MAX:
            return End(cut, count, len(data))
        count *= 2


def _cut(data: bytes, tail: Tail) -> bytes:
    """The last lines, or bytes, of some data."""
    if not tail.lines:
        return data[-tail.size :] if tail.size else b""
    lines = data.splitlines(keepends=True)
    return b"".join(lines[-tail.lines :])


def _skip_to_end(chunks: Iterator[bytes], known: int, tail: Tail) -> Iterator[bytes]:
    """A stream that begins before the wanted end, from that end on. known: bytes that are there for certain."""
    first = b""
    while len(first) < known and (chunk := next(chunks, b"")):
        first += chunk
    yield _cut(first, tail)
    yield from chunks


# lepa alloc fs


@command()
@argument("allocation", shown="<allocation>")
@argument("path", required=False)
@flag("stat", "Show sizes and times of the path itself instead of what is in it.")
@flag("H", "Sizes for people.")
@flag("f", "Follow: print what is appended from now on, too.")
@flag("tail", "Only the end: the last 10 lines, unless -n or -c say otherwise.")
@option("n", "Only the last so many lines.", kind=int, metavar="lines")
@option("c", "Only the last so many bytes.", kind=int, metavar="bytes")
@option("group", "With -job: only allocations of this group.", metavar="name")
@flag("job", "The name is a job's: take its newest running allocation.")
@flag("verbose", "Accepted: ids are not printed.", hidden=True)
@api
def files(
    session: Session,
    allocation: str,
    path: str | None,
    stat: bool,
    H: bool,
    f: bool,
    tail: bool,
    n: int | None,
    c: int | None,
    group: str | None,
    job: bool,
    verbose: bool,
) -> None:
    """List a directory of an allocation, or print a file. Paths begin at the allocation's own directory."""
    chosen = choose_allocation(session, allocation, job=job, group=group)
    folder = Folder(session, chosen)
    where = path or "/"
    info = folder.stat(where)
    if stat:
        session.out.line(_listing([info], H))
    elif info["IsDir"]:
        session.out.line(_listing(folder.list(where), H))
    else:
        folder.print(where, info["Size"], _tail(tail, n, c), follow=f)


def _listing(entries: list[Json], for_people: bool) -> str:
    rows = [
        (
            entry["FileMode"],
            size(entry["Size"]) if for_people else entry["Size"],
            entry["ModTime"],
            entry["Name"] + ("/" if entry["IsDir"] else ""),
        )
        for entry in entries
    ]
    return table(("Mode", "Size", "Modified Time", "Name"), rows)


class Folder:
    """The files of an allocation."""

    def __init__(self, session: Session, allocation: Json) -> None:
        self._session = session
        self._id = allocation["ID"]
        self._namespace = allocation["Namespace"]

    def _query(self, path: str, **more: str | int) -> dict[str, str | int]:
        return {"namespace": self._namespace, "path": path, **more}

    def stat(self, path: str) -> Json:
        """What there is at a path."""
        found: Json = self._session.nomad.get(f"/v1/client/fs/stat/{self._id}", self._query(path)).value
        return found

    def list(self, path: str) -> list[Json]:
        """What is in a directory."""
        found: list[Json] = self._session.nomad.get(f"/v1/client/fs/ls/{self._id}", self._query(path)).value or []
        return found

    def print(self, path: str, length: int, tail: Tail | None, *, follow: bool) -> None:
        """Print a file of a known length, or its end; then what is appended."""
        start = length - len(self._end(path, length, tail)) if tail else 0
        if follow:
            query = self._query(path, offset=start, origin="start", follow="true")
            with Connection(self._session.nomad.target, timeout_s=None) as nomad:
                for data in contents(nomad.chunks(f"/v1/client/fs/stream/{self._id}", query)):
                    self._session.out.write(data)
            return
        verb = "readat" if start else "cat"
        query = self._query(path, offset=start) if start else self._query(path)
        for chunk in self._session.nomad.chunks(f"/v1/client/fs/{verb}/{self._id}", query):
            self._session.out.write(chunk)

    def _end(self, path: str, length: int, tail: Tail) -> bytes:
        def window(count: int) -> bytes:
            start = max(0, length - count)
            query = self._query(path, offset=start, limit=length - start)
            return self._session.nomad.raw("GET", f"/v1/client/fs/readat/{self._id}", query) if length else b""

        return _last(window, tail).text


def contents(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data in a stream of frames: JSON objects one after another, empty ones to show that the stream lives."""
    decoder = json.JSONDecoder()
    text = ""
    for chunk in chunks:
        text += chunk.decode("ascii")
        while text := text.lstrip():
            try:
                frame, end = decoder.raw_decode(text)
            except ValueError:
                break
            text = text[end:]
            if data := frame.get("Data"):
                yield base64.b64decode(data)
    if text.strip():
        raise LepaError("internal", "the stream of the file ended in the middle of a frame")
