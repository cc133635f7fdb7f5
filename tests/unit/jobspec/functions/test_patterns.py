"""lepa.jobspec.functions.patterns and lepa.jobspec.functions.pattern_syntax."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.calls import refusal, value

from lepa.jobspec.functions.pattern_syntax import compile_pattern
from lepa.jobspec.functions.patterns import matches, replace
from lepa.jobspec.values import Conversion


def found(pattern: str, text: str) -> list[str]:
    return [match.group("0") for match in matches(text, compile_pattern(pattern), lambda steps: None)]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("abc", "xabcabc", ["abc", "abc"]),
        ("a|ab", "ab", ["a"]),
        ("ab|a", "ab", ["ab"]),
        ("a*", "baa", ["", "aa"]),
        ("a+?", "aa", ["a", "a"]),
        ("a{2,3}", "aaaaa", ["aaa", "aa"]),
        ("a{2}", "aaa", ["aa"]),
        ("a{,2}", "a{,2}", ["a{,2}"]),
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


def test_groups_may_be_named_by_number_or_name() -> None:
    (match,) = matches("ab=1", compile_pattern("(?P<key>[a-z]+)=(?:(x)|(1))"), lambda steps: None)
    assert [match.group(name) for name in ("0", "1", "key", "2", "3", "9", "none")] == [
        "ab=1",
        "ab",
        "ab",
        "",
        "1",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "a parenthesis is not closed"),
        (")", "a closing parenthesis too many"),
        ("*", "nothing to repeat before *"),
        ("a**", "a repetition of a repetition"),
        ("a{3,2}", "a bad repetition count"),
        ("a{9999}", "a bad repetition count"),
        ("[a", "it ends too early"),
        ("[b-a]", "a range that goes backwards"),
        ("[[:foo:]]", "an unknown character class"),
        ("\\", "it ends too early"),
        (r"\1", "\\1 is not supported"),
        (r"\pL", "\\p is not supported"),
        (r"\xZZ", "\\x needs hexadecimal digits"),
        ("(?=a)", "(?= is not supported"),
        ("(?P<a>x)(?P<a>y)", "a bad or repeated group name"),
        ("(" * 100 + ")" * 100, "nested too deeply"),
        ("((a{100}){100}){100}", "it is too large"),
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(Conversion) as problem:
        compile_pattern(pattern)
    assert reason in str(problem.value)


def test_a_pattern_that_stalls_others_takes_time_in_proportion() -> None:
    steps: list[int] = []
    assert replace("a" * 2000 + "!", "(a+)+$", lambda match: "", steps.append) == "a" * 2000 + "!"
    assert sum(steps) < 20_000


def test_work_is_paid_for() -> None:
    text = 'regex_replace(join("", [for i in range(1000) : "aaaaaaaaaa"]), "(a|a|a)*b", "")'
    assert "Too much work" in refusal(f"[for i in range(1000) : {text}]")
    assert value('regex_replace("a1b22", "[0-9]+", "<$0>")') == "a<1>b<22>"


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\b", "^"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(st.sampled_from(["a", ".", "[ab]"]), st.sampled_from(["*", "+", "?", "*?", "{1,2}"])).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(PATTERNS, st.text("ab1 ", max_size=10))
def test_the_first_match_is_that_of_python(pattern: str, text: str) -> None:
    theirs = re.search(pattern, text)
    mine = next(matches(text, compile_pattern(pattern), lambda steps: None), None)
    assert (mine.span if mine else None) == (theirs.span() if theirs else None)
