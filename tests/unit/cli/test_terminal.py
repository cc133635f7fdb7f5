"""Where a command writes."""

import io

from lepa.cli.output import paint
from lepa.cli.terminal import Terminal


def test_a_pipe_gets_no_colours() -> None:
    out = io.StringIO()
    terminal = Terminal(out, io.StringIO(), colour=False, live=False)
    terminal.line(paint("red", "red"))
    terminal.title("Title")
    terminal.write(b"bytes \xff")
    assert out.getvalue() == "red\n\nTitle\nbytes \ufffd"


def test_a_terminal_gets_them() -> None:
    out = io.StringIO()
    Terminal(out, io.StringIO(), colour=True, live=True).line(paint("red", "red"))
    assert out.getvalue() == "\x1b[31mred\x1b[0m\n"


def test_errors_go_elsewhere() -> None:
    out, errors = io.StringIO(), io.StringIO()
    terminal = Terminal(out, errors, colour=True, live=True)
    terminal.error(paint("no", "red"))
    terminal.write_error(b"also no\n")
    terminal.flush()
    assert (out.getvalue(), errors.getvalue()) == ("", "no\nalso no\n")
