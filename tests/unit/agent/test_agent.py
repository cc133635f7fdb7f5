"""The agent's own decisions: its directory, its addresses, what it says. Whole agents run in tests/e2e."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lepa.agent import agent, config
from lepa.agent.agent import Agent, banner, owned_directory
from lepa.model.errors import LepaError


def make_config(**more: object) -> config.Config:
    return config.build(
        {"name": "n", "data_dir": "/data", "server": {"enabled": True}, "bind_addr": "127.0.0.1"} | more
    ).config


def test_a_data_directory_belongs_to_one_agent(tmp_path: Path) -> None:
    with owned_directory(tmp_path / "data"):
        with pytest.raises(LepaError, match=rf"another agent \(pid {os.getpid()}\) uses data_dir"):
            with owned_directory(tmp_path / "data"):
                pass
    with owned_directory(tmp_path / "data"):
        pass


def test_a_directory_with_other_peoples_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(LepaError, match=r"holds holiday.jpg, which no agent of lepa put there"):
        with owned_directory(tmp_path):
            pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LepaError, match=r"cannot use data_dir .*: Not a directory"):
        with owned_directory(tmp_path / "file" / "data"):
            pass


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "127.0.0.1:4646"),
        ({"advertise": {"http": "10.0.0.5"}}, "10.0.0.5:4646"),
        ({"advertise": {"http": "10.0.0.5:80"}}, "10.0.0.5:80"),
        ({"bind_addr": "::1"}, "[::1]:4646"),
    ],
)
def test_the_advertised_address(more: dict[str, object], expected: str) -> None:
    found = make_config(**more)
    assert agent._advertised(found, found.bind_addr) == expected


def test_the_banner_says_where_it_listens() -> None:
    text = "\n".join(banner(make_config(ports={"http": 5646})))
    assert "http://127.0.0.1:5646" in text
    assert "Server: true" in text
    assert "Client: false" in text


def test_what_it_shows_of_itself_has_nomads_keys_and_no_secrets() -> None:
    shown = Agent(make_config(vault={"token": "s.hidden"})).describe()
    assert shown["Version"]["Version"] == agent.COMPATIBLE_VERSION
    assert (shown["Region"], shown["Datacenter"], shown["BindAddr"]) == ("global", "dc1", "127.0.0.1")
    assert "s.hidden" not in str(shown)


def test_a_failure_to_start_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    script = (
        "import sys; from lepa.agent import config; from lepa.agent.agent import run;"
        f"sys.exit(run(config.build({{'data_dir': {str(tmp_path)!r}, 'server': {{'enabled': True}}}}).config))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("Error starting agent: data_dir")
    assert "Traceback" not in done.stderr
