"""How many results in a row a status needs."""

from lepa.consul.check_tally import Tally
from lepa.consul.registrations import Definition


def statuses(definition: Definition, results: str) -> str:
    """One letter a result: p, w, c."""
    words = {"p": "passing", "w": "warning", "c": "critical"}
    tally = Tally(definition, "critical")
    return "".join(tally.take(words[result])[0] for result in results)


def test_the_first_result_applies_at_once() -> None:
    strict = Definition("tcp", success_before_passing=3, failures_before_warning=3, failures_before_critical=3)
    assert statuses(strict, "p") == "p"
    assert statuses(strict, "c") == "c"


def test_without_thresholds_every_result_applies() -> None:
    assert statuses(Definition("tcp"), "pcpwc") == "pcpwc"


def test_passing_again_needs_successes_in_a_row() -> None:
    assert statuses(Definition("tcp", success_before_passing=3), "pcppcppp") == "pcccccc" + "p"


def test_failures_warn_before_they_are_critical() -> None:
    patient = Definition("tcp", failures_before_warning=2, failures_before_critical=4)
    assert statuses(patient, "pcccc") == "ppwwc"
