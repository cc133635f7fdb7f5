"""Pure: the class of a node: nodes of one class are equal to a scheduler except for their names and free capacity.

What a constraint found out about one node of a class holds for all of it, so blocked evaluations and feasibility are
remembered by class. Whatever is particular to a node (its id, its host name, attributes and metadata that start with
`unique.`) stays out of the digest; a constraint on those "escapes" the class.
"""

import hashlib
from collections.abc import Mapping

import msgspec

from lepa.model.node import Node

UNIQUE_PREFIX = "unique."


def computed_class(node: Node) -> str:
    """`v1:` and a digest of everything that constraints may look at and that is not unique to the node."""
    told = {
        "datacenter": node.datacenter,
        "node_class": node.node_class,
        "node_pool": node.node_pool,
        "attributes": _shared(node.attributes),
        "meta": _shared(node.meta),
        "drivers": [(name, info.healthy) for name, info in sorted(node.drivers.items()) if info.detected],
        "devices": [
            (device.vendor, device.type, device.name, device.attributes) for device in node.node_resources.devices
        ],
        "host_volumes": [(name, volume.read_only) for name, volume in sorted(node.host_volumes.items())],
        "host_networks": sorted(node.host_networks),
        "csi_plugins": sorted((name, info.healthy) for name, info in node.csi_node_plugins.items()),
        "networks": sorted({network.mode for network in node.node_resources.networks}),
    }
    digest = hashlib.blake2b(msgspec.json.encode(told, order="deterministic"), digest_size=10)
    return f"v1:{int.from_bytes(digest.digest(), 'big')}"


def escapes_class(target: str) -> bool:
    """Whether a constraint's target such as `${node.unique.id}` differs between the nodes of one class."""
    inner = target.strip().removeprefix("${").removesuffix("}")
    return inner.startswith(("node.unique.", "attr.unique.", "meta.unique."))


def _shared(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if not key.startswith(UNIQUE_PREFIX)}
