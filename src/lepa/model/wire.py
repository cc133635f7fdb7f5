"""Pure: the base of all wire types: Nomad's key names, JSON and msgpack.

Attributes are snake_case, keys are Nomad's (`job_id` <-> `JobID`). One Struct serves the API, the internal port and the
store. Sequences are tuples and never None: null and an absent key both give the field's default on input.
"""

import types
import typing
from functools import cache
from typing import Any, TypeVar

import msgspec

from lepa.model.errors import invalid

_ACRONYMS = (
    "id",
    "url",
    "ip",
    "dns",
    "cidr",
    "cni",
    "cpu",
    "mb",
    "ui",
    "csi",
    "numa",
    "ttl",
    "tls",
    "grpc",
    "http",
    "acl",
)
_WORDS = {word: word.upper() for word in _ACRONYMS} | {"ids": "IDs", "iops": "IOPS", "acl": "ACL"}


def go_name(name: str) -> str:
    """The JSON key of an attribute: `job_id` -> `JobID`."""
    return "".join(_WORDS.get(word) or word[:1].upper() + word[1:] for word in name.split("_"))


class Wire(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename=go_name):
    """A value that travels: frozen, with Nomad's keys. It holds no cycles, so the collector need not look at it."""


class OmitEmpty(Wire, frozen=True, omit_defaults=True):
    """A Wire whose empty fields are left out when it is encoded, as Nomad does for these types."""


T = TypeVar("T")
S = TypeVar("S", bound=Wire)


def shortened(row: Wire, kind: type[S], **own: Any) -> S:
    """A row in a form of fewer fields, such as the one that lists show. own: fields that the row does not have."""
    fields = {name: getattr(row, name) for name in kind.__struct_fields__ if name not in own}
    return kind(**fields, **own)


def to_json(value: Any) -> bytes:
    """Compact JSON of a Wire, or of builtins holding some."""
    return msgspec.json.encode(value)


def to_builtins(value: Any) -> Any:
    """The dicts and lists that `to_json` would write; bytes become base64 text."""
    return msgspec.to_builtins(value)


def to_msgpack(value: Any) -> bytes:
    """msgpack with the same keys as the JSON, for the store and the internal port."""
    return msgspec.msgpack.encode(value)


def from_msgpack(raw: bytes, kind: type[T]) -> T:
    """The inverse of `to_msgpack`: strict, because only lepa writes it."""
    decoder: msgspec.msgpack.Decoder[T] = _msgpack_decoder(typing.cast(typing.Hashable, kind))
    return decoder.decode(raw)


@cache
def _msgpack_decoder(kind: typing.Hashable) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(typing.cast(Any, kind))


def from_json(raw: bytes | str, kind: type[T]) -> T:
    """What a person or a foreign client sent: keys in any case, unknown keys ignored, null as absent.

    Raises LepaError(invalid) that names the place and the value's type.
    """
    try:
        return from_builtins(msgspec.json.decode(raw), kind)
    except msgspec.DecodeError as error:
        raise invalid(f"request body is not valid JSON: {error}") from error


def from_builtins(value: Any, kind: type[T]) -> T:
    """Like `from_json`, for decoded JSON."""
    try:
        return msgspec.convert(normalise(value, kind), kind)
    except msgspec.ValidationError as error:
        raise invalid(str(error)) from error


def normalise(value: Any, kind: Any) -> Any:
    """`value` with the exact keys of `kind`, without nulls and unknown keys, as deep as `kind` describes it."""
    shape = _shape(kind)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, item in value.items():
            field = shape.get(key) or shape.get(str(key).lower())
            if field is not None and item is not None:
                found[field[0]] = normalise(item, field[1])
        return found
    if shape is not None:
        container, inner = shape
        if container is dict and isinstance(value, dict):
            return {key: normalise(item, inner) for key, item in value.items() if item is not None or inner is Any}
        if container is tuple and isinstance(value, list | tuple):
            return [normalise(item, inner) for item in value if item is not None or inner is Any]
    return value


@cache
def _shape(kind: Any) -> dict[str, tuple[str, Any]] | tuple[type, Any] | None:
    """How to walk a type: a Struct's fields by key and lower-case key, a container with its item type, or None."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return _shape(inner[0]) if len(inner) == 1 else None
    if origin is dict:
        return dict, typing.get_args(kind)[1]
    if origin in (tuple, list):
        return tuple, typing.get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {}
        for field in msgspec.structs.fields(kind):
            fields[field.encode_name] = fields[field.encode_name.lower()] = (field.encode_name, field.type)
        return fields
    return None
