"""Regular expressions: what is found and where, what is put in its place, what cannot be made slow."""

import pytest

from lepa.kit.regexp import REMEMBERED_MAX, compile_regexp
from lepa.kit.regexp_program import STEPS_MAX


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("", ["", "x"], []),
        ("web", ["web", "a web b"], ["we b", "WEB"]),
        ("^web", ["web-1"], ["a web", "\nweb"]),
        ("web$", ["a web"], ["web\n", "web 1"]),
        ("^$", [""], ["x"]),
        ("a.c", ["abc", "aéc"], ["a\nc", "ac"]),
        ("(?s)a.c", ["a\nc"], ["ac"]),
        ("(?m)^b$", ["a\nb\nc"], ["a\nbb"]),
        (r"\Ab\z", ["b"], ["a\nb", "b\n"]),
        ("a|bc|", ["", "x"], []),
        ("^(a|bc)$", ["a", "bc"], ["", "abc"]),
        ("^(?:ab)*$", ["", "abab"], ["aba"]),
        ("^a+b?$", ["a", "aab"], ["b", "abb"]),
        ("^a{2}$", ["aa"], ["a", "aaa"]),
        ("^a{2,}$", ["aa", "aaaa"], ["a"]),
        ("^a{1,3}$", ["a", "aaa"], ["", "aaaa"]),
        ("^a{0}b$", ["b"], ["ab"]),
        ("^a{,3}$", ["a{,3}"], ["aaa"]),
        ("^x*?y+?$", ["xy", "yy"], ["x"]),
        ("^[a-c]+$", ["abc"], ["d", "-"]),
        ("^[^a-c]$", ["d", "\n"], ["a"]),
        ("^[]a]+$", ["]a"], ["b"]),
        ("^[^]a]$", ["b"], ["]"]),
        ("^[a-]+$", ["-a"], ["b"]),
        (r"^[\d_-]+$", ["1_-"], ["a"]),
        (r"^[\D]$", ["a"], ["1"]),
        (r"^[\]\\]$", ["]", "\\"], ["a"]),
        ("^[[:alpha:]][[:^digit:]]$", ["ab"], ["a1", "1b"]),
        (r"^\d\w\s$", ["1_ ", "1a\t"], ["1é "]),
        (r"^\D\W\S$", ["a-b"], ["1-b"]),
        (r"\bcat\b", ["a cat.", "cat"], ["cats", "a_cat"]),
        (r"\Bcat", ["scat"], ["cat"]),
        (r"^\.\*\$\t\x41\x{1F600}\07$", [".*$\tA😀\x07"], []),
        (r"^\Qa.b\Ec$", ["a.bc"], ["axbc"]),
        (r"\Qa(", ["a("], ["a"]),
        (r"^\Qab\E+$", ["abb"], ["abab"]),
        (r"^\101\60$", ["A0"], []),
        (r"[^\x00-\x{10FFFF}]", [], ["", "a"]),
        ("(?i)[à-ý]", ["É"], ["E"]),
        ("(?i)straße", ["STRAßE", "straße"], ["strasse"]),
        ("(?i)[a-z]É", ["Xé"], ["1é"]),
        ("a(?i)b", ["aB", "ab"], ["AB"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?i)a|b", ["A", "B"], []),
        ("(a(?i)b)c", ["aBc"], ["abC"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("(?U)a+", ["aa"], [""]),
        ("é", ["café"], ["cafe"]),
        ("^(a*)*$", ["", "aaa"], ["b"]),
    ],
)
def test_a_pattern_is_found_where_it_is(pattern: str, found: list[str], not_found: list[str]) -> None:
    regexp = compile_regexp(pattern)
    assert [text for text in found if not regexp.search(text)] == []
    assert [text for text in not_found if regexp.search(text)] == []


def found(pattern: str, text: str) -> list[str]:
    return [match.group(0) for match in compile_regexp(pattern).matches(text)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("abc", "xabcabc", ["abc", "abc"]),
        ("a|ab", "ab", ["a"]),
        ("ab|a", "ab", ["ab"]),
        ("a*", "baa", ["", "aa"]),
        ("a+?", "aa", ["a", "a"]),
        ("(?U)a+", "aa", ["a", "a"]),
        ("(?U)a+?", "aa", ["aa"]),
        ("a{2,3}", "aaaaa", ["aaa", "aa"]),
        ("a{2,3}?", "aaaaa", ["aa", "aa"]),
        ("a{2}", "aaa", ["aa"]),
        ("a{,2}", "a{,2}", ["a{,2}"]),
        ("(|a)*", "aa", ["", "", ""]),
        ("(|a)+", "aa", ["", "", ""]),
        (r"\d+", "a12b3", ["12", "3"]),
        (r"[^\w ]", "a_ -", ["-"]),
        ("[a-cx-]+", "abxz-", ["abx", "-"]),
        ("[]a]+", "]a", ["]a"]),
        ("[[:alpha:]]+[[:^digit:]]", "ab1c!", ["ab", "c!"]),
        (r"\bfoo\b", "foo foobar", ["foo"]),
        ("^a|b$", "aab", ["a", "b"]),
        ("(?m)^a$", "a\nb\na", ["a", "a"]),
        ("(?i)aB", "Ab ab", ["Ab", "ab"]),
        ("(?i:a)b", "Ab AB", ["Ab"]),
        ("a.c", "a\nc abc", ["abc"]),
        ("(?s)a.c", "a\nc", ["a\nc"]),
        (r"\x41\x{1F600}\.", "A😀.", ["A😀."]),
        ("(a|b)*c", "abac", ["abac"]),
        (r"\Aa\z", "a", ["a"]),
    ],
)
def test_matches_are_those_of_go(pattern: str, text: str, expected: list[str]) -> None:
    assert found(pattern, text) == expected


