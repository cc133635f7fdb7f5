"""Pure: the host names that a certificate is for, read from its DER form (RFC 5280, 4.2.1.6)."""

from collections.abc import Iterator

ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
DNS_NAME, OCTETS, BOOLEAN = 0x82, 0x04, 0x01


def names_of(der: bytes) -> tuple[str, ...]:
    """Lower-case names, wildcards included; none when the certificate has no alternative names."""
    place = der.find(ALTERNATIVE_NAMES)
    if place < 0:
        return ()
    parts = _values(der[place + len(ALTERNATIVE_NAMES) :])
    kind, value = next(parts, (0, b""))
    if kind == BOOLEAN:
        kind, value = next(parts, (0, b""))
    if kind != OCTETS:
        return ()
    _, names = next(_values(value), (0, b""))
    return tuple(name.decode("ascii", "replace").lower() for kind, name in _values(names) if kind == DNS_NAME)


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents that stand one after another, as far as they are whole."""
    place = 0
    while place + 2 <= len(data):
        tag, size = data[place], data[place + 1]
        place += 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[place : place + width], "big")
            place += width
        if place + size > len(data):
            return
        yield tag, data[place : place + size]
        place += size
