"""Filters, prefixes and pages."""

import pytest
from tests.builders import make_eval

from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.rpc.requests import ReadRequest
from lepa.server import pages


def rows(*ids: str) -> list:  # type: ignore[type-arg]
    return [make_eval(one, create_index=number + 98) for number, one in enumerate(ids)]


def page(request: ReadRequest) -> pages.Page:
    return pages.page_of(rows("a", "b", "c", "d"), request, token=pages.created_token, stub=lambda row: row.id)


def test_a_page_says_where_the_next_one_begins() -> None:
    assert page(ReadRequest(per_page=2)) == (("a", "b"), "100.c")
    assert page(ReadRequest()) == (("a", "b", "c", "d"), "")


def test_filters_apply_before_items_are_counted() -> None:
    assert page(ReadRequest(per_page=2, filter='ID != "a"')) == (("b", "c"), "101.d")


def test_a_broken_filter_and_one_that_does_not_fit_are_refused() -> None:
    with pytest.raises(LepaError, match="failed to create result paginator: failed to read filter expression"):
        page(ReadRequest(filter="ID =="))
    with pytest.raises(LepaError, match="failed to read result page"):
        page(ReadRequest(filter='Nothing == "x"'))


def test_tokens_lead_back_to_where_they_came_from() -> None:
    assert pages.created_start(ReadRequest(next_token="100.c.d")) == (100, "c.d")
    assert pages.created_start(ReadRequest()) is None
    assert pages.namespaced_start(ReadRequest(next_token="blue.a.b")) == ("blue", "a.b")
    assert pages.namespaced_token(make_eval("e")) == "default.e"
    with pytest.raises(LepaError, match="invalid next_token"):
        pages.created_start(ReadRequest(next_token="x.y"))


def test_lists_by_key_go_on_from_their_token_in_either_direction() -> None:
    names = ["a", "b", "c"]
    assert list(pages.since(names, ReadRequest(next_token="b"), str)) == ["b", "c"]
    assert list(pages.since(names, ReadRequest(next_token="b"), str, reverse=True)) == ["b", "a"]
    assert list(pages.since(names, ReadRequest(), str, reverse=True)) == ["c", "b", "a"]


def test_a_list_of_one_direction_only_ignores_the_wish_for_the_other() -> None:
    assert list(pages.since(["a", "b", "c"], ReadRequest(next_token="b", reverse=True), str)) == ["b", "c"]


def test_a_star_is_every_namespace() -> None:
    mine, all_of_them = pages.in_namespace(ReadRequest()), pages.in_namespace(ReadRequest(namespace="*"))
    blue = Evaluation(namespace="blue")
    assert (mine(blue), all_of_them(blue), mine(make_eval())) == (False, True, True)
