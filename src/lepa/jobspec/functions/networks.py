"""Pure: functions about IP address ranges (CIDR)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, row, text, whole
from lepa.jobspec.values import Conversion

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network


def _network(prefix: str) -> IPv4Network | IPv6Network:
    import ipaddress

    try:
        if "/" not in prefix:
            raise ValueError
        return ipaddress.ip_network(prefix, strict=False)
    except ValueError:
        raise Conversion(f"invalid CIDR expression {values.quoted(prefix)}") from None


def host(prefix: str, number: int) -> str:
    """The address with a number in a range; negative numbers count from the end."""
    network = _network(prefix)
    if not -network.num_addresses <= number < network.num_addresses:
        raise Conversion(f"prefix {network} does not accommodate a host numbered {number}")
    return str(network[number])


def netmask(prefix: str) -> str:
    """The netmask of an IPv4 range."""
    network = _network(prefix)
    if network.version != 4:
        raise Conversion("only IPv4 networks can have their prefixes represented as netmasks")
    return str(network.netmask)


def subnet(prefix: str, new_bits: int, number: int) -> str:
    """The range with a number among those that are `new_bits` longer in prefix."""
    import ipaddress

    network = _network(prefix)
    length = network.prefixlen + new_bits
    if new_bits < 0 or length > network.max_prefixlen:
        raise Conversion(f"insufficient address space to extend prefix of {network.prefixlen} by {new_bits}")
    if not -(1 << new_bits) <= number < 1 << new_bits:
        raise Conversion(f"prefix extension of {new_bits} does not accommodate a subnet numbered {number}")
    number %= 1 << new_bits
    address = int(network.network_address) + (number << (network.max_prefixlen - length))
    made = ipaddress.IPv4Address(address) if network.version == 4 else ipaddress.IPv6Address(address)
    return f"{made}/{length}"


def subnets(prefix: str, *new_bits: int) -> list[str]:
    """One range after the other, as small as asked for, without overlap."""
    import ipaddress

    network = _network(prefix)
    following = int(network.network_address)
    found: list[str] = []
    for bits in new_bits:
        length = network.prefixlen + bits
        if bits < 1 or length > network.max_prefixlen:
            raise Conversion(f"cannot extend a prefix of {network.prefixlen} by {bits} bits")
        size = 1 << (network.max_prefixlen - length)
        start = -(-following // size) * size
        if start + size > int(network.network_address) + network.num_addresses:
            raise Conversion(f"not enough remaining address space for a subnet with a prefix of {length} bits")
        made = ipaddress.IPv4Address(start) if network.version == 4 else ipaddress.IPv6Address(start)
        found.append(f"{made}/{length}")
        following = start + size
    return found


ROWS: tuple[Row, ...] = (
    row("cidrhost", host, text, whole),
    row("cidrnetmask", netmask, text),
    row("cidrsubnet", subnet, text, whole, whole),
    row("cidrsubnets", subnets, text, rest=whole),
)
