"""Pure: JSON text -> plain values, with diagnostics that have a place."""

from __future__ import annotations

import json
from typing import Any

from lepa.jobspec import values
from lepa.jobspec.diagnostics import Reporter
from lepa.jobspec.values import Conversion

NODES_MAX = 2_000_000
"""Elements of everything in a JSON text; a group of a job has about a hundred."""


def read_object(report: Reporter, what: str) -> dict[str, Any] | None:
    """The object that the source holds; None, after a report, when it is none. what: said of it in messages."""
    try:
        found = json.loads(report.source.text.removeprefix("\ufeff"), parse_constant=_no_constant)
        values.measure(found, NODES_MAX)
    except json.JSONDecodeError as problem:
        report.error(problem.pos, problem.pos + 1, "Invalid JSON", f"{problem.msg}.")
        return None
    except RecursionError:
        report.error(0, 1, "Invalid JSON", "The values are nested too deeply.")
        return None
    except (Conversion, ValueError) as problem:
        report.error(0, 1, "Invalid JSON", f"It cannot be used: {problem}.")
        return None
    if not isinstance(found, dict):
        report.error(0, 1, "Invalid JSON", f"{what} must be an object, not a {values.kind_of(found)}.")
        return None
    return found


def _no_constant(name: str) -> Any:
    raise Conversion(f"{name} is not a number in JSON")
