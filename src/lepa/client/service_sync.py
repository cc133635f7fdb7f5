"""Keeps the servers' catalog equal to the instances that run on this node.

`wanted` changes as tasks start and stop and checks pass and fail; a loop sends the difference to what the servers have
acknowledged, in batches, and tries again after a failure. Nothing is queued: only the newest wish is ever sent.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from lepa.client.waiting import happens
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.model.service import CheckState, ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc.methods import Caller, Method
from lepa.rpc.requests import Request, ServiceDeleteRequest, ServiceUpsertRequest

log = logging.getLogger(__name__)

BATCH_MAX = 100
BATCH_WAIT_S = 0.01
RETRY_S = 1.0
CALL_S = 10.0
GONE_S = 3.0


class Difference(NamedTuple):
    """What to tell the servers."""

    upsert: tuple[ServiceRegistration, ...]
    delete: tuple[str, ...]


def difference(
    wanted: Mapping[str, ServiceRegistration], known: Mapping[str, ServiceRegistration | None]
) -> Difference:
    """Instances to register or change, and ids to remove; at most BATCH_MAX of each.

    known: as the servers have acknowledged them; None for those that they may have from an earlier agent.
    """
    upsert = [registration for id_, registration in wanted.items() if known.get(id_) != registration]
    delete = [id_ for id_ in known if id_ not in wanted]
    return Difference(tuple(upsert[:BATCH_MAX]), tuple(delete[:BATCH_MAX]))


class ServiceSync:
    """The wishes and the loop. identity: this node's id and secret. seen: up to where it knows what servers want."""

    def __init__(
        self,
        caller: Caller,
        clock: Clock,
        identity: Callable[[], tuple[str, str]],
        seen: Callable[[], int] = lambda: 0,
    ) -> None:
        self._caller = caller
        self._seen = seen
        self._clock = clock
        self._identity = identity
        self._wanted: dict[str, ServiceRegistration] = {}
        self._known: dict[str, ServiceRegistration | None] = {}
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()

    def register(self, registration: ServiceRegistration) -> None:
        """From now on this instance should be in the catalog."""
        self._wanted[registration.id] = registration
        self._changed.set()

    def set_status(self, service_id: str, status: str, checks: tuple[CheckState, ...] = ()) -> None:
        """An instance's checks say something else now: status is the worst of them."""
        registration = self._wanted.get(service_id)
        if registration is not None and (registration.status, registration.checks) != (status, checks):
            self.register(replace(registration, status=status, checks=checks))

    def deregister(self, service_ids: Iterable[str], *, unseen: bool = False) -> None:
        """From now on these should not be in the catalog. unseen: an earlier agent may have registered them."""
        for service_id in service_ids:
            self._wanted.pop(service_id, None)
            if unseen:
                self._known.setdefault(service_id, None)
        self._changed.set()

    def forget_known(self) -> None:
        """The servers may have lost what they knew (they forgot this node): tell them everything again."""
        self._known.clear()
        self._changed.set()

    async def gone(self, service_ids: Iterable[str]) -> None:
        """Return when the servers no longer have these, or after GONE_S: a task must be able to end without servers."""
        ids, until = set(service_ids), self._clock.now() + GONE_S
        while not ids.isdisjoint(self._known) and self._clock.now() < until:
            self._sent.clear()
            await happens(self._sent, self._clock, until - self._clock.now())

    async def run(self) -> None:
        """Send differences for as long as the node lives."""
        while True:
            await self._changed.wait()
            await self._clock.sleep(BATCH_WAIT_S)
            self._changed.clear()
            try:
                while any(batch := difference(self._wanted, self._known)):
                    await self._send(batch)
            except LepaError as error:
                log.warning("services could not be registered error=%s", error.message)
                self._changed.set()
                await self._clock.sleep(RETRY_S)

    async def _send(self, batch: Difference) -> None:
        node_id, secret_id = self._identity()
        if batch.delete:
            delete = ServiceDeleteRequest(ids=batch.delete, node_id=node_id, secret_id=secret_id)
            await self._call(m.SERVICE_DELETE, delete)
            for service_id in batch.delete:
                self._known.pop(service_id, None)
        if batch.upsert:
            upsert = ServiceUpsertRequest(
                services=batch.upsert, node_id=node_id, secret_id=secret_id, seen=self._seen()
            )
            await self._call(m.SERVICE_UPSERT, upsert)
            self._known |= {registration.id: registration for registration in batch.upsert}
        self._sent.set()

    async def _call(self, method: Method[Any, Any], request: Request) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                await self._caller.call(method, request)
        except TimeoutError as error:
            raise LepaError("timeout", f"no server answered {method.name} within {CALL_S:g} s") from error
