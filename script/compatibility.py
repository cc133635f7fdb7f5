#!/usr/bin/env python3
"""Writes docs/reference/compatibility.md: what Nomad has, whether it works here, and the test that checks it.

What Nomad has stands in tests/conformance/nomad_surface.py; what is here is read from the tables of routes and
commands and from docs/reference/metrics.md. Notes below say how something works differently, or why it does not. A test
of a route is the row of tests/conformance/test_http_api.py that asks it; other tests are found by the words they type.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.conformance import nomad_surface as nomad  # noqa: E402

from lepa.api import enterprise, keyring  # noqa: E402
from lepa.api.app import ROUTES  # noqa: E402
from lepa.api.openapi import operations  # noqa: E402
from lepa.cli.flags import Branch, Flag, Tree  # noqa: E402
from lepa.cli.main import COMMANDS, root  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "compatibility.md"
MARK = "<!-- What follows is written by script/compatibility.py. -->"
API_TESTS = "tests/conformance/test_http_api.py"

WORKS, DIFFERS, NOT = "works", "differs", "not"
LATER = "not built yet"
NOTES: dict[str, tuple[str, str]] = {
    # Routes
    "GET /v1/agent/pprof/profile": (DIFFERS, "folded stacks of the agent's threads, with `enable_debug`"),
    "GET /v1/agent/pprof/goroutine": (DIFFERS, "stacks of threads and names of tasks"),
    "GET /v1/agent/pprof/trace": (DIFFERS, "404: Go's own format"),
    "GET /v1/agent/pprof/heap": (DIFFERS, "404: Go's own format"),
    "GET /v1/agent/monitor/export": (DIFFERS, "the file of `log_file`; no journal, `lepa monitor` follows"),
    "PUT /v1/agent/servers": (DIFFERS, "501: servers of a client are a setting"),
    "PUT /v1/agent/schedulers/config": (DIFFERS, "501: the number of workers is a setting"),
    "GET /v1/operator/upgrade-check/vault-workload-identity": (DIFFERS, "always empty: no Vault tokens are made"),
    "PUT /v1/operator/autopilot/configuration": (WORKS, "redundancy zones and upgrades are kept and shown, as for Community"),
    "GET /v1/operator/license": (WORKS, "204, as the Community edition"),
    "PUT /v1/system/reconcile/summaries": (DIFFERS, "nothing to do: summaries are counted with every change"),
    "GET /v1/client/identity": (NOT, "nodes show a certificate, or the secret they registered with; they have no tokens"),
    "PUT /v1/client/identity/renew": (NOT, "nodes have no tokens that end"),
    "PUT /v1/acl/identity/client-introduction-token": (NOT, "nodes are let in by certificates (`tls { rpc = true }`)"),
    # Commands
    "node identity get": (NOT, "nodes show a certificate, or the secret they registered with; they have no tokens"),
    "node identity renew": (NOT, "nodes have no tokens that end"),
    "node intro create": (NOT, "nodes are let in by certificates (`tls { rpc = true }`)"),
    "operator client-state": (NOT, "the state of a node is SQLite: any SQLite tool reads it"),
    "operator raft info": (NOT, "there is no raft log: state is in SQLite or etcd"),
    "operator raft logs": (NOT, "there is no raft log: state is in SQLite or etcd"),
    "operator raft state": (NOT, "there is no raft log: state is in SQLite or etcd"),
    "operator raft migrate-backend": (NOT, "there is no raft log: state is in SQLite or etcd"),
    "setup consul": (DIFFERS, "says that nothing has to be set up"),
    "setup vault": (DIFFERS, "says that nothing has to be set up"),
    "node config": (DIFFERS, "`-servers`; changing them is a setting"),
    "monitor export": (DIFFERS, "from the file of `log_file`"),
    "license get": (DIFFERS, "says that none is needed"),
    "windows service install": (NOT, "Linux only"),
    "windows service uninstall": (NOT, "Linux only"),
    "operator utilization": (WORKS, "as the Community edition: Enterprise only"),
    "alloc pause": (WORKS, "as the Community edition: Enterprise only"),
    # Blocks
    "job.vault": (DIFFERS, "taken; there is no Vault, secrets are variables"),
    "group.vault": (DIFFERS, "taken; there is no Vault, secrets are variables"),
    "task.vault": (DIFFERS, "taken; there is no Vault, secrets are variables"),
    "group.consul": (DIFFERS, "taken; services of either provider are lepa's own"),
    "task.consul": (DIFFERS, "taken; services of either provider are lepa's own"),
    "service.connect": (DIFFERS, "read and shown; there is no mesh"),
    "service.connect.sidecar_service": (DIFFERS, "read and shown; there is no mesh"),
    "service.connect.sidecar_task": (DIFFERS, "read and shown; there is no mesh"),
    "service.connect.gateway": (DIFFERS, "read and shown; there is no mesh"),
    "task.resources.numa": (WORKS, "`affinity` chooses cores of one NUMA node; `devices` is read"),
    "task.schedule": (DIFFERS, "read; schedules of tasks are Enterprise"),
    # Metrics
    "nomad.nomad.leader.reconcile": (NOT, "there are no raft members to reconcile"),
    "nomad.nomad.leader.reconcileMember": (NOT, "there are no raft members to reconcile"),
    "nomad.raft.state.candidate": (NOT, "leaders are elected in the store"),
    "nomad.nomad.plan.rejection_tracker.node_score": (NOT, "no node is marked ineligible for refused plans"),
    "nomad.nomad.plan.wait_for_index": (NOT, "plans are applied on the newest state"),
    "nomad.nomad.rpc.accept_conn": (NOT, "calls share connections of HTTP"),
    "nomad.runtime.gc_pause_ns": (NOT, "Python's pauses are part of `nomad.runtime.loop_lag`"),
}
OWN = "lepa's own"
BROAD = {"test_canaries.py"}
"""Tests that ask for nearly everything and check one thing about it: named only where there is no other."""
OTHER_TESTS = {
    "alloc signal": "tests/unit/cli/test_alloc.py",
    "job plan": "tests/unit/cli/test_job_submit.py",
    "job validate": "tests/unit/cli/test_job_submit.py",
    "app delete": "tests/unit/cli/test_serving.py",
    "app link": "tests/unit/cli/test_serving.py",
    "app unlink": "tests/unit/cli/test_serving.py",
    "alloc-status": "tests/unit/cli/test_alloc.py",
    "eval-status": "tests/unit/cli/test_evaluation.py",
    "node-status": "tests/unit/cli/test_node.py",
}
"""Tests of commands whose words a test puts together."""


def page() -> str:
    """The whole page as it should be: what people wrote, then the tables."""
    written = PAGE.read_text().split(MARK)[0] if PAGE.exists() else ""
    parts = [
        _table("Routes", "Route", _routes()),
        _table("Commands", "Command", _commands()),
        _table("Blocks of job files", "Block", _blocks()),
        _table("Metrics", "Metric", _metrics()),
    ]
    return f"{written}{MARK}\n\n" + "\n\n".join(parts) + "\n"


Row = tuple[str, str, str, str]


def _table(title: str, first: str, rows: Iterator[Row]) -> str:
    lines = [f"## {title}", "", f"| {first} | | How, or why not | Test |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {state} | {note} | {f'`{test}`' if test else ''} |" for name, state, note, test in rows]
    return "\n".join(lines)


def _row(name: str, there: bool, test: str, missing: str = "") -> Row:
    state, note = NOTES.get(name, (WORKS if there else NOT, "" if there else LATER))
    if there and state == NOT:
        state = DIFFERS
    if there and missing:
        state, note = DIFFERS, "; ".join(filter(None, (note, missing)))
    return name, state, note, test


# Routes


def _routes() -> Iterator[Row]:
    wanted = [tuple(line.split(" ", 1)) for line in nomad.ROUTES.strip().splitlines()]
    here = own_routes()
    said = set()
    for verb, path in wanted:
        exact = [(verb, path)] if (verb, path) in here else []
        found = next((each for each in (*exact, *sorted(here)) if _same(each, (verb, path))), None)
        said |= {found} if found else set()
        yield _row(f"{verb} {path}", found is not None, _test_of_route(verb, path) if found else "")
    for verb, path in sorted(here - said, key=lambda each: (each[1], each[0])):
        yield f"{verb} {path}", OWN, "", _test_of_route(verb, path)


def own_routes() -> set[tuple[str, str]]:
    """Verb and path of every route here; PUT stands for POST too."""
    found = {(each.verb, f"/v1/{each.path}") for each in operations(ROUTES)}
    found |= {(each.verbs, f"/{each.path}") for each in keyring.WELL_KNOWN}
    return {(verb, path) for verb, path in found if not (verb == "POST" and ("PUT", path) in found)}


def _same(here: tuple[str, str], wanted: tuple[str, str]) -> bool:
    twins = {"PUT", "POST"}
    return (here[0] == wanted[0] or {here[0], wanted[0]} <= twins) and _fits(wanted[1], here[1])


def _fits(path: str, route: str) -> bool:
    parts, names = path.split("/"), route.split("/")
    if len(parts) != len(names):
        return False
    pairs = list(zip(parts, names, strict=True))
    if any(part.startswith("{") and not name.startswith("{") for part, name in pairs):
        return False
    return all(name.startswith("{") or part == name for part, name in pairs)


def _test_of_route(verb: str, path: str) -> str:
    if any(_fits(path, f"/v1/{own}") for own in enterprise.PATHS):
        return "tests/unit/api/test_enterprise.py::test_an_enterprise_route_answers_as_the_community_edition"
    if path.endswith(("pprof/trace", "pprof/heap")):
        return "tests/unit/api/test_debug.py::test_other_profiles_are_not_there_and_long_ones_are_refused"
    if path.startswith(("/v1/kv", "/v1/session")):
        return "tests/unit/api/test_kv.py"
    for test, row_verb, row_path in _api_rows():
        twins = {"PUT", "POST"} if verb in {"PUT", "POST"} else {verb}
        if row_verb in twins and _row_fits(f"/v1/{row_path.partition('?')[0]}", path):
            return test
    words = [re.escape(word) for word in re.split(r"\{[^}]*\}", path.removeprefix("/v1/")) if word]
    return _found(re.compile(r"[^\s\"'?]*".join(words) + r"(?![a-z/])"), "tests")


def _row_fits(path: str, route: str) -> bool:
    pattern = re.escape(route).replace(r"\{", "{").replace(r"\}", "}")
    return re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", pattern), path) is not None


@cache
def _api_rows() -> list[tuple[str, str, str]]:
    from tests.conformance import test_http_api as api

    found = []
    for function, rows in (
        ("test_read_has_nomads_keys_and_headers", api.READS),
        ("test_write_answers_with_nomads_keys", api.WRITES),
        ("test_error_has_nomads_text", api.ERRORS),
    ):
        found += [(f"{API_TESTS}::{function}[{row.id}]", row.verb, row.path) for row in rows]
    return found


# Commands


def _commands() -> Iterator[Row]:
    here = own_commands()
    wanted = nomad_commands()
    for name, flags in wanted.items():
        missing = sorted(set(flags) - here.get(name, set()))
        note = f"without {', '.join(f'`-{flag}`' for flag in missing)}" if name in here and missing else ""
        yield _row(name, name in here, _test_of_command(name) if name in here else "", note)
    for name in sorted(here.keys() - wanted.keys()):
        yield name, OWN, "", _test_of_command(name)


def nomad_commands() -> dict[str, list[str]]:
    """Nomad's commands and their flags."""
    text = re.sub(r"\n  +", " ", nomad.COMMANDS.strip())
    return {name: flags.split() for name, _, flags in (line.partition(":") for line in text.splitlines())}


