import pytest

from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.tokens import (
    END,
    HEREDOC,
    INVALID,
    NESTING_MAX,
    QUOTED,
    UNCLOSED_COMMENT,
    UNCLOSED_HEREDOC,
    UNCLOSED_QUOTED,
    tokenise,
    tokenise_sequence,
)


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokenise(text) if token.kind != END]


def test_an_argument_is_a_name_an_equals_sign_and_a_value() -> None:
    assert kinds("count-2 = 3 # why\n") == [
        ("identifier", "count-2"),
        ("=", "="),
        ("number", "3"),
        ("comment", "# why"),
        ("newline", "\n"),
    ]


def test_tokens_say_where_they_are() -> None:
    assert [(token.start, token.end) for token in tokenise("  a = 1")] == [(2, 3), (4, 5), (6, 7), (7, 7)]


@pytest.mark.parametrize("text", ["==", "!=", "<=", ">=", "=>", "&&", "||", "...", "::", "?", "%"])
def test_an_operator_is_its_own_kind(text: str) -> None:
    assert kinds(text) == [(text, text)]


@pytest.mark.parametrize(
    "text", ['"a"', '"a \\" b"', '"${x}"', '"${f("}")}"', '"a ${"b ${c}"} d"', '"$${"', '"%{ if x }"']
)
def test_a_string_is_one_token_whatever_it_holds(text: str) -> None:
    assert kinds(f"{text}, 1")[0] == (QUOTED, text)


@pytest.mark.parametrize("text", ['"a', '"${', '"${x', '"a\\', '"%{ if'])
def test_an_unclosed_string_ends_with_its_line(text: str) -> None:
    assert kinds(f"{text}\nb") == [(UNCLOSED_QUOTED, text), ("newline", "\n"), ("identifier", "b")]


@pytest.mark.parametrize(
    "text", ["<<EOF\nx\nEOF", "<<-EOF\n  x\n  EOF", "<<E\n${f(<<E\ny\nE\n)}\nE", "<<A\n$${\nA", "<<A\n${\nA"]
)
def test_a_heredoc_is_one_token(text: str) -> None:
    assert kinds(f"{text}\n") == [(HEREDOC, text), ("newline", "\n")]


def test_a_marker_with_more_on_its_line_does_not_close_a_heredoc() -> None:
    assert kinds("<<E\nE x\nE\n")[0] == (HEREDOC, "<<E\nE x\nE")
    assert kinds("<<E\nE x\n") == [(UNCLOSED_HEREDOC, "<<E\nE x\n")]


def test_a_heredoc_closes_on_a_line_that_has_an_end() -> None:
    assert kinds("<<E\nx\nE")[0][0] == UNCLOSED_HEREDOC


def test_comments_come_in_three_forms() -> None:
    assert [kind for kind, _ in kinds("# a\n// b\n/* c\n */")] == [
        "comment",
        "newline",
        "comment",
        "newline",
        "comment",
    ]
    assert kinds("/* a") == [(UNCLOSED_COMMENT, "/* a")]


@pytest.mark.parametrize("character", ["'", "`", ";", "@", "\r", "|", "\x00"])
def test_what_is_no_token_is_invalid(character: str) -> None:
    assert kinds(f"{character}a")[0] == (INVALID, character)


def test_a_sequence_ends_with_the_brace_that_closes_it() -> None:
    text = '${ {a = "}"} } rest }'
    tokens = tokenise_sequence(text, 2, len(text))
    assert text[tokens[-2].start :] == "} rest }"
    assert tokens[-1].kind == END


def test_strings_inside_each_other_are_bounded() -> None:
    text = '"${' * (NESTING_MAX + 2) + "1" + '}"' * (NESTING_MAX + 2)
    with pytest.raises(Refusal, match="Nested too deeply"):
        tokenise(text)


def test_many_interpolations_in_a_heredoc_take_time_in_proportion() -> None:
    text = "<<EOF\n" + "${a}\n" * 50_000 + "EOF\n"
    assert tokenise(text)[0].end == len(text) - 1
