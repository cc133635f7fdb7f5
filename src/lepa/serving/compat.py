"""Pure: the words of Clipper's own frontends, for old clients that compare them (`--compat clipper`).

lepa answers errors as JSON with a status that tells what is wrong. Clipper answered 400 to everything, the management
frontend and `update` with a plain sentence, and named JSON mistakes in words of its own.
"""

import re
from collections.abc import Callable, Mapping

PARSING = "Error parsing JSON: "
"""What the cause of a JSON mistake begins with, in both manners."""

PREDICT_SCHEMA = '"input" := [double] | [int] | [string] | [byte] | [float],'
UPDATE_SCHEMA = '"uid" := string, "input" := [double] | [int] | [string] | [byte] | [float], "label" := double'

_KINDS = {"str": "String", "int": "Number", "float": "Number", "bool": "bool", "array": "Array", "object": "Object"}
_KINDS |= {"null": "Null", "bytes": "String"}
_FOUND = _KINDS | {"bool": "True"}
_NAMES = {"str": "string", "int": "int", "float": "double", "bool": "bool"}

_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(r"Object missing required field `(?P<key>\w+)`"),
        lambda found: f"JSON object does not have required key: {found['key']}",
    ),
    (
        re.compile(r"Expected `(?P<want>\w+)[^`]*`, got `(?P<got>\w+)` - at `\$\.(?P<key>\w+)`"),
        lambda found: (
            f"Type mismatch! JSON key {found['key']} expected type {_KINDS.get(found['want'], found['want'])}"
            f"{' ' if found['want'] == 'bool' else ''}but found type {_FOUND.get(found['got'], found['got'])}"
        ),
    ),
    (re.compile(r"Expected `object`"), lambda found: "Can only get key-value pair from an object"),
    (
        re.compile(r"JSON is malformed: (?P<what>.*) \(byte (?P<at>\d+)\)"),
        lambda found: f"JSON parse error: {found['what']} (offset {found['at']})\n",
    ),
    (re.compile(r"Input data was truncated"), lambda found: "JSON parse error: The document is empty. (offset 0)\n"),
)


def reason(mistake: str) -> str:
    """What Clipper would have called a JSON mistake that msgspec describes."""
    for pattern, words in _PATTERNS:
        if found := pattern.search(mistake):
            return words(found)
    return mistake


def cause(message: str, schema: str) -> str:
    """The sentence of an error in Clipper's words; other errors than JSON mistakes have them already."""
    if not message.startswith(PARSING):
        return message
    mistake = message.removeprefix(PARSING).partition(". Expected JSON schema:")[0]
    return f"{PARSING}{reason(mistake)}. Expected JSON schema: {schema}"


def schema(fields: Mapping[str, str]) -> str:
    """Fields and the names of their types in Clipper's notation."""
    lines = ",\n".join(f'   "{name}" := {_NAMES.get(kind, kind)}' for name, kind in fields.items())
    return f"\n  {{\n{lines}\n  }}"
