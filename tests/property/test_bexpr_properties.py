"""Properties of the filter language: it agrees with Python, and no text breaks it."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from lepa.kit.bexpr import FilterError, compile_filter
from lepa.model.wire import Wire


class Thing(Wire, frozen=True):
    a: str = ""
    b: int = 0
    tags: tuple[str, ...] = ()


WORDS = st.sampled_from(["x", "y", "zz"])
THINGS = st.builds(Thing, a=WORDS, b=st.integers(-3, 3), tags=st.lists(WORDS, max_size=3).map(tuple))


def _leaf() -> st.SearchStrategy[tuple[str, str]]:
    """The same test in the filter language and in Python."""
    return st.one_of(
        st.tuples(st.sampled_from(["==", "!="]), WORDS).map(lambda t: (f'A {t[0]} "{t[1]}"', f"t.a {t[0]} '{t[1]}'")),
        st.tuples(st.sampled_from(["==", "!="]), st.integers(-3, 3)).map(
            lambda t: (f"B {t[0]} {t[1]}", f"t.b {t[0]} {t[1]}")
        ),
        st.tuples(st.sampled_from(["in", "not in"]), WORDS).map(
            lambda t: (f'"{t[1]}" {t[0]} Tags', f"'{t[1]}' {t[0]} t.tags")
        ),
        st.just(("Tags is empty", "not t.tags")),
    )


def _combined(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    pair = st.tuples(st.sampled_from(["and", "or"]), inner, inner)
    return st.one_of(
        pair.map(lambda t: (f"(({t[1][0]}) {t[0]} ({t[2][0]}))", f"(({t[1][1]}) {t[0]} ({t[2][1]}))")),
        pair.map(lambda t: (f"{t[1][0]} {t[0]} {t[2][0]}", f"{t[1][1]} {t[0]} {t[2][1]}")),
        inner.map(lambda t: (f"not ({t[0]})", f"(not ({t[1]}))")),
    )


@given(st.recursive(_leaf(), _combined, max_leaves=12), THINGS)
def test_filters_agree_with_python(expression: tuple[str, str], thing: Thing) -> None:
    ours, python = expression
    assert compile_filter(ours)(thing) == bool(eval(python, {"t": thing}))


@given(st.lists(st.sampled_from([*'ABx"`()[]{}.,!=\\/ 7', " and ", " or ", "not ", " in ", " is ", "any ", " as "])))
def test_any_text_is_a_filter_or_refused_as_a_filter_error(parts: list[str]) -> None:
    with suppress(FilterError):
        compile_filter("".join(parts))(Thing(a="x", tags=("y",)))


@given(st.text(max_size=60))
def test_any_unicode_is_a_filter_or_refused_as_a_filter_error(text: str) -> None:
    with suppress(FilterError):
        compile_filter(text)(Thing())


@given(st.text(max_size=30))
def test_every_text_can_be_quoted(text: str) -> None:
    assert compile_filter(f"A == {encode(text).decode()}")(Thing(a=text))
