"""Pure: the catalog as Consul shows it: nodes, services, checks and health, key for key.

Every function takes a `View` and what was asked for, and returns what is encoded as JSON. A node is passing while the
cluster hears of it. An instance shows the checks that its registration tells of, or else one check that stands for all
of them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

from lepa.catalog.table import Instance, Node
from lepa.consul.indexes import View
from lepa.model.service import CheckState

Json = dict[str, Any]

STATUSES = ("passing", "warning", "critical")
NODE_CHECK = "serfHealth"
MAINTENANCE = "_service_maintenance:"


class Asked(NamedTuple):
    """What a request asks for.

    tags: all have to be carried, in any case. keeps: the filter. near: a node's name; its instances come first.
    datacenter "": all. node_meta: pairs that the node must have.
    """

    name: str = ""
    namespace: str = "default"
    datacenter: str = ""
    tags: tuple[str, ...] = ()
    passing: bool = False
    near: str = ""
    node_meta: tuple[tuple[str, str], ...] = ()
    keeps: Callable[[Any], bool] | None = None


def services(view: View, asked: Asked) -> dict[str, list[str]]:
    """Every service with the union of its tags."""
    found: dict[str, set[str]] = {}
    for (namespace, _), rows in view.table.services.items():
        if namespace != asked.namespace:
            continue
        for place in _places(view, rows.all, asked):
            if asked.keeps is None or asked.keeps(_catalog_entry(view, place)):
                found.setdefault(place.instance.service, set()).update(place.instance.tags)
    return {name: sorted(tags) for name, tags in sorted(found.items())}


def service(view: View, asked: Asked) -> list[Json]:
    """Instances of one service, whatever their health."""
    return _kept((_catalog_entry(view, place) for place in _wanted(view, asked)), asked)


def health_service(view: View, asked: Asked) -> list[Json]:
    """Instances of one service with their checks; passing: those of which every check passes."""
    entries = (_health_entry(view, place) for place in _wanted(view, asked))
    return _kept((e for e in entries if not asked.passing or _aggregated(e["Checks"]) == "passing"), asked)


def health_checks(view: View, asked: Asked) -> list[Json]:
    """Checks of one service's instances."""
    return _kept((check for place in _wanted(view, asked) for check in _service_checks(view, place)), asked)


def health_node(view: View, asked: Asked) -> list[Json]:
    """Checks of one node and of what is on it."""
    checks = [check for node in view.table.node(asked.name) for check in _node_checks(view, node)]
    return _kept([*checks, *_checks_of(view, view.table.instances_on(asked.name), asked)], asked)


def health_state(view: View, asked: Asked) -> list[Json]:
    """All checks in one state, or in any."""
    of_nodes = [check for each in _nodes(view, asked) for check in _node_checks(view, each)]
    found = [*of_nodes, *_checks_of(view, view.table.instances(), asked)]
    return _kept((check for check in found if asked.name in ("any", check["Status"])), asked)


def nodes(view: View, asked: Asked) -> list[Json]:
    """Every node."""
    ordered = sorted(_nodes(view, asked), key=lambda node: (node.name.lower() != asked.near.lower(), node.name))
    return _kept((node_view(view, node) for node in ordered), asked)


def node(view: View, asked: Asked) -> Json | None:
    """One node and what is on it; None when nobody knows it."""
    found = next((node for node in view.table.node(asked.name)), None)
    if found is None:
        return None
    instances = [row for row in view.table.instances_on(asked.name) if row.namespace == asked.namespace]
    shown = {row.id: service_view(view, row) for row in instances}
    kept = {key: value for key, value in shown.items() if asked.keeps is None or asked.keeps(value)}
    return {"Node": node_view(view, found), "Services": kept}


def node_services(view: View, asked: Asked) -> Json:
    """The same with its services as a list; null and none of them when nobody knows the node."""
    found = node(view, asked)
    return {"Node": None, "Services": []} if found is None else {**found, "Services": list(found["Services"].values())}


