"""lepa.serving.selection"""

import pytest

from lepa.model.errors import LepaError
from lepa.serving.selection import Combined, SingleModel, selection_policy


def test_the_first_linked_model_answers() -> None:
    policy = SingleModel()
    assert policy.select(("a", "b")) == ("a",)
    assert policy.select(()) == ()
    assert policy.combine({"a": b"1"}, 1) == Combined(b"1", 1.0)
    assert policy.combine({}, 1) is None


def test_policies_are_known_by_clippers_name() -> None:
    assert isinstance(selection_policy("DefaultOutputSelectionPolicy"), SingleModel)
    with pytest.raises(LepaError, match="Best is an invalid selection_policy"):
        selection_policy("Best")
