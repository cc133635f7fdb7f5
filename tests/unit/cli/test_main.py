"""What happens around each command."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.unit.cli.conftest import Run

from lepa.cli import main as main_module
from lepa.cli.flags import Branch, Command, Tree
from lepa.cli.main import COMMANDS, root

HEAVY = ("asyncio", "aiohttp", "rich", "msgspec", "numpy", "lepa.jobspec", "lepa.serving", "http.client", "ssl")


def rows(tree: Tree, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all commands."""
    found: list[tuple[str, ...]] = []
    for name, row in tree.items():
        found += rows(row.commands, (*path, name)) if isinstance(row, Branch) else [(*path, name)]
    return found


@pytest.mark.parametrize("path", rows(COMMANDS), ids=" ".join)
def test_every_command_of_the_table_is_there_and_explains_itself(path: tuple[str, ...]) -> None:
    command: click.Command | None = root()
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert isinstance(command, Command)
    assert command.help
    assert all(each.help for each in command.params if isinstance(each, click.Option))


def test_nothing_heavy_is_loaded_for_help_and_version() -> None:
    for words in (["version"], ["--help"], ["job", "--help"]):
        script = (
            f"import sys; from lepa.cli.main import main; main({words!r}); "
            f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
        assert done.stderr == "[]\n"


def test_a_bug_is_a_sentence_unless_asked_for_more(lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> object:
        raise KeyError("x")

    monkeypatch.setattr(main_module, "root", broken)
    done = lepa("version")
    assert done.code == 1
    assert done.error.startswith("Error: internal error (KeyError: 'x'); this is a bug")
    monkeypatch.setenv("LEPA_DEBUG", "1")
    with pytest.raises(KeyError):
        lepa("version")


def test_ctrl_c_is_quiet(lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lepa.cli.job_submit.read_job", interrupted)
    done = lepa("run", "x")
    assert (done.code, done.out, done.error.strip()) == (130, "", "")


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    script = "import sys; from lepa.cli.main import main; sys.exit(main(['agent', '--help']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, timeout=30)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
