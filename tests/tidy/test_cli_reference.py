"""The reference of the command line names every command and flag."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "script" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_commands_say_of_themselves() -> None:
    made = writer()
    assert made.PAGE.read_text() == made.page(), "run .venv/bin/python script/cli_reference.py"
