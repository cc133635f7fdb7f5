"""Pure: YAML text -> a value, for the YAML that people write configuration in.

One document of mappings, sequences, flow collections, plain and quoted scalars, literal (`|`) and folded (`>`) texts.
Anchors, aliases, tags, several documents and texts that go over several lines without `|` or `>` are refused by name.
Scalars mean what the core schema of YAML 1.2 says.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from lepa.jobspec import values
from lepa.jobspec.values import Conversion

DEPTH_MAX = 50

_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#\[\]{},"'&*!|>%@`-][^#]*?|-[^\s#][^#]*?):(?=\s|$)"""
)
_QUOTE_OR_COMMENT = re.compile(r"""(?<![^\s\[{,:])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')|(?<!\S)\#""")
_FLOW_PLAIN = re.compile(r"[^,\[\]{}:#]+(?::(?=[^\s,\[\]{}])[^,\[\]{}:#]*)*")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_REFUSED = {
    "&": "anchors",
    "*": "aliases",
    "!": "tags",
    "%": "directives",
    "@": "reserved marks",
    "`": "reserved marks",
}


def read_yaml(text: str) -> Any:
    """The value of a document; raises Conversion with the number of the line."""
    reader = _Reader(text)
    value = reader.node(0, 0)
    reader.skip_blank()
    if not reader.done:
        reader.refuse("more text than one value")
    return value


class _Reader:
    """Lines, and how far they are read. A line is (indent, text without indent and comment)."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.number = 0
        self.skip_blank()
        if not self.done and re.match(r"---(?:\s|$)", self.lines[self.number]):
            self.lines[self.number] = self.lines[self.number].replace("---", "   ", 1)

    @property
    def done(self) -> bool:
        return self.number >= len(self.lines)

    def refuse(self, reason: str) -> NoReturn:
        raise Conversion(f"invalid YAML on line {self.number + 1}: {reason}")

    def skip_blank(self) -> None:
        while not self.done and not self.content().strip():
            self.number += 1

    def content(self) -> str:
        """The line that comes next, without its comment."""
        line = self.lines[self.number]
        if "#" not in line:
            return line.rstrip()
        return line[: _comment_start(line)].rstrip()

    def indent(self) -> int:
        line = self.content()
        stripped = line.lstrip(" ")
        if stripped.startswith("\t"):
            self.refuse("a tab cannot indent; use spaces")
        return len(line) - len(stripped)

    # Blocks

    def node(self, least: int, depth: int) -> Any:
        """The value that begins on the next line, if that is indented by at least `least`; else null."""
        if depth > DEPTH_MAX:
            self.refuse(f"nested more than {DEPTH_MAX} levels deep")
        self.skip_blank()
        if self.done or self.indent() < least:
            return None
        indent = self.indent()
        line = self.content().strip()
        if line in ("---", "..."):
            self.refuse("several documents are not supported")
        if line == "-" or line.startswith("- "):
            return self.sequence(indent, depth)
        if _KEY.match(line):
            return self.mapping(indent, depth)
        self.number += 1
        return self.scalar(line, least - 1, depth)

    def sequence(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while self.at(indent) and (line := self.content().strip()) and (line == "-" or line.startswith("- ")):
            rest = line[1:].lstrip()
            if not rest:
                self.number += 1
                items.append(self.node(indent + 1, depth + 1))
            else:
                self.lines[self.number] = " " * (len(self.content()) - len(rest)) + rest
                items.append(self.node(indent + 1, depth + 1))
        return items

    def mapping(self, indent: int, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while self.at(indent) and (match := _KEY.match(self.content().strip())):
            key = self.key(match["key"].strip())
            if key in members:
                self.refuse(f"the key {values.quoted(key)} appears twice")
            rest = self.content().strip()[match.end() :].strip()
            self.number += 1
            members[key] = self.scalar(rest, indent, depth) if rest else self.below(indent, depth)
        self.skip_blank()
        if not self.done and self.indent() > indent:
            self.refuse("unexpected indentation")
        return members

    def below(self, indent: int, depth: int) -> Any:
        """What stands under a key: deeper lines, or a sequence at the same depth."""
        self.skip_blank()
        if self.at(indent) and self.content().strip().startswith("-") and not _KEY.match(self.content().strip()):
            return self.node(indent, depth + 1)
        return self.node(indent + 1, depth + 1)

    def at(self, indent: int) -> bool:
        self.skip_blank()
        return not self.done and self.indent() == indent

    def key(self, text: str) -> str:
        value = _quoted(text) if text[0] in "\"'" else text
        if value is None:
            self.refuse("the key has an unknown escape")
        return value

    # Scalars

    def scalar(self, text: str, indent: int, depth: int) -> Any:
        """The value of the rest of a line that has been taken; a block text or a flow may take more lines.

        indent: that of the collection around it; the lines of a block text are deeper.
        """
        mark = text[0]
        if mark in "|>":
            return self.block_text(text, indent)
        if mark in "[{":
            return self.flow(text, depth)
        self.number -= 1
        if mark in _REFUSED:
            self.refuse(f"{_REFUSED[mark]} are not supported")
        if mark in "\"'":
            value = _quoted(text)
            if value is None:
                self.refuse("a quoted text must end on its line and have known escapes")
        elif ": " in text or text.endswith(":"):
            self.refuse("a value cannot be a key as well")
        else:
            value = _plain(text)
        self.number += 1
        return value

    def block_text(self, header: str, indent: int) -> str:
        """The lines under `|` or `>`, without their common indent."""
        if not re.fullmatch(r"[|>][-+]?[1-9]?[-+]?", header):
            self.number -= 1
            self.refuse("an unknown block header")
        digits = re.search(r"\d", header)
        width = max(indent, 0) + int(digits[0]) if digits else None
        lines: list[str] = []
        while not self.done:
            line = self.lines[self.number]
            own = len(line) - len(line.lstrip(" "))
            if line.strip():
                width = max(own, indent + 1) if width is None else width
                if own < width:
                    break
            lines.append(line[width or 0 :] if line.strip() else line[width or len(line) :])
            self.number += 1
        kept = len(lines)
        while kept and not lines[kept - 1].strip():
            kept -= 1
        body = "\n".join(lines[:kept]) if header[0] == "|" else _folded(lines[:kept])
        if "-" in header or not kept:
            return body
        return body + "\n" * (1 + len(lines) - kept if "+" in header else 1)

    def flow(self, text: str, depth: int) -> Any:
        """A flow collection, which may go on over further lines: twice as many are tried until they are enough."""
        begun = self.number
        lines = [text]
        while True:
            flow = _Flow("\n".join(lines), depth)
            self.number = begun - 1
            try:
                value = flow.value()
            except _Unfinished:
                self.number = begun + len(lines) - 1
                if self.done:
                    self.number = begun - 1
                    self.refuse("a bracket is not closed")
                lines += self.next_contents(len(lines))
                continue
            except Conversion as problem:
                self.refuse(str(problem))
            if flow.rest_of_line():
                self.refuse(f"unexpected {values.quoted(flow.rest_of_line())}")
            self.number = begun + flow.lines_taken()
            return value

    def next_contents(self, count: int) -> list[str]:
        contents: list[str] = []
        for _ in range(count):
            if not self.done:
                contents.append(self.content().strip())
                self.number += 1
        return contents


def _comment_start(line: str) -> int:
    """Where the comment of a line begins: at a # after white space and outside quotes."""
    for match in _QUOTE_OR_COMMENT.finditer(line):
        if match[0] == "#":
            return match.start()
    return len(line)


