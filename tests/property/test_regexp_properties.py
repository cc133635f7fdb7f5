"""Properties of regular expressions: they agree with the standard library's where both mean the same."""

import re
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from lepa.kit.regexp import RegexpError, compile_regexp

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", "^", r"\Z", r"\b", r"\B", "1", "-"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda items: f"({'|'.join(items)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "+?"])).map(
            lambda t: f"(?:{t[0]}){t[1]}"
        ),
    )


PATTERNS = st.recursive(ATOMS, _combined, max_leaves=8)
TEXTS = st.text(alphabet="ab1- ", min_size=1, max_size=12)
"""Not the empty text: the standard library finds no \\B in it, RE2 does."""


@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(["", "(?i)"]))
def test_they_agree_with_the_standard_library(pattern: str, texts: list[str], flags: str) -> None:
    ours = compile_regexp(flags + pattern.replace(r"\Z", "$"))
    theirs = re.compile(flags + pattern, re.ASCII)
    assert [ours.search(text) for text in texts] == [theirs.search(text) is not None for text in texts]


SINGLE = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\b", "^"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(st.sampled_from(["a", ".", "[ab]"]), st.sampled_from(["*", "+", "?", "*?", "{1,2}"])).map("".join),
    ),
    max_leaves=8,
)
"""Only single characters are repeated: what a loop over something empty matches differs from the standard library."""


@given(SINGLE, st.text("ab1 ", max_size=10))
def test_the_first_match_is_that_of_the_standard_library(pattern: str, text: str) -> None:
    theirs = re.search(pattern, text)
    ours = next(compile_regexp(pattern).matches(text), None)
    assert (ours.slots if ours else None) == (tuple(sum(theirs.regs, ())) if theirs else None)


@given(PATTERNS, TEXTS)
def test_search_says_whether_there_are_matches(pattern: str, text: str) -> None:
    regexp = compile_regexp(pattern.replace(r"\Z", "$"))
    assert regexp.search(text) == any(True for _ in regexp.matches(text))


@given(st.text(max_size=30))
def test_every_text_finds_itself_when_quoted(text: str) -> None:
    if "\\E" not in text:
        assert compile_regexp(f"^\\Q{text}\\E$").search(text)


@given(st.text(alphabet="ab|()[]{}*+?^$.\\-,:1PQEdxpz<>", max_size=20), TEXTS)
def test_any_text_is_a_pattern_or_refused_as_a_regexp_error(pattern: str, text: str) -> None:
    with suppress(RegexpError):
        compile_regexp(pattern).search(text)
