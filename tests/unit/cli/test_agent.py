"""Flags of an agent as settings."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run

from lepa.agent.config import Config
from lepa.cli.agent import overrides

Started = list[tuple[Config, tuple[str, ...], bool]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What agents were started with; none runs."""
    seen: Started = []

    def run(config: Config, warnings: tuple[str, ...] = (), *, dev: bool = False) -> int:
        assert Path(config.data_dir).is_dir() or not dev
        seen.append((config, warnings, dev))
        return 7

    monkeypatch.setattr("lepa.agent.run.run", run)
    return seen


def test_flags_have_their_place_in_the_configuration() -> None:
    given: dict[str, Any] = {
        "node": "box",
        "client": True,
        "servers": "a,b",
        "meta": ("k=v",),
        "bind": None,
        "join": (),
    }
    assert overrides(given) == {
        "name": "box",
        "client": {"enabled": True, "servers": ["a", "b"], "meta": {"k": "v"}},
    }


def test_development_needs_nothing_else(lepa: Run, started: Started) -> None:
    assert lepa("agent", "-dev").code == 7
    [(config, warnings, dev)] = started
    assert (config.bind_addr, config.server.enabled, config.client.enabled, dev) == ("127.0.0.1", True, True, True)
    assert warnings == ()
    assert not Path(config.data_dir).exists()


def test_files_win_over_development_and_flags_over_files(lepa: Run, started: Started, tmp_path: Path) -> None:
    file = tmp_path / "agent.hcl"
    file.write_text('name = "from-file"\nbind_addr = "0.0.0.0"\nports {\n  http = 5000\n}\n')
    lepa("agent", "-dev", "-config", str(file), "-node", "from-flag", "-data-dir", str(tmp_path))
    config = started[0][0]
    assert (config.name, config.bind_addr, config.ports.http) == ("from-flag", "0.0.0.0", 5000)
    assert config.data_dir == str(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "neither server nor client is enabled"),
        (("-dev", "-config", "/no/such.hcl"), "cannot read configuration /no/such.hcl"),
        (("-dev", "-meta", "x"), "-meta wants key=value"),
        (("-server", "-data-dir", "relative"), "must be an absolute path"),
        (("-dev", "-bootstrap-expect=x"), "not a valid int"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    lepa: Run, started: Started, words: tuple[str, ...], message: str
) -> None:
    done = lepa("agent", *words)
    assert (done.code, started) == (1, [])
    assert message in done.error
