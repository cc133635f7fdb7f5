"""Flags as Nomad's users type them."""

import click
import pytest
from tests.unit.cli.conftest import Run

from lepa.cli.flags import Flag, Group, Row, canonical

PARAMS = [
    Flag(["detach", "-detach", "--detach"], type=click.BOOL, default=False),
    Flag(["n", "-n", "--n"], type=int),
    Flag(["var", "-var", "--var"], type=str, multiple=True),
]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("-detach job", ["--detach=true", "--", "job"]),
        ("--detach job", ["--detach=true", "--", "job"]),
        ("-detach=false job", ["--detach=false", "--", "job"]),
        ("-detach=0 job", ["--detach=false", "--", "job"]),
        ("job -detach", ["--detach=true", "--", "job"]),
        ("-n 5 job", ["--n=5", "--", "job"]),
        ("-n=5 job", ["--n=5", "--", "job"]),
        ("-n -5 job", ["--n=-5", "--", "job"]),
        ("-var a=b -var=c=d", ["--var=a=b", "--var=c=d", "--"]),
        ("-var= x", ["--var=", "--", "x"]),
        ("-- -detach", ["--", "-detach"]),
        ("- -n 1", ["--n=1", "--", "-"]),
        ("group -3", ["--", "group", "-3"]),
        ("job -help", ["--help"]),
        ("-h", ["--help"]),
    ],
)
def test_flags_are_brought_into_one_form(typed: str, read: list[str]) -> None:
    assert canonical(typed.split(), PARAMS) == read


def test_words_behind_a_program_are_its_own() -> None:
    typed = ["-detach", "ab12", "sh", "-c", "exit", "-n"]
    assert canonical(typed, PARAMS, words_after=True) == ["--detach=true", "--", "ab12", "sh", "-c", "exit", "-n"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("-detahc", "unknown flag -detahc; did you mean -detach?"),
        ("-zzz=1", "unknown flag -zzz"),
        ("-n", "flag -n needs a value"),
        ("-detach=maybe", 'flag -detach is true or false, not "maybe"'),
    ],
)
def test_a_wrong_flag_is_refused_with_a_sentence(typed: str, message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        canonical(typed.split(), PARAMS)
    assert caught.value.message == message


def test_groups_name_the_nearest_command(lepa: Run) -> None:
    done = lepa("jbo", "status")
    assert (done.code, done.out) == (1, "")
    assert done.error == 'there is no command "lepa jbo"; did you mean "job"?\nFor additional help try \'lepa -help\'\n'
    assert lepa("job", "stauts").error.startswith('there is no command "lepa job stauts"; did you mean "status"?')


@pytest.mark.parametrize("words", [("-help",), ("-h",), ("--help",), ()])
def test_help_of_a_group_lists_its_commands(lepa: Run, words: tuple[str, ...]) -> None:
    done = lepa("job", *words)
    assert done.code == 0
    assert "  run             Run a job file" in done.out


def test_help_of_a_command_shows_flags_with_one_dash_and_the_general_ones_apart(lepa: Run) -> None:
    text = lepa("job", "run", "-help").out
    assert "Usage: lepa job run [options] <path>" in text
    own, general = text.split("General options:")
    assert "  -detach " in own
    assert "  -check-index=<index>" in own
    assert "-policy-override" not in text
    assert "  -address=<url>" in general


def test_the_version_is_a_flag_too(lepa: Run) -> None:
    assert lepa("-version").out == lepa("version").out


def test_a_table_may_be_given_to_a_group() -> None:
    group = Group("x", "About x.", {"version": Row("lepa.cli.version:version", "Says it")})
    assert group.get_command(click.Context(group), "version") is not None
    assert group.get_command(click.Context(group), "nothing") is None
