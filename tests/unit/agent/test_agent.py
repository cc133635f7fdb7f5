"""The agent's own decisions: its addresses, what it says. Whole agents run in tests/e2e."""

import subprocess
import sys
from pathlib import Path

import pytest

from lepa.agent.addresses import advertised_http, near
from lepa.agent.agent import Agent
from lepa.agent.config import Config
from lepa.agent.config_loader import build
from lepa.agent.run import banner
from lepa.agent.self_view import COMPATIBLE_VERSION


def make_config(**more: object) -> Config:
    return build(
        {"name": "n", "data_dir": "/data", "server": {"enabled": True}, "bind_addr": "127.0.0.1"} | more
    ).config


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
    assert advertised_http(found, found.bind_addr) == expected


def test_this_machine_reaches_an_agent_that_listens_anywhere_over_loopback() -> None:
    assert (near("0.0.0.0"), near("::"), near("10.0.0.1")) == ("127.0.0.1", "127.0.0.1", "10.0.0.1")


def test_the_banner_says_where_it_listens() -> None:
    text = "\n".join(banner(make_config(ports={"http": 5646})))
    assert "http://127.0.0.1:5646" in text
    assert "Server: true" in text
    assert "Client: false" in text


def test_what_it_shows_of_itself_has_nomads_keys_and_no_secrets() -> None:
    shown = Agent(make_config(vault={"token": "s.hidden"}), lambda error: None).view.describe()
    assert shown["Version"]["Version"] == COMPATIBLE_VERSION
    assert (shown["Region"], shown["Datacenter"], shown["BindAddr"]) == ("global", "dc1", "127.0.0.1")
    assert "s.hidden" not in str(shown)


def test_a_failure_to_start_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    script = (
        "import sys; from lepa.agent.config_loader import build; from lepa.agent.run import run;"
        f"sys.exit(run(build({{'data_dir': {str(tmp_path)!r}, 'server': {{'enabled': True}}}}).config))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("Error starting agent: data_dir")
    assert "Traceback" not in done.stderr
