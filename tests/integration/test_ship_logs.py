"""What tasks write arrives at real receivers (lepa.client.shipping.shipper, lepa.client.shipping.receivers).

Syslog is a real rsyslogd, by UDP, TCP and a Unix socket. Fluentd is a receiver of the forward protocol of the test's
own: no Fluentd or Fluent Bit is among Debian 12's packages. Loki is a receiver of its push API, of the test's own too.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests import components, receivers
from tests.builders import make_alloc, make_job, make_node

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.artifact_settings import LINK_LOCAL
from lepa.client.hooks.protocol import Setup
from lepa.client.shipping.formats import Line, Origin
from lepa.client.shipping.receivers import Doors, Unsent, receiver
from lepa.client.shipping.settings import ShipSettings, check, of_job
from lepa.client.shipping.shipper import ShipHook, Shipping, read_places
from lepa.client.task_env import Directories
from lepa.client.task_env import Place as TaskPlace
from lepa.kit.sources import SeededRandom, SystemClock
from lepa.kit.telemetry import Metrics
from lepa.model.task import LogShip

TASK = "main"


class Task:
    """A task's log files, and its place."""

    def __init__(self, root: Path) -> None:
        job = make_job()
        group = job.task_groups[0]
        alloc = make_alloc(job=job)
        self.directory = AllocDir(root, alloc.id)
        self.name = group.tasks[0].name
        self.directory.build([self.name])
        self.place = TaskPlace(
            make_node(), "global", job, group, group.tasks[0], alloc, Directories("/alloc", "/local", "/secrets")
        )

    def write(self, text: str, stream: str = "stdout", number: int = 0) -> None:
        with (self.directory.logs / f"{self.name}.{stream}.{number}").open("a") as file:
            file.write(text)


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path / "allocs")
    yield made
    made.directory.destroy()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Sender:
    """Follows the task for one receiver, as a node does."""

    def __init__(self, http: aiohttp.ClientSession, task: Task, settings: ShipSettings | LogShip) -> None:
        self.metrics = Metrics()
        self.notes: list[tuple[str, str]] = []
        self.place = task.place
        if isinstance(settings, LogShip):
            logs = msgspec.structs.replace(task.place.task.log_config, ship=(settings,))
            self.place = task.place._replace(task=msgspec.structs.replace(task.place.task, log_config=logs))
        operators = [check(settings)] if isinstance(settings, ShipSettings) else []
        doors = Doors(http), Doors(http, LINK_LOCAL)
        self.shipping = Shipping(operators, *doors, SystemClock(), SeededRandom(1), self.metrics)
        (self.hook,) = self.shipping.hooks(task.directory, self.place)

    def note(self, kind: str, message: str) -> None:
        self.notes.append((kind, message))

    def total(self, name: str) -> float:
        return sum(value for (found, _), value in self.metrics.totals.items() if found == name)

    async def start(self) -> "Sender":
        env = {"NOMAD_ALLOC_INDEX": "7"}
        await self.hook.poststart(Setup(self.place, env, self), None)  # type: ignore[arg-type]
        return self

    async def end(self) -> None:
        await self.hook.close()
        await self.shipping.close()


async def until(holds: Any, what: str = "") -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[receivers.Rsyslog]:
    with receivers.rsyslog(tmp_path) as found:
        yield found


@pytest.mark.parametrize("way", ["udp", "tcp", "unix"])
async def test_rsyslog_has_every_line_with_its_origin(
    rsyslog: receivers.Rsyslog, task: Task, http: aiohttp.ClientSession, way: str
) -> None:
    udp, tcp = rsyslog.ports
    address = {"udp": f"udp://127.0.0.1:{udp}", "tcp": f"tcp://127.0.0.1:{tcp}", "unix": f"unix://{rsyslog.socket}"}
    sender = await Sender(http, task, ShipSettings("central", "syslog", address[way], labels={"team": "a"})).start()
    task.write("".join(f"line {number}\n" for number in range(50)))
    task.write("bad\n", "stderr")
    await until(lambda: len(rsyslog.lines()) == 51)
    task.write("after a rotation\n", number=1)
    task.write("cut", number=1)
    await until(lambda: len(rsyslog.lines()) == 52)
    await sender.end()
    await until(lambda: len(rsyslog.lines()) == 53)
    out = [line for line in rsyslog.lines() if line[4] == "stdout"]
    assert [line[6].strip() for line in out] == [f"line {n}" for n in range(50)] + ["after a rotation", "cut"]
    priority, host, app, procid, _, data, _ = out[0]
    assert priority == "134"
    assert host == task.place.node.name
    assert app == f"{task.place.job.id}/{task.name}"
    assert procid == task.place.alloc.id[:8]
    assert f'alloc_id="{task.place.alloc.id}"' in data
    assert 'team="a"' in data
    assert [line[0] for line in rsyslog.lines() if line[4] == "stderr"] == ["131"]
    assert sender.total("lepa.logs.lines_shipped") == 53


