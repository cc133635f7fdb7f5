"""Fixtures for tests of commands: a fake agent, a clock that stands still, and layouts kept in files."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.cli.fake_agent import FakeAgent

from lepa.cli import session as sessions
from lepa.cli.main import main
from lepa.cli.session import Session
from lepa.cli.terminal import Terminal
from lepa.sdk.connection import Connection

GOLDEN = Path(__file__).parent / "golden"
NOW_NS = 1_780_000_000 * 1_000_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-layouts", action="store_true", help="write the expected layouts anew")


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAgent]:
    """An agent that commands find, and time that stands still."""
    for name in [name for name in os.environ if name.startswith(("NOMAD_", "LEPA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def still(nomad: Connection, out: Terminal) -> Session:
        return Session(nomad, out, now_ns=lambda: NOW_NS, sleep=lambda seconds: None)

    monkeypatch.setattr(sessions, "open_session", still)
    with FakeAgent() as fake:
        monkeypatch.setenv("LEPA_ADDR", fake.address)
        yield fake
    monkeypatch.undo()
    time.tzset()


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    out: str
    error: str


Run = Callable[..., Done]


@pytest.fixture
def lepa(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def run(*words: str) -> Done:
        capfd.readouterr()
        code = main(words)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Hold a text against a file of tests/unit/cli/golden; `--rewrite-layouts` writes the files."""
    rewrite = request.config.getoption("--rewrite-layouts", default=False)

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if rewrite:
            path.write_text(text)
        assert path.read_text() == text

    return check
