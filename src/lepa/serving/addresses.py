"""Pure: addresses, and the order in which to try those of one service (RFC 2782)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lepa.model.errors import invalid


class Address(NamedTuple):
    """A host (name or IP) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address written as host:port or [ipv6]:port, a leading http:// allowed. Raises LepaError(invalid)."""
    host, separator, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise invalid(f'"{text}" is not an address: expected host:port')
    return Address(host.strip("[]"), int(port))


class Located(NamedTuple):
    """One place where a service listens."""

    address: Address
    priority: int = 1
    weight: int = 1


def ordered(places: Sequence[Located], uniform: Callable[[float, float], float]) -> list[Address]:
    """Places in the order to try them: by priority, within one by chance in proportion to weight (RFC 2782)."""

    def chance(place: Located) -> float:
        return float(uniform(0.0, 1.0) ** (1.0 / max(place.weight, 0.01)))

    keyed = [(place.priority, -chance(place), place.address) for place in places]
    return [address for _, _, address in sorted(keyed, key=lambda entry: entry[:2])]
