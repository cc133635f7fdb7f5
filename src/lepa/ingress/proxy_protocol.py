"""Pure: the PROXY protocol, versions 1 and 2: who the client is, told by one balancer to the next (haproxy.org,
proxy-protocol.txt).
"""

import struct
from ipaddress import ip_address

import msgspec

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1_MAX = 107
"""The longest header of version 1, its line end included."""
V2_MAX = 4_096
"""The longest header of version 2 that is accepted; the format allows 64 KiB of extensions."""


class Source(msgspec.Struct, frozen=True, gc=False):
    """Where a connection came from and to."""

    address: str
    port: int
    local_address: str
    local_port: int


def header(source: Source, version: int) -> bytes:
    """What a target is told before anything else."""
    client, local = ip_address(source.address), ip_address(source.local_address)
    if version == 1:
        family = "TCP4" if client.version == 4 else "TCP6"
        if client.version != local.version:
            return b"PROXY UNKNOWN\r\n"
        return f"PROXY {family} {client} {local} {source.port} {source.local_port}\r\n".encode()
    if client.version != local.version:
        return SIGNATURE + b"\x20\0\0\0"
    body = client.packed + local.packed + struct.pack("!HH", source.port, source.local_port)
    return SIGNATURE + bytes((0x21, 0x11 if client.version == 4 else 0x21)) + struct.pack("!H", len(body)) + body


def read_header(data: bytes, came: Source) -> tuple[Source, int] | None:
    """Who the client is and how long the header was; None when more must come first. Raises ValueError.

    came: the balancer's own connection, which counts when the header names nobody.
    """
    if data.startswith(SIGNATURE):
        return _read_v2(data, came)
    if data.startswith(b"PROXY "):
        return _read_v1(data, came)
    if SIGNATURE.startswith(data) or b"PROXY ".startswith(data):
        return None
    raise ValueError("the connection does not begin with a PROXY header")


def _read_v1(data: bytes, came: Source) -> tuple[Source, int] | None:
    end = data.find(b"\r\n", 0, V1_MAX)
    if end < 0:
        if len(data) >= V1_MAX:
            raise ValueError("the PROXY header does not end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return came, end + 2
    if len(words) != 6 or words[1] not in {"TCP4", "TCP6"}:
        raise ValueError("the PROXY header is malformed")
    version = int(words[1][3])
    client, local = ip_address(words[2]), ip_address(words[3])
    if client.version != version or local.version != version:
        raise ValueError("the PROXY header names addresses of another family")
    return Source(str(client), _port(words[4]), str(local), _port(words[5])), end + 2


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise ValueError("the PROXY header names no port")
    return int(text)


def _read_v2(data: bytes, came: Source) -> tuple[Source, int] | None:
    if len(data) < 16:
        return None
    command, family, size = struct.unpack("!BBH", data[12:16])
    if command >> 4 != 2 or command & 15 > 1:
        raise ValueError("the PROXY header is of an unknown version")
    if size > V2_MAX:
        raise ValueError("the PROXY header is too long")
    if len(data) < 16 + size:
        return None
    widths = {0x11: 4, 0x21: 16}
    width = widths.get(family, 0)
    if command & 15 == 0 or not width:
        return came, 16 + size
    if size < 2 * width + 4:
        raise ValueError("the PROXY header is too short for its addresses")
    body = data[16 : 16 + size]
    ports: tuple[int, int] = struct.unpack("!HH", body[2 * width : 2 * width + 4])
    client, local = ip_address(body[:width]), ip_address(body[width : 2 * width])
    return Source(str(client), ports[0], str(local), ports[1]), 16 + size
