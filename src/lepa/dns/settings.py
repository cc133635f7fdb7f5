"""Pure: what an operator may choose about DNS, and what of it is refused."""

import msgspec

from lepa.dns import message as wire
from lepa.model.errors import invalid

DOMAIN_SIZE_MAX = 128
"""Longest domain of ours in wire form: leaves room for the names below it."""
TTL_MAX_S = 0x7FFFFFFF
UDP_SIZE_LARGEST = 65_467
"""Room for an IPv6 and a UDP header below 65,535."""
DNS_PORT = 53


class DnsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator may choose about DNS. Times are seconds.

    domains: where our names live; the first is used in answers to reverse questions. namespace: whose services are
    meant when a name does not say. node_ttl_s, service_ttl_s: how long resolvers may keep answers; keys of the latter
    are names, or prefixes that end in `*`, and the longest that fits wins; 0 because a moved task must be found at
    once. negative_ttl_s: the same for "there is none". soa_*: for secondaries, of which there are none, so the
    customary values. name_server: the address that `ns.DOMAIN` has, empty for none. mark_truncated: set TC when
    answers did not fit, so that clients ask again over TCP. udp_size_max: the longest UDP answer even when a client
    takes more. node_meta_txt: add a node's metadata as TXT beside SRV answers that name it. recursors: `HOST` or
    `HOST:PORT` of resolvers for all other domains, asked in turn, recursor_timeout_s for each; without any, other
    domains are refused. tcp_connections_max, tcp_idle_s: the longest-idle connection makes room for a new one.
    """

    domains: tuple[str, ...] = ("consul.", "lepa.")
    namespace: str = "default"
    node_ttl_s: int = 0
    service_ttl_s: dict[str, int] = {}
    negative_ttl_s: int = 0
    soa_refresh_s: int = 3_600
    soa_retry_s: int = 600
    soa_expire_s: int = 86_400
    name_server: str = ""
    mark_truncated: bool = True
    udp_size_max: int = 65_467
    node_meta_txt: bool = True
    recursors: tuple[str, ...] = ()
    recursor_timeout_s: float = 2.0
    tcp_connections_max: int = 256
    tcp_idle_s: float = 10.0

    def __post_init__(self) -> None:
        times = {"node_ttl_s": self.node_ttl_s, "negative_ttl_s": self.negative_ttl_s, **self.service_ttl_s}
        times |= {"soa_refresh_s": self.soa_refresh_s, "soa_retry_s": self.soa_retry_s}
        for name, value in (times | {"soa_expire_s": self.soa_expire_s}).items():
            if not 0 <= value <= TTL_MAX_S:
                raise invalid(f"dns: {name} must be 0 to {TTL_MAX_S} seconds, not {value}")
        wires = [wire.safe_name(domain.strip(".")) for domain in self.domains]
        if not wires or any(name is None or len(name) > DOMAIN_SIZE_MAX for name in wires):
            raise invalid(f"dns: domains must be at least one DNS name such as 'consul.', not {list(self.domains)}")
        if self.name_server and not wire.address_of(self.name_server):
            raise invalid(f"dns: name_server must be an IP address, not {self.name_server!r}")
        if not wire.UDP_SIZE_PLAIN <= self.udp_size_max <= UDP_SIZE_LARGEST:
            raise invalid(f"dns: udp_size_max must be {wire.UDP_SIZE_PLAIN} to {UDP_SIZE_LARGEST} octets")
        for recursor in self.recursors:
            recursor_address(recursor)


def recursor_address(text: str) -> tuple[str, int]:
    """The IP address and port of one of `recursors`: `10.0.0.2`, `10.0.0.2:5353`, `fd00::2`, `[fd00::2]:5353`."""
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
    elif text.count(":") == 1:
        host, port = text.split(":")
    address, number = wire.address_of(host), port.removeprefix(":") or str(DNS_PORT)
    if address is None or not number.isdecimal() or not 0 < int(number) <= 0xFFFF:
        raise invalid(f"dns: recursors must be IP addresses with or without a port, not {text!r}")
    return str(address), int(number)
