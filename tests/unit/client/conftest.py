"""What every test of the node leaves behind: nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lepa.client import secrets_mount


@pytest.fixture(autouse=True)
def no_mounts_left(tmp_path: Path) -> Iterator[None]:
    """Agents leave their tasks' secrets mounted when they go; these tests end without another agent."""
    yield
    secrets_mount.unmount_below(tmp_path)
