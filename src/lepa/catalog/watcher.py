"""Keeps a table of services fresh through the HTTP API: one full read, then the event stream.

The stream is opened before the full read, so that nothing is missed between the two; events that the read already
contains are recognised by their index. When the stream breaks, everything is read again. Works on any agent that speaks
Nomad's API; one that does not tell the status of instances has them all healthy.

Machines outside the cluster that offer services are nodes of the table too; an instance on a node that is down is not
healthy. The index of a table is never lower than that of the table before it.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.kit.sources import Clock
from lepa.model import wire
from lepa.model.errors import LepaError
from lepa.model.service import ServiceRegistration
from lepa.sdk.async_connection import AsyncConnection

log = logging.getLogger(__name__)

RETRY_S = 1.0
SERVICES_MAX = 100_000


class Watcher:
    """Follows one agent and hands each new table to `publish`."""

    def __init__(
        self, connection: AsyncConnection, clock: Clock, publish: Callable[[ServiceTable], None], region: str = "global"
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._publish = publish
        self._region = region
        self._instances: dict[str, Instance] = {}
        self._read_at: dict[tuple[str, str], int] = {}
        self._names: dict[str, str] = {}
        self._nodes: tuple[Node, ...] = ()
        self._down: frozenset[str] = frozenset()
        self._outside: dict[str, Node] = {}
        self.table = ServiceTable.build((), (), 0)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except LepaError as error:
                log.warning("services could not be followed error=%s", error.message)
            await self._clock.sleep(RETRY_S)

    async def _follow(self) -> None:
        lines = self._connection.lines("/v1/event/stream?topic=Service&topic=Node", {"namespace": "*"})
        await anext(lines, None)
        await self._read_everything()
        async for batch in _batches(lines):
            await self._take(batch)

    async def _read_everything(self) -> None:
        index = await self._read_nodes()
        listed = await self._connection.get("/v1/services", {"namespace": "*"})
        self._instances, self._outside, self._read_at = {}, {}, {}
        for group in (listed.value or [])[:SERVICES_MAX]:
            for stub in group["Services"]:
                await self._read_service(group["Namespace"], stub["ServiceName"])
        self._rebuild(max(index, listed.index, *self._read_at.values()))

    async def _read_service(self, namespace: str, name: str) -> None:
        answer = await self._connection.get(f"/v1/service/{name}", {"namespace": namespace})
        self._read_at[namespace, name] = answer.index
        for registration in answer.value or []:
            self._put(registration)

    async def _read_nodes(self) -> int:
        answer = await self._connection.get("/v1/nodes")
        self._names = {node["ID"]: node["Name"] for node in answer.value or []}
        self._nodes = tuple(
            Node(
                name=node["Name"],
                address=node["Address"].rpartition(":")[0] if node["Address"].count(":") == 1 else node["Address"],
                id=node["ID"],
                datacenter=node["Datacenter"],
                region=self._region,
            )
            for node in answer.value or []
            if node["Address"] and node["Status"] != "down"
        )
        self._down = frozenset(node["ID"] for node in answer.value or [] if node["Status"] == "down")
        return answer.index

    def _put(self, told: dict[str, Any]) -> None:
        """Keep an instance, and the machine that it is on when that is not a node of the cluster."""
        found = _registration(told)
        self._outside.pop(found.id, None)
        if found.node_address:
            self._outside[found.id] = Node(
                name=found.node_name, address=found.node_address, datacenter=found.datacenter, region=self._region
            )
        node_name = found.node_name or self._names.get(found.node_id, "")
        self._instances[found.id] = Instance.of(found, node_name=node_name, region=self._region)

    async def _take(self, batch: dict[str, Any]) -> None:
        """Apply the events of one index."""
        index, changed = batch.get("Index", 0), False
        for event in batch.get("Events") or []:
            if event["Topic"] == "Node":
                await self._read_nodes()
                changed = True
            elif event["Topic"] == "Service":
                changed |= self._take_service(event, index)
        if changed:
            self._rebuild(index)

    def _take_service(self, event: dict[str, Any], index: int) -> bool:
        registration = event["Payload"]["Service"]
        key = (registration.get("Namespace", "default"), registration["ServiceName"])
        if index <= self._read_at.get(key, 0):
            return False
        if event["Type"] == "ServiceDeregistration":
            self._outside.pop(registration["ID"], None)
            return self._instances.pop(registration["ID"], None) is not None
        self._put(registration)
        return True

    def _rebuild(self, index: int) -> None:
        nodes = (*self._nodes, *dict.fromkeys(self._outside.values()))
        index = max(index, self.table.index)
        self.table = ServiceTable.build(map(self._seen, self._instances.values()), nodes, index, self.table)
        self._publish(self.table)

    def _seen(self, instance: Instance) -> Instance:
        """The instance as its node makes it: with the newest name of the node, unhealthy when the node is down."""
        down = instance.node_id in self._down and instance.healthy
        name = self._names.get(instance.node_id, instance.node_name)
        if not down and name == instance.node_name:
            return instance
        return replace(instance, healthy=instance.healthy and not down, node_name=name)


def _registration(told: dict[str, Any]) -> ServiceRegistration:
    """What an agent tells of an instance; what Nomad's leave out or send as null is put right, which takes longer."""
    try:
        return msgspec.convert(told, ServiceRegistration)
    except msgspec.ValidationError:
        return wire.from_builtins(told, ServiceRegistration)


async def _batches(lines: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Decoded lines that hold events."""
    async for line in lines:
        batch = msgspec.json.decode(line)
        if batch:
            yield batch
