"""Properties of the filter language: it agrees with Python, and no text breaks it."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from lepa.kit.bexpr import FilterError, compile_filter
from lepa.model.wire import Wire


class Thing(Wire, frozen=True):
    a: str = ""
    b: int = 0
    tags: tuple[str, ...] = ()


class Part(Wire, frozen=True):
    name: str = ""
    ready: bool = False
    meta: dict[str, str] = {}


class Whole(Wire, frozen=True):
    name: str = ""
    count: int = 0
    share: float = 0.0
    tags: tuple[str, ...] = ()
    meta: dict[str, str] = {}
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    by_name: dict[str, Part] = {}


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


METAS = st.dictionaries(WORDS, WORDS, max_size=2)
PARTS = st.builds(Part, name=WORDS, ready=st.booleans(), meta=METAS)
WHOLES = st.builds(
    Whole,
    name=WORDS,
    count=st.integers(0, 2),
    share=st.sampled_from([0.0, 0.5, float("nan")]),
    tags=st.lists(WORDS, max_size=2).map(tuple),
    meta=METAS,
    part=st.none() | PARTS,
    parts=st.lists(PARTS, max_size=2).map(tuple),
    by_name=st.dictionaries(WORDS, PARTS, max_size=2),
)
WHOLE = ["Name", "Count", "Share", "Tags", "Tags.0", "Meta", "Meta.x", "Part", "Part.Ready", "Parts.1.Name", "/Meta/x"]
BOUND = ["k", "k.Name", "k.Ready", "v", "v.Name", "v.Meta.zz", "ByName.x.Ready", "Gone"]
PLACES = st.sampled_from([*WHOLE, *BOUND])
VALUES = st.sampled_from(["x", "y", '"zz"', "0", "1", "true", "nan", "0.5"])
"""Some of these do not fit some places: then a filter is refused as soon as it meets such an object."""


def _condition() -> st.SearchStrategy[str]:
    place = PLACES.map(lambda name: f'"{name}"' if name.startswith("/") else name)
    signs = st.sampled_from(["==", "!=", "contains", "not contains", "matches", "not matches"])
    return st.one_of(
        st.tuples(place, signs, VALUES).map(" ".join),
        st.tuples(VALUES, st.sampled_from(["in", "not in"]), place).map(" ".join),
        st.tuples(place, st.sampled_from(["is empty", "is not empty", "is nil", "is not nil"])).map(" ".join),
    )


def _conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.sampled_from(["Tags", "Meta", "Parts", "ByName", "Part.Meta", "k", "v", "v.Meta", "Part"])
    names = st.sampled_from(["k", "v", "k, v", "v, k", "k, k"])
    return st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map("not {}".format),
        st.tuples(st.sampled_from(["any", "all"]), lists, names, inner).map(
            lambda t: f"{t[0]} {t[1]} as {t[2]} {{ {t[3]} }}"
        ),
    )


@given(st.recursive(_condition(), _conditions, max_leaves=8), st.lists(WHOLES, max_size=12), st.integers(1, 5))
def test_sifting_is_asking_one_by_one(expression: str, wholes: list[Whole], size: int) -> None:
    """The same objects in the same order, and the same refusal after them, however many are asked together."""
    wanted = compile_filter(expression)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lepa.kit.bexpr.COLUMN_MIN", size)
        patch.setattr("lepa.kit.bexpr.ROUNDS_MAX", 2 * size)
        sifted = _told(wanted.sift(wholes))
    assert sifted == _told(filter(wanted, wholes))


def _told(found: Iterable[Any]) -> list[Any]:
    """Ids of what is found, and the refusal at the end where there is one."""
    told: list[Any] = []
    try:
        for item in found:
            told.append(id(item))
    except FilterError as error:
        told.append(str(error))
    return told