def datacenters(view: View, own: str) -> list[str]:
    """Names of all datacenters, our own first."""
    named = {node.datacenter for group in view.table.nodes.values() for node in group if node.datacenter}
    return [own, *sorted(named - {own})]


def node_view(view: View, node: Node) -> Json:
    """One node."""
    return {
        "ID": node.id,
        "Node": node.name,
        "Address": node.address,
        "Datacenter": node.datacenter,
        "TaggedAddresses": _tagged(node.address),
        "Meta": {"consul-network-segment": "", **dict(node.meta)},
        "CreateIndex": view.nodes,
        "ModifyIndex": view.nodes,
    }


def service_view(view: View, instance: Instance) -> Json:
    """One instance."""
    return {
        "ID": instance.id,
        "Service": instance.service,
        "Tags": list(instance.tags),
        "Address": instance.address,
        "TaggedAddresses": _service_tagged(instance),
        "Meta": dict(instance.meta),
        "Port": instance.port,
        "Weights": {"Passing": instance.weight, "Warning": instance.warning_weight},
        "EnableTagOverride": False,
        "Proxy": {"Mode": "", "MeshGateway": {}, "Expose": {}},
        "Connect": {},
        "PeerName": "",
        **_indexes(view, instance),
    }


def check_view(check: CheckState, instance: Instance, node_name: str, index: int) -> Json:
    """One check of an instance."""
    return {
        "Node": node_name,
        "CheckID": check.id,
        "Name": check.name,
        "Status": check.status,
        "Notes": check.notes,
        "Output": check.output,
        "ServiceID": instance.id,
        "ServiceName": instance.service,
        "ServiceTags": list(instance.tags),
        "Type": check.type,
        "Interval": str(check.definition.get("Interval", "")),
        "Timeout": str(check.definition.get("Timeout", "")),
        "ExposedPort": 0,
        "Definition": {},
        "CreateIndex": index,
        "ModifyIndex": index,
    }


def instance_checks(instance: Instance) -> tuple[CheckState, ...]:
    """The checks of an instance: its own, else one that says what they came to."""
    if instance.checks:
        return instance.checks
    return (
        CheckState(
            id=f"service:{instance.id}",
            name=f"Service '{instance.service}' check",
            type="ttl",
            status=instance.status,
        ),
    )


def aggregated(statuses: Iterable[str]) -> str:
    """The worst of some statuses."""
    return max(statuses, key=STATUSES.index, default="passing")


class _Place(NamedTuple):
    """An instance and its node; None when that is down or unknown."""

    instance: Instance
    node: Node | None


def _wanted(view: View, asked: Asked) -> list[_Place]:
    """Instances of the service asked for, those of the near node first."""
    found = _places(view, view.table.service(asked.namespace, asked.name).all, asked)
    wanted = [tag.lower() for tag in asked.tags]
    tagged = [place for place in found if _carries(place.instance, wanted)]
    return sorted(tagged, key=lambda place: _distance(view, place.instance, asked.near)) if asked.near else tagged


def _carries(instance: Instance, wanted: list[str]) -> bool:
    own = {tag.lower() for tag in instance.tags}
    return all(tag in own for tag in wanted)


def _distance(view: View, instance: Instance, near: str) -> int:
    """0 on the same node, 1 in the same datacenter, 2 elsewhere: nobody measures round trips."""
    if instance.node_name.lower() == near.lower():
        return 0
    return 1 if any(node.datacenter == instance.datacenter for node in view.table.node(near)) else 2


def _places(view: View, instances: Iterable[Instance], asked: Asked) -> list[_Place]:
    found = (_Place(instance, view.table.node_of(instance)) for instance in instances)
    return [
        place
        for place in found
        if (not asked.datacenter or place.instance.datacenter == asked.datacenter)
        and (not asked.node_meta or (place.node is not None and _has_meta(place.node, asked)))
    ]


