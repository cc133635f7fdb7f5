"""Pure: what artifacts may cost, and where they may come from: `client { artifact { … } }`."""

import ipaddress
from collections.abc import Sequence

import msgspec

GIB = 1024**3
LINK_LOCAL = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""Where clouds tell machines their secrets: nobody's artifacts are there."""

TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


class ArtifactSettings(msgspec.Struct, frozen=True):
    """Limits. Times are seconds.

    http_bytes_max: of one download. files_max, unpacked_bytes_max: of one archive. environment: names of the agent's
    variables that git and hg get. denied_networks: CIDR blocks that nothing is fetched from. local_git: whether
    `git::/path` may clone a repository of the node.
    """

    http_s: float = 1800.0
    http_bytes_max: int = 100 * GIB
    git_s: float = 1800.0
    hg_s: float = 1800.0
    files_max: int = 4096
    unpacked_bytes_max: int = 100 * GIB
    environment: tuple[str, ...] = ()
    denied_networks: tuple[str, ...] = LINK_LOCAL
    local_git: bool = False


def denied(address: str, networks: Sequence[str]) -> str:
    """The network that forbids an address; "" when none does. An IPv4 address inside IPv6 is judged as what it is."""
    found = ipaddress.ip_address(address.partition("%")[0])
    reached = [found, *_carried(found)]
    for network in networks:
        block = ipaddress.ip_network(network, strict=False)
        if any(each.version == block.version and each in block for each in reached):
            return network
    return ""


def _carried(found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 address that an IPv6 one leads to: mapped (RFC 4291), 6to4 (RFC 3056) or translated (RFC 6052)."""
    if isinstance(found, ipaddress.IPv4Address):
        return []
    translated = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF) if found in TRANSLATED else None
    return [each for each in (found.ipv4_mapped, found.sixtofour, translated) if each is not None]
