"""Pure: a value as YAML, in the plain style that yamlencode writes: block form, texts in double quotes."""

from __future__ import annotations

import json
from typing import Any

from lepa.jobspec import values


def write_yaml(value: Any) -> str:
    """The value as a YAML document."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key in sorted(value) for line in _entry(f"{_text(key)}:", value[key], indent="  ")]
    if isinstance(value, list) and value:
        return [line for each in value for line in _item(each)]
    return [_scalar(value)]


def _entry(head: str, value: Any, indent: str) -> list[str]:
    lines = _lines(value)
    if not isinstance(value, list | dict) or not value:
        return [f"{head} {lines[0]}"]
    return [head, *(line if isinstance(value, list) else indent + line for line in lines)]


def _item(value: Any) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any) -> str:
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, list):
        return "[]"
    if value is None:
        return "null"
    return _text(value) if isinstance(value, str) else values.to_text(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
