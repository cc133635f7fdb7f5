"""Pure: what an overlay needs in a node's kernel, as the words of iproute2, `wg` and iptables.

Every node holds one subnet of the overlay's pool. Its allocations hang on a bridge with the subnet's first host
address; the subnet's own first address (`.0`) stands for the node's end of the tunnel.

    plain      a VXLAN device (RFC 7348) that learns nothing. For each other node there is a route to its subnet by its
               end of the tunnel, the hardware address of that end, and the address below at which it is reached
    encrypted  a WireGuard device; each other node is a peer that is allowed its own subnet

So nothing is flooded, and what a node forwards to is exactly what the servers say.
"""

import ipaddress
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lepa.model.overlay import OverlayLease

VNI_MAX = 2**24
VXLAN_OVERHEAD = 50
WIREGUARD_OVERHEAD = 80
MTU_MIN = 576
CHAIN = "LEPA-OVERLAY"
JUMPS = (("mangle", "FORWARD"), ("filter", "FORWARD"), ("nat", "POSTROUTING"))
"""Tables and chains of the kernel from which our chain is asked."""

Words = tuple[str, ...]


class Names(NamedTuple):
    """Devices of one overlay on a node."""

    tunnel: str
    bridge: str


def names(vni: int) -> Names:
    """At most 15 characters, as the kernel wants it."""
    return Names(f"lepat{vni}", f"lepab{vni}")


def default_vni(overlay: str) -> int:
    """A number for an overlay that was given none: the same on every node."""
    return zlib.crc32(overlay.encode()) % (VNI_MAX - 1) + 1


def tunnel_address(subnet: str) -> str:
    """Of a node's end."""
    return str(ipaddress.IPv4Network(subnet).network_address)


def gateway(subnet: str) -> str:
    """The bridge's address, which allocations reach everything through."""
    return str(ipaddress.IPv4Network(subnet).network_address + 1)


def mtu(below: int, *, encrypted: bool) -> int:
    """What fits into one packet of the network below, of which the largest has `below` bytes."""
    return max(MTU_MIN, below - (WIREGUARD_OVERHEAD if encrypted else VXLAN_OVERHEAD))


class Entry(NamedTuple):
    """How one other node is reached."""

    subnet: str
    endpoint: str
    hardware: str
    public_key: str
    port: int


def entries(leases: Iterable[OverlayLease], node_id: str) -> dict[str, Entry]:
    """The other nodes of an overlay by id."""
    return {
        lease.node_id: Entry(lease.subnet, lease.endpoint, lease.hardware, lease.public_key, lease.port)
        for lease in leases
        if lease.node_id != node_id and lease.subnet and lease.endpoint
    }


def make_vxlan(lease: OverlayLease, device: str, size: int) -> list[Words]:
    """Arguments of `ip` that make a node's end. device: of the network below."""
    tunnel = names(lease.vni).tunnel
    source = ("local", lease.endpoint, "nolearning", *(("dev", device) if device else ()))
    return [
        (*("link", "add", tunnel, "type", "vxlan", "id", str(lease.vni), "dstport", str(lease.port)), *source),
        ("link", "set", tunnel, "address", lease.hardware, "mtu", str(size), "up"),
        ("address", "replace", f"{tunnel_address(lease.subnet)}/32", "dev", tunnel),
    ]


def make_wireguard(lease: OverlayLease, size: int) -> list[Words]:
    """Arguments of `ip` that bring up a WireGuard device which is there."""
    tunnel = names(lease.vni).tunnel
    return [
        ("address", "replace", f"{tunnel_address(lease.subnet)}/32", "dev", tunnel),
        ("link", "set", tunnel, "mtu", str(size), "up"),
    ]


def forward(tunnel: str, before: Entry | None, after: Entry | None, *, encrypted: bool) -> list[Words]:
    """Whole command lines that make the kernel forward to one other node `after` instead of `before`."""
    if before == after:
        return []
    found: list[Words] = []
    if before is not None:
        found += _forget(tunnel, before, encrypted=encrypted)
    if after is not None:
        found += _learn(tunnel, after, encrypted=encrypted)
    return found


def _learn(tunnel: str, entry: Entry, *, encrypted: bool) -> list[Words]:
    if encrypted:
        peer = ("peer", entry.public_key, "allowed-ips", entry.subnet, "endpoint", f"{entry.endpoint}:{entry.port}")
        return [
            ("wg", "set", tunnel, *peer),
            ("ip", "route", "replace", entry.subnet, "dev", tunnel),
        ]
    end = tunnel_address(entry.subnet)
    return [
        ("ip", "neighbour", "replace", end, "lladdr", entry.hardware, "dev", tunnel, "nud", "permanent"),
        ("bridge", "fdb", "replace", entry.hardware, "dev", tunnel, "dst", entry.endpoint, "self", "permanent"),
        ("ip", "route", "replace", entry.subnet, "via", end, "dev", tunnel, "onlink"),
    ]


def _forget(tunnel: str, entry: Entry, *, encrypted: bool) -> list[Words]:
    if encrypted:
        return [
            ("ip", "route", "delete", entry.subnet, "dev", tunnel),
            ("wg", "set", tunnel, "peer", entry.public_key, "remove"),
        ]
    end = tunnel_address(entry.subnet)
    return [
        ("ip", "route", "delete", entry.subnet, "dev", tunnel),
        ("bridge", "fdb", "delete", entry.hardware, "dev", tunnel, "dst", entry.endpoint, "self"),
        ("ip", "neighbour", "delete", end, "dev", tunnel),
    ]


def firewall(pools: Sequence[str]) -> str:
    """For iptables-restore --noflush: what is inside one overlay passes, and what leaves it carries the node's address.

    From outside, other overlays included, only mapped ports are reached: that is settled in the table `mangle`, before
    the rules of CNI plugins accept whatever comes from an allocation.
    """
    known = "-m conntrack ! --ctstate DNAT,RELATED,ESTABLISHED"
    tables = {
        "mangle": [f"-A {CHAIN} ! -s {pool} -d {pool} {known} -j DROP" for pool in pools],
        "filter": [f"-A {CHAIN} -s {pool} -d {pool} -j ACCEPT" for pool in pools],
        "nat": [f"-A {CHAIN} -s {pool} ! -d {pool} -j MASQUERADE" for pool in pools],
    }
    return "".join(
        "\n".join([f"*{table}", f":{CHAIN} - [0:0]", *rules, "COMMIT", ""]) for table, rules in tables.items()
    )


def name_service(server: str, port: int) -> str:
    """For iptables-restore in a namespace: questions to the usual port go to the one that the agent answers at."""
    target = f"-j DNAT --to-destination {server}:{port}"
    rules = [f"-A OUTPUT -d {server}/32 -p {protocol} --dport 53 {target}" for protocol in ("udp", "tcp")]
    return "\n".join(["*nat", *rules, "COMMIT", ""])
