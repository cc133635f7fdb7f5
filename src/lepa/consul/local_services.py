"""What was registered with this agent from outside the jobs.

The cluster's catalog is where registrations live: each is stored as an instance that names this agent, so they outlive
the agent, and the next one of its name takes them up again with their checks. Registering and deregistering return when
the catalog has it. Results of checks are sent by one loop, the newest state only: at once when a status changed, and
now and then when nothing but the output did. Once a minute everything is sent again, in case somebody removed it.
"""

import asyncio
import logging
from types import TracebackType
from typing import Self
from urllib.parse import quote

from msgspec.structs import replace

from lepa.catalog.table import Instance
from lepa.consul import bodies
from lepa.consul.bodies import Json
from lepa.consul.check_runner import CheckRunner
from lepa.consul.following import Following
from lepa.consul.registrations import (
    OUTPUT_MAX,
    AgentNode,
    check_of,
    definition_of,
    service_of,
    with_checks,
)
from lepa.consul.views import MAINTENANCE
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.service import CheckState, ServiceRegistration
from lepa.sdk.async_connection import AsyncConnection

log = logging.getLogger(__name__)

SERVICES_MAX = 10_000
RESYNC_S = 60.0
LOOK_S = 1.0
"""How often it is looked whether something has to be sent or has been critical for too long."""
RETRY_S = 1.0
OUTPUT_SYNC_S = 300.0
"""How long a change of nothing but a check's output may stay on this agent."""


