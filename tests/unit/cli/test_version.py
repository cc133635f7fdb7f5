"""`lepa version`."""

import json

from tests.unit.cli.conftest import Run

from lepa import __version__
from lepa.agent.self_view import COMPATIBLE_VERSION


def test_the_version_is_a_line(lepa: Run) -> None:
    assert lepa("version").out == f"lepa v{__version__}\n"


def test_the_version_as_json_tells_what_the_agent_tells(lepa: Run) -> None:
    facts = json.loads(lepa("version", "-json").out)
    assert (facts["Version"], facts["NomadAPI"]) == (__version__, COMPATIBLE_VERSION)