async def test_a_task_names_receivers_of_its_own(
    tmp_path: Path, rsyslog: receivers.Rsyslog, task: Task, http: aiohttp.ClientSession
) -> None:
    """Its texts may name what else the task may; places that no job's output goes to stay closed."""
    address = f"udp://127.0.0.1:{rsyslog.ports[0]}"
    labels = {"index": "${NOMAD_ALLOC_INDEX}"}
    ship = LogShip(name="own", type="syslog", address=address, labels=labels, streams=("stderr",))
    sender = await Sender(http, task, ship).start()
    task.write("not this\n")
    task.write("this\n", "stderr")
    await until(rsyslog.lines)
    await sender.end()
    ((*_, data, text),) = rsyslog.lines()
    assert 'index="7"' in data
    assert text.strip() == "this"
    assert sender.metrics.totals[("lepa.logs.lines_shipped", (("receiver", "of jobs"),))] == 1

    for kind, address in (("fluentd", "tcp://169.254.169.254:1"), ("syslog", "udp://169.254.169.254:1")):
        closed = receiver(
            of_job(LogShip(name="x", type=kind, address=address), {}), Doors(http, LINK_LOCAL), SeededRandom(1)
        )
        with pytest.raises(Unsent, match=r"in 169\.254\.0\.0/16, where no job's output is sent"):
            await closed.send([Line("stdout", b"x", 1)], Origin("n", "default", "j", "g", "t", "a"))
    wrong = await Sender(
        http, task, LogShip(name="own", type="syslog", address="udp://a:${NOMAD_ALLOC_INDEX}x")
    ).start()
    ((kind, message),) = wrong.notes
    assert (kind, 'found "udp://a:7x"' in message) == ("Log Shipping Failed", True)


async def test_the_fluentd_projects_receiver_takes_and_acknowledges(
    tmp_path: Path, task: Task, http: aiohttp.ClientSession
) -> None:
    """A batch that was acknowledged is not sent again, by whoever goes on."""
    with receivers.fluentd(tmp_path) as found:
        settings = ShipSettings("flu", "fluentd", f"tcp://{found.address}", labels={"team": "a"}, tag="mine")
        sender = await Sender(http, task, settings).start()
        task.write("".join(f"line {number}\n" for number in range(1500)))
        task.write("bad \xff\n", "stderr")
        await until(lambda: sender.total("lepa.logs.lines_shipped") == 1501)
        await sender.shipping.close()
        task.write("more\n")
        sender = await Sender(http, task, settings).start()
        await until(lambda: sender.total("lepa.logs.lines_shipped") == 1)
        await sender.end()
        await until(lambda: len(found.entries()) == 1502)
        assert {tag for tag, _ in found.entries()} == {"mine"}
        records = [record for _, record in found.entries()]
        out = [record["log"] for record in records if record["stream"] == "stdout"]
        assert out == [f"line {number}" for number in range(1500)] + ["more"]
        assert {(record["team"], record["alloc_id"]) for record in records} == {("a", task.place.alloc.id)}


