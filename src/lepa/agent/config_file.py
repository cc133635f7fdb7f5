"""Configuration files, HCL or JSON -> nested dicts, merged in the order given.

Blocks become dicts under their type; labels become keys below it (`plugin "docker" { config { … } }` ->
{"plugin": {"docker": {"config": {…}}}}). Merging: maps are joined, lists appended, everything else is overridden.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from lepa.jobspec import hcl
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import Budget, Scope, evaluate
from lepa.jobspec.syntax import Body
from lepa.model.errors import invalid

FILE_MAX = 1024 * 1024
SUFFIXES = (".hcl", ".json")


def load(paths: Iterable[Path]) -> dict[str, Any]:
    """Everything that files, and directories' files in order of their names, say together. Raises LepaError."""
    merged: dict[str, Any] = {}
    for path in paths:
        for file in _files(path):
            merged = merge(merged, parse(_read(file), str(file)))
    return merged


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    return [path]


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_MAX:
            raise invalid(f"{path}: larger than {FILE_MAX} bytes; this is not an agent's configuration")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise invalid(f"cannot read configuration {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise invalid(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error


def parse(text: str, name: str, repeated: Collection[str] = ()) -> dict[str, Any]:
    """One file's text as nested dicts. Raises LepaError(invalid) with file, line and column of every mistake.

    repeated: types of blocks that become a list of dicts, one for each.
    """
    if text.lstrip().startswith("{"):
        return _json(text, name)
    report = Reporter(Source(name, text))
    body = hcl.parse_body(report)
    found = {} if report.failed else _tree(body, Scope(text, {}, {}, Budget(), closed=True), report, repeated)
    if report.failed:
        raise invalid("\n".join(each.render() for each in report.found))
    return found


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise invalid(f"{name}:{error.lineno},{error.colno}: invalid JSON: {error.msg}") from error
    except RecursionError as error:
        raise invalid(f"{name}: nested too deeply") from error
    if not isinstance(found, dict):
        raise invalid(f"{name}: expected a JSON object")
    return found


def _tree(body: Body, scope: Scope, report: Reporter, repeated: Collection[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in body.attributes.values():
        try:
            found[attribute.name] = evaluate(attribute.expression, scope)
        except Refusal as refusal:
            report.refuse(refusal)
    for block in body.blocks:
        value = _tree(block.body, scope, report, repeated)
        if block.type in repeated:
            found[block.type] = [*found.get(block.type, []), value]
            continue
        for label in reversed(block.labels):
            value = {label.text: value}
        found = merge(found, {block.type: value})
    return found


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`."""
    merged = dict(under)
    for key, value in over.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = merge(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            merged[key] = before + [item for item in value if item not in before]
        else:
            merged[key] = value
    return merged
