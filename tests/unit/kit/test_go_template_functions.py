"""How Go prints values."""

from typing import Any

import pytest

from lepa.kit.go_template_functions import FunctionError, equal, plain, printf, slice_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "<nil>"),
        (True, "true"),
        (1.0, "1"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1.5e-7, "1.5e-07"),
        (123456789.25, "123456789.25"),
        (float("inf"), "+Inf"),
        ([1, "a", None], "[1 a <nil>]"),
        ({"b": [1], "a": {}}, "map[a:map[] b:[1]]"),
        (b"hi", "[104 105]"),
    ],
)
def test_a_value_looks_as_in_go(value: Any, expected: str) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("form", "arguments", "expected"),
    [
        ("%s|%8s|%-8s|", ("a", "b", "c"), "a|       b|c       |"),
        ("%d|%5d|%-5d|%05d|%+d", (1, 2, 3, -4, 5), "1|    2|3    |-0004|+5"),
        ("%x %X %#x %o %b %c %U", (255, 255, 255, 8, 5, 97, 97), "ff FF 0xff 10 101 a U+0061"),
        ("%f %.2f %8.1f %e %g", (1.5, 1.005, 2.25, 1234.5, 0.1), "1.500000 1.00      2.2 1.234500e+03 0.1"),
        ("%q %v %#v %t", ('a"b', "x", "x", True), '"a\\"b" x "x" true'),
        ("%.2s|%*d", ("abcdef", 4, 7), "ab|   7"),
        ("100%%", (), "100%"),
        ("%d", ("x",), "%!d(string=x)"),
        ("%d %d", (1,), "1 %!d(MISSING)"),
        ("%d", (1, "x"), "1%!(EXTRA string=x)"),
        ("%v %T %T", ([1], 1.5, "s"), "[1] float64 string"),
        ("%x", ("hi",), "6869"),
    ],
)
def test_printf_knows_gos_verbs(form: str, arguments: tuple[Any, ...], expected: str) -> None:
    assert printf(form, *arguments) == expected


def test_what_cannot_be_compared_is_refused() -> None:
    assert equal(1, 1.0)
    assert not equal(None, 1)
    for pair in (("a", 1), (True, 1)):
        with pytest.raises(FunctionError, match="incompatible"):
            equal(*pair)


def test_slices_stay_inside() -> None:
    assert slice_of([1, 2, 3], 1) == [2, 3]
    with pytest.raises(FunctionError, match="out of range"):
        slice_of([1], 0, 5)
