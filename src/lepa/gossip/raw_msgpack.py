"""Pure: the dialect of msgpack that memberlist and Serf speak.

It is the specification of 2011: texts and bytes are one family, "raw", with no type of 8-bit length and no binary
type. Peers refuse the newer types where they expect a text, so none is ever written; all are read. Values are None,
bool, int, float, bytes, list and dict; a dict's keys are bytes too.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from lepa.gossip.errors import Malformed

DEPTH_MAX: Final = 16
"""Of values within values: a Serf state needs five."""


def encode(value: Any) -> bytes:
    """The bytes of a value; a dict's items are written in their order, a str as UTF-8 with escaped stray bytes."""
    out = bytearray()
    _write(out, value)
    return bytes(out)


def _write(out: bytearray, value: Any) -> None:
    if isinstance(value, str):
        _write_raw(out, value.encode("utf-8", "surrogateescape"))
    elif isinstance(value, bytes | bytearray | memoryview):
        _write_raw(out, bytes(value))
    elif value is None:
        out.append(0xC0)
    elif isinstance(value, bool):
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, int):
        _write_int(out, value)
    elif isinstance(value, float):
        out += struct.pack(">Bd", 0xCB, value)
    elif isinstance(value, Mapping):
        _write_size(out, len(value), 0x80, 0xDE)
        for key, item in value.items():
            _write(out, key)
            _write(out, item)
    else:
        _write_size(out, len(value), 0x90, 0xDC)
        for item in value:
            _write(out, item)


def _write_raw(out: bytearray, raw: bytes) -> None:
    size = len(raw)
    if size < 32:
        out.append(0xA0 | size)
    elif size < 1 << 16:
        out += struct.pack(">BH", 0xDA, size)
    else:
        out += struct.pack(">BI", 0xDB, size)
    out += raw


def _write_size(out: bytearray, size: int, small: int, large: int) -> None:
    if size < 16:
        out.append(small | size)
    elif size < 1 << 16:
        out += struct.pack(">BH", large, size)
    else:
        out += struct.pack(">BI", large + 1, size)


def _write_int(out: bytearray, value: int) -> None:
    if 0 <= value < 128 or -32 <= value < 0:
        out.append(value & 0xFF)
    elif value < 0:
        out += struct.pack(">Bq", 0xD3, value)
    elif value < 1 << 8:
        out += struct.pack(">BB", 0xCC, value)
    elif value < 1 << 16:
        out += struct.pack(">BH", 0xCD, value)
    elif value < 1 << 32:
        out += struct.pack(">BI", 0xCE, value)
    else:
        out += struct.pack(">BQ", 0xCF, value)


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Raises Malformed."""
    try:
        return _read(data, at, DEPTH_MAX)
    except (struct.error, IndexError) as error:
        raise Malformed("short", "ends in the middle of a value") from error


_NUMBERS: Final[dict[int, struct.Struct]] = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_SIZES: Final[dict[int, struct.Struct]] = {
    **{tag: struct.Struct(">B") for tag in (0xC4, 0xD9)},
    **{tag: struct.Struct(">H") for tag in (0xC5, 0xDA, 0xDC, 0xDE)},
    **{tag: struct.Struct(">I") for tag in (0xC6, 0xDB, 0xDD, 0xDF)},
}
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if 0xA0 <= tag < 0xC0:
        return _read_raw(data, at, tag & 0x1F)
    if tag < 0x90:
        return _read_map(data, at, tag & 0x0F, depth)
    if tag < 0xA0:
        return _read_list(data, at, tag & 0x0F, depth)
    if tag in _CONSTANTS:
        return _CONSTANTS[tag], at
    if tag in _NUMBERS:
        kind = _NUMBERS[tag]
        return kind.unpack_from(data, at)[0], at + kind.size
    if tag in _SIZES:
        (size,) = _SIZES[tag].unpack_from(data, at)
        at += _SIZES[tag].size
        if tag >= 0xDC:
            read: Callable[..., tuple[Any, int]] = _read_list if tag < 0xDE else _read_map
            return read(data, at, size, depth)
        return _read_raw(data, at, size)
    raise Malformed("msgpack", f"unknown type byte {tag:#04x}")


def _read_raw(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise Malformed("short", "ends in the middle of a text")
    return data[at:end], end


def _read_list(data: bytes, at: int, size: int, depth: int) -> tuple[list[Any], int]:
    _check_room(data, at, size, depth)
    found = []
    for _ in range(size):
        item, at = _read(data, at, depth - 1)
        found.append(item)
    return found, at


def _read_map(data: bytes, at: int, size: int, depth: int) -> tuple[dict[Any, Any], int]:
    _check_room(data, at, 2 * size, depth)
    found = {}
    for _ in range(size):
        key, at = _read(data, at, depth - 1)
        item, at = _read(data, at, depth - 1)
        if isinstance(key, list | dict):
            raise Malformed("msgpack", "a map's key is a list or a map")
        found[key] = item
    return found, at


def _check_room(data: bytes, at: int, size: int, depth: int) -> None:
    """Each value takes a byte at least: a size that lies allocates nothing."""
    if size > len(data) - at:
        raise Malformed("short", "announces more values than there are bytes")
    if depth == 0:
        raise Malformed("msgpack", "nested too deeply")
