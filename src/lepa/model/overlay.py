"""Pure: an overlay network: one pool of addresses, of which every node that takes part holds a share."""

import ipaddress

from msgspec import field

from lepa.model.wire import Wire

HARDWARE = "02:4c"
"""What hardware addresses of tunnels begin with: locally administered, and "L" for lepa."""


def hardware_address(subnet: str) -> str:
    """Of the end of a node's tunnel: no two nodes of an overlay have the same, because no two have the same subnet."""
    number = int(ipaddress.IPv4Network(subnet).network_address)
    return HARDWARE + "".join(f":{byte:02x}" for byte in number.to_bytes(4, "big"))


class OverlayLease(Wire, frozen=True):
    """A node's share of an overlay, and how the other nodes reach it.

    pool, subnet: CIDR blocks, subnet_prefix the length of every node's share. endpoint: the node's address on the
    network below. hardware: of its end of the tunnel. vni, port: of the tunnel. public_key: when it is encrypted.
    """

    overlay: str = ""
    node_id: str = ""
    node_name: str = ""
    pool: str = ""
    subnet_prefix: int = 24
    subnet: str = ""
    vni: int = field(default=0, name="VNI")
    port: int = 0
    encrypted: bool = False
    endpoint: str = ""
    hardware: str = ""
    public_key: str = ""
    create_index: int = 0
    modify_index: int = 0
