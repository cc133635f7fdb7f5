"""Runs the checks of services that were registered with this agent: asks those that are asked, awaits those that are
told, and reports every result."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

from lepa.consul.check_tally import Tally
from lepa.consul.registrations import Definition, definition_of, host_and_port
from lepa.kit import probes
from lepa.kit.durations import SECOND, format_duration
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.service import CheckState

Report = Callable[[str, str, str, str], None]
"""Told of every result: service id, check id, status, output."""

Key = tuple[str, str]
"""Service id and check id."""


class CheckRunner:
    """The running checks of one agent, as an async context manager that ends them all."""

    def __init__(self, clock: Clock, random: Random, report: Report) -> None:
        self._clock = clock
        self._random = random
        self._report = report
        self._tasks = Tasks("consul.checks")
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._definitions: dict[Key, Definition] = {}
        self._news: dict[Key, asyncio.Event] = {}
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._tasks.close()
        if self._http is not None:
            await self._http.close()

    def follow(self, service_id: str, checks: tuple[CheckState, ...]) -> None:
        """Run exactly these checks of a service; those that run already in the same way go on."""
        wanted = {check.id: definition_of(check.definition) for check in checks if check.definition}
        for key in [key for key in self._running if key[0] == service_id]:
            if wanted.get(key[1]) != self._definitions[key]:
                self._stop(key)
        for check in checks:
            if check.id in wanted and (service_id, check.id) not in self._running:
                self._start((service_id, check.id), wanted[check.id], check.status)

    def heard(self, service_id: str, check_id: str) -> None:
        """The owner of a ttl check has said something."""
        self._news[service_id, check_id].set()

    def _start(self, key: Key, definition: Definition, status: str) -> None:
        self._definitions[key] = definition
        if definition.kind == "ttl":
            self._news[key] = asyncio.Event()
            work = self._await_news(key, definition)
        else:
            work = self._ask_again(key, definition, Tally(definition, status))
        self._running[key] = self._tasks.start(f"check.{key[1]}", work)

    def _stop(self, key: Key) -> None:
        self._running.pop(key).cancel()
        self._definitions.pop(key)
        self._news.pop(key, None)

    async def _await_news(self, key: Key, definition: Definition) -> None:
        """A ttl check is critical when its owner has been silent for too long."""
        news = self._news[key]
        while True:
            try:
                async with asyncio.timeout(definition.ttl / SECOND):
                    await news.wait()
            except TimeoutError:
                self._report(*key, "critical", f"Missed TTL {format_duration(definition.ttl)}")
                await news.wait()
            news.clear()

    async def _ask_again(self, key: Key, definition: Definition, tally: Tally) -> None:
        interval_s = definition.interval / SECOND
        await self._clock.sleep(self._random.uniform(0.0, interval_s))
        while True:
            status, output = await self._ask(definition)
            self._report(*key, tally.take(status), output)
            await self._clock.sleep(interval_s)

    async def _ask(self, definition: Definition) -> tuple[str, str]:
        timeout_s = definition.timeout / SECOND
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask_once(definition)
        except TimeoutError:
            return "critical", f"no answer from {definition.target} within {timeout_s:g} s"
        except (OSError, aiohttp.ClientError, ValueError) as error:
            return "critical", f"{definition.target}: {error or type(error).__name__}"

    async def _ask_once(self, definition: Definition) -> tuple[str, str]:
        tls = probes.Tls(definition.tls_server_name, definition.tls_skip_verify)
        if definition.kind == "http":
            return await self._ask_http(definition, tls)
        host, port = host_and_port(definition.target)
        if definition.kind == "tcp":
            await probes.ask_tcp(host, port, tls if definition.tls else None)
            return "passing", f"TCP connect {definition.target}: Success"
        service = definition.target.partition("/")[2]
        said = await probes.ask_grpc(host, port, service, tls if definition.tls else None)
        return "passing" if said == "SERVING" else "critical", f"gRPC check {definition.target}: {said}"

    async def _ask_http(self, definition: Definition, tls: probes.Tls) -> tuple[str, str]:
        assert self._http is not None
        question = probes.HttpQuestion(
            definition.target, definition.method, definition.headers, definition.body, tls, definition.redirects
        )
        answer = await probes.ask_http(self._http, question)
        status = "passing" if 200 <= answer.status < 300 else "warning" if answer.status == 429 else "critical"
        return status, f"HTTP {definition.method} {definition.target}: {answer.status} Output: {answer.body}"
