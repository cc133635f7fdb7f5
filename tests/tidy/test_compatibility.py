"""The table of compatibility names every route, call and command, and tests that exist."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

from lepa.api.app import ROUTES
from lepa.api.openapi import operations

ROOT = Path(__file__).parents[2]
HINT = "run .venv/bin/python script/compatibility.py"


@cache
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatibility", ROOT / "script" / "compatibility.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows() -> list[tuple[str, str, str]]:
    """Name, state and test of every row."""
    text = writer().PAGE.read_text()
    return re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]*\| (?:`([^`]+)`)? ?\|$", text, re.MULTILINE)


def test_every_route_is_in_the_table() -> None:
    named = {name for name, state, _ in rows() if state != "not"}
    paths = {name.partition(" ")[2] for name in named}
    shapes = {re.sub(r"\{[^}]*\}", "{}", path) for path in paths}
    missing = sorted(
        {f"/v1/{each.path}" for each in operations(ROUTES)}
        - {path for path in (f"/v1/{each.path}" for each in operations(ROUTES)) if fits(path, shapes)}
    )
    assert missing == [], HINT


def fits(path: str, shapes: set[str]) -> bool:
    shape = re.sub(r"\{[^}]*\}", "{}", path)
    pattern = re.compile(re.escape(shape).replace(re.escape("{}"), r"[^/]+"))
    return shape in shapes or any(pattern.fullmatch(other) for other in shapes)


def test_every_call_with_a_path_is_in_the_table() -> None:
    paths = {f"/v1/{each.path}": each.takes.method.name for each in operations(ROUTES) if each.takes.method is not None}
    assert len(set(paths.values())) > 50
    shapes = {re.sub(r"\{[^}]*\}", "{}", name.partition(" ")[2]) for name, state, _ in rows() if state != "not"}
    assert [name for path, name in paths.items() if not fits(path, shapes)] == [], HINT


def test_every_command_is_in_the_table() -> None:
    named = {name for name, state, _ in rows() if state != "not"}
    assert sorted(set(writer().own_commands()) - named) == [], HINT


def test_what_is_said_not_to_be_there_is_not_there() -> None:
    absent = {name for name, state, _ in rows() if state == "not"}
    assert sorted(absent & set(writer().own_commands())) == [], HINT
    here = {f"{verb} {path}" for verb, path in writer().own_routes()}
    assert sorted(absent & here) == [], HINT


def test_tests_that_are_named_exist_and_what_works_has_one() -> None:
    known = {(file, name) for file, name, _ in writer()._tests()}
    wrong, untested = [], []
    for row, state, test in rows():
        file, _, name = test.partition("::")
        if (test and not (ROOT / file).exists()) or (name and (file, name.partition("[")[0]) not in known):
            wrong.append(test)
        if state in ("works", "differs") and not test:
            untested.append(row)
    assert wrong == [], HINT
    assert untested == [], "add a test, or its place in script/compatibility.py"


def test_nothing_of_nomad_is_left_out() -> None:
    named = {name for name, _, _ in rows()}
    nomad = writer().nomad
    wanted = {*nomad.ROUTES.strip().splitlines(), *writer().nomad_commands(), *nomad.BLOCKS.split()}
    assert sorted((wanted | set(nomad.METRICS.split())) - named) == [], HINT
