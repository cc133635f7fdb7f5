"""The syntax of regular expressions: trees, and what is refused."""

import pytest

from lepa.kit.regexp_syntax import (
    NOTHING,
    REPEAT_MAX,
    Assert,
    Characters,
    Choice,
    Group,
    Node,
    RegexpError,
    Repeat,
    Sequence,
    parse_pattern,
)

A, B = Characters(((97, 97),)), Characters(((98, 98),))


@pytest.mark.parametrize(
    ("pattern", "tree"),
    [
        ("", NOTHING),
        ("a", A),
        ("ab", Sequence((A, B))),
        ("a|b|", Choice((A, B, NOTHING))),
        ("(?:a)", A),
        ("(a)(?P<x>b)", Sequence((Group(A, 1), Group(B, 2)))),
        ("(a(b))", Group(Sequence((A, Group(B, 2))), 1)),
        ("a*", Repeat(A, 0, None, lazy=False)),
        ("a+?", Repeat(A, 1, None, lazy=True)),
        ("a{2,3}", Repeat(A, 2, 3, lazy=False)),
        ("(?U)a?", Repeat(A, 0, 1, lazy=True)),
        ("(?:){9}(?:a){0}", NOTHING),
        ("^(?m)^", Sequence((Assert("text start"), Assert("line start")))),
        ("[ab]", Characters(((97, 98),))),
        ("(?i)a", Characters(((65, 65), (97, 97)))),
        (r"[^\x00-\x60b-\x{10FFFF}]", A),
        (r"\Qab\E", Sequence((A, B))),
    ],
)
def test_a_pattern_becomes_a_tree(pattern: str, tree: Node) -> None:
    assert parse_pattern(pattern).tree == tree


def test_groups_are_counted_and_named() -> None:
    read = parse_pattern("(a)(?:b)(?P<one>c(?<two>d))")
    assert (read.group_count, read.group_names) == (3, {"one": 2, "two": 3})


def test_a_class_without_characters_is_not_nothing() -> None:
    assert parse_pattern(r"[^\x00-\x{10FFFF}]").tree == Characters(())


@pytest.mark.parametrize(
    ("pattern", "message", "position"),
    [
        ("(", "a parenthesis is not closed", 0),
        ("a)", "a parenthesis is closed that was not opened", 1),
        ("[a", "a bracket is not closed", 0),
        ("a)(", "a parenthesis is closed that was not opened", 1),
        ("[b-a]", "a range runs backwards", 1),
        ("[[:odd:]]", "a named class is not known", 1),
        ("*a", "there is nothing to repeat", 0),
        ("a|*", "there is nothing to repeat", 2),
        ("{2}", "there is nothing to repeat", 0),
        ("a(?i)*", "there is nothing to repeat", 5),
        ("a**", "a repeat is repeated", 2),
        ("a{2}{3}", "a repeat is repeated", 4),
        ("a{3,2}", "runs backwards", 1),
        ("a{1001}", f"a repeat is not within 0 to {REPEAT_MAX}", 1),
        ("(?=a)", "look-around and other (?…) are not supported", 0),
        ("(?<=a)", "look-around and other (?…) are not supported", 0),
        (r"(a)\1", r'"\1" is not supported', 3),
        (r"\pL", r'"\p" is not supported', 0),
        ("\\", "the pattern ends too early", 1),
        (r"\xZZ", "a code point is not hexadecimal", 0),
        (r"\x1", "a code point is not hexadecimal", 0),
        (r"\x{110000}", "there is no such code point", 0),
        ("(?P<a", "the name of a group does not end", 0),
        ("(?P<a-b>c)", "the name of a group has more than letters, digits and _", 0),
        ("(?P<>c)", "the name of a group has more than letters, digits and _", 0),
        ("(?P<a>x)(?<a>y)", "two groups have the same name", 8),
        ("(" * 200 + ")" * 200, "nests deeper", 50),
        ("a" * 5000, "longer than 4096 characters", 4096),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(pattern: str, message: str, position: int) -> None:
    with pytest.raises(RegexpError) as raised:
        parse_pattern(pattern)
    assert message in str(raised.value)
    assert raised.value.position == position
