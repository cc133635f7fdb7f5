"""Pure: members of a JSON object that a stranger sent, each of the type that is wanted or refused by name."""

from collections.abc import Iterable, Mapping
from typing import Any

from lepa.kit.durations import parse_duration
from lepa.model.errors import LepaError, invalid

Json = dict[str, Any]

DURATION_MAX = 1 << 63
"""Nanoseconds, some 292 years."""


def lowered(body: Any) -> Json:
    """An object with its keys in lower case and without underscores. Raises LepaError(invalid) for anything else."""
    if not isinstance(body, Mapping):
        raise invalid("Request decode error: expected a JSON object")
    return {plain(key): value for key, value in body.items()}


def plain(key: object) -> str:
    """A key in lower case and without underscores."""
    return str(key).lower().replace("_", "")


def text(given: Json, key: str) -> str:
    """A text; "" when it is absent."""
    value = given.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _refused(key, "a text")


def texts(given: Json, key: str) -> tuple[str, ...]:
    """A list of texts."""
    value = given.get(key) or []
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise _refused(key, "a list of texts")


def number(given: Json, key: str, default: int = 0, most: int = (1 << 64) - 1) -> int:
    """A whole number from 0 to `most`."""
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    raise _refused(key, f"a whole number from 0 to {most}")


def flag(given: Json, key: str) -> bool:
    """A boolean; false when it is absent."""
    value = given.get(key) or False
    if isinstance(value, bool):
        return value
    raise _refused(key, "true or false")


def mapping(given: Json, key: str) -> Json:
    """An object, as it is; {} when it is absent."""
    value = given.get(key) or {}
    if isinstance(value, dict):
        return value
    raise _refused(key, "an object")


def objects(given: Json, key: str) -> list[Any]:
    """A list of whatever."""
    value = given.get(key) or []
    if isinstance(value, list):
        return value
    raise _refused(key, "a list")


def pairs(given: Json, key: str) -> Iterable[tuple[str, str]]:
    """An object whose values are texts."""
    for name, value in mapping(given, key).items():
        if not isinstance(value, str):
            raise _refused(f"{key}.{name}", "a text")
        yield name, value


def duration(given: Json, key: str) -> int:
    """Nanoseconds of a duration text, or of a number of them; 0 when it is absent or negative."""
    value = given.get(key)
    if value in (None, ""):
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool) and -DURATION_MAX < value < DURATION_MAX:
        return max(0, int(value))
    if not isinstance(value, str):
        raise _refused(key, "a duration")
    try:
        return max(0, parse_duration(value))
    except ValueError as error:
        raise invalid(f"Request decode error: {key}: {error}") from error


def _refused(key: str, wanted: str) -> LepaError:
    return invalid(f'Request decode error: "{key}" has to be {wanted}')
