"""Commands and flags as Nomad's users type them.

A flag has one dash or two, its value follows after `=` or as the next word, and a boolean flag may be followed by
`=false`. Flags may stand anywhere, except where the rest of the line belongs to another program (`alloc exec`). click
reads everything after it was brought into one form: `--flag=value` first, then `--`, then the other words.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from gettext import gettext
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import click

from lepa.model.errors import LepaError

F = TypeVar("F", bound=Callable[..., Any])

HELP = frozenset({"h", "help"})
_NUMBER = re.compile(r"-\d+")
_TRUE = {"true", "1", "t", "yes"}
_FALSE = {"false", "0", "f", "no"}


class Flag(click.Option):
    """A flag, spelled with one dash in help texts. general: one of those that every command of the API has."""

    def __init__(self, *args: Any, general: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.general = general

    @property
    def boolean(self) -> bool:
        """May it stand without a value?"""
        return self.type is click.BOOL

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """What `-help` says about it."""
        if self.hidden:
            return None
        spelled = " or ".join(name for name in self.opts if not name.startswith("--"))
        default = self.default
        if self.boolean:
            spelled += "=false" if default else ""
        else:
            spelled += f"=<{self.metavar or 'value'}>"
        shown = not self.boolean and isinstance(default, str | int) and default != ""
        return spelled, f"{self.help or ''} Default: {default}." if shown else self.help or ""


def flag(
    name: str, help: str, *, default: bool | None = False, short: str = "", hidden: bool = False, general: bool = False
) -> Callable[[F], F]:
    """A boolean flag; default None tells that it was not given."""
    return _declare(name, short, type=click.BOOL, default=default, help=help, hidden=hidden, general=general)


def option(
    name: str,
    help: str,
    *,
    kind: Any = str,
    default: Any = None,
    short: str = "",
    metavar: str = "",
    general: bool = False,
    hidden: bool = False,
) -> Callable[[F], F]:
    """A flag with a value."""
    return _declare(
        name, short, type=kind, default=default, help=help, metavar=metavar or None, general=general, hidden=hidden
    )


def repeated(name: str, help: str, *, metavar: str = "") -> Callable[[F], F]:
    """A flag that may be given several times."""
    return _declare(name, "", type=str, multiple=True, help=help, metavar=metavar or None)


def _declare(name: str, short: str, **attributes: Any) -> Callable[[F], F]:
    spellings = [f"-{name}", f"--{name}"] + ([f"-{short}", f"--{short}"] if short else [])
    variable = name.replace("-", "_")
    return click.option(variable, *spellings, cls=Flag, **attributes)


def argument(name: str, *, required: bool = True, many: bool = False, shown: str = "") -> Callable[[F], F]:
    """A word that is no flag. shown: how help texts call it."""
    metavar = shown or (f"<{name}>" if required else f"[{name}]")
    return click.argument(name, required=required, nargs=-1 if many else 1, metavar=metavar)


class Command(click.Command):
    """A command with Nomad's flags.

    error_code: the exit code of a failure. words_after: the first word that is no flag ends the flags.
    """

    def __init__(self, *args: Any, error_code: int = 1, words_after: bool = False, **attributes: Any) -> None:
        attributes.setdefault("options_metavar", "[options]")
        super().__init__(*args, **attributes)
        self.error_code = error_code
        self.words_after = words_after

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        try:
            words = canonical(args, self.params, words_after=self.words_after)
        except click.UsageError as error:
            error.ctx = ctx
            raise
        return super().parse_args(ctx, words)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; an error is a sentence and an exit code."""
        try:
            return super().invoke(ctx)
        except LepaError as error:
            click.echo(error.message if "\n" in error.message else f"Error: {error.message}", err=True)
            return self.error_code

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Own flags first, then those that every command of the API has."""
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, Flag) else None
            if record is not None:
                records[cast(Flag, parameter).general].append(record)
        for general, title in ((False, "Options"), (True, "General options")):
            if records[general]:
                with formatter.section(gettext(title)):
                    formatter.write_dl(records[general])


def command(**attributes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function; its docstring is the help text."""
    return click.command(cls=Command, **attributes)


def canonical(args: Sequence[str], params: Sequence[click.Parameter], *, words_after: bool = False) -> list[str]:
    """A command line with every flag as `--flag=value`, then `--`, then the other words. Raises UsageError."""
    flags = {name.lstrip("-"): each for each in params if isinstance(each, Flag) for name in each.opts}
    given, words, rest = [], [], list(args)
    while rest:
        word = rest.pop(0)
        if word == "--" or (words_after and not word.startswith("-")):
            words += rest if word == "--" else [word, *rest]
            break
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if name in HELP and name not in flags:
            return ["--help"]
        found = flags.get(name)
        if found is None and _NUMBER.fullmatch(word):
            words.append(word)
        else:
            given.append(f"--{name}={_value(found, name, value if equals else None, rest, flags)}")
    return [*given, "--", *words]


def _value(found: Flag | None, name: str, value: str | None, rest: list[str], known: Any) -> str:
    """The value of a flag, taken from the next word where it has to be."""
    if found is None:
        near = difflib.get_close_matches(name, known, n=1)
        raise click.UsageError(f"unknown flag -{name}" + (f"; did you mean -{near[0]}?" if near else ""))
    if found.boolean:
        if value is not None and value.lower() not in _TRUE | _FALSE:
            raise click.UsageError(f'flag -{name} is true or false, not "{value}"')
        return "false" if value is not None and value.lower() in _FALSE else "true"
    if value is not None:
        return value
    if not rest:
        raise click.UsageError(f"flag -{name} needs a value")
    return rest.pop(0)


class Row(NamedTuple):
    """A command that is loaded when it is called: where it stands, and one line about it."""

    where: str
    summary: str
    hidden: bool = False


Tree = dict[str, "Row | Branch"]


class Branch(NamedTuple):
    """Commands under a common noun. default: the one that is meant when none is named."""

    summary: str
    commands: Tree
    hidden: bool = False
    default: str = ""


class Group(click.Group):
    """Commands from a table; a command's module is imported when the command is called."""

    def __init__(self, name: str, summary: str, tree: Tree, default: str = "") -> None:
        super().__init__(name=name, help=summary, options_metavar="", subcommand_metavar="<command> [options] [args]")
        self.tree = tree
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Nomad's `-help` and `-version` are understood too; nothing at all asks for help."""
        asks = bool(args) and args[0].startswith("-") and args[0].lstrip("-") in HELP
        if self.default and not asks and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        elif not args or asks:
            args = ["--help"]
        elif args and args[0] in {"-version", "--version", "-v"} and "version" in self.tree:
            args = ["version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, hidden ones too."""
        return sorted(self.tree)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        row = self.tree.get(cmd_name)
        if row is None:
            return None
        if isinstance(row, Branch):
            return Group(cmd_name, row.summary, row.commands, row.default)
        module, _, attribute = row.where.partition(":")
        return cast(click.Command, getattr(import_module(module), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of that name."""
        if args and args[0] not in self.tree:
            near = difflib.get_close_matches(args[0], self.tree, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise click.UsageError(f'there is no command "{ctx.command_path} {args[0]}"{hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without loading anything."""
        rows = [(name, row.summary) for name, row in sorted(self.tree.items()) if not row.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
