"""Where the parts of a serving cluster listen: addresses, and those who know them."""

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
