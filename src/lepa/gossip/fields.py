"""Pure: messages as maps: a table of fields for each kind of message serves both directions.

Maps are written with sorted keys, as Go's encoder does. Reading is as liberal as peers are: a key that is absent has
the default value, an unknown one is skipped, bytes may be a list of small numbers, a struct may be a list of its values
in declared order.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from lepa.gossip import raw_msgpack
from lepa.gossip.errors import Malformed

M = TypeVar("M", bound=tuple[Any, ...])
U32_END: Final = 1 << 32
U64_END: Final = 1 << 64


class Field(NamedTuple):
    """key: on the wire. read: the raw value -> what the message holds. empty: how an empty value is written."""

    key: str
    read: Callable[[Any], Any]
    empty: Literal["kept", "omitted", "nil"] = "kept"


def text(value: Any) -> str:
    """Names may be any bytes: what is no UTF-8 is kept as escapes."""
    return raw(value).decode("utf-8", "surrogateescape")


def raw(value: Any) -> bytes:
    """Bytes; nil is none."""
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    if isinstance(value, list) and all(isinstance(item, int) and 0 <= item < 256 for item in value):
        return bytes(value)
    raise Malformed("field", "a text or bytes were expected")


def unsigned(end: int) -> Callable[[Any], int]:
    """A whole number from 0 to end - 1."""

    def read(value: Any) -> int:
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < end:
            raise Malformed("field", f"a number from 0 to {end - 1} was expected")
        return value

    return read


u8, u16, u32, u64 = unsigned(1 << 8), unsigned(1 << 16), unsigned(U32_END), unsigned(U64_END)


def flag(value: Any) -> bool:
    """True or false; nil is false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    raise Malformed("field", "true or false was expected")


def address(value: Any) -> bytes:
    """An IP address, 4 or 16 bytes, or none."""
    found = raw(value)
    if len(found) not in (0, 4, 16):
        raise Malformed("field", f"an address of {len(found)} bytes")
    return found


def listed(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A list; nil is empty."""

    def read(value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise Malformed("field", "a list was expected")
        return tuple(item(each) for each in value)

    return read


def mapped(item: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    """A map from texts; nil is empty."""

    def read(value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise Malformed("field", "a map was expected")
        return {text(key): item(each) for key, each in value.items()}

    return read


def struct_bytes(message: tuple[Any, ...], fields: tuple[Field, ...]) -> bytes:
    """A message as a map."""
    return raw_msgpack.encode(struct_map(message, fields))


def struct_map(message: tuple[Any, ...], fields: tuple[Field, ...]) -> dict[str, Any]:
    """A message as a dict with sorted keys."""
    pairs = [pair for pair in zip(fields, message, strict=True) if pair[1] or pair[0].empty != "omitted"]
    found = {field.key: value if value or field.empty != "nil" else None for field, value in pairs}
    return dict(sorted(found.items()))


def read_struct(kind: Callable[..., M], fields: tuple[Field, ...], value: Any) -> M:
    """A message from a decoded value. Raises Malformed."""
    if isinstance(value, list):
        given: Mapping[str, Any] = {field.key: item for field, item in zip(fields, value, strict=False)}
    elif isinstance(value, dict):
        given = {key.decode("utf-8", "replace"): item for key, item in value.items() if isinstance(key, bytes)}
    else:
        raise Malformed("field", "a map was expected")
    return kind(*(field.read(given.get(field.key)) for field in fields))


def decode_struct(kind: Callable[..., M], fields: tuple[Field, ...], data: bytes, at: int = 0) -> tuple[M, int]:
    """A message from bytes, and where it ends. Raises Malformed."""
    value, end = raw_msgpack.decode(data, at)
    return read_struct(kind, fields, value), end
