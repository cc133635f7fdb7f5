"""The error tree."""

import pytest

from lepa.model.errors import LepaError, conflict, invalid, not_found


@pytest.mark.parametrize(("make", "code"), [(invalid, "invalid"), (not_found, "not_found"), (conflict, "conflict")])
def test_short_forms_carry_their_code_message_and_facts(make: object, code: str) -> None:
    error = make("no such job", job_id="web")  # type: ignore[operator]
    assert isinstance(error, LepaError)
    assert (error.code, error.message, str(error), error.facts) == (
        code,
        "no such job",
        "no such job",
        {"job_id": "web"},
    )


def test_the_representation_names_code_and_message() -> None:
    assert repr(LepaError("timeout", "too slow")) == "LepaError('timeout', 'too slow')"
