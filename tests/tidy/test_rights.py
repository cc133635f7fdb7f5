"""Whatever can be called has a row in the table of rights, and the reference says the same as the table."""

import importlib.util
from pathlib import Path

from lepa.api import app
from lepa.api.doors import DOORS as ROUTES
from lepa.api.edge import Route
from lepa.rpc.methods import METHODS
from lepa.server.acl.table import DOORS, NEEDS

ROOT = Path(__file__).parents[2]


def test_every_call_has_a_row() -> None:
    """Without one a call is for management tokens only. Add it to src/lepa/server/acl/table.py."""
    assert sorted(set(METHODS) - set(NEEDS)) == []
    assert sorted(set(NEEDS) - set(METHODS) - set(DOORS)) == []


def test_every_route_that_asks_no_server_has_a_door() -> None:
    """A handler that never mentions the servers' methods answers by itself: src/lepa/api/doors.py says who may ask."""
    missing = [name for route in app.ROUTES for name in _names(route) if _answers_alone(route) and name not in ROUTES]
    assert missing == []


def _names(route: Route) -> list[str]:
    return sorted({f"{'PUT' if verb == 'POST' else verb} {route.path}" for verb in route.verbs.split()})


def _answers_alone(route: Route) -> bool:
    if route.path.startswith(("client/allocation/{id}/exec", "agent/host")):
        return False  # their doors are in their handlers
    module = route.handle.__module__
    return module in {"lepa.api.agent", "lepa.api.debug", "lepa.api.files"}


def test_the_reference_holds_the_table() -> None:
    spec = importlib.util.spec_from_file_location("rights_reference", ROOT / "script" / "rights_reference.py")
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert writer.PAGE.read_text() == writer.page(), "run .venv/bin/python script/rights_reference.py"
