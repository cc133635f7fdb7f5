"""Completion in shells."""

import os
import subprocess
import sys

import pytest
from tests.unit.cli.conftest import Run

SCRIPT = "import sys; sys.argv[0] = 'lepa'; from lepa.cli.main import main; sys.exit(main())"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(lepa: Run, shell: str) -> None:
    done = lepa("completion", shell)
    assert done.code == 0
    assert "_LEPA_COMPLETE" in done.out
    assert lepa("completion", "tcsh").error.startswith('Error: no completion for "tcsh"')


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("lepa jo", ["job"]),
        ("lepa job sto", ["stop"]),
        ("lepa job run -det", ["-detach"]),
        ("lepa node st", ["status"]),
    ],
)
def test_bash_is_offered_commands_and_flags(line: str, offered: list[str]) -> None:
    env = {
        **os.environ,
        "_LEPA_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=30)
    assert [each.partition(",")[2] for each in done.stdout.split()] == offered, done.stderr
