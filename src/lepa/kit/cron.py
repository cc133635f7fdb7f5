"""Pure: cron expressions of periodic jobs, and when they come due next.

Fields: [second] minute hour day-of-month month day-of-week [year]; six fields have a year and no second. Lists `a,b`,
ranges `a-b`, steps `*/n`, `a/n`, `a-b/n`, names (`JAN`, `monday`) and these in the day fields:

    ?     any day, as `*`
    L     the last day of the month            5L    the last Friday of the month
    LW    the last weekday of the month        5#3   the third Friday of the month
    15W   the weekday nearest to the 15th, in the same month

When both day fields are restricted a day needs to match only one of them. `@yearly`, `@monthly`, `@weekly`, `@daily`
and `@hourly` stand for the usual expressions.

Where clocks change, expressions follow the wall clock: a time that is skipped does not occur, one that is repeated
occurs twice.
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

_TEXT_LENGTH_MAX = 512
_YEAR_MIN, _YEAR_MAX = 1970, 2099
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)

_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


@dataclass(frozen=True, slots=True)
class _Field:
    """What one column may hold."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Full names of the values from `low` on; the first three letters will do."""

    def number(self, text: str) -> int:
        if self.names and len(text) >= 3 and text.isalpha():
            for value, name in enumerate(self.names, self.low):
                if text.lower() in (name, name[:3]):
                    return value
        if not re.fullmatch(r"[0-9]{1,4}", text):
            raise ValueError(f'{self.name} "{text}" is not a number')
        if not self.low <= int(text) <= self.high:
            raise ValueError(f"{self.name} {text} is not within {self.low}-{self.high}")
        return int(text)


_MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "sunday monday tuesday wednesday thursday friday saturday"
_SECONDS = _Field("second", 0, 59)
_MINUTES = _Field("minute", 0, 59)
_HOURS = _Field("hour", 0, 23)
_DAYS_OF_MONTH = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, tuple(_MONTHS.split()))
_DAYS_OF_WEEK = _Field("day of week", 0, 7, tuple(_WEEKDAYS.split()))
_YEARS = _Field("year", _YEAR_MIN, _YEAR_MAX)


@dataclass(frozen=True, slots=True)
class _DaysOfMonth:
    """The day-of-month column. nearest: days whose nearest weekday is meant."""

    days: frozenset[int]
    nearest: frozenset[int]
    last: bool
    last_weekday: bool
    any: bool

    def of(self, year: int, month: int) -> set[int]:
        """Days of that month."""
        length = calendar.monthrange(year, month)[1]
        found = {day for day in self.days if day <= length}
        found |= {_nearest_weekday(year, month, day, length) for day in self.nearest if day <= length}
        if self.last:
            found.add(length)
        if self.last_weekday:
            found.add(_nearest_weekday(year, month, length, length))
        return found


def _nearest_weekday(year: int, month: int, day: int, length: int) -> int:
    weekday = calendar.weekday(year, month, day)
    if weekday == calendar.SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == calendar.SUNDAY:
        return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True)
class _DaysOfWeek:
    """The day-of-week column, Sunday being 0. nth: (day, which); last: days whose last occurrence is meant."""

    days: frozenset[int]
    nth: frozenset[tuple[int, int]]
    last: frozenset[int]
    any: bool

    def of(self, year: int, month: int) -> set[int]:
        """Days of that month."""
        first, length = calendar.monthrange(year, month)
        found = set()
        for day in range(1, length + 1):
            weekday = (first + day) % 7
            which = (day + 6) // 7
            if weekday in self.days or (weekday, which) in self.nth or (weekday in self.last and day + 7 > length):
                found.add(day)
        return found


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; `parse_cron` makes one."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days_of_month: _DaysOfMonth
    months: tuple[int, ...]
    days_of_week: _DaysOfWeek
    years: tuple[int, ...]

    def next_after(self, after: datetime) -> datetime | None:
        """The first time later than `after`, an aware time in the zone that the expression is meant in.

        None when there is none up to the end of 2099. Walks stretches of constant UTC offset, in each of which the
        wall clock runs evenly, so that skipped and repeated hours need no rules of their own.
        """
        zone = after.tzinfo
        if zone is None:
            raise ValueError("the time must have a zone")
        now = after.astimezone(UTC).replace(microsecond=0) + _SECOND
        while True:
            local = now.astimezone(zone)
            offset = local.utcoffset() or timedelta()
            due = self._next_on_wall_clock(local.replace(tzinfo=None))
            if due is None:
                return None
            end = _end_of_offset(now, after)
            if due < (end + offset).replace(tzinfo=None):
                return (due - offset).replace(tzinfo=UTC).astimezone(zone)
            now = max(end, (due - offset - 2 * _DAY).replace(tzinfo=UTC))

    def _next_on_wall_clock(self, start: datetime) -> datetime | None:
        """The first matching time at or after `start`, on a clock that never changes."""
        for day in self._days_from(start.date()):
            earliest = start.time() if day == start.date() else time()
            found = self._next_time(earliest)
            if found is not None:
                return datetime.combine(day, found)
        return None

    def _days_from(self, start: date) -> Iterator[date]:
        for year in self.years[bisect_left(self.years, start.year) :]:
            for month in self.months:
                if (year, month) >= (start.year, start.month):
                    for day in self._days_in(year, month):
                        if date(year, month, day) >= start:
                            yield date(year, month, day)

    def _days_in(self, year: int, month: int) -> list[int]:
        if self.days_of_month.any:
            return sorted(self.days_of_week.of(year, month))
        if self.days_of_week.any:
            return sorted(self.days_of_month.of(year, month))
        return sorted(self.days_of_month.of(year, month) | self.days_of_week.of(year, month))

    def _next_time(self, start: time) -> time | None:
        """The first matching time of day at or after `start`."""
        for hour in self.hours[bisect_left(self.hours, start.hour) :]:
            if hour > start.hour:
                return time(hour, self.minutes[0], self.seconds[0])
            for minute in self.minutes[bisect_left(self.minutes, start.minute) :]:
                if minute > start.minute:
                    return time(hour, minute, self.seconds[0])
                later = self.seconds[bisect_left(self.seconds, start.second) :]
                if later:
                    return time(hour, minute, later[0])
        return None


