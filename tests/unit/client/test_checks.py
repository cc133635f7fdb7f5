"""Health checks of services."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from tests.builders import make_service
from tests.clocks import ManualClock

from lepa.client.checks import Checks
from lepa.client.instances import Check, Instance
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.model.service import CheckRestart, ServiceCheck

SECOND = 1_000_000_000


class Watched:
    """Checks with a clock of the test's own, and what they reported."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.clock = ManualClock()
        self.reports: list[tuple[str, str]] = []
        self.restarts: list[str] = []
        self.script: Callable[[Check], tuple[int, bytes]] = lambda check: (0, b"")
        self.checks = Checks(
            http,
            self.clock,
            SeededRandom(1),
            lambda *told: self.reports.append(told),
            lambda *told: self.restarts.append(told[1]),
            self._run,
        )

    async def _run(self, check: Check) -> tuple[int, bytes]:
        return self.script(check)

    async def rounds(self, count: int = 1) -> None:
        """Let each check be asked `count` times; sockets take real time."""
        for _ in range(count):
            await self.clock.advance(1.0)
            for _ in range(200):
                await asyncio.sleep(0.001)
                if any(result.status != "pending" for result in self.checks.results.values()):
                    break


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with aiohttp.ClientSession() as http:
        found = Watched(http)
        yield found
        await found.checks.close()


def instance(kind: str = "script", port: int = 1, **fields: object) -> Instance:
    spec = ServiceCheck(**{"name": "c", "type": kind, "interval": SECOND, "timeout": SECOND, "command": "x"} | fields)  # type: ignore[arg-type]
    check = Check("s-0", "s", "web", "web", "group", spec, "127.0.0.1", port)
    return Instance(make_service("s"), (check,))


@contextlib.asynccontextmanager
async def listener(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("code", "status"), [(0, "passing"), (1, "warning"), (2, "critical")])
async def test_a_scripts_exit_code_is_its_verdict(watched: Watched, code: int, status: str) -> None:
    watched.script = lambda check: (code, b"said")
    watched.checks.follow(instance())
    await watched.rounds()
    assert watched.reports[-1] == ("s", status)
    result = watched.checks.results["s-0"]
    assert (result.output, result.status_code, result.status) == ("said", code, "failure" if code == 2 else "success")


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"200 OK", "passing"), (b"204 No", "passing"), (b"429 Busy", "warning"), (b"500 Oh", "critical")],
)
async def test_http_statuses(watched: Watched, line: bytes, status: str) -> None:
    async with listener(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as port:
        watched.checks.follow(instance("http", port, path="/health"))
        await watched.rounds(2)
    assert watched.checks.status("s") == status


@pytest.mark.parametrize(
    ("line", "status"), [(b"302 Found", "passing"), (b"404 No", "critical"), (b"429 B", "critical")]
)
async def test_http_statuses_of_nomads_own_provider(watched: Watched, line: bytes, status: str) -> None:
    async with listener(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as port:
        found = instance("http", port, path="/health")
        watched.checks.follow(found._replace(checks=(found.checks[0]._replace(native=True),)))
        await watched.rounds(2)
    assert watched.checks.status("s") == status


@pytest.mark.parametrize(("body", "status"), [(b"\x08\x01", "passing"), (b"\x08\x02", "critical")])
async def test_grpc_passes_when_the_server_serves(watched: Watched, body: bytes, status: str) -> None:
    message = b"\0\0\0\0" + bytes((len(body),)) + body
    async with listener(len(message).to_bytes(3, "big") + b"\0\0\0\0\0\1" + message) as port:
        watched.checks.follow(instance("grpc", port, grpc_service="web"))
        await watched.rounds(2)
    assert watched.checks.status("s") == status


async def test_the_catalog_gets_each_check_with_its_last_words(watched: Watched) -> None:
    assert watched.checks.states("s") == ()
    watched.script = lambda check: (1, b"said " + b"x" * 10_000)
    watched.checks.follow(instance())
    assert watched.checks.states("s")[0].status == "critical"
    await watched.rounds()
    (state,) = watched.checks.states("s")
    assert (state.id, state.name, state.type, state.status, len(state.output)) == ("s-0", "c", "script", "warning", 512)
    assert state.definition == {"Interval": "1s", "Timeout": "1s"}


async def test_a_port_that_nobody_listens_on_is_critical_and_an_open_one_passes(watched: Watched) -> None:
    async with listener(b"") as port:
        watched.checks.follow(instance("tcp", port))
        await watched.rounds(2)
        assert watched.checks.status("s") == "passing"
    await watched.rounds(3)
    assert watched.checks.status("s") == "critical"
    assert watched.checks.results["s-0"].output


async def test_a_check_that_cannot_be_asked_is_critical(watched: Watched) -> None:
    def refuse(check: Check) -> tuple[int, bytes]:
        raise LepaError("not_found", "the task is gone")

    watched.script = refuse
    watched.checks.follow(instance())
    await watched.rounds()
    assert watched.checks.results["s-0"].output == "the task is gone"
    watched.checks.leave("s")
    watched.checks.follow(instance("carrier pigeon"))
    await watched.rounds()
    assert "carrier pigeon" in watched.checks.results["s-0"].output


async def test_health_waits_for_every_check(watched: Watched) -> None:
    assert not watched.checks.healthy(1)
    assert watched.checks.healthy(0)
    watched.checks.follow(instance(initial_status="passing"))
    assert watched.checks.status("s") == "passing"
    assert not watched.checks.asked("s")
    assert not watched.checks.healthy(1)
    await watched.rounds()
    assert watched.checks.asked("s")
    assert watched.checks.healthy(1)
    assert not watched.checks.healthy(2)


async def test_failures_in_a_row_restart_the_task_once_after_the_grace(watched: Watched) -> None:
    watched.script = lambda check: (2, b"")
    rule = CheckRestart(limit=3, grace=2 * SECOND)
    watched.checks.follow(instance(check_restart=rule))
    await watched.rounds(4)
    assert watched.restarts == []
    await watched.rounds(1)
    assert len(watched.restarts) == 1
    await watched.rounds(2)
    assert len(watched.restarts) == 1


async def test_c62_warnings_restart_too_unless_they_are_overlooked(watched: Watched) -> None:
    watched.script = lambda check: (1, b"")
    watched.checks.follow(instance(check_restart=CheckRestart(limit=2, ignore_warnings=True)))
    await watched.rounds(4)
    assert watched.restarts == []
    watched.checks.follow(instance(check_restart=CheckRestart(limit=2)))
    await watched.rounds(3)
    assert len(watched.restarts) == 1


async def test_c62_a_check_without_an_answer_in_time_is_critical(watched: Watched) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        watched.checks.follow(instance("http", port, path="/", initial_status="passing", timeout=SECOND // 10))
        await watched.rounds()
    assert watched.checks.status("s") == "critical"
    assert watched.checks.results["s-0"].output == "no answer within 0.1 s"


async def test_following_the_same_again_changes_nothing_and_other_checks_begin_anew(watched: Watched) -> None:
    watched.checks.follow(instance())
    await watched.rounds()
    watched.checks.follow(instance())
    assert watched.checks.status("s") == "passing"
    watched.checks.follow(instance(interval=2 * SECOND))
    assert watched.checks.status("s") == "critical"
    watched.checks.leave("s")
    assert watched.checks.results == {}
    assert watched.checks.status("s") == "passing"
