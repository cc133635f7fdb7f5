import pytest
from tests.calls import refusal, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('formatdate("DD MMM YYYY hh:mm ZZZ", "2024-01-02T15:04:05Z")', "02 Jan 2024 15:04 UTC"),
        ('formatdate("EEEE, D MMMM YY \'at\' H:mm aa", "2024-01-02T15:04:05Z")', "Tuesday, 2 January 24 at 3:04 pm"),
        ('formatdate("EEE HH AA h m s M MM Z", "2024-01-02T00:04:05+02:00")', "Tue 12 AM 0 4 5 1 01 +02:00"),
        ("formatdate(\"ZZZZ ZZZZZ 'it''s'\", \"2024-01-02T00:04:05-03:30\")", "-0330 -03:30 it's"),
        ('timeadd("2024-01-01T00:00:00Z", "1h30m")', "2024-01-01T01:30:00Z"),
        ('timeadd("2024-01-01T00:00:00+01:00", "-1s")', "2023-12-31T23:59:59+01:00"),
    ],
)
def test_date_function(text: str, expected: str) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('formatdate("YYYY", "yesterday")', '"yesterday" is not a valid RFC3339 timestamp'),
        ('formatdate("YYYY", "2024-13-01T00:00:00Z")', "is not a valid RFC3339 timestamp"),
        ('formatdate("YYYYY", "2024-01-01T00:00:00Z")', '"YYYYY" is not part of a date format'),
        ('formatdate("\'x", "2024-01-01T00:00:00Z")', "the format has an unclosed quote"),
        ('timeadd("2024-01-01T00:00:00Z", "soon")', 'invalid duration "soon"'),
        ('timeadd("9999-12-31T23:59:59Z", "1h")', "Error in function call"),
    ],
)
def test_what_a_date_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text)
