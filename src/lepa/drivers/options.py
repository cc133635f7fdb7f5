"""Pure: checks a job file's `config` block against a table of options, and reads its values.

Job files give numbers and booleans as text when they come from interpolation, so "5" is taken for 5, "true" for true.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Kind = Literal["text", "number", "bool", "texts", "map", "block", "blocks"]
"""texts: a list of strings. map: names to strings. block: a nested block. blocks: several of them."""

_WANTED = {
    "text": "a string",
    "number": "a number",
    "bool": "true or false",
    "texts": "a list of strings",
    "map": "a map of strings",
    "block": "a block",
    "blocks": "one block or several",
}


class Options:
    """The options of one driver: name -> kind, and which of them must be there."""

    def __init__(self, driver: str, kinds: Mapping[str, Kind], required: Sequence[str] = ()) -> None:
        self._driver = driver
        self._kinds = kinds
        self._required = required

    def problems(self, config: Mapping[str, Any]) -> list[str]:
        """What is wrong, one sentence each."""
        found = [f"{self._driver} has no option {name!r}" for name in config if name not in self._kinds]
        found += [f"{name} must be set" for name in self._required if config.get(name) in (None, "")]
        found += [
            f"{name} must be {_WANTED[kind]}, found {config[name]!r}"
            for name, kind in self._kinds.items()
            if config.get(name) is not None and not _fits(config[name], kind)
        ]
        return found


def text(config: Mapping[str, Any], name: str, default: str = "") -> str:
    """An option as text."""
    value = config.get(name)
    return default if value is None else str(value)


def number(config: Mapping[str, Any], name: str, default: int = 0) -> int:
    """An option as a whole number."""
    value = config.get(name)
    return default if value in (None, "") else int(float(str(value)))


def flag(config: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """An option as true or false."""
    value = config.get(name)
    return default if value in (None, "") else value is True or str(value).lower() in ("true", "1")


def texts(config: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """An option as a list of strings."""
    value = config.get(name)
    if value is None:
        return ()
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else (str(value),)


def mapping(config: Mapping[str, Any], name: str) -> dict[str, str]:
    """An option as names to strings; blocks given several times are joined."""
    joined: dict[str, str] = {}
    for block in blocks(config, name):
        joined.update({str(key): str(value) for key, value in block.items()})
    return joined


def block(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An option as one nested block."""
    joined: dict[str, Any] = {}
    for each in blocks(config, name):
        joined.update(each)
    return joined


def blocks(config: Mapping[str, Any], name: str) -> tuple[dict[str, Any], ...]:
    """An option as nested blocks: none, one or several."""
    value = config.get(name)
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _fits(value: Any, kind: Kind) -> bool:
    scalar = isinstance(value, str | int | float)
    match kind:
        case "text":
            return scalar and not isinstance(value, bool)
        case "number":
            return not isinstance(value, bool) and _is_number(value)
        case "bool":
            return isinstance(value, bool) or str(value).lower() in ("true", "false", "1", "0")
        case "texts":
            return isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value)
        case "map":
            parts = value if isinstance(value, list | tuple) else (value,)
            return all(isinstance(part, dict) and all(_is_scalar(item) for item in part.values()) for part in parts)
        case "block" | "blocks":
            parts = value if isinstance(value, list | tuple) else (value,)
            return all(isinstance(part, dict) for part in parts)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_number(value: Any) -> bool:
    try:
        float(str(value))
    except ValueError:
        return False
    return True
