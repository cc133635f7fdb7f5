"""Pure: fingerprints of texts, and names that are made from them."""

from __future__ import annotations

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, row, text
from lepa.jobspec.values import Conversion

_NAMESPACES = {
    "dns": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "url": "6ba7b811-9dad-11d1-80b4-00c04fd430c8",
    "oid": "6ba7b812-9dad-11d1-80b4-00c04fd430c8",
    "x500": "6ba7b814-9dad-11d1-80b4-00c04fd430c8",
}


def digest(algorithm: str, value: str) -> str:
    """The hexadecimal digest of a text in UTF-8."""
    import hashlib

    return hashlib.new(algorithm, value.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def uuid_from_name(namespace: str, name: str) -> str:
    """The UUID of version 5 (RFC 9562, section 5.5) of a name in a namespace: dns, url, oid, x500 or a UUID."""
    import hashlib

    try:
        space = bytes.fromhex(_NAMESPACES.get(namespace, namespace).replace("-", ""))
    except ValueError:
        space = b""
    if len(space) != 16:
        raise Conversion(f"{values.quoted(namespace)} is neither dns, url, oid, x500 nor a UUID")
    raw = bytearray(hashlib.sha1(space + name.encode(), usedforsecurity=False).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x50
    raw[8] = raw[8] & 0x3F | 0x80
    shown = raw.hex()
    return "-".join((shown[:8], shown[8:12], shown[12:16], shown[16:20], shown[20:]))


ROWS: tuple[Row, ...] = (
    row("md5", lambda value: digest("md5", value), text),
    row("sha1", lambda value: digest("sha1", value), text),
    row("sha256", lambda value: digest("sha256", value), text),
    row("sha512", lambda value: digest("sha512", value), text),
    row("uuidv5", uuid_from_name, text, text),
)