def _folded(lines: list[str]) -> str:
    """Lines of a folded text: neighbours are joined by a space; blank lines and deeper lines keep their ends."""
    text = ""
    for index, line in enumerate(lines):
        if index == 0:
            text = line
        elif not line:
            text += "\n"
        elif line.startswith(" ") or lines[index - 1].startswith(" "):
            text += "\n" + line
        else:
            text += line if text.endswith("\n") or not text else " " + line
    return text


def _quoted(text: str) -> str | None:
    """The text between quotes; None when it does not end there or has an unknown escape."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'") if re.fullmatch(r"'(?:[^']|'')*'", text) else None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _plain(text: str) -> Any:
    """What a scalar without quotes means in the core schema."""
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"0o[0-7]+", text):
        return values.number(int(text[2:], 8))
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return values.number(int(text[2:], 16))
    return values.to_number(text) if _NUMBER.fullmatch(text) else text


class _Unfinished(Exception):
    """The text ends inside a bracket."""


class _Flow:
    """Reads `[a, b]` and `{a: 1}`."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text
        self.position = 0
        self.depth = depth

    def rest_of_line(self) -> str:
        return self.text[self.position :].split("\n", 1)[0].strip()

    def lines_taken(self) -> int:
        return self.text.count("\n", 0, self.position)

    def peek(self) -> str:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1
        if self.position >= len(self.text):
            raise _Unfinished
        return self.text[self.position]

    def value(self) -> Any:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Conversion(f"nested more than {DEPTH_MAX} levels deep")
        mark = self.peek()
        if mark == "[":
            found: Any = self.items()
        elif mark == "{":
            found = self.members()
        else:
            found = self.scalar()
        self.depth -= 1
        return found

    def items(self) -> list[Any]:
        self.position += 1
        items: list[Any] = []
        while self.peek() != "]":
            items.append(self.value())
            self.separator("]")
        self.position += 1
        return items

    def members(self) -> dict[str, Any]:
        self.position += 1
        members: dict[str, Any] = {}
        while self.peek() != "}":
            key = self.scalar()
            if self.peek() == ":":
                self.position += 1
                empty = self.peek() in ",}"
                members[values.to_text(key)] = None if empty else self.value()
            else:
                members[values.to_text(key)] = None
            self.separator("}")
        self.position += 1
        return members

    def separator(self, closing: str) -> None:
        if self.peek() == ",":
            self.position += 1
        elif self.peek() != closing:
            raise Conversion(f"expected a comma or {closing} before {values.quoted(self.rest_of_line())}")

    def scalar(self) -> Any:
        mark = self.peek()
        if mark in _REFUSED:
            raise Conversion(f"{_REFUSED[mark]} are not supported")
        pattern = {'"': r'"(?:[^"\\]|\\.)*"', "'": r"'(?:[^']|'')*'"}.get(mark)
        match = (re.compile(pattern) if pattern else _FLOW_PLAIN).match(self.text, self.position)
        if match is None:
            if pattern:
                raise _Unfinished
            raise Conversion(f"unexpected {values.quoted(mark)}")
        self.position = match.end()
        if not pattern:
            return _plain(match[0].strip())
        value = _quoted(match[0]) if "\n" not in match[0] else None
        if value is None:
            raise Conversion("a quoted text must end on its line and have known escapes")
        return value
