import pytest

from lepa.ingress.globs import compiled, is_glob, literal_tail


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.example.com", ["a.example.com", "a.b.example.com", ".example.com"], ["example.com", "a.example.org"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("a[bc]", ["ab", "ac"], ["ad", "a"]),
        ("a[!bc]", ["ad"], ["ab"]),
        ("[a-c]x", ["bx"], ["dx"]),
        ("{www,api}.b", ["www.b", "api.b"], ["ftp.b", "www,api.b"]),
        ("{a,{b,c}d}e", ["ae", "bde", "cde"], ["be"]),
        (r"a\*b", ["a*b"], ["axb"]),
        ("a{b", ["a{b"], ["ab"]),
        ("a[b", ["a[b"], ["ab"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[z-a]", ["[z-a]"], ["z"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], does_not: list[str]) -> None:
    found = compiled(pattern)
    assert [text for text in fits if not found.fullmatch(text)] == []
    assert [text for text in does_not if found.fullmatch(text)] == []


def test_stars_in_a_row_are_one() -> None:
    assert compiled("a***b").pattern == "a.*b"


def test_what_is_a_pattern() -> None:
    assert [text for text in ("a.b", "*.b", "a?", "[a]", "{a}") if is_glob(text)] == ["*.b", "a?", "[a]", "{a}"]


def test_the_tail_that_every_match_ends_in() -> None:
    assert literal_tail("*.example.com") == ".example.com"
    assert literal_tail("a.*") == ""
    assert literal_tail("x[ab].{c,d}.e") == ".e"
