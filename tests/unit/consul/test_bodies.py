"""Members of objects that strangers sent."""

from typing import Any

import pytest

from lepa.consul import bodies
from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError


def test_keys_are_found_in_any_case_and_with_underscores() -> None:
    assert bodies.lowered({"Service_ID": 1, "TLSSkipVerify": 2}) == {"serviceid": 1, "tlsskipverify": 2}


def test_what_is_absent_or_null_is_empty() -> None:
    for given in ({}, {"a": None}):
        assert bodies.text(given, "a") == ""
        assert bodies.texts(given, "a") == ()
        assert (bodies.number(given, "a"), bodies.number(given, "a", 7)) == (0, 7)
        assert bodies.flag(given, "a") is False
        assert (bodies.mapping(given, "a"), bodies.objects(given, "a"), bodies.duration(given, "a")) == ({}, [], 0)


def test_durations_are_texts_or_nanoseconds() -> None:
    assert [bodies.duration({"a": given}, "a") for given in ("1s", SECOND, 1e9, "-1s", "")] == [
        SECOND, SECOND, SECOND, 0, 0
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (bodies.lowered, [1]),
        (bodies.text, 5),
        (bodies.texts, "a"),
        (bodies.texts, [5]),
        (bodies.number, -1),
        (bodies.number, 1 << 64),
        (bodies.number, True),
        (bodies.number, "5"),
        (bodies.flag, "yes"),
        (bodies.mapping, [1]),
        (bodies.objects, {"a": 1}),
        (bodies.duration, True),
        (bodies.duration, [1]),
        (bodies.duration, "soon"),
    ],
)
def test_the_wrong_type_is_refused_by_name(read: Any, value: Any) -> None:
    with pytest.raises(LepaError, match="decode error"):
        read(value) if read is bodies.lowered else read({"a": value}, "a")


def test_pairs_hold_texts() -> None:
    assert list(bodies.pairs({"meta": {"a": "b"}}, "meta")) == [("a", "b")]
    with pytest.raises(LepaError, match=r"meta\.a"):
        list(bodies.pairs({"meta": {"a": 1}}, "meta"))
