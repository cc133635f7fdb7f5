"""lepa.serving.connection: what it refuses before it asks anybody; the rest is in the integration tests."""

from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager


def test_nothing_is_asked_before_connecting(tmp_path: Path) -> None:
    connection = ClipperConnection(LocalContainerManager("none", tmp_path))
    for ask in (connection.get_all_apps, connection.get_query_addr, connection.inspect_instance):
        with pytest.raises(LepaError, match=r"call connect\(\) or start_clipper\(\) first"):
            ask()


@pytest.mark.parametrize("name", ["", "Model", "a_b", "-a", "a-", "a:b"])
def test_names_that_cannot_be_part_of_a_job_or_host_name_are_refused(tmp_path: Path, name: str) -> None:
    connection = ClipperConnection(LocalContainerManager("none", tmp_path))
    connection._connected = True
    with pytest.raises(LepaError, match="Invalid value"):
        connection.build_model(name, 1, tmp_path)


def test_stopping_works_unconnected(tmp_path: Path) -> None:
    ClipperConnection(LocalContainerManager("none", tmp_path)).stop_all()