def _end_of_offset(now: datetime, in_zone: datetime) -> datetime:
    """When the UTC offset of the zone changes after `now`, to the second; a day later when it does not before."""
    zone = in_zone.tzinfo
    offset = now.astimezone(zone).utcoffset()
    if (now + _DAY).astimezone(zone).utcoffset() == offset:
        return now + _DAY
    same, changed = 0, 24 * 3600
    while changed - same > 1:
        middle = (same + changed) // 2
        if (now + middle * _SECOND).astimezone(zone).utcoffset() == offset:
            same = middle
        else:
            changed = middle
    return now + changed * _SECOND


def parse_cron(text: str) -> Cron:
    """The expression in `text`. Raises ValueError that says which field is wrong and why."""
    if len(text) > _TEXT_LENGTH_MAX:
        raise ValueError(f"longer than {_TEXT_LENGTH_MAX} characters")
    named = text.strip().lower()
    if named.startswith("@") and named not in _NICKNAMES:
        raise ValueError(f'unknown name "{named}", expected one of {", ".join(_NICKNAMES)}')
    fields = _NICKNAMES.get(named, text).split()
    if not 5 <= len(fields) <= 7:
        raise ValueError(f"expected 5 to 7 fields, found {len(fields)}")
    if len(fields) < 7:
        fields = ["0", *fields]
    if len(fields) < 7:
        fields = [*fields, "*"]
    second, minute, hour, day_of_month, month, day_of_week, year = fields
    return Cron(
        _values(second, _SECONDS),
        _values(minute, _MINUTES),
        _values(hour, _HOURS),
        _parse_days_of_month(day_of_month),
        _values(month, _MONTH),
        _parse_days_of_week(day_of_week),
        _values(year, _YEARS),
    )


def _values(text: str, field: _Field) -> tuple[int, ...]:
    return tuple(sorted({value for item in text.split(",") for value in _range(item, field)}))


def _range(item: str, field: _Field) -> range:
    """Values of `*`, `?`, `a`, `a-b`, each perhaps with `/step`."""
    span, slash, step_text = item.partition("/")
    if span in ("*", "?"):
        low, high = field.low, field.high
    elif "-" in span:
        first, _, last = span.partition("-")
        low, high = field.number(first), field.number(last)
    else:
        low = field.number(span)
        high = field.high if slash else low
    if low > high:
        raise ValueError(f'{field.name} range "{span}" runs backwards')
    step = int(step_text) if re.fullmatch(r"[0-9]{1,4}", step_text) else 0
    if slash and step < 1:
        raise ValueError(f'{field.name} step "{step_text}" is not a positive number')
    return range(low, high + 1, step or 1)


def _parse_days_of_month(text: str) -> _DaysOfMonth:
    days: set[int] = set()
    nearest: set[int] = set()
    items = text.upper().split(",")
    for item in items:
        if item.endswith("W") and item != "LW":
            nearest.add(_DAYS_OF_MONTH.number(item[:-1]))
        elif item not in ("L", "LW"):
            days.update(_range(item, _DAYS_OF_MONTH))
    return _DaysOfMonth(frozenset(days), frozenset(nearest), "L" in items, "LW" in items, text in ("*", "?"))


def _parse_days_of_week(text: str) -> _DaysOfWeek:
    days: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last: set[int] = set()
    for item in text.split(","):
        if "#" in item:
            day, _, which = item.partition("#")
            if which not in ("1", "2", "3", "4", "5"):
                raise ValueError(f'day of week "{item}": the number after # is not within 1-5')
            nth.add((_DAYS_OF_WEEK.number(day) % 7, int(which)))
        elif len(item) > 1 and item[-1] in "lL" and item[-2].isdigit():
            last.add(_DAYS_OF_WEEK.number(item[:-1]) % 7)
        else:
            days.update(day % 7 for day in _range(item, _DAYS_OF_WEEK))
    return _DaysOfWeek(frozenset(days), frozenset(nth), frozenset(last), text in ("*", "?"))
