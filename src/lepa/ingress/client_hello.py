"""Pure: the name that a TLS client asks for, read from its first message (RFC 8446, 4.1.2; RFC 6066, 3)."""

HELLO_MAX = 16_384
"""Bytes of a first message that are looked at."""
HANDSHAKE, CLIENT_HELLO, SERVER_NAME = 22, 1, 0


def server_name(data: bytes) -> str | None:
    """The lower-case name, "" when none is asked for; None when more must come first. Raises ValueError: not TLS."""
    message = bytearray()
    place = 0
    while True:
        record = data[place : place + 5]
        if (record and record[0] != HANDSHAKE) or (len(record) > 1 and record[1] != 3):
            raise ValueError("the connection does not begin with TLS")
        if len(record) < 5:
            return None
        size = int.from_bytes(record[3:5], "big")
        message += data[place + 5 : place + 5 + size]
        if len(message) > HELLO_MAX:
            raise ValueError("the first TLS message is too long")
        if len(message) >= 4:
            if message[0] != CLIENT_HELLO:
                raise ValueError("the first TLS message is not a client's hello")
            wanted = 4 + int.from_bytes(message[1:4], "big")
            if wanted > HELLO_MAX:
                raise ValueError("the first TLS message is too long")
            if len(message) >= wanted:
                return _name(bytes(message[4:wanted]))
        if len(data) < place + 5 + size:
            return None
        place += 5 + size


def _name(hello: bytes) -> str:
    """The name in the extensions of a whole hello; "" when a length does not hold."""
    place = 34  # version and random
    for width in (1, 2, 1):  # session, ciphers, compression
        place += width + int.from_bytes(hello[place : place + width], "big")
    end = min(len(hello), place + 2 + int.from_bytes(hello[place : place + 2], "big"))
    place += 2
    while place + 4 <= end:
        kind = int.from_bytes(hello[place : place + 2], "big")
        size = int.from_bytes(hello[place + 2 : place + 4], "big")
        body = hello[place + 4 : place + 4 + size]
        if kind == SERVER_NAME and len(body) >= 5 and body[2] == 0:
            return body[5 : 5 + int.from_bytes(body[3:5], "big")].decode("ascii", "replace").lower().rstrip(".")
        place += 4 + size
    return ""
