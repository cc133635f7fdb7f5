#!/usr/bin/env python3
"""Writes the commands into docs/reference/cli.md, from the command line's own table and help texts."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from lepa.cli.flags import Branch, Command, Flag, Tree
from lepa.cli.main import COMMANDS, root

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
MARK = "<!-- What follows is written by script/cli_reference.py. -->"


def page() -> str:
    """The whole page as it should be: what people wrote, then every command."""
    written = PAGE.read_text().split(MARK)[0]
    commands = [_section(path, command) for path, command in _commands(COMMANDS, root(), ())]
    return f"{written}{MARK}\n\n" + "\n".join(commands)


def _commands(tree: Tree, group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name in sorted(tree):
        row = tree[name]
        found = group.get_command(click.Context(group), name)
        if isinstance(row, Branch):
            assert isinstance(found, click.Group)
            yield from _commands(row.commands, found, (*path, name))
        elif not row.hidden:
            assert isinstance(found, Command)
            yield (*path, name), found


def _section(path: tuple[str, ...], command: Command) -> str:
    words = [each.metavar for each in command.params if isinstance(each, click.Argument) and each.metavar]
    usage = " ".join(["lepa", *path, "[options]", *words])
    lines = [f"### lepa {' '.join(path)}", "", f"    {usage}", "", inspect.cleandoc(command.help or ""), ""]
    flags = [_flag(each) for each in command.params if isinstance(each, Flag) and not each.general and not each.hidden]
    return "\n".join([*lines, *([*flags, ""] if flags else [])])


def _flag(flag: Flag) -> str:
    record = flag.get_help_record(click.Context(click.Command("lepa")))
    assert record is not None
    spelled, meaning = record
    return f"- `{spelled}` {meaning}"


if __name__ == "__main__":
    PAGE.write_text(page())
