"""Pure: what artifacts may cost, and where they may come from: `client { artifact { … } }`."""

import ipaddress
from collections.abc import Sequence

import msgspec

GIB = 1024**3
LINK_LOCAL = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
"""Where clouds tell machines their secrets: nobody's artifacts are there."""


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
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    for network in networks:
        block = ipaddress.ip_network(network, strict=False)
        if found.version == block.version and found in block:
            return network
    return ""
