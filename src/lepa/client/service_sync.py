"""Keeps the servers' catalog equal to the instances that run on this node.

`wanted` changes as tasks start and stop and checks pass and fail; a loop sends the difference to what the servers have
acknowledged, in batches, and tries again after a failure. Nothing is queued: only the newest wish is ever sent.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.model.service import ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc.methods import Caller
from lepa.rpc.requests import ServiceDeleteRequest, ServiceUpsertRequest

log = logging.getLogger(__name__)

BATCH_MAX = 100
BATCH_WAIT_S = 0.01
RETRY_S = 1.0
SETTLED_S = 10.0


class Difference(NamedTuple):
    """What to tell the servers."""

    upsert: tuple[ServiceRegistration, ...]
    delete: tuple[str, ...]


def difference(wanted: Mapping[str, ServiceRegistration], known: Mapping[str, ServiceRegistration]) -> Difference:
    """Instances to register or change, and ids to remove; at most BATCH_MAX of each."""
    upsert = [registration for id_, registration in wanted.items() if known.get(id_) != registration]
    delete = [id_ for id_ in known if id_ not in wanted]
    return Difference(tuple(upsert[:BATCH_MAX]), tuple(delete[:BATCH_MAX]))


class ServiceSync:
    """The wishes and the loop."""

    def __init__(self, caller: Caller, clock: Clock, identity: Callable[[], tuple[str, str]]) -> None:
        self._caller = caller
        self._clock = clock
        self._identity = identity
        self._wanted: dict[str, ServiceRegistration] = {}
        self._known: dict[str, ServiceRegistration] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    def register(self, registration: ServiceRegistration) -> None:
        """From now on this instance should be in the catalog."""
        self._wanted[registration.id] = registration
        self._wake()

    def set_status(self, service_id: str, status: str) -> None:
        """An instance's checks say something else now."""
        if (registration := self._wanted.get(service_id)) is not None and registration.status != status:
            self._wanted[service_id] = replace(registration, status=status)
            self._wake()

    def deregister(self, *service_ids: str) -> None:
        """From now on these should not be in the catalog."""
        for service_id in service_ids:
            self._wanted.pop(service_id, None)
        self._wake()

    def forget_known(self) -> None:
        """The servers may have lost what they knew (they forgot this node): tell them everything again."""
        self._known.clear()
        self._wake()

    async def settle(self) -> None:
        """Return when the servers know the present wishes, or after SETTLED_S."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), SETTLED_S)

    def _wake(self) -> None:
        self._settled.clear()
        self._changed.set()

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
                continue
            if not self._changed.is_set():
                self._settled.set()

    async def _send(self, batch: Difference) -> None:
        node_id, secret_id = self._identity()
        if batch.upsert:
            upsert = ServiceUpsertRequest(services=batch.upsert, node_id=node_id, secret_id=secret_id)
            await self._caller.call(m.SERVICE_UPSERT, upsert)
            self._known |= {registration.id: registration for registration in batch.upsert}
        if batch.delete:
            delete = ServiceDeleteRequest(ids=batch.delete, node_id=node_id, secret_id=secret_id)
            await self._caller.call(m.SERVICE_DELETE, delete)
            for service_id in batch.delete:
                self._known.pop(service_id, None)