def own_commands() -> dict[str, set[str]]:
    """Commands here, hidden ones too, and their flags. A group with a default command is a command too."""
    return dict(_walk(COMMANDS, root(), ()))


def _walk(tree: Tree, group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
    for name, row in tree.items():
        found = group.get_command(click.Context(group), name)
        if isinstance(row, Branch):
            assert isinstance(found, click.Group)
            inner = dict(_walk(row.commands, found, (*path, name)))
            yield from inner.items()
            if row.default:
                yield " ".join((*path, name)), inner[" ".join((*path, name, row.default))]
        else:
            assert found is not None
            flags = {opt.lstrip("-") for each in found.params if isinstance(each, Flag) for opt in each.opts}
            yield " ".join((*path, name)), flags


def _test_of_command(name: str) -> str:
    words = name.split()
    quoted = r",?\s*".join(f'"{re.escape(word)}"' for word in words)
    if name in OTHER_TESTS:
        return OTHER_TESTS[name]
    test = _found(re.compile(quoted), "tests/unit/cli") or _found(re.compile(quoted), "tests")
    return test or _found(re.compile(rf"lepa {re.escape(name)}\b"), "tests")


# Blocks


def _blocks() -> Iterator[Row]:
    for name in nomad.BLOCKS.split():
        yield _row(name, True, f"tests/conformance/test_compatibility.py::test_block_is_read[{name}]")


# Metrics


def _metrics() -> Iterator[Row]:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    told = set(re.findall(r"`([^`]+)`", text))
    scraped = "tests/e2e/test_prometheus.py::test_prometheus_scrapes_every_second_and_finds_what_dashboards_ask"
    documented = "tests/e2e/test_prometheus.py::test_every_figure_is_documented"
    asked = (ROOT / "tests" / "e2e" / "test_prometheus.py").read_text()
    for name in nomad.METRICS.split():
        there = name not in NOTES and any(name == word or name.endswith(f".{word}") for word in told)
        exposed = name.replace(".", "_")
        test = scraped if f'{exposed}"' in asked or f"{exposed}{{" in asked else documented
        yield _row(name, there, test if there else "")


# Tests


@cache
def _tests() -> list[tuple[str, str, str]]:
    """File, test and text of every test function."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: (path.name in BROAD, path)):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                lines = source.splitlines()[first - 1 : node.end_lineno]
                found.append((str(path.relative_to(ROOT)), node.name, "\n".join(lines)))
    return found


def _found(pattern: "re.Pattern[str]", under: str) -> str:
    """The first test below a folder whose text holds a pattern."""
    for file, name, text in _tests():
        if file.startswith(under) and pattern.search(text):
            return f"{file}::{name}"
    return ""


if __name__ == "__main__":
    PAGE.write_text(page())