def test_a_group_is_where_it_matched_last() -> None:
    (match,) = compile_regexp("(?P<key>[a-z]+)=(?:(x)|(1|2)+)").matches("ab=12")
    assert [match.group(number) for number in range(4)] == ["ab=12", "ab", "", "2"]
    assert (match.span, match.slots) == ((0, 5), (0, 5, 0, 2, -1, -1, 4, 5))


def test_an_empty_round_ends_a_loop_where_it_does_in_go() -> None:
    """How the program of a loop is written decides this; the places are Go's."""
    matches = compile_regexp("(?:(a)|(b)*?)*").matches("abba")
    assert [match.slots for match in matches] == [(0, 2, 0, 1, 1, 2), (3, 4, 3, 4, -1, -1)]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("<$0>", "<ab=1>, <c=2>"),
        ("$2=$1", "1=ab, 2=c"),
        ("$key", "ab, c"),
        ("${key}x", "abx, cx"),
        ("$keyx", ", "),
        ("$9$none$99999999999999999999", ", "),
        ("$$1", "$1, $1"),
        ("$ ${a-b}", "$ ${a-b}, $ ${a-b}"),
    ],
)
def test_a_template_names_groups(template: str, expected: str) -> None:
    regexp = compile_regexp("(?P<key>[a-z]+)=([0-9]+)")
    assert "".join(regexp.replace("ab=1, c=2", template)) == expected


def test_empty_matches_are_replaced_too() -> None:
    assert "".join(compile_regexp("x*").replace("axb", "-")) == "-a-b-"


HOSTILE = ["(a+)+$", "(a|aa)+$", "^(a|a?)+$", "(.*a){12}$", "^((a*)*)*$", "((){900}){1}b$"]
"""Each of these would keep a backtracking search busy for longer than the time limit of a test."""


@pytest.mark.parametrize("pattern", HOSTILE)
def test_no_pattern_is_slow(pattern: str) -> None:
    assert not compile_regexp(pattern).search("a" * 5_000 + "!")


@pytest.mark.parametrize("pattern", HOSTILE)
def test_finding_the_place_takes_steps_in_proportion_to_the_text(pattern: str) -> None:
    def steps(length: int) -> int:
        told: list[int] = []
        assert not any(match.span[1] > match.span[0] for match in regexp.matches("a" * length + "!", told.append))
        return sum(told)

    regexp = compile_regexp(pattern)
    assert steps(400) < 5 * steps(100)


def test_work_is_told_while_it_is_done() -> None:
    class Enough(Exception):
        pass

    def spend(steps: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        list(compile_regexp("(a|a|a)*b").matches("a" * 100_000, spend))


def test_many_groups_cost_more_than_few() -> None:
    def steps(pattern: str) -> int:
        told: list[int] = []
        list(compile_regexp(pattern).matches("b" * 100, told.append))
        return sum(told)

    assert steps("(a)" * 100) > 3 * steps("(a)" + "a" * 99)


def test_what_is_remembered_of_a_pattern_is_bounded() -> None:
    """Each text leads to a set of steps of its own."""
    regexp = compile_regexp("(a|b)*a[ab]{200}c")
    for number in range(3_000):
        regexp.search(f"{number:012b}".replace("0", "a").replace("1", "b") * 2)
        assert regexp.remembered < REMEMBERED_MAX + STEPS_MAX


def test_many_different_characters_are_not_remembered_for_ever() -> None:
    regexp = compile_regexp("^[^!]*!$")
    text = "".join(map(chr, range(1_000, 30_000)))
    assert regexp.search(text + "!")
    assert not regexp.search(text)