class LocalServices:
    """The registrations of one agent, as an async context manager that runs their checks while it is entered.

    caller: the connection with the token of whoever asks, which then also stores what the checks find.
    """

    def __init__(self, node: AgentNode, api: AsyncConnection, catalog: Following, clock: Clock, random: Random) -> None:
        self._node = node
        self._api = api
        self._catalog = catalog
        self._clock = clock
        self._runner = CheckRunner(clock, random, self._take)
        self._tasks = Tasks("consul.services")
        self._critical_since: dict[tuple[str, str], float] = {}
        self._due: dict[str, float] = {}
        self._resync_at = clock.now() + RESYNC_S
        self._wake = asyncio.Event()
        self._callers: dict[str, AsyncConnection] = {}
        self.services: dict[str, ServiceRegistration] = {}

    async def __aenter__(self) -> Self:
        await self._runner.__aenter__()
        self._tasks.start("adopt", self._adopt())
        self._tasks.start("sync", self._sync())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._tasks.close()
        await self._runner.__aexit__(kind, error, tb)

    # What clients ask for

    async def register(self, body: Json, *, replace_checks: bool, caller: AsyncConnection | None = None) -> None:
        """Register or change a service; checks that the body does not name stay unless replace_checks."""
        service = service_of(body, self._node)
        present = self.services.get(service.id)
        if present is None and len(self.services) >= SERVICES_MAX:
            raise invalid(f"this agent takes at most {SERVICES_MAX} services")
        if present is not None:
            service = _merged(present, service, replace_checks=replace_checks)
        await self._store(service, caller)
        if present is not None and present.service_name != service.service_name:
            await self._delete(present, caller)

    async def deregister(self, service_id: str, caller: AsyncConnection | None = None) -> None:
        """Remove a service with its checks. Raises LepaError(not_found)."""
        service = self._service(service_id)
        self._runner.follow(service_id, ())
        self.services.pop(service_id)
        self._due.pop(service_id, None)
        self._critical_since = {key: at for key, at in self._critical_since.items() if key[0] != service_id}
        try:
            await self._delete(service, caller)
        except LepaError:
            self._keep(service)
            raise
        self._callers.pop(service_id, None)

    async def register_check(self, body: Json, caller: AsyncConnection | None = None) -> None:
        """Add a check to a service that is registered here, or change it."""
        given = bodies.lowered(body)
        service_id = bodies.text(given, "serviceid")
        if not service_id:
            raise invalid("checks of a node are not kept; give the ServiceID of a service that is registered here")
        if service_id not in self.services:
            raise not_found(f'ServiceID "{service_id}" does not exist')
        check, service = check_of(body, bodies.text(given, "name")), self.services[service_id]
        others = [each for each in service.checks if each.id != check.id]
        await self._store(with_checks(service, [*others, check]), caller)

    async def deregister_check(self, check_id: str, caller: AsyncConnection | None = None) -> None:
        """Remove a check. Raises LepaError(not_found)."""
        service, _ = self._check(check_id)
        await self._store(with_checks(service, [each for each in service.checks if each.id != check_id]), caller)

    async def prove(self, check_id: str, caller: AsyncConnection) -> None:
        """Raise LepaError unless the caller may change the service of a check."""
        service, _ = self._check(check_id)
        known = self._callers.get(service.id)
        if known is None or known.target.token != caller.target.token:
            await self._store(service, caller)

    def tell(self, check_id: str, status: str, output: str) -> None:
        """The owner of a ttl check says how it is. Raises LepaError(not_found)."""
        service, check = self._check(check_id)
        if check.type != "ttl":
            raise invalid(f'CheckID "{check_id}" does not have associated TTL')
        self._runner.heard(service.id, check_id)
        self._take(service.id, check_id, status, output)

    async def maintain(
        self, service_id: str, *, enable: bool, reason: str, caller: AsyncConnection | None = None
    ) -> None:
        """Take a service out of use, or back, by a check that is always critical."""
        service = self._service(service_id)
        check_id = f"{MAINTENANCE}{service_id}"
        others = [each for each in service.checks if each.id != check_id]
        why = reason or "Maintenance mode is enabled for this service, but no reason was provided."
        mode = CheckState(id=check_id, name="Service Maintenance Mode", type="maintenance", notes=why)
        await self._store(with_checks(service, [*others, mode] if enable else others), caller)

    def _service(self, service_id: str) -> ServiceRegistration:
        if service_id not in self.services:
            said = "Ensure that the service ID is passed, not the service name."
            raise not_found(f'Unknown service ID "{service_id}". {said}')
        return self.services[service_id]

    def _check(self, check_id: str) -> tuple[ServiceRegistration, CheckState]:
        for service in self.services.values():
            for check in service.checks:
                if check.id == check_id:
                    return service, check
        raise not_found(f'Unknown check ID "{check_id}". Ensure that the check ID is passed, not the check name.')

    # The catalog

    async def _store(self, service: ServiceRegistration, caller: AsyncConnection | None) -> None:
        """Put a registration into the catalog, then run its checks."""
        await self._send(service, caller)
        if caller is not None:
            self._callers[service.id] = caller
        self._keep(service)

    def _keep(self, service: ServiceRegistration) -> None:
        self.services[service.id] = service
        self._runner.follow(service.id, service.checks)
        for check in service.checks:
            self._note_critical(service.id, check.id, check.status)

    async def _send(self, service: ServiceRegistration, caller: AsyncConnection | None = None) -> None:
        await (caller or self._callers.get(service.id, self._api)).send(
            "PUT", _path(service), {"namespace": service.namespace or None}, service
        )

    async def _delete(self, service: ServiceRegistration, caller: AsyncConnection | None = None) -> None:
        try:
            await (caller or self._callers.get(service.id, self._api)).send(
                "DELETE", _path(service), {"namespace": service.namespace or "default"}
            )
        except LepaError as error:
            if error.code != "not_found":
                raise

    async def _adopt(self) -> None:
        """Take up what an agent of this name registered before."""
        while True:
            try:
                view = await self._catalog.first()
                break
            except LepaError:
                await self._clock.sleep(RETRY_S)
        for instance in view.table.instances():
            if instance.agent == self._node.agent and instance.id not in self.services:
                self._keep(_registration(instance, self._node))

    async def _sync(self) -> None:
        while True:
            self._wake.clear()
            await self.settle()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def settle(self) -> None:
        """Send what is due, and everything from time to time; remove what has been critical for too long."""
        now = self._clock.now()
        if now >= self._resync_at:
            self._due = dict.fromkeys(self.services, now)
            self._resync_at = now + RESYNC_S
        for service_id in [each for each, due in self._due.items() if due <= now]:
            await self._send_again(service_id)
        for service_id in self._critical_for_too_long(now):
            log.info("service removed, critical for too long service=%s", service_id)
            await self._remove(service_id)

    async def _send_again(self, service_id: str) -> None:
        self._due.pop(service_id, None)
        if (service := self.services.get(service_id)) is None:
            return
        try:
            await self._send(service)
            if service_id not in self.services:  # removed while it was sent: the catalog may have got both in any order
                await self._delete(service)
        except LepaError as error:
            log.warning("service could not be registered service=%s error=%s", service_id, error.message)
            self._due[service_id] = self._clock.now() + RETRY_S

    async def _remove(self, service_id: str) -> None:
        try:
            await self.deregister(service_id)
        except LepaError as error:
            log.warning("service could not be removed service=%s error=%s", service_id, error.message)

    def _critical_for_too_long(self, now: float) -> set[str]:
        definitions = {
            (service.id, check.id): definition_of(check.definition)
            for service in self.services.values()
            for check in service.checks
            if check.definition and (service.id, check.id) in self._critical_since
        }
        return {
            key[0]
            for key, definition in definitions.items()
            if definition.deregister_after and now - self._critical_since[key] >= definition.deregister_after / SECOND
        }

    # Results of checks

    def _take(self, service_id: str, check_id: str, status: str, output: str) -> None:
        """Keep a result, and see to it that the catalog gets it."""
        service = self.services.get(service_id)
        before = next((check for check in service.checks if check.id == check_id), None) if service else None
        if service is None or before is None:
            return
        self._note_critical(service_id, check_id, status)
        after = replace(before, status=status, output=output[:OUTPUT_MAX])
        if after == before:
            return
        checks = [after if check.id == check_id else check for check in service.checks]
        self.services[service_id] = with_checks(service, checks)
        due = self._clock.now() + (0.0 if status != before.status else OUTPUT_SYNC_S)
        self._due[service_id] = min(due, self._due.get(service_id, due))
        if status != before.status:
            log.info("check changed service=%s check=%s status=%s", service_id, check_id, status)
            self._wake.set()

    def _note_critical(self, service_id: str, check_id: str, status: str) -> None:
        """Remember since when a check has been critical."""
        if status == "critical":
            self._critical_since.setdefault((service_id, check_id), self._clock.now())
        else:
            self._critical_since.pop((service_id, check_id), None)


