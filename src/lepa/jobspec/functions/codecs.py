"""Pure: functions between texts in some format and values."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, anything, row, text
from lepa.jobspec.functions.yaml_reader import read_yaml
from lepa.jobspec.functions.yaml_writer import write_yaml
from lepa.jobspec.values import Conversion


def decode_base64(value: str) -> str:
    """The text in UTF-8 that a base64 text holds."""
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise Conversion("the text is not base64 of a text in UTF-8") from None


def encode_base64(value: str) -> str:
    """A text in UTF-8 as base64."""
    return base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()


def decode_csv(value: str) -> list[dict[str, str]]:
    """A list of rows; the first line names the columns."""
    import csv
    import io

    try:
        lines = [line for line in csv.reader(io.StringIO(value), strict=True) if line]
    except csv.Error as problem:
        raise Conversion(f"invalid CSV: {problem}") from None
    if not lines:
        raise Conversion("missing header line")
    if len(set(lines[0])) < len(lines[0]):
        raise Conversion("two columns have the same name")
    if any(len(line) != len(lines[0]) for line in lines):
        raise Conversion("a line has another number of fields than the header")
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def decode_json(value: str) -> Any:
    """The value that a JSON text holds."""
    try:
        found = json.loads(value)
        values.measure(found)
    except (ValueError, RecursionError):
        raise Conversion("the text is not valid JSON") from None
    return _numbers(found)


def _numbers(value: Any) -> Any:
    """The same with whole numbers as ints, within the bounds."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return value if isinstance(value, bool) or not isinstance(value, int | float) else values.number(value)


def encode_json(value: Any) -> str:
    """Compact JSON with names in order; <, > and & are escaped, as Go does."""
    shown = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        shown = shown.replace(character, escape)
    return shown


def encode_url(value: str) -> str:
    """A text as it stands in the query of a URL."""
    from urllib.parse import quote_plus

    return quote_plus(value.encode("utf-8", "surrogatepass"))


ROWS: tuple[Row, ...] = (
    row("base64decode", decode_base64, text),
    row("base64encode", encode_base64, text),
    row("csvdecode", decode_csv, text),
    row("jsondecode", decode_json, text),
    row("jsonencode", encode_json, anything),
    row("urlencode", encode_url, text),
    row("yamldecode", read_yaml, text),
    row("yamlencode", write_yaml, anything),
)
