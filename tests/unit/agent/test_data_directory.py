"""The data directory: one agent at a time, and nothing of anybody else's."""

import os
from pathlib import Path

import pytest

from lepa.agent.data_directory import owned_directory
from lepa.model.errors import LepaError


def test_a_data_directory_belongs_to_one_agent(tmp_path: Path) -> None:
    with owned_directory(tmp_path / "data"):
        with pytest.raises(LepaError, match=rf"another agent \(pid {os.getpid()}\) uses data_dir"):
            with owned_directory(tmp_path / "data", wait_s=0.0):
                pass
    with owned_directory(tmp_path / "data"):
        pass


def test_a_directory_with_other_peoples_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(LepaError, match=r"holds holiday.jpg, which no agent of lepa put there"):
        with owned_directory(tmp_path):
            pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["holiday.jpg"]


def test_another_orchestrators_directory_is_refused_though_its_names_are_the_same(tmp_path: Path) -> None:
    for name in ("server", "client", "alloc"):
        (tmp_path / name).mkdir()
    with pytest.raises(LepaError, match=r"holds alloc, client, server, which no agent of lepa put there"):
        with owned_directory(tmp_path):
            pass
    assert not (tmp_path / "agent.lock").exists()


def test_a_new_file_system_is_empty_enough(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    with owned_directory(tmp_path):
        assert (tmp_path / "agent.lock").exists()


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LepaError, match=r"cannot use data_dir .*: Not a directory"):
        with owned_directory(tmp_path / "file" / "data"):
            pass
