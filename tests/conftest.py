"""For every test session: nothing may be left behind."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes import command_of

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Programs that tests start keep their byte code: compiling lepa anew costs each agent two seconds of a processor."""


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """After the last test no mount and no process has to do with this session's temporary directory."""
    yield
    mine = str(tmp_path_factory.getbasetemp())
    left = [f"mount {place}" for place in mounts() if place.startswith(mine)]
    left += [f"process {pid}: {command}" for pid, command in processes() if mine in command]
    assert left == []


def mounts() -> list[str]:
    """Where something is mounted."""
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def processes() -> Iterator[tuple[str, str]]:
    """Pids and command lines of everything that runs; ended ones that nobody has waited for are left out."""
    for directory in Path("/proc").glob("[0-9]*"):
        if command := command_of(int(directory.name)):
            yield directory.name, command
