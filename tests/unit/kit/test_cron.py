"""Cron expressions: what they match, what is refused, what happens when clocks change."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from lepa.kit.cron import parse_cron

BERLIN = ZoneInfo("Europe/Berlin")


def _following(expression: str, start: str, count: int = 1, zone: ZoneInfo | None = None) -> list[str]:
    cron, found = parse_cron(expression), []
    now: datetime | None = datetime.fromisoformat(start).replace(tzinfo=zone or UTC)
    for _ in range(count):
        assert now is not None
        now = cron.next_after(now)
        found.append("never" if now is None else now.strftime("%Y-%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("* * * * *", "2026-01-01 00:00:30", ["2026-01-01 00:01:00", "2026-01-01 00:02:00"]),
        ("* * * * *", "2026-01-01 00:00:00", ["2026-01-01 00:01:00"]),
        ("*/15 * * * *", "2026-01-01 00:46", ["2026-01-01 01:00:00", "2026-01-01 01:15:00"]),
        ("5/20 3 * * *", "2026-01-01 00:00", ["2026-01-01 03:05:00", "2026-01-01 03:25:00", "2026-01-01 03:45:00"]),
        ("0 9-17/4 * * MON-FRI", "2026-01-02 14:00", ["2026-01-02 17:00:00", "2026-01-05 09:00:00"]),
        ("0 0 1,15 * *", "2026-01-15 00:00", ["2026-02-01 00:00:00", "2026-02-15 00:00:00"]),
        ("0 0 29 2 *", "2026-01-01 00:00", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 30 2 *", "2026-01-01 00:00", ["never"]),
        ("0 0 13 * 5", "2026-02-01 00:00", ["2026-02-06 00:00:00", "2026-02-13 00:00:00"]),
        ("0 0 ? * 7", "2026-01-01 00:00", ["2026-01-04 00:00:00"]),
        ("0 0 * * 5-7", "2026-01-02 00:00", ["2026-01-03 00:00:00", "2026-01-04 00:00:00", "2026-01-09 00:00:00"]),
        ("0 0 L * *", "2026-01-31 00:00", ["2026-02-28 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 LW * *", "2026-01-01 00:00", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 15W 8 *", "2026-01-01 00:00", ["2026-08-14 00:00:00"]),
        ("0 0 1W 8 *", "2026-01-01 00:00", ["2026-08-03 00:00:00"]),
        ("0 0 31W 5 *", "2026-01-01 00:00", ["2026-05-29 00:00:00"]),
        ("0 0 * * 5L", "2026-01-01 00:00", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * fri#3", "2026-01-01 00:00", ["2026-01-16 00:00:00", "2026-02-20 00:00:00"]),
        ("0 0 * * 5#5", "2026-02-01 00:00", ["2026-05-29 00:00:00"]),
        ("0 0 1 jan,JULY *", "2026-01-01 00:00", ["2026-07-01 00:00:00", "2027-01-01 00:00:00"]),
        ("0 0 1 1 * 2030", "2026-01-01 00:00", ["2030-01-01 00:00:00", "never"]),
        ("*/20 * * * * * *", "2026-01-01 00:00:50", ["2026-01-01 00:01:00", "2026-01-01 00:01:20"]),
        ("30 0 0 1 1 * 2027", "2026-01-01 00:00", ["2027-01-01 00:00:30"]),
        ("@hourly", "2026-01-01 00:10", ["2026-01-01 01:00:00"]),
        ("@Weekly", "2026-01-01 00:10", ["2026-01-04 00:00:00"]),
        ("  @daily ", "2026-01-01 00:10", ["2026-01-02 00:00:00"]),
        ("@yearly", "2026-01-01 00:10", ["2027-01-01 00:00:00"]),
    ],
)
def test_next_times_are_those_of_the_expression(expression: str, start: str, expected: list[str]) -> None:
    assert _following(expression, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "expected 5 to 7 fields, found 0"),
        ("* * * *", "expected 5 to 7 fields, found 4"),
        ("* * * * * * * *", "expected 5 to 7 fields, found 8"),
        ("60 * * * *", "minute 60 is not within 0-59"),
        ("* 24 * * *", "hour 24 is not within 0-23"),
        ("* * 0 * *", "day of month 0 is not within 1-31"),
        ("* * * foo *", 'month "foo" is not a number'),
        ("* * * * 8", "day of week 8 is not within 0-7"),
        ("* * * * 1#6", "the number after # is not within 1-5"),
        ("* * * * L", 'day of week "L" is not a number'),
        ("*/0 * * * *", 'minute step "0" is not a positive number'),
        ("*/ * * * *", 'minute step "" is not a positive number'),
        ("9-3 * * * *", 'minute range "9-3" runs backwards'),
        ("1,,2 * * * *", 'minute "" is not a number'),
        ("* * * * * 2100", "year 2100 is not within 1970-2099"),
        ("@fortnightly", 'unknown name "@fortnightly"'),
        ("٣ * * * *", 'minute "٣" is not a number'),
        ("*" * 600, "longer than 512 characters"),
    ],
)
def test_broken_expressions_are_refused_with_the_field_and_the_reason(expression: str, reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_cron(expression)
    assert reason in str(raised.value)


def test_a_time_skipped_in_spring_does_not_occur_that_day() -> None:
    """Clocks go from 02:00 to 03:00 on 2026-03-29 in Berlin (B075)."""
    expected = ["2026-03-28 02:30:00", "2026-03-30 02:30:00"]
    assert _following("30 2 * * *", "2026-03-27 12:00", 2, BERLIN) == expected


def test_a_time_repeated_in_autumn_occurs_twice() -> None:
    """Clocks go from 03:00 back to 02:00 on 2026-10-25 in Berlin (B075)."""
    cron = parse_cron("30 2 * * *")
    first = cron.next_after(datetime(2026, 10, 24, 12, tzinfo=BERLIN))
    assert first is not None
    second = cron.next_after(first)
    assert second is not None
    third = cron.next_after(second)
    assert third is not None
    assert [t.isoformat() for t in (first, second, third)] == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_in_utc_each_day_has_exactly_one_time() -> None:
    times = _following("30 2 * * *", "2026-03-27 12:00", 4)
    assert times == [f"2026-03-{day} 02:30:00" for day in (28, 29, 30, 31)]


def test_every_real_hour_occurs_once_across_both_changes() -> None:
    cron = parse_cron("0 * * * *")
    for start in (datetime(2026, 3, 28, 22, tzinfo=BERLIN), datetime(2026, 10, 24, 22, tzinfo=BERLIN)):
        now = start
        for hours in range(1, 12):
            following = cron.next_after(now)
            assert following is not None
            assert following.astimezone(UTC) == start.astimezone(UTC) + timedelta(hours=hours)
            now = following


def test_a_change_of_half_an_hour_at_lord_howe_is_followed() -> None:
    assert _following("15 2 * * *", "2026-10-03 12:00", 2, ZoneInfo("Australia/Lord_Howe")) == [
        "2026-10-05 02:15:00",
        "2026-10-06 02:15:00",
    ]


def test_the_same_instant_in_another_zone_gives_the_same_launch() -> None:
    cron, tokyo = parse_cron("0 9 * * *"), ZoneInfo("Asia/Tokyo")
    first = cron.next_after(datetime(2026, 1, 1, 12, tzinfo=tokyo))
    again = cron.next_after(datetime(2026, 1, 1, 3, tzinfo=UTC).astimezone(tokyo))
    assert first == again == datetime(2026, 1, 2, 0, tzinfo=UTC)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        parse_cron("* * * * *").next_after(datetime(2026, 1, 1))
