"""Constraints, affinities and spreads that make no sense."""

from typing import Any

import pytest
from tests.unit.model.raw_jobs import errors_of

from lepa.model.constraint import Affinity, Constraint, Spread, SpreadTarget
from lepa.model.placement_checks import placement_problems


def _spread(*targets: tuple[str, int]) -> Spread:
    shares = tuple(SpreadTarget(value=value, percent=percent) for value, percent in targets)
    return Spread(attribute="a", spread_target=shares)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            {"Constraints": [{"LTarget": "${node.class}", "Operand": "~~", "RTarget": "x"}]},
            'Unknown constraint type "~~"',
        ),
        ({"Type": "system", "Affinities": [{"LTarget": "a", "RTarget": "b"}]}, "System jobs may not have an affinity"),
        ({"Type": "system", "Spreads": [{"Attribute": "a"}]}, "System jobs may not have a spread block"),
    ],
)
def test_a_broken_constraint_of_a_job_is_refused(job: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors_of(job))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"Constraints": [{"Operand": "distinct_hosts"}]}, "disallowed Operand at task level"),
        ({"Constraints": [{"LTarget": "a", "Operand": "regexp", "RTarget": "("}]}, "failed to compile"),
    ],
)
def test_a_broken_constraint_of_a_task_is_refused(task: dict[str, Any], message: str) -> None:
    assert any(
        message in error and error.startswith("Task group api validation failed: ") for error in errors_of(**task)
    )


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        (Constraint(operand=""), "Missing constraint operand"),
        (Constraint(rtarget="x"), "No LTarget provided but is required by constraint"),
        (Constraint(ltarget="a"), 'Operator "=" requires an RTarget'),
        (Constraint(ltarget="a", operand="is_set", rtarget="x"), 'Operator "is_set" does not support an RTarget'),
        (Constraint(ltarget="a", operand="version", rtarget="new"), 'Version constraint is invalid: "new"'),
        (Constraint(ltarget="a", operand="distinct_property", rtarget="0"), "must be a positive number"),
    ],
)
def test_a_broken_constraint_is_named_by_its_number(constraint: Constraint, problem: str) -> None:
    good = Constraint(ltarget="${attr.kernel.name}", rtarget="linux")
    found = list(placement_problems((good, constraint)))
    assert any(message.startswith("Constraint 2 validation failed: ") and problem in message for message in found)


def test_a_pattern_is_refused_for_its_length_but_not_for_what_it_does_to_others() -> None:
    def problems(pattern: str) -> list[str]:
        return list(placement_problems((Constraint(ltarget="a", operand="regexp", rtarget=pattern),)))

    assert problems("(a+)+$") == []
    (problem,) = problems("(a{1000}){1000}")
    assert "Regular expression failed to compile: the pattern needs more than" in problem


def test_every_operator_has_a_form_that_is_accepted() -> None:
    values = {
        "version": ">= 1.2, < 2.0",
        "semver": "1.2.3-beta.1",
        "regexp": "^a+$",
        "distinct_hosts": "",
        "distinct_property": "3",
        "is_set": "",
        "is_not_set": "",
    }
    plain = ("=", "==", "is", "!=", "not", "<", "<=", ">", ">=", "set_contains", "set_contains_all", "set_contains_any")
    constraints = [Constraint(ltarget="a", operand=operand, rtarget=value) for operand, value in values.items()]
    constraints += [Constraint(ltarget="a", operand=operand, rtarget="x") for operand in plain]
    assert list(placement_problems(tuple(constraints))) == []


def test_values_that_are_known_only_on_the_node_are_accepted() -> None:
    assert list(placement_problems((Constraint(ltarget="a", operand="version", rtarget="${meta.wanted}"),))) == []


@pytest.mark.parametrize(
    ("affinity", "problem"),
    [
        (Affinity(ltarget="a", rtarget="b", weight=0), "Affinity weight cannot be zero"),
        (Affinity(ltarget="a", rtarget="b", weight=-101), "Affinity weight must be within the range [-100,100]"),
        (Affinity(ltarget="a", rtarget="b", operand="is_set"), 'Unknown affinity operator "is_set"'),
        (Affinity(rtarget="b"), "No LTarget provided but is required by affinity"),
    ],
)
def test_a_broken_affinity_is_refused(affinity: Affinity, problem: str) -> None:
    assert list(placement_problems((), (affinity,))) == [f"Affinity 1 validation failed: {problem}"]


@pytest.mark.parametrize(
    ("spread", "problem"),
    [
        (Spread(), "Missing spread attribute"),
        (Spread(attribute="a", weight=0), "Spread block must have a positive weight from 0 to 100"),
        (_spread(("a", 60), ("b", 60)), "Sum of spread target percentages must not be greater than 100%; got 120%"),
        (_spread(("a", 10), ("a", 10)), 'Spread target value "a" already defined'),
        (_spread(("a", -1)), 'Spread target percentage for value "a" must be between 0 and 100'),
    ],
)
def test_a_broken_spread_is_refused(spread: Spread, problem: str) -> None:
    assert list(placement_problems((), (), (spread,))) == [f"Spread 1 validation failed: {problem}"]