def _merged(present: ServiceRegistration, wanted: ServiceRegistration, *, replace_checks: bool) -> ServiceRegistration:
    """What is registered anew, with the results that are known of the same checks, and with the other checks."""
    known = {check.id: check for check in present.checks}
    checks = [_with_result(check, known.pop(check.id, None)) for check in wanted.checks]
    kept = [check for check in known.values() if not replace_checks or check.id.startswith(MAINTENANCE)]
    return with_checks(wanted, [*checks, *kept])


def _with_result(check: CheckState, known: CheckState | None) -> CheckState:
    if known is None or known.definition != check.definition:
        return check
    return replace(check, status=known.status, output=known.output)


def _registration(instance: Instance, node: AgentNode) -> ServiceRegistration:
    """The registration that an instance of the catalog was made of."""
    return ServiceRegistration(
        id=instance.id,
        service_name=instance.service,
        namespace=instance.namespace,
        node_id=node.node_id,
        datacenter=instance.datacenter,
        tags=instance.tags,
        address=instance.address,
        port=instance.port,
        status=instance.status,
        weight=instance.weight,
        warning_weight=instance.warning_weight,
        meta=dict(instance.meta),
        checks=instance.checks,
        node_name=node.agent,
        node_address="" if node.node_id else node.address,
        agent=instance.agent,
    )


def _path(service: ServiceRegistration) -> str:
    return f"/v1/service/{quote(service.service_name, safe='')}/{quote(service.id, safe='')}"
