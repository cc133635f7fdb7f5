import pytest
from tests.calls import refusal, value

from lepa.jobspec.functions.texts import regex_replace


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'chomp("a\n\r\n")', "a"),
        (r'indent(2, "a\nb\n")', "a\n  b\n  "),
        ('join("-", ["a", "b"], ["c"])', "a-b-c"),
        ('lower("AB")', "ab"),
        ('upper("ab")', "AB"),
        ('replace("a.b.c", ".", "-")', "a-b-c"),
        ('replace("abc", "/(b)/", "<$1>")', "a<b>c"),
        ('regex_replace("foo123", "([0-9]+)", "<$1$$>")', "foo<123$>"),
        ("reverse([1, 2])", [2, 1]),
        ('sort(["b", "a"])', ["a", "b"]),
        ('split(",", "a,b")', ["a", "b"]),
        ('split("", "ab")', ["a", "b"]),
        ('strlen("é😀")', 2),
        ('strrev("abc")', "cba"),
        ('substr("hello", 1, 3)', "ell"),
        ('substr("hello", -3, -1)', "llo"),
        ('title("it\'s a day")', "It's A Day"),
        ('trim("xxaxx", "x")', "a"),
        ('trimprefix("aab", "a")', "ab"),
        ('trimsuffix("baa", "a")', "ba"),
        (r'trimspace(" a\n")', "a"),
    ],
)
def test_text_function(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('format("%s-%d", "a", 5)', "a-5"),
        ('format("%03d|%5s|%-5s|", 7, "a", "b")', "007|    a|b    |"),
        ('format("%.2f %e", 1.5, 1500)', "1.50 1.500000e+03"),
        ('format("%x %X %o %b", 255, 255, 8, 5)', "ff FF 10 101"),
        ('format("%q", "a\\"b")', '"a\\"b"'),
        ('format("%v %v %v", [1], true, null)', "[1] true null"),
        ('format("%#v", "a")', '"a"'),
        ('format("%t", "true")', "true"),
        ('format("100%%")', "100%"),
        ('format("%[2]s %[1]s", "a", "b")', "b a"),
        ('format("%+d % d", 5, 5)', "+5  5"),
        ('format("%g", 0.5)', "0.5"),
        ('format("%.3s", "abcdef")', "abc"),
        ('formatlist("%s=%s", ["a", "b"], "x")', ["a=x", "b=x"]),
        ('formatlist("%s", "a")', ["a"]),
    ],
)
def test_format(text: str, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('format("%s")', 'not enough arguments for "%s" at 0: need index 1'),
        ('format("a", 1)', "too many arguments; only 0 used by the format"),
        ('format("%y", 1)', 'unsupported format verb "%y"'),
        ('format("%", 1)', "the format ends inside a verb"),
        ('format("%999999d", 1)', "a width or precision of more than 10000"),
        ('format("%d", "x")', "a number is required"),
        ('formatlist("%s%s", ["a"], ["b", "c"])', "the lists have different lengths"),
        ('regex_replace("a", "(", "b")', 'invalid regular expression "("'),
        ('indent(-1, "a")', "the number of spaces must be between 0 and 10000"),
    ],
)
def test_what_a_text_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_pattern_that_stalls_others_takes_work_in_proportion() -> None:
    steps: list[int] = []
    assert regex_replace(steps.append, "a" * 2000 + "!", "(a+)+$", "") == "a" * 2000 + "!"
    assert sum(steps) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        'regex_replace(join("", [for i in range(1000) : "aaaaaaaaaa"]), "(a|a|a)*b", "")',
        'regex_replace("a", "", join("", [for i in range(1000) : "$none$none$none$none$none"]))',
    ],
)
def test_the_work_of_a_pattern_is_paid_for(text: str) -> None:
    assert "Too much work" in refusal(f"[for i in range(1000) : {text}]")


def test_a_replacement_that_grows_too_long_is_stopped() -> None:
    text = 'join("", [for i in range(1000) : "aaaaaaaaaaaaaaaaaaaa"])'
    assert "the text would be too long" in refusal(f'regex_replace({text}, ".*", {text.replace("a" * 20, "$0")})')
