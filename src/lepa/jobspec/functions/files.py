"""Pure: functions about paths and files. Files are read by the caller's function, or not at all.

A server that parses job files for others hands in no function, so that nobody can read the server's files.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable

from lepa.jobspec import values
from lepa.jobspec.functions.calling import Row, row, text
from lepa.jobspec.values import Conversion

ReadFile = Callable[[str], str]

DISABLED = "filesystem function disabled"


def read(read_file: ReadFile | None, path: str) -> str:
    """The text of a file; raises Conversion, naming it."""
    if read_file is None:
        raise Conversion(f"{DISABLED}: {values.quoted(path)} cannot be read here")
    try:
        return read_file(path)
    except UnicodeDecodeError:
        raise Conversion(f"contents of {values.quoted(path)} are not valid UTF-8") from None
    except (OSError, ValueError) as problem:
        raise Conversion(f"cannot read {values.quoted(path)}: {_reason(problem)}") from None


def _reason(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


def exists(read_file: ReadFile | None, path: str) -> bool:
    """Can the file be read?"""
    if read_file is None:
        raise Conversion(f"{DISABLED}: {values.quoted(path)} cannot be looked for here")
    try:
        read_file(path)
    except UnicodeDecodeError:
        return True
    except (OSError, ValueError):
        return False
    return True


def expand(path: str, home: str) -> str:
    """A path with `~` at its front replaced by the home directory."""
    return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path


def absolute(path: str) -> str:
    """A path without `.` and `..`; only one that is absolute already can be told without looking at the disk."""
    if not path.startswith("/"):
        raise Conversion(f"{values.quoted(path)} is relative, and to what is not known here")
    return posixpath.normpath(path)


def file_rows(read_file: ReadFile | None, home: str) -> tuple[Row, ...]:
    """The rows for a reader of files."""

    def encoded(path: str) -> str:
        return base64.b64encode(read(read_file, path).encode()).decode()

    return (
        row("abspath", absolute, text),
        row("basename", posixpath.basename, text),
        row("dirname", lambda path: posixpath.dirname(path) or ".", text),
        row("file", lambda path: read(read_file, expand(path, home)), text),
        row("filebase64", encoded, text),
        row("fileexists", lambda path: exists(read_file, expand(path, home)), text),
        row("pathexpand", lambda path: expand(path, home), text),
    )
