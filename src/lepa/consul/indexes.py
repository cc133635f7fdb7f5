"""Pure: when each part of the catalog last changed, so that a blocking query neither misses a change nor goes back.

A `View` is a table with an index for every service, for the nodes and for the whole. `advance` makes the next one.
What changed gets an index above all that were ever handed out, even when the table's own index says less (two reads of
the cluster may overlap); what did not change keeps its index, whatever else happens. A service that vanished keeps the
index of its going. Of those at most GONE_MAX are remembered: forgetting one raises the index of all services that
nobody knows, which wakes somebody for nothing and never lets anybody sleep through a change.
"""

from collections.abc import Mapping
from typing import NamedTuple

from lepa.catalog.table import EMPTY, ServiceKey, ServiceTable, service_key

GONE_MAX = 4_096


class View(NamedTuple):
    """One table and its indexes. changed: of the whole. unknown: of every service that is not in `services`."""

    table: ServiceTable = EMPTY
    changed: int = 0
    nodes: int = 0
    services: Mapping[ServiceKey, int] = {}
    unknown: int = 0

    def index_of(self, namespace: str, name: str) -> int:
        """When the instances of one service, or the nodes that they are on, last changed."""
        return self.services.get(service_key(namespace, name), self.unknown)


def advance(before: View, table: ServiceTable) -> View:
    """The view of a newer table."""
    nodes = _changed_nodes(before.table, table)
    services = _changed_services(before.table, table, nodes)
    if not nodes and not services and before.changed:
        return before._replace(table=table)
    index = max(table.index, before.changed + 1)
    indexes = {**before.services, **dict.fromkeys(services, index)}
    unknown = before.unknown or index
    gone = [key for key in indexes if key not in table.services]
    if len(gone) > GONE_MAX:
        oldest = sorted(gone, key=indexes.__getitem__)[: len(gone) - GONE_MAX // 2]
        unknown = max(unknown, *(indexes.pop(key) for key in oldest))
    return View(table, index, index if nodes or not before.nodes else before.nodes, indexes, unknown)


def _changed_nodes(before: ServiceTable, after: ServiceTable) -> set[str]:
    if before.nodes is after.nodes:
        return set()
    names = before.nodes.keys() | after.nodes.keys()
    return {name for name in names if before.nodes.get(name) != after.nodes.get(name)}


def _changed_services(before: ServiceTable, after: ServiceTable, nodes: set[str]) -> set[ServiceKey]:
    changed = {
        key
        for key in before.services.keys() | after.services.keys()
        if (old := before.services.get(key)) is not (new := after.services.get(key)) and old != new
    }
    if nodes:
        changed |= {
            key for key, rows in after.services.items() if any(row.node_name.lower() in nodes for row in rows.all)
        }
    return changed
