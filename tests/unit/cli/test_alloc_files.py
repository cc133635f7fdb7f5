"""Reading what an allocation has written."""

import base64
import json
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply, Request
from tests.unit.cli.objects import ALLOC, alloc_stub, allocation

from lepa.cli.alloc_files import Tail, _cut, _last, contents
from lepa.model.errors import LepaError
from lepa.model.stats import AllocFileInfo
from lepa.model.wire import to_builtins

LOGS = f"GET /v1/client/fs/logs/{ALLOC}"
LINES = b"".join(b"line %d\n" % n for n in range(2000))


def plain(text: bytes) -> Any:
    """Answers as the agent does: from the start, or that many bytes before the end."""

    def answer(request: Request) -> Reply:
        offset = int(request.query.get("offset", "0"))
        if request.query.get("origin") == "end":
            return Reply(chunks=(text[-offset:] if offset else b"",))
        return Reply(chunks=(text[offset:],))

    return answer


@pytest.fixture
def placed(agent: FakeAgent) -> FakeAgent:
    """An agent with one allocation that has written lines."""
    agent.on("GET /v1/allocations", [alloc_stub()])
    agent.on(f"GET /v1/allocation/{ALLOC}", allocation())
    agent.on(LOGS, plain(LINES))
    return agent


def test_logs_are_printed_whole(placed: FakeAgent, lepa: Run) -> None:
    assert lepa("alloc", "logs", "1111").out.encode() == LINES
    assert placed.requests[-1].query == {"namespace": "default", "task": "server", "type": "stdout", "plain": "true"}


def test_standard_error_goes_to_standard_error(placed: FakeAgent, lepa: Run) -> None:
    done = lepa("alloc", "logs", "-stderr", "1111", "server")
    assert (done.out, done.error.encode()) == ("", LINES)
    assert placed.requests[-1].query["type"] == "stderr"


@pytest.mark.parametrize(
    ("flags", "end"),
    [
        (("-tail",), 10),
        (("-n", "3"), 3),
        (("-tail", "-n", "1500"), 1500),
        (("-n", "5000"), 2000),
        (("-n=0",), 0),
    ],
)
def test_the_last_lines(placed: FakeAgent, lepa: Run, flags: tuple[str, ...], end: int) -> None:
    lines = lepa("alloc", "logs", *flags, "1111").out.splitlines()
    assert lines == [f"line {n}" for n in range(2000 - end, 2000)]


def test_the_last_bytes(placed: FakeAgent, lepa: Run) -> None:
    assert lepa("alloc", "logs", "-c", "7", "1111").out == "e 1999\n"
    assert "exclude each other" in lepa("alloc", "logs", "-c=1", "-n=1", "1111").error
    assert "from 0 on" in lepa("alloc", "logs", "-n", "-1", "1111").error


def test_following_shows_both_streams(placed: FakeAgent, lepa: Run) -> None:
    placed.on(LOGS, lambda request: Reply(chunks=(request.query["type"].encode() + b"\n",)))
    done = lepa("alloc", "logs", "-f", "1111")
    assert done.out == "stdout\n"
    assert {each.query["type"] for each in placed.asked(LOGS)} == {"stdout", "stderr"}
    assert {each.query["follow"] for each in placed.asked(LOGS)} == {"true"}


def test_following_the_end_begins_with_whole_lines(placed: FakeAgent, lepa: Run) -> None:
    appended = b"line 2000\n"

    def answer(request: Request) -> Reply:
        end = LINES[-int(request.query["offset"]) :]
        return Reply(chunks=(end[:100], end[100:], appended) if "follow" in request.query else (end,))

    placed.on(LOGS, answer)
    assert lepa("alloc", "logs", "-f", "-stdout", "-n", "2", "1111").out == "line 1998\nline 1999\nline 2000\n"


def test_refusals_are_told(placed: FakeAgent, lepa: Run) -> None:
    placed.on(LOGS, Reply(404, 'task "server" not started yet. No logs available'))
    done = lepa("alloc", "logs", "1111")
    assert (done.code, done.error) == (1, 'Error: task "server" not started yet. No logs available\n')


def test_a_window_grows_until_the_lines_are_in_it() -> None:
    asked = []

    def window(count: int) -> bytes:
        asked.append(count)
        return LINES[-count:]

    assert _last(window, Tail(lines=1000)).text == _cut(LINES, Tail(lines=1000))
    assert asked == [4096, 8192, 16384]


# lepa alloc fs

FILE = to_builtins(
    AllocFileInfo(name="out.txt", size=len(LINES), file_mode="-rw-r--r--", mod_time="2026-05-28T20:00:00Z")
)
FOLDER = to_builtins(AllocFileInfo(name="logs", is_dir=True, size=4096, file_mode="drwxr-xr-x"))
STAT, LS, CAT, READ, STREAM = (
    f"GET /v1/client/fs/{verb}/{ALLOC}" for verb in ("stat", "ls", "cat", "readat", "stream")
)


def test_a_directory_is_listed(placed: FakeAgent, lepa: Run, golden: Any) -> None:
    placed.on(STAT, FOLDER)
    placed.on(LS, [FILE, FOLDER])
    golden("alloc_fs", lepa("alloc", "fs", "-H", "1111").out)
    assert placed.requests[-1].query["path"] == "/"
    assert lepa("alloc", "fs", "-stat", "1111", "alloc/logs").out.split("\n")[1].endswith("logs/")


def test_a_file_is_printed_whole_or_its_end(placed: FakeAgent, lepa: Run) -> None:
    placed.on(STAT, FILE)
    placed.on(CAT, plain(LINES))

    def read(request: Request) -> Reply:
        start = int(request.query["offset"])
        return Reply(chunks=(LINES[start : start + int(request.query.get("limit", "999999"))],))

    placed.on(READ, read)
    assert lepa("fs", "1111", "out.txt").out.encode() == LINES
    assert lepa("alloc", "fs", "-n", "2", "1111", "out.txt").out == "line 1998\nline 1999\n"
    assert lepa("alloc", "fs", "-c", "5", "1111", "out.txt").out == "1999\n"


def test_a_file_is_followed_through_frames(placed: FakeAgent, lepa: Run) -> None:
    placed.on(STAT, {**FILE, "Size": 0})
    frames = b"".join(json.dumps({"Data": base64.b64encode(text).decode()}).encode() + b"{}" for text in (b"a", b"b\n"))
    placed.on(STREAM, Reply(chunks=(frames[:7], frames[7:])))
    assert lepa("alloc", "fs", "-f", "-tail", "1111", "out.txt").out == "ab\n"


def test_a_broken_stream_of_frames_is_an_error() -> None:
    assert list(contents([b"{}", b' {"Data":"YQ=="} ', b"{}"])) == [b"a"]
    with pytest.raises(LepaError, match="in the middle of a frame"):
        list(contents([b'{"Data":']))