def _nodes(view: View, asked: Asked) -> list[Node]:
    everyone = (node for group in view.table.nodes.values() for node in group)
    return [
        node
        for node in everyone
        if (not asked.datacenter or node.datacenter == asked.datacenter) and _has_meta(node, asked)
    ]


def _has_meta(node: Node, asked: Asked) -> bool:
    return set(asked.node_meta) <= set(node.meta)


def _kept(entries: Iterable[Json], asked: Asked) -> list[Json]:
    return [entry for entry in entries if asked.keeps is None or asked.keeps(entry)]


def _health_entry(view: View, place: _Place) -> Json:
    node = place.node or _lost(place.instance)
    checks = [*_node_checks(view, node, alive=place.node is not None), *_service_checks(view, place)]
    return {"Node": node_view(view, node), "Service": service_view(view, place.instance), "Checks": checks}


def _catalog_entry(view: View, place: _Place) -> Json:
    node, instance = place.node or _lost(place.instance), place.instance
    return {
        "ID": node.id,
        "Node": node.name,
        "Address": node.address,
        "Datacenter": node.datacenter,
        "TaggedAddresses": _tagged(node.address),
        "NodeMeta": {"consul-network-segment": "", **dict(node.meta)},
        "ServiceKind": "",
        "ServiceID": instance.id,
        "ServiceName": instance.service,
        "ServiceTags": list(instance.tags),
        "ServiceAddress": instance.address,
        "ServiceTaggedAddresses": _service_tagged(instance),
        "ServiceWeights": {"Passing": instance.weight, "Warning": instance.warning_weight},
        "ServiceMeta": dict(instance.meta),
        "ServicePort": instance.port,
        "ServiceSocketPath": "",
        "ServiceEnableTagOverride": False,
        "ServiceProxy": {"Mode": "", "MeshGateway": {}, "Expose": {}},
        "ServiceConnect": {},
        **_indexes(view, instance),
    }


def _lost(instance: Instance) -> Node:
    """The node of an instance that the cluster does not hear of."""
    return Node(
        name=instance.node_name or instance.node_id,
        address=instance.address,
        id=instance.node_id,
        datacenter=instance.datacenter,
    )


def _node_checks(view: View, node: Node, *, alive: bool = True) -> list[Json]:
    said = "Agent alive and reachable" if alive else "Agent not live or unreachable"
    check = CheckState(id=NODE_CHECK, name="Serf Health Status", status="passing" if alive else "critical", output=said)
    return [check_view(check, Instance(id="", service=""), node.name, view.nodes)]


def _service_checks(view: View, place: _Place) -> list[Json]:
    node = place.node or _lost(place.instance)
    index = _indexes(view, place.instance)["ModifyIndex"]
    return [check_view(check, place.instance, node.name, index) for check in instance_checks(place.instance)]


def _checks_of(view: View, instances: Iterable[Instance], asked: Asked) -> list[Json]:
    mine = [instance for instance in instances if instance.namespace == asked.namespace]
    return [check for place in _places(view, mine, asked) for check in _service_checks(view, place)]


def _aggregated(checks: Iterable[Mapping[str, Any]]) -> str:
    return aggregated(check["Status"] for check in checks)


def _indexes(view: View, instance: Instance) -> dict[str, int]:
    changed = view.index_of(instance.namespace, instance.service)
    return {"CreateIndex": instance.create_index or changed, "ModifyIndex": instance.modify_index or changed}


def _tagged(address: str) -> dict[str, str]:
    """The one address of a node under all names that clients look for."""
    family = _family(address)
    names = ["lan", "wan", *([f"lan_{family}", f"wan_{family}"] if family else [])]
    return dict.fromkeys(names, address)


def _service_tagged(instance: Instance) -> Json:
    family = _family(instance.address)
    where = {"Address": instance.address, "Port": instance.port}
    return {f"lan_{family}": where, f"wan_{family}": where} if family else {}


@lru_cache(maxsize=4_096)
def _family(address: str) -> str:
    try:
        return f"ipv{ip_address(address).version}"
    except ValueError:
        return ""
