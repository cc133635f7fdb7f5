"""Programs of regular expressions."""

import pytest

from lepa.kit.regexp_program import STEPS_MAX, Check, Fork, Program, Save, Take, write_program
from lepa.kit.regexp_syntax import RegexpError, parse_pattern

A, B = Take(((97, 97),)), Take(((98, 98),))


@pytest.mark.parametrize(
    ("pattern", "program"),
    [
        ("", (None,)),
        ("ab", (A, B, None)),
        ("a|b", (Fork((1, 3)), A, Fork((5,)), B, Fork((5,)), None)),
        ("a*", (Fork((1, 3)), A, Fork((0,)), None)),
        ("a*?", (Fork((3, 1)), A, Fork((0,)), None)),
        ("a+", (A, Fork((0, 2)), None)),
        ("a{2,}", (A, A, Fork((1, 3)), None)),
        ("a{1,3}", (A, Fork((2, 5)), A, Fork((4, 5)), A, None)),
        ("(a)", (Save(2), A, Save(3), None)),
        ("^a", (Check("text start"), A, None)),
        ("(?:a?)*", (Fork((1, 4)), Fork((2, 3)), A, Fork((1, 4)), None)),
    ],
)
def test_a_tree_becomes_steps(pattern: str, program: Program) -> None:
    assert write_program(parse_pattern(pattern)) == program


@pytest.mark.parametrize("pattern", ["((a{100}){100}){100}", "(((){900}){900}){900}b$", "(?:(|){1000}){1000}"])
def test_a_program_is_not_longer_than_its_bound(pattern: str) -> None:
    with pytest.raises(RegexpError, match=f"needs more than {STEPS_MAX} steps"):
        write_program(parse_pattern(pattern))


def test_the_longest_repeat_fits() -> None:
    assert len(write_program(parse_pattern("^[a-z]{0,1000}$"))) <= STEPS_MAX
