"""What documents tell people to type is there: every command parses, with its flags and arguments."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lepa.cli.flags import Group
from lepa.cli.main import root

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
WRITTEN_BY_COMMANDS = ROOT / "docs" / "reference" / "cli.md"
"""It shows forms, `[options] <job>`, and is checked against the commands in another way."""
PROMPT = re.compile(r"^([a-z0-9-]*[$#] )?(sudo |[A-Z_]+=\S+ )*(?=lepa [a-z])")
LEFT_OUT = ("…", "<Tab>")


def typed(text: str) -> Iterator[str]:
    """Command lines in the blocks of a page: fenced or indented, behind a prompt or not."""
    fenced, held = False, ""
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            line = held + line.strip()
            held = line[:-1] if line.endswith("\\") else ""
            if not held and (found := PROMPT.match(line)):
                yield line[found.end() :]


def quoted(text: str) -> Iterator[str]:
    """Commands in a page's sentences; those that only name a group of commands have no more than two words."""
    for command in re.findall(r"`(lepa [a-z][^`]*)`", text):
        if len(command.split()) > 2:
            yield command.replace("\n", " ")


def words_of(command: str) -> list[str]:
    """Its words, without comments and without what follows a pipe or a redirection."""
    parts = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    parts.whitespace_split = True
    words: list[str] = []
    for word in parts:
        if set(word) <= set("|&;<>()"):
            break
        words.append(word)
    return words


def parse(words: list[str], *, whole: bool) -> None:
    """Raises click's errors. whole: arguments have to be there, too."""
    command: click.Command | None = root()
    context, rest = click.Context(root(), info_name="lepa"), words[1:]
    while isinstance(command, Group):
        if not rest or rest[0].startswith("-"):
            if not command.default:
                return  # a help text
            rest = [command.default, *rest]
        name, command, rest = command.resolve_command(context, rest)
        context = click.Context(command or root(), parent=context, info_name=name)
    assert command is not None
    try:
        command.make_context(words[-1], rest, parent=context)
    except click.MissingParameter:
        if whole:
            raise


def refused(commands: Iterator[str], *, whole: bool) -> list[str]:
    found = []
    for command in commands:
        if any(sign in command for sign in LEFT_OUT):
            continue
        try:
            parse(words_of(command), whole=whole)
        except click.exceptions.Exit:
            pass  # a help text
        except click.ClickException as error:
            found.append(f"{command}: {error.format_message()}")
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page != WRITTEN_BY_COMMANDS], ids=lambda page: page.name)
def test_commands_of_documents_can_be_typed(page: Path) -> None:
    text = page.read_text()
    assert refused(typed(text), whole=True) == []
    assert refused(quoted(text), whole=False) == []


def test_commands_that_messages_advise_exist() -> None:
    for module in ROOT.glob("src/lepa/**/*.py"):
        assert refused(quoted(module.read_text()), whole=False) == [], module


def test_a_wrong_command_would_be_noticed() -> None:
    page = "    lepa job statsu web\n```\none$ lepa alloc status -job web\n```\n"
    assert [line.split(":")[0] for line in refused(typed(page), whole=True)] == [
        "lepa job statsu web",
        "lepa alloc status -job web",
    ]
