"""Results of a check in a row."""

from lepa.client.check_tally import Tally
from lepa.model.service import ServiceCheck


def test_the_first_result_counts() -> None:
    tally = Tally(ServiceCheck())
    assert tally.status == "critical"
    assert tally.take("passing")
    assert tally.status == "passing"
    assert not tally.take("critical")
    assert tally.status == "critical"


def test_a_check_without_a_result_is_not_healthy_whatever_its_initial_status() -> None:
    tally = Tally(ServiceCheck(initial_status="passing"))
    assert tally.status == "passing"
    assert not tally.healthy
    tally.take("passing")
    assert tally.healthy


def test_some_successes_before_passing_and_failures_before_critical() -> None:
    tally = Tally(ServiceCheck(success_before_passing=2, failures_before_critical=3, failures_before_warning=2))
    seen = []
    for status in ("passing", "passing", "critical", "critical", "critical", "passing"):
        tally.take(status)
        seen.append(tally.status)
    assert seen == ["critical", "passing", "passing", "warning", "critical", "critical"]


def test_on_update_says_what_is_overlooked() -> None:
    warned = Tally(ServiceCheck(on_update="ignore_warnings"))
    warned.take("warning")
    assert warned.healthy
    ignored = Tally(ServiceCheck(on_update="ignore"))
    assert ignored.healthy
    strict = Tally(ServiceCheck(on_update="require_healthy"))
    strict.take("warning")
    assert not strict.healthy
