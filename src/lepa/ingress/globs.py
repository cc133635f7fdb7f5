"""Pure: wildcards in hosts and paths, as Fabio has them, to regular expressions.

`*` any text, `?` one character, `[ab]` and `[!ab]` sets, `{a,b}` alternatives; a backslash takes the next character
as it is. A pattern that does not parse matches only itself.
"""

import re

WILDCARDS = frozenset("*?[{")


def is_glob(text: str) -> bool:
    """Whether a text holds a wildcard."""
    return not WILDCARDS.isdisjoint(text)


def compiled(pattern: str) -> re.Pattern[str]:
    """An expression that matches whole texts."""
    try:
        return re.compile(_expression(pattern), re.DOTALL)
    except re.error:
        return re.compile(re.escape(pattern))


def literal_tail(pattern: str) -> str:
    """What every match of the pattern ends in: all that follows its last wildcard."""
    return re.split(r"[*?\]}\\\[{]", pattern)[-1]


def _expression(pattern: str) -> str:
    parts: list[str] = []
    place, depth = 0, 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == "*":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif character == "[" and (end := pattern.find("]", place + 1)) > 0:
            inside = pattern[place:end]
            negated = inside[:1] in {"!", "^"}
            parts.append(f"[{'^' if negated else ''}{_set(inside[negated:])}]")
            place = end + 1
        elif character == "{" and "}" in pattern[place:]:
            parts.append("(?:")
            depth += 1
        elif character == "}" and depth:
            parts.append(")")
            depth -= 1
        elif character == "," and depth:
            parts.append("|")
        elif character == "\\" and place < len(pattern):
            parts.append(re.escape(pattern[place]))
            place += 1
        else:
            parts.append(re.escape(character))
    return "".join(parts)


def _set(inside: str) -> str:
    return "".join(f"\\{character}" if character in "\\]^[" else character for character in inside)
