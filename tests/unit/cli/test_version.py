"""`lepa version`."""

from tests.unit.cli.conftest import Run

from lepa import __version__


def test_the_version_is_a_line(lepa: Run) -> None:
    assert lepa("version").out == f"lepa v{__version__}\n"
