"""Runs health checks of services on this node.

Each check is one task that sleeps its interval, asks, and tells the result. Results are kept as the API shows them; a
change of a service's worst status is reported at once. `check_restart` counts failures in a row after its grace.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import aiohttp

from lepa.client.check_tally import Tally
from lepa.client.instances import Check, Instance, worst
from lepa.kit.durations import SECOND, format_duration
from lepa.kit.probes import HttpQuestion, Tls, ask_grpc, ask_http, ask_tcp
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.service import CheckQueryResult, CheckState, ServiceCheck

log = logging.getLogger(__name__)

OUTPUT_MAX = 4096
SETTLE_S = 0.05
INTERVAL_MIN_S = 0.1
CATALOG_OUTPUT_MAX = 512
"""Characters of a check's output that the catalog gets, with the next change of a status."""

Script = Callable[[Check], Awaitable[tuple[int, bytes]]]
"""Runs a script check inside its task: exit code and output."""


class Verdict(NamedTuple):
    """What one round of a check found. status: "passing", "warning" or "critical"."""

    status: str
    output: str
    code: int = 0


class Checks:
    """Checks of one allocation.

    report(service id, worst status) is called when a check's status changes, and after each check's first result.
    restart(task, reason) is called when `check_restart` says so.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        clock: Clock,
        random: Random,
        report: Callable[[str, str], None],
        restart: Callable[[str, str], None],
        script: Script,
    ) -> None:
        self._http = http
        self._clock = clock
        self._random = random
        self._report = report
        self._restart = restart
        self._script = script
        self._tasks = Tasks("client.checks")
        self._followed: dict[str, Instance] = {}
        self._running: dict[str, list[asyncio.Task[None]]] = {}
        self._tallies: dict[str, dict[str, Tally]] = {}
        self.results: dict[str, CheckQueryResult] = {}

    def follow(self, instance: Instance) -> None:
        """Begin the checks of an instance, or go on with those that are the same as before."""
        service_id = instance.registration.id
        if (known := self._followed.get(service_id)) is not None and known.checks == instance.checks:
            return
        self.leave(service_id)
        self._followed[service_id] = instance
        self._tallies[service_id] = {check.id: Tally(check.spec) for check in instance.checks}
        self._running[service_id] = [
            self._tasks.start(f"check.{check.id}", self._run(check)) for check in instance.checks
        ]

    def leave(self, service_id: str) -> None:
        """End the checks of an instance."""
        for task in self._running.pop(service_id, []):
            task.cancel()
        for check_id in self._tallies.pop(service_id, {}):
            self.results.pop(check_id, None)
        self._followed.pop(service_id, None)

    def status(self, service_id: str) -> str:
        """The worst status of an instance's checks; "passing" without any."""
        return worst(tally.status for tally in self._tallies.get(service_id, {}).values())

    def asked(self, service_id: str) -> bool:
        """Whether every check of an instance has had a result."""
        return all(tally.asked for tally in self._tallies.get(service_id, {}).values())

    def states(self, service_id: str) -> tuple[CheckState, ...]:
        """The checks of an instance and what they said last, as the catalog shows them."""
        instance = self._followed.get(service_id)
        return tuple(map(self._state, instance.checks)) if instance else ()

    def _state(self, check: Check) -> CheckState:
        times = {"Interval": format_duration(check.spec.interval), "Timeout": format_duration(check.spec.timeout)}
        result = self.results.get(check.id)
        return CheckState(
            id=check.id,
            name=check.spec.name,
            type=check.spec.type,
            status=self._tallies[check.service_id][check.id].status,
            output=result.output[:CATALOG_OUTPUT_MAX] if result else "",
            notes=check.spec.notes,
            definition=times,
        )

    def healthy(self, count: int) -> bool:
        """Whether all `count` checks that the allocation should have run, and are as good as its health needs."""
        tallies = [tally for service in self._tallies.values() for tally in service.values()]
        return len(tallies) >= count and all(tally.healthy for tally in tallies)

    async def close(self) -> None:
        """End all checks."""
        await self._tasks.close()

    async def _run(self, check: Check) -> None:
        spec, failures = check.spec, 0
        started = self._clock.now()
        self._record(check, Verdict("critical", "no result yet"), pending=True)
        await self._clock.sleep(self._random.uniform(0.0, SETTLE_S))
        while True:
            verdict = await self._ask(check)
            self._take(check, verdict)
            failures = self._count_failures(check, verdict, failures, started)
            if failures < 0:
                failures, started = 0, self._clock.now()
            await self._clock.sleep(max(spec.interval / SECOND, INTERVAL_MIN_S))

    def _count_failures(self, check: Check, verdict: Verdict, failures: int, started: float) -> int:
        """Failures in a row; -1 after asking for a restart."""
        rule = check.spec.check_restart
        if rule is None or rule.limit <= 0 or self._clock.now() - started < rule.grace / SECOND:
            return 0
        bad = verdict.status == "critical" or (verdict.status == "warning" and not rule.ignore_warnings)
        if not bad:
            return 0
        if failures + 1 < rule.limit:
            return failures + 1
        self._restart(check.task, f'check "{check.spec.name}" failed {rule.limit} times in a row')
        return -1

    async def _ask(self, check: Check) -> Verdict:
        timeout_s = max(check.spec.timeout / SECOND, 0.1)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask_once(check)
        except TimeoutError:
            return Verdict("critical", f"no answer within {timeout_s:g} s")
        except (OSError, aiohttp.ClientError, LepaError) as error:
            return Verdict("critical", str(error) or type(error).__name__)

    async def _ask_once(self, check: Check) -> Verdict:
        kind = check.spec.type
        if kind == "http":
            return await self._ask_http(check)
        if kind == "tcp":
            await ask_tcp(check.address, check.port)
            return Verdict("passing", "nomad: tcp ok")
        if kind == "grpc":
            tls = _tls(check.spec) if check.spec.grpc_use_tls else None
            said = await ask_grpc(check.address, check.port, check.spec.grpc_service, tls)
            return Verdict("passing" if said == "SERVING" else "critical", f"nomad: grpc {said}")
        if kind == "script":
            code, output = await self._script(check)
            status = "passing" if code == 0 else "warning" if code == 1 else "critical"
            return Verdict(status, output.decode(errors="replace"), code)
        return Verdict("critical", f'this node cannot run checks of type "{kind}"')

    async def _ask_http(self, check: Check) -> Verdict:
        spec = check.spec
        path = spec.path if spec.path.startswith("/") else f"/{spec.path}"
        host = f"[{check.address}]" if ":" in check.address else check.address
        question = HttpQuestion(
            f"{spec.protocol or 'http'}://{host}:{check.port}{path}",
            spec.method or "GET",
            tuple((name, value) for name, values in spec.header.items() for value in values),
            spec.body,
            _tls(spec),
        )
        answer = await ask_http(self._http, question)
        text = f"nomad: http ok ({answer.status})" if answer.status < 300 else answer.body
        return Verdict(_http_status(answer.status, native=check.native), text, answer.status)

    def _take(self, check: Check, verdict: Verdict) -> None:
        self._record(check, verdict)
        tally, before = self._tallies[check.service_id][check.id], self.status(check.service_id)
        own = tally.status
        first = tally.take(verdict.status)
        if (now := self.status(check.service_id)) != before:
            log.info("service status changed service=%s status=%s check=%s", check.service, now, check.spec.name)
        if first or tally.status != own:
            self._report(check.service_id, now)

    def _record(self, check: Check, verdict: Verdict, *, pending: bool = False) -> None:
        status = "pending" if pending else "failure" if verdict.status == "critical" else "success"
        self.results[check.id] = CheckQueryResult(
            id=check.id,
            mode="healthiness" if check.spec.on_update in {"", "require_healthy"} else "readiness",
            status=status,
            status_code=verdict.code,
            output=verdict.output[:OUTPUT_MAX],
            timestamp=self._clock.now_ns() // SECOND,
            group=check.group,
            task=check.task,
            service=check.service,
            check=check.spec.name,
        )


def _http_status(code: int, *, native: bool) -> str:
    """What a status code means: for services of Nomad's own provider whatever is no error passes."""
    if 200 <= code < (400 if native else 300):
        return "passing"
    return "warning" if code == 429 and not native else "critical"


def _tls(spec: ServiceCheck) -> Tls:
    return Tls(spec.tls_server_name, spec.tls_skip_verify)
