"""Regular expressions: what is found, what is refused, what cannot be made slow."""

import pytest

from lepa.kit.regexp import REPEAT_MAX, RegexpError, compile_regexp


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


@pytest.mark.parametrize(
    ("pattern", "message", "position"),
    [
        ("(", "a parenthesis is not closed", 0),
        ("a)", "a parenthesis is closed that was not opened", 1),
        ("[a", "a bracket is not closed", 0),
        ("[b-a]", "a range runs backwards", 1),
        ("[[:odd:]]", "a named class is not known", 1),
        ("*a", "there is nothing to repeat", 0),
        ("a**", "a repeat is repeated", 1),
        ("a{2}{3}", "a repeat is repeated", 1),
        ("a{3,2}", "runs backwards", 1),
        ("a{1001}", f"a repeat is not within 0 to {REPEAT_MAX}", 1),
        ("(?=a)", "look-around and other (?…) are not supported", 0),
        ("(?<=a)", "look-around and other (?…) are not supported", 0),
        (r"(a)\1", r'"\1" is not supported', 3),
        (r"\pL", r'"\p" is not supported', 0),
        ("\\", "the pattern ends too early", 1),
        (r"\xZZ", "a code point is not hexadecimal", 0),
        (r"\x{110000}", "there is no such code point", 0),
        ("(?P<a", "the name of a group does not end", 0),
        ("(" * 200 + ")" * 200, "nests deeper", 100),
        ("a" * 2000, "longer than 1024 characters", 1024),
        ("((a{100}){100}){100}", "needs more than 2000 steps", 0),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(pattern: str, message: str, position: int) -> None:
    with pytest.raises(RegexpError) as raised:
        compile_regexp(pattern)
    assert message in str(raised.value)
    assert raised.value.position == position


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "^(a|a?)+$", "(.*a){12}$", "^((a*)*)*$", "(((){900}){900}){900}b$"]
)
def test_no_pattern_is_slow(pattern: str) -> None:
    """Each of these would keep a backtracking search busy for longer than the time limit of a test."""
    assert not compile_regexp(pattern).search("a" * 5_000 + "!")


def test_many_different_characters_are_not_remembered_for_ever() -> None:
    regexp = compile_regexp("^[^!]*!$")
    text = "".join(map(chr, range(1_000, 30_000)))
    assert regexp.search(text + "!")
    assert not regexp.search(text)
