"""What only the node knows, over HTTP: lepa.api.files, lepa.api.streams, lepa.api.forward."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from lepa.api import event_feeds, files
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.stats import AllocFileInfo, AllocResourceUsage, HostStats
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import Authorized
from lepa.rpc.node_service import StreamFrame
from lepa.rpc.server_requests import ServerRecord

HERE = "11111111-0000-4000-8000-000000000000"


class Session:
    """A command that repeats its input in capitals until the input ends."""

    def __init__(self) -> None:
        self.input: asyncio.Queue[bytes] = asyncio.Queue()
        self.sizes: list[tuple[int, int]] = []
        self.closed = False

    async def write(self, data: bytes) -> None:
        await self.input.put(data)

    async def resize(self, rows: int, columns: int) -> None:
        self.sizes.append((rows, columns))

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        while data := await self.input.get():
            yield "stdout", data.upper()

    async def wait(self) -> int:
        return 7

    async def close(self) -> None:
        self.closed = True


class Node:
    """A node with one allocation."""

    node_id = "n1"

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.session = Session()

    def has_allocation(self, alloc_id: str) -> bool:
        return alloc_id == HERE

    async def list_files(self, alloc_id: str, path: str) -> Sequence[AllocFileInfo]:
        return [AllocFileInfo(name="alloc", is_dir=True)]

    async def stat_file(self, alloc_id: str, path: str) -> AllocFileInfo:
        raise not_found(f"no such file or directory: {path}")

    async def read_file(self, alloc_id: str, path: str, offset: int = 0, limit: int = -1) -> bytes:
        return b"<script>x</script>"[offset:][:limit]

    async def stream_file(self, alloc_id: str, path: str, **options: Any) -> AsyncIterator[StreamFrame]:
        if path == "missing":
            raise invalid("no such file or directory")
        self.asked.append(options)
        yield StreamFrame(offset=3, data=b"abc", file=path)
        yield StreamFrame(data=b"def")

    async def stream_logs(self, alloc_id: str, task: str, stream: str, **options: Any) -> AsyncIterator[StreamFrame]:
        self.asked.append((task, stream, options))
        yield StreamFrame(offset=6, data=b"line 1\n", file="alloc/logs/t.stdout.0")
        yield StreamFrame(data=b"line 2\n")

    def command_of_action(self, alloc_id: str, job_id: str, task: str, action: str) -> list[str]:
        if action == "gone":
            raise invalid(f'task "{task}" has no action "gone"; it has warm')
        return [job_id, action]

    async def exec(self, alloc_id: str, task: str, command: Sequence[str], *, tty: bool) -> Session:
        if task == "dead":
            raise invalid('task "dead" is not running')
        self.asked.append((task, command, tty))
        return self.session

    async def allocation_stats(self, alloc_id: str, task: str = "") -> AllocResourceUsage:
        return AllocResourceUsage(timestamp=1)

    async def checks(self, alloc_id: str) -> dict[str, Any]:
        return {}

    async def restart(self, alloc_id: str, task: str = "", *, all_tasks: bool = False) -> None:
        self.asked.append((task, all_tasks))

    async def signal(self, alloc_id: str, task: str, signal: str) -> None:
        self.asked.append((task, signal))

    async def collect(self, alloc_id: str = "") -> None:
        self.asked.append(("collect", alloc_id))

    async def host_stats(self) -> HostStats:
        return HostStats(uptime=5)

    async def metadata(self) -> dict[str, Any]:
        return {"Meta": {"a": "b"}, "Dynamic": {}, "Static": {"a": "b"}}

    async def set_metadata(self, changes: dict[str, str | None]) -> dict[str, Any]:
        self.asked.append(changes)
        return await self.metadata()


@pytest.fixture
def node(parts) -> Node:
    parts.node = Node()
    return parts.node


async def test_files_are_listed_and_read(node, http) -> None:
    assert (await (await http.get(f"/v1/client/fs/ls/{HERE}?path=/")).json())[0]["Name"] == "alloc"
    answer = await http.get(f"/v1/client/fs/cat/{HERE}?path=x.html")
    assert (answer.content_type, await answer.read()) == ("text/plain", b"<script>x</script>")
    assert await (await http.get(f"/v1/client/fs/readat/{HERE}?path=x&offset=1&limit=6")).read() == b"script"
    assert (await http.get(f"/v1/client/fs/stat/{HERE}?path=nope")).status == 404


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cat/{}", "must provide a file name"),
        ("readat/{}?path=x", 'Failed to parse "offset": it has to be given'),
        ("logs/{}?type=stdout", "must provide task name"),
        ("logs/{}?task=t&type=both", "must provide log type (stdout/stderr)"),
        ("logs/{}?task=t&type=stdout&origin=middle", "origin must be start or end"),
        ("stream/{}?path=missing", "no such file or directory"),
    ],
)
async def test_missing_or_wrong_parameters_are_told(node, http, path: str, text: str) -> None:
    answer = await http.get("/v1/client/fs/" + path.format(HERE))
    assert (answer.status, await answer.text()) == (400, text)


async def test_logs_come_as_frames_or_plain(node, http) -> None:
    answer = await http.get(f"/v1/client/fs/logs/{HERE}?task=t&type=stderr&follow=false&offset=3&origin=end")
    assert (await answer.text()) == (
        '{"Offset":6,"Data":"bGluZSAxCg==","File":"alloc/logs/t.stdout.0"}{"Data":"bGluZSAyCg=="}'
    )
    assert node.asked == [("t", "stderr", {"offset": 3, "origin": "end", "follow": False})]
    answer = await http.get(f"/v1/client/fs/logs/{HERE}?task=t&type=stdout&plain=true")
    assert await answer.text() == "line 1\nline 2\n"


async def test_life_cycle_commands_reach_the_node(node, http) -> None:
    await http.put(f"/v1/client/allocation/{HERE}/restart", json={"TaskName": "web"})
    await http.put(f"/v1/client/allocation/{HERE}/signal", json={"Signal": "SIGHUP", "Task": "web"})
    await http.get(f"/v1/client/allocation/{HERE}/gc")
    await http.get("/v1/client/gc?node_id=n1")
    assert node.asked == [("web", False), ("web", "SIGHUP"), ("collect", HERE), ("collect", "")]
    assert (await http.put(f"/v1/client/allocation/{HERE}/signal", json={"Task": "web"})).status == 400


async def test_metadata_maps_keys_to_texts_or_null(node, http) -> None:
    await http.post("/v1/client/metadata", json={"Meta": {"a": "1", "b": None}})
    assert node.asked == [{"a": "1", "b": None}]
    assert (await http.post("/v1/client/metadata", json={"Meta": {"a": 1}})).status == 400
    assert (await (await http.get("/v1/client/stats")).json())["Uptime"] == 5


async def test_without_a_node_the_caller_has_to_name_one(http) -> None:
    answer = await http.get("/v1/client/stats")
    assert (answer.status, await answer.text()) == (400, "No local Node and node_id not provided")
    assert (await http.get("/v1/client/stats?node_id=x")).status == 404


async def test_an_unknown_allocation_is_404(node, http) -> None:
    answer = await http.get("/v1/client/fs/ls/22222222-0000-4000-8000-000000000000")
    assert answer.status == 404
    assert "Unknown allocation" in await answer.text()


async def test_another_nodes_allocation_is_asked_for_there(node, parts, client_of, http) -> None:
    from tests.unit.api.conftest import Parts

    far = Parts()
    far.node = Node()
    far_http = await client_of(far)
    near = Parts()
    near.caller.answers["ACL.Authorize"] = Authorized(node_id="n1", http_addr=f"127.0.0.1:{far_http.port}")
    near_http = await client_of(near)
    answer = await near_http.get(f"/v1/client/fs/logs/{HERE}?task=t&type=stdout&plain=true")
    assert await answer.text() == "line 1\nline 2\n"
    answer = await near_http.get(f"/v1/client/fs/stat/{HERE}?path=nope")
    assert answer.status == 404
    socket = await near_http.ws_connect(f'/v1/client/allocation/{HERE}/exec?task=t&command=["cat"]')
    await socket.send_json({"stdin": {"data": base64.b64encode(b"far").decode()}})
    assert base64.b64decode((await socket.receive_json())["stdout"]["data"]) == b"FAR"
    await socket.close()


async def test_a_log_without_a_line_yet_is_followed_and_beats(node, http, monkeypatch) -> None:
    async def silent(alloc_id: str, task: str, stream: str, **options: Any) -> AsyncIterator[StreamFrame]:
        await asyncio.Event().wait()
        yield StreamFrame()

    monkeypatch.setattr(files, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(node, "stream_logs", silent)
    answer = await http.get(f"/v1/client/fs/logs/{HERE}?task=t&type=stdout&follow=true")
    assert await answer.content.readexactly(4) == b"{}{}"
    answer.close()
    answer = await http.get(f"/v1/client/fs/logs/{HERE}?task=t&type=stdout&follow=true&plain=true")
    assert answer.status == 200
    answer.close()


async def test_a_node_that_cannot_be_reached_is_no_path(parts, http) -> None:
    parts.caller.answers["ACL.Authorize"] = Authorized(node_id="n1", http_addr="127.0.0.1:1")
    answer = await http.get(f"/v1/client/fs/ls/{HERE}")
    assert (answer.status, await answer.text()) == (404, "No path to node")


async def test_a_request_is_passed_on_once_only(parts, http) -> None:
    parts.caller.answers["ACL.Authorize"] = Authorized(node_id="n1", http_addr="127.0.0.1:1")
    answer = await http.get(f"/v1/client/fs/ls/{HERE}", headers={"X-Lepa-Forwarded": "1"})
    assert answer.status == 404


# Exec, events, log


async def test_a_command_runs_over_a_websocket(node, http) -> None:
    socket = await http.ws_connect(f'/v1/client/allocation/{HERE}/exec?task=t&command=["cat","-"]&tty=true')
    await socket.send_json({"tty_size": {"height": 24, "width": 80}})
    await socket.send_json({"stdin": {"data": base64.b64encode(b"hi").decode()}})
    assert base64.b64decode((await socket.receive_json())["stdout"]["data"]) == b"HI"
    await socket.send_json({"stdin": {"close": True}})
    messages = [await socket.receive_json() for _ in range(3)]
    assert messages[-1] == {"exited": True, "result": {"exit_code": 7}}
    await socket.receive()
    assert node.asked == [("t", ["cat", "-"], True)]
    assert node.session.sizes == [(24, 80)]


async def test_an_action_of_a_job_runs_by_its_name(node, http) -> None:
    socket = await http.ws_connect(f"/v1/job/web%2Fa/action?action=warm&allocID={HERE}&task=t&tty=false")
    await socket.send_json({"stdin": {"data": base64.b64encode(b"hi").decode()}})
    assert base64.b64decode((await socket.receive_json())["stdout"]["data"]) == b"HI"
    await socket.close()
    assert node.asked == [("t", ["web/a", "warm"], False)]
    late = await http.ws_connect(f"/v1/job/web/action?action=gone&allocID={HERE}&task=t&ws_handshake=true")
    await late.send_json({"version": 1, "auth_token": ""})
    assert (await late.receive()).extra == 'task "t" has no action "gone"; it has warm'


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("action=gone&task=t", 'task "t" has no action "gone"; it has warm'),
        ("action=warm", "must provide task name"),
        ("task=t", "must provide an action name"),
    ],
)
async def test_an_action_that_is_not_there_is_refused(node, http, query: str, told: str) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    answer = await http.get(f"/v1/job/web/action?allocID={HERE}&{query}", headers=headers)
    assert (answer.status, await answer.text()) == (400, told)


async def test_a_command_in_a_dead_task_closes_the_socket_with_the_reason(node, http) -> None:
    socket = await http.ws_connect(f'/v1/client/allocation/{HERE}/exec?task=dead&command=["x"]')
    message = await socket.receive()
    assert (message.data, message.extra) == (1008, 'task "dead" is not running')


@pytest.mark.parametrize("command", ["", "ls", "[]", "[1]", '{"a":1}'])
async def test_a_command_has_to_be_a_list_of_texts(node, http, command: str) -> None:
    answer = await http.get(
        f"/v1/client/allocation/{HERE}/exec",
        params={"task": "t", "command": command},
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
    )
    assert answer.status == 400


async def test_exec_without_a_websocket_is_refused(node, http) -> None:
    assert (await http.get(f'/v1/client/allocation/{HERE}/exec?task=t&command=["x"]')).status == 400


async def test_events_are_lines_after_an_empty_object(parts, http) -> None:
    parts.caller.batches = [r.EventBatch(index=3, events=(r.Event(topic="Job", key="web"),)), r.EventBatch()]
    answer = await http.get("/v1/event/stream?topic=Job:web&topic=Node&index=2")
    lines = (await answer.text()).splitlines()
    assert lines[0] == "{}"
    assert lines[1].startswith('{"Index":3,"Events":[{"Topic":"Job"')
    assert lines[2] == "{}"
    assert parts.caller.last().topics == {"Job": ("web",), "Node": ("*",)}
    assert (await http.get("/v1/event/stream?topic=a:b:c")).status == 400


@pytest.mark.parametrize(("version", "framed"), [("1.1", True), ("1.0", False)])
async def test_events_are_framed_as_the_version_of_http_wants(parts, http, version: str, framed: bool) -> None:
    parts.caller.batches = [r.EventBatch(index=3, events=(r.Event(topic="Job", key="web"),))]
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(f"GET /v1/event/stream HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert (b"chunked" in head) == framed
    if framed:
        first, line, last = body.split(b"\r\n")[1::2]
        assert (first, last, body.endswith(b"\r\n0\r\n\r\n")) == (b"{}\n", b"", True)
    else:
        first, line = body.splitlines(keepends=True)
    assert json.loads(line)["Index"] == 3
    writer.close()


async def test_events_that_the_server_ends_are_whole_lines(parts, http, monkeypatch) -> None:
    """B158: what keeps the stream alive are empty objects, and it ends between two lines, whatever ended it."""

    async def batches(method: Any, request: Any) -> AsyncIterator[r.EventBatch]:
        yield r.EventBatch(index=3, events=(r.Event(topic="Job", key="web"),))
        await beaten.wait()
        raise LepaError("no_leader", "No cluster leader")

    beaten = asyncio.Event()
    monkeypatch.setattr(parts.caller, "stream", batches)
    monkeypatch.setattr(event_feeds, "HEARTBEAT_S", 0.01)
    answer = await http.get("/v1/event/stream")
    text = b""
    while text.count(b"{}\n") < 3:
        text += await answer.content.readany()
    beaten.set()
    text += await answer.content.read()
    assert text.endswith(b"\n")
    objects = [json.loads(line) for line in text.splitlines()]
    assert objects[0] == {}
    assert [found["Index"] for found in objects if found] == [3]


async def test_the_log_is_followed_plain_or_in_frames(http) -> None:
    assert await (await http.get("/v1/agent/monitor?plain=true&log_level=warn")).text() == "warn False\n"
    frame = await (await http.get("/v1/agent/monitor?log_json=true")).json(content_type=None)
    assert base64.b64decode(frame["Data"]) == b"info True\n"
    assert (await http.get("/v1/agent/monitor?log_level=loud")).status == 400


async def test_the_log_of_another_server_is_followed_by_its_name_or_as_the_leaders(client_of) -> None:
    from tests.unit.api.conftest import Parts

    far, near = Parts(), Parts()
    far_http = await client_of(far)
    other = ServerRecord(name="two.global", rpc_address="two:4647", http_address=f"127.0.0.1:{far_http.port}")
    near.caller.answers["Status.Servers"] = (ServerRecord(name="one.global", rpc_address="one:4647"), other)
    near.caller.answers["Status.Leader"] = "two:4647"
    http = await client_of(near)
    for name in ("two", "two.global", "leader"):
        answer = await http.get(f"/v1/agent/monitor?plain=true&log_level=error&server_id={name}")
        assert await answer.text() == "error False\n"
    unknown = await http.get("/v1/agent/monitor?server_id=three")
    assert (unknown.status, 'unknown server "three"' in await unknown.text()) == (404, True)
    near.caller.answers["Status.Leader"] = ""
    nobody = await http.get("/v1/agent/monitor?server_id=leader")
    assert (nobody.status, await nobody.text()) == (500, "No cluster leader")


async def test_where_an_allocation_is_any_server_may_tell_and_the_leader_when_it_is_new(parts, http) -> None:
    await http.get(f"/v1/client/fs/ls/{HERE}")
    assert [request.stale for name, request in parts.caller.requests if name == "ACL.Authorize"] == [True, False]


async def test_old_answers_tell_that_they_are(parts, http) -> None:
    parts.caller.answers["Job.List"] = r.Reply(value=(), index=7, known_leader=False, last_contact_ms=1234)
    headers = (await http.get("/v1/jobs?stale")).headers
    assert parts.caller.last().stale
    found = [headers[f"X-Nomad-{name}"] for name in ("Index", "KnownLeader", "LastContact")]
    assert found == ["7", "false", "1234"]
    parts.caller.answers["Job.List"] = LepaError("no_leader", "No cluster leader")
    refused = await http.get("/v1/jobs?consistent")
    assert (refused.status, await refused.text()) == (500, "No cluster leader")
    assert not parts.caller.last().stale


async def test_the_data_of_a_disk_come_as_they_are_packed_or_not_at_all(parts, client_of) -> None:
    class Holder(Node):
        async def snapshot(self, alloc_id: str, token: str) -> AsyncIterator[bytes]:
            if token != "secret":
                raise LepaError("denied", "the token does not open the data of this allocation")

            async def pieces() -> AsyncIterator[bytes]:
                yield b"one "
                yield b"two"

            return pieces()

    parts.node = Holder()
    http = await client_of(parts)
    path = f"/v1/client/allocation/{HERE}/snapshot"
    assert await (await http.get(path, headers={"X-Nomad-Token": "secret"})).read() == b"one two"
    assert (await http.get(path)).status == 403
    assert (await http.get("/v1/client/allocation/elsewhere/snapshot")).status == 404
