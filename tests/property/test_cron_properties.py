"""Properties of cron: the next time is later, on the wall clock it matches, and no match lies between."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from lepa.kit.cron import Cron, parse_cron

ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"])
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    one = st.integers(low, high).map(str)
    step = st.integers(1, high).map(lambda n: f"*/{n}")
    spans = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda ab: f"{min(ab)}-{max(ab)}")
    return st.one_of(st.just("*"), st.lists(one | spans | step, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 6)).map(" ".join)


def _matches(cron: Cron, local: datetime) -> bool:
    in_month = local.day in cron.days_of_month.of(local.year, local.month)
    in_week = local.day in cron.days_of_week.of(local.year, local.month)
    restricted = [hit for rule, hit in ((cron.days_of_month, in_month), (cron.days_of_week, in_week)) if not rule.any]
    return (
        local.minute in cron.minutes
        and local.hour in cron.hours
        and local.month in cron.months
        and local.second in cron.seconds
        and (any(restricted) or not restricted)
    )


@given(EXPRESSIONS, MOMENTS, ZONES)
def test_the_next_time_is_later_and_matches(expression: str, moment: datetime, zone: str) -> None:
    cron = parse_cron(expression)
    after = moment.astimezone(ZoneInfo(zone))
    following = cron.next_after(after)
    assert following is not None
    assert following.astimezone(UTC) > moment
    assert _matches(cron, following)


@given(EXPRESSIONS, MOMENTS, ZONES)
def test_no_match_lies_between(expression: str, moment: datetime, zone: str) -> None:
    cron = parse_cron(expression)
    start = moment.replace(second=0, microsecond=0)
    following = cron.next_after(start.astimezone(ZoneInfo(zone)))
    assert following is not None
    minute, checked_until = start + timedelta(minutes=1), min(following, start + timedelta(hours=30))
    while minute < checked_until:
        assert not _matches(cron, minute.astimezone(ZoneInfo(zone)))
        minute += timedelta(minutes=1)


@given(st.text(alphabet="0123456789*/-,LW#?@ abcJANMON", max_size=40))
def test_any_text_parses_or_is_refused_as_a_value_error(text: str) -> None:
    with suppress(ValueError):
        parse_cron(text).next_after(datetime(2026, 1, 1, tzinfo=UTC))
