"""Pure: how messages are put into packets and streams.

    packet, from the inside   messages | compound when there are several | CRC when the peer knows it | sealed | label
    stream, from the inside   one message | sealed with the length before it | label

Reading goes the other way and takes compressed messages too. What is too deep, too long or does not fit raises
Malformed; of a compound that was cut short the whole parts are used.
"""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from lepa.gossip import lzw
from lepa.gossip.errors import Malformed
from lepa.gossip.fields import decode_struct
from lepa.gossip.keyring import OVERHEAD, Keyring
from lepa.gossip.messages import COMPOUND, COMPRESS, COMPRESSED_FIELDS, ENCRYPT, HAS_CRC, LABEL, STATE_MAX

PACKET_MAX: Final = 1400
DATAGRAM_MAX: Final = 65_536
CRC_SIZE: Final = 5
COMPOUND_SIZE: Final = 2
PART_SIZE: Final = 2
PARTS_MAX: Final = 255
PART_MAX: Final = 65_535
MESSAGES_MAX: Final = 1024
"""Messages in one packet, over all its compounds."""
NESTED_MAX: Final = 4
UNPACKED_MAX: Final = STATE_MAX
STREAM_HEADER: Final = 5
SEALED_MAX: Final = STATE_MAX + OVERHEAD
LABEL_MAX: Final = 255


class Compressed(NamedTuple):
    """A compressed message. algorithm: 0 is LZW, the only one."""

    algorithm: int
    data: bytes


class Framing:
    """How this side frames. label: "" for none; peers older than memberlist 0.3 know none."""

    def __init__(self, keyring: Keyring | None = None, label: bytes = b"") -> None:
        if len(label) > LABEL_MAX:
            raise ValueError(f"a gossip label has at most {LABEL_MAX} bytes")
        self.keyring = keyring
        self._label = label
        self._label_header = bytes([LABEL, len(label)]) + label if label else b""

    @property
    def room(self) -> int:
        """Bytes of a packet for messages, and what compounds them."""
        return PACKET_MAX - CRC_SIZE - (OVERHEAD if self.keyring else 0) - len(self._label_header)

    def packet(self, parts: Sequence[bytes], nonce: bytes, *, crc: bool) -> bytes:
        """The bytes of a packet. nonce: 12 fresh bytes, unused without a keyring."""
        plain = parts[0] if len(parts) == 1 else compound(parts)
        if crc:
            plain = bytes([HAS_CRC]) + zlib.crc32(plain).to_bytes(4, "big") + plain
        if self.keyring is not None:
            plain = self.keyring.seal(plain, nonce, self._label)
        return self._label_header + plain

    def open_packet(self, data: bytes) -> list[bytes]:
        """The messages in a packet. Raises Malformed."""
        data = self._unlabelled(data)
        if self.keyring is not None:
            data = self.keyring.open(data, self._label)
        if data[:1] == bytes([HAS_CRC]):
            if zlib.crc32(data[CRC_SIZE:]).to_bytes(4, "big") != data[1:CRC_SIZE]:
                raise Malformed("crc")
            data = data[CRC_SIZE:]
        found: list[bytes] = []
        _unfold(data, found, NESTED_MAX)
        return found

    def stream(self, message: bytes, nonce: bytes) -> bytes:
        """The bytes of a message in a stream."""
        if self.keyring is not None:
            header = bytes([ENCRYPT]) + (len(message) + OVERHEAD).to_bytes(4, "big")
            message = header + self.keyring.seal(message, nonce, header + self._label)
        return self._label_header + message

    def stream_size(self, head: bytes) -> int | None:
        """How many bytes a sealed stream has, from its first ones; None when they do not say. Raises Malformed."""
        start = len(self._label_header)
        if len(head) < start + STREAM_HEADER or head[start] != ENCRYPT:
            return None
        size = int.from_bytes(head[start + 1 : start + STREAM_HEADER], "big")
        if size > SEALED_MAX:
            raise Malformed("size", f"a sealed message of {size} bytes")
        return start + STREAM_HEADER + size

    def stream_head_is_short(self, data: bytes) -> bool:
        """Whether the bytes end before it is clear how many there will be."""
        start = len(self._label_header)
        return len(data) <= start or (data[start] == ENCRYPT and len(data) < start + STREAM_HEADER)

    def open_stream(self, data: bytes) -> bytes:
        """The message, or its beginning, in the bytes of a stream. Raises Malformed; its text is for the peer."""
        data = self._unlabelled(data)
        sealed = data[:1] == bytes([ENCRYPT])
        if sealed and self.keyring is None:
            raise Malformed("key", "Remote state is encrypted and encryption is not configured")
        if self.keyring is not None:
            if not sealed:
                raise Malformed("plain", "Encryption is configured but remote state is not encrypted")
            data = self.keyring.open(data[STREAM_HEADER:], data[:STREAM_HEADER] + self._label)
        if data[:1] == bytes([COMPRESS]):
            data = _uncompressed(data, UNPACKED_MAX)
        return data

    def _unlabelled(self, data: bytes) -> bytes:
        if not data.startswith(self._label_header):
            raise Malformed("label", "another label, or none")
        if not self._label and data[:1] == bytes([LABEL]):
            raise Malformed("label", "a label, and none is configured")
        return data[len(self._label_header) :]


def compound(parts: Sequence[bytes]) -> bytes:
    """Several messages as one."""
    if len(parts) > PARTS_MAX or any(len(part) > PART_MAX for part in parts):
        raise ValueError(f"a compound has at most {PARTS_MAX} parts of {PART_MAX} bytes")
    sizes = b"".join(len(part).to_bytes(2, "big") for part in parts)
    return bytes([COMPOUND, len(parts)]) + sizes + b"".join(parts)


def _unfold(data: bytes, found: list[bytes], depth: int, *, unpacked: bool = False) -> None:
    if not data:
        raise Malformed("empty")
    if data[0] not in (COMPOUND, COMPRESS):
        found.append(data)
        if len(found) > MESSAGES_MAX:
            raise Malformed("size", f"more than {MESSAGES_MAX} messages in a packet")
        return
    if depth == 0 or (unpacked and data[0] == COMPRESS):  # a packet of 1,400 bytes could take seconds to unpack
        raise Malformed("nested", "compounds within compounds, or compressed twice")
    if data[0] == COMPRESS:
        _unfold(_uncompressed(data, DATAGRAM_MAX), found, depth - 1, unpacked=True)
        return
    for part in _parts(data):
        if part:
            _unfold(part, found, depth - 1, unpacked=unpacked)


def _parts(data: bytes) -> list[bytes]:
    """The parts of a compound that are whole."""
    if len(data) < COMPOUND_SIZE:
        raise Malformed("compound", "no count")
    count = data[1]
    at = COMPOUND_SIZE + PART_SIZE * count
    if len(data) < at:
        raise Malformed("compound", "fewer lengths than it says")
    sizes = [int.from_bytes(data[i : i + PART_SIZE], "big") for i in range(COMPOUND_SIZE, at, PART_SIZE)]
    found = []
    for size in sizes:
        if at + size > len(data):
            break
        found.append(data[at : at + size])
        at += size
    return found


def _uncompressed(data: bytes, limit: int) -> bytes:
    wrapped, _ = decode_struct(Compressed, COMPRESSED_FIELDS, data, 1)
    if wrapped.algorithm != 0:
        raise Malformed("compress", f"algorithm {wrapped.algorithm}")
    return lzw.unpack(wrapped.data, limit)
