#!/usr/bin/env python3
"""Writes the table of rights into docs/reference/http-api.md, from the servers' own table."""

from pathlib import Path

from lepa.api.doors import DOORS as ROUTES
from lepa.server.acl.table import DOORS, NEEDS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http-api.md"
MARK = "<!-- What follows is written by script/rights_reference.py. -->"


def page() -> str:
    """The whole page as it should be: what people wrote, then every call and door."""
    calls = sorted((name, need) for name, need in NEEDS.items() if name not in DOORS)
    rows = [f"| `{name}` | {need.said} |" for name, need in calls]
    routes: dict[str, list[str]] = {}
    for route, door in ROUTES.items():
        verb, _, path = route.partition(" ")
        routes.setdefault(door, []).append(f"`{verb} /v1/{path}`")
    doors = [f"| {', '.join(paths)} | {DOORS[door].said if door else 'nothing'} |" for door, paths in routes.items()]
    table = ["| call | needs |", "| --- | --- |", *rows, "", "| answered by the agent | needs |", "| --- | --- |"]
    return PAGE.read_text().split(MARK)[0] + "\n".join([MARK, "", *table, *doors, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