async def test_a_receiver_that_was_away_gets_the_rest_and_a_new_agent_goes_on(
    tmp_path: Path, task: Task, http: aiohttp.ClientSession
) -> None:
    """Nothing twice, nothing lost, as long as the files are there; files that are gone are counted."""
    forward = Forward()
    (port,) = components.free_ports(1)
    settings = ShipSettings("flu", "fluentd", f"tcp://127.0.0.1:{port}")
    sender = await Sender(http, task, settings).start()
    task.write("one\n")
    await asyncio.sleep(0.3)
    async with forward.serving(port):
        await until(lambda: forward.texts() == ["one"])
        await sender.shipping.close()
        task.write("two\n")
        sender = await Sender(http, task, settings).start()
        await until(lambda: forward.texts() == ["one", "two"])
        assert read_places(task.directory.task(task.name).private / "shipped-flu")["stdout"] == (0, 8)
    (task.directory.logs / f"{task.name}.stdout.0").unlink()
    task.write("five\n", number=4)
    forward.refuse = True
    async with forward.serving(port):
        await until(lambda: forward.refused > 0)
        forward.refuse = False
        await until(lambda: forward.texts() == ["one", "two", "five"])
        assert sender.total("lepa.logs.files_dropped") == 4
        await sender.end()
    assert {record["task"] for _, record in forward.entries} == {task.name}
    assert forward.tags == {"lepa"}


class Forward:
    """Fluentd's in_forward, as far as senders notice: it acknowledges chunks, or hangs up (refuse)."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.tags: set[str] = set()
        self.refuse = False
        self.refused = 0

    def texts(self) -> list[str]:
        return [record["log"] for _, record in self.entries]

    def serving(self, port: int) -> "_Serving":
        return _Serving(self, port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        while piece := await reader.read(65536):
            data += piece
            try:
                tag, entries, options = msgspec.msgpack.decode(data)
            except msgspec.DecodeError:
                continue
            data = b""
            if self.refuse:
                self.refused += 1
                break
            self.tags.add(tag)
            self.entries += entries
            assert options["size"] == len(entries)
            writer.write(msgspec.msgpack.encode({"ack": options["chunk"]}))
        writer.close()


class _Serving:
    def __init__(self, forward: Forward, port: int) -> None:
        self._forward, self._port = forward, port

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._forward.serve, "127.0.0.1", self._port)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


async def test_loki_gets_batches_and_a_batch_that_it_refuses_for_good_is_dropped_and_counted(
    task: Task, http: aiohttp.ClientSession
) -> None:
    bodies: list[Any] = []
    answers = [503, 400]

    async def take(request: web.Request) -> web.Response:
        assert request.headers["X-Scope-OrgID"] == "me"
        status = answers.pop(0) if answers else 204
        if status == 204:
            bodies.append(json.loads(await request.read()))
        return web.Response(status=status, text="" if status == 204 else "no")

    app = web.Application()
    app.router.add_post("/loki/api/v1/push", take)
    runner = web.AppRunner(app)
    await runner.setup()
    (port,) = components.free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    address = f"http://127.0.0.1:{port}/loki/api/v1/push"
    sender = await Sender(http, task, ShipSettings("l", "loki", address, headers={"X-Scope-OrgID": "me"})).start()
    task.write("refused\n")
    await until(lambda: sender.total("lepa.logs.lines_dropped") == 1)
    task.write("taken\n")
    await until(lambda: bodies)
    await sender.end()
    await runner.cleanup()
    (stream,) = bodies[0]["streams"]
    assert [text for _, text in stream["values"]] == ["taken"]
    assert stream["stream"]["job"] == task.place.job.id


async def test_a_receiver_that_never_answers_holds_up_neither_the_task_nor_its_end(
    task: Task, http: aiohttp.ClientSession
) -> None:
    (port,) = components.free_ports(1)
    sender = await Sender(http, task, ShipSettings("gone", "syslog", f"tcp://127.0.0.1:{port}")).start()
    task.write("x\n" * 1000)
    await asyncio.sleep(0.2)
    async with asyncio.timeout(5):
        await sender.end()
    assert sender.total("lepa.logs.lines_shipped") == 0


def test_disabled_logs_are_not_followed(task: Task, http: aiohttp.ClientSession) -> None:
    settings = [ShipSettings("a", "syslog", "unix:///dev/log")]
    shipping = Shipping(settings, Doors(http), Doors(http), SystemClock(), SeededRandom(1), Metrics())
    logs = msgspec.structs.replace(task.place.task.log_config, disabled=True)
    place = task.place._replace(task=msgspec.structs.replace(task.place.task, log_config=logs))
    assert shipping.hooks(task.directory, place) == []
    assert [type(hook) for hook in shipping.hooks(task.directory, task.place)] == [ShipHook]
