"""Pure: the five input types: their names, their JSON, and their bytes on the way to a model container.

A query's input travels as bytes from the moment its JSON is read: the cache compares bytes, the RPC sends bytes. Packed
numbers are little-endian: int32 for integers, float32 for floats, float64 for doubles. JSON integers are accepted
where a type wants fractions (Clipper refused them).
"""

from array import array
from collections.abc import Callable, Sequence
from math import isinf
from sys import byteorder
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lepa.model.errors import LepaError, invalid

BATCH_ITEMS_MAX = 10_000
"""Queries in one `input_batch`; a longer list is refused, so that one caller cannot fill every queue."""

Item = TypeVar("Item")


class PredictRequest(Struct, Generic[Item]):
    """The body of `POST /{app}/predict`. `input` wins when both are given; version "" is the current one; uid: the user
    who asks, for policies that know users."""

    input: Item | UnsetType = UNSET
    input_batch: list[Item] | UnsetType = UNSET
    version: str = ""
    uid: int | None = None


class UpdateRequest(Struct, Generic[Item]):
    """The body of `POST /{app}/update`: what the right answer to `input` was, for user `uid`."""

    uid: int
    input: Item
    label: float | str


class InputType:
    """One input type: how a request's JSON becomes the bytes that a container of this type understands.

    code: the number on the wire. aliases: other names accepted when an application or model is registered.
    """

    __slots__ = ("_pack", "_predict", "_update", "aliases", "code", "name")

    def __init__(self, name: str, code: int, aliases: Sequence[str], item: Any, pack: Callable[[Any], bytes]) -> None:
        self.name = name
        self.code = code
        self.aliases = (name, *aliases)
        self._pack = pack
        self._predict = msgspec.json.Decoder(PredictRequest[item])
        self._update = msgspec.json.Decoder(UpdateRequest[item])

    def decode_predict(self, body: bytes | bytearray) -> tuple[bytes | list[bytes], str, str]:
        """(input, version, user) of a predict body: bytes for one query, a list of bytes for `input_batch`."""
        try:
            request = self._predict.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _not_readable(error) from error
        if request.input is not UNSET:
            return self.pack(request.input), request.version, "" if request.uid is None else str(request.uid)
        if request.input_batch is UNSET:
            raise invalid("JSON object does not have required keys input or input_batch")
        if len(request.input_batch) > BATCH_ITEMS_MAX:
            raise invalid(f"input_batch has {len(request.input_batch)} inputs; at most {BATCH_ITEMS_MAX} are taken")
        return [self.pack(item) for item in request.input_batch], request.version, _user(request.uid)

    def decode_update(self, body: bytes | bytearray) -> tuple[str, bytes, float | str]:
        """(user, input, label) of an update body."""
        try:
            request = self._update.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _not_readable(error) from error
        return _user(request.uid), self.pack(request.input), request.label

    def pack(self, item: Any) -> bytes:
        """The bytes of one input. Raises LepaError(invalid) where its elements are of another kind."""
        try:
            return self._pack(item)
        except (OverflowError, TypeError) as error:
            raise invalid(f"a number of the input does not fit type {self.name}: {error}") from error


def _user(uid: int | None) -> str:
    return "" if uid is None else str(uid)


def _not_readable(error: Exception) -> LepaError:
    return invalid(f"Error parsing JSON: {'nested too deeply' if isinstance(error, RecursionError) else error}")


def _numbers(code: str) -> Callable[[list[float]], bytes]:
    def pack(numbers: list[float]) -> bytes:
        packed = array(code, numbers)
        if byteorder == "big":
            packed.byteswap()
        return packed.tobytes()

    return pack


def _pack_floats(numbers: list[float]) -> bytes:
    packed = array("f", numbers)
    if any(map(isinf, packed)):
        raise OverflowError("outside the range of a 32-bit float")
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]

INPUT_TYPES = {
    kind.name: kind
    for kind in (
        InputType("bytes", 0, ("byte", "b"), bytes, bytes),
        InputType("integers", 1, ("ints", "integer", "int", "i"), list[_Int32], _numbers("i")),
        InputType("floats", 2, ("float", "f"), list[float], _pack_floats),
        InputType("doubles", 3, ("double", "d"), list[float], _numbers("d")),
        InputType("strings", 4, ("string", "str", "strs", "s"), str, str.encode),
    )
}
_BY_ALIAS = {alias: kind for kind in INPUT_TYPES.values() for alias in kind.aliases}


def input_type(name: str) -> InputType:
    """The input type called `name`, aliases and upper case included. Raises LepaError(invalid) for others."""
    kind = _BY_ALIAS.get(name.lower())
    if kind is None:
        raise invalid(f'"{name}" is not an input type; known are {", ".join(INPUT_TYPES)}')
    return kind
