r"""Pure: variables of a file of `NAME=value` lines, as templates with `env = true` render them.

A value may stand in single quotes (as it is) or double quotes (with \n, \t, \" and \\); else it ends at ` #`. Empty
lines and lines that begin with `#` say nothing; `export ` before a name is overlooked.
"""

import re

from lepa.model.errors import invalid

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_.][A-Za-z0-9_.-]*)\s*[=:]\s*(.*)")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE = re.compile(r"'([^']*)'\s*(?:#.*)?")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_env_file(text: str, name: str) -> dict[str, str]:
    """Variables by name. name: the file's, for errors. Raises LepaError(invalid) with the line's number."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = _value(match[2].strip()) if match else None
        if match is None or value is None:
            raise invalid(f"{name}:{number}: expected NAME=value")
        found[match[1]] = value
    return found


def _value(text: str) -> str | None:
    if text.startswith('"'):
        match = _DOUBLE.fullmatch(text)
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match[1]) if match else None
    if text.startswith("'"):
        match = _SINGLE.fullmatch(text)
        return match[1] if match else None
    return re.sub(r"\s+#.*$", "", text)
