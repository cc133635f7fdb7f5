"""HCL1, as far as policies are written in it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.hcl1 import Item, parse_items
from lepa.jobspec.tokens import NESTING_MAX


def test_items_are_read_however_they_are_laid_out() -> None:
    text = '\ufeffa "b" c { x = "y", z = [1, true, ["t"],] } # end\n"quoted" = { } e = 2.5 /* done */'
    inner = (Item("x", (), "y"), Item("z", (), [1, True, ["t"]]))
    assert parse_items(text) == (Item("a", ("b", "c"), inner), Item("quoted", (), ()), Item("e", (), 2.5))


def test_texts_keep_what_looks_like_an_expression() -> None:
    (item,) = parse_items(r'a = "tab\t quote\" \u00e9 ${b["c"]} %{x}"')
    assert item.value == 'tab\t quote" é ${b["c"]} %{x}'


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("a", "Expected = or {, found the end."),
        ('a "b" = 1', 'Expected {, found "=".'),
        ("a = ", "Expected a value, found the end."),
        ("a = b", 'Expected a value, found "b".'),
        ("a = 1 + 2", 'Expected a name, found "+".'),
        ("a = [1 2]", 'Expected , or ], found "2".'),
        ("a {", "Expected a name, found the end."),
        ("}", 'Expected a name, found "}".'),
        ("a = <<X\nb\nX\n", "Expected a value"),
        (r'a = "\q"', '"\\q" is not known.'),
        ('a = "x', "no closing quote"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: str, detail: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_items(text)
    assert detail in refused.value.detail


@pytest.mark.parametrize(("opening", "closing"), [("a {", "}"), ("a = [", "]")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    with pytest.raises(Refusal):
        parse_items(opening * (NESTING_MAX + 2) + closing * (NESTING_MAX + 2))
    deep = "a = " + "[" * (NESTING_MAX + 2)
    with pytest.raises(Refusal):
        parse_items(deep)


@given(
    st.lists(st.sampled_from([*'a"={}[],\\\n#/ 1.', "${", "true", '"x"', "<<X\n"])).map("".join) | st.text(max_size=40)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(Refusal):
        parse_items(text)
