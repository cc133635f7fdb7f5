from pathlib import Path

import msgspec
import pytest
from tests.clocks import ManualClock

from lepa.ingress.access_log import FIELDS, AccessLog, Logged, line_writer
from lepa.ingress.proxy_protocol import Source
from lepa.model.errors import LepaError

NOW_NS = 1_780_000_000_123_456_789
REQUEST = Logged(
    client=Source("10.1.1.1", 4000, "10.0.0.1", 80),
    scheme="http",
    method="GET",
    host="h:80",
    target="/a?b=c",
    minor=1,
    headers={b"user-agent": b"curl", b"referer": b'x" evil'},
    status=200,
    size=12,
    seconds=0.0015,
    upstream="10.0.0.2:8080",
    upstream_scheme="http",
    upstream_target="/b=c",
    service="web",
)


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("common", '10.1.1.1 - - [28/May/2026:20:26:40 +0000] "GET /a?b=c HTTP/1.1" 200 12'),
        ("$remote_addr $request_args $request_url", "10.1.1.1:4000 b=c http://h:80/a?b=c"),
        ("$upstream_host|$upstream_port|$upstream_service", "10.0.0.2|8080|web"),
        ("$upstream_request_url", "http://10.0.0.2:8080/b=c"),
        ("$response_time_ms $response_time_us", "1.500 1500"),
        ("$time_rfc3339_ms $time_unix_ms", "2026-05-28T20:26:40.123Z 1780000000123"),
        ("<$header.User-Agent> <$header.Missing>", "<curl> <->"),
        ("$header.Referer", r"x\" evil"),
    ],
)
def test_lines(form: str, line: str) -> None:
    assert line_writer(form)(REQUEST, NOW_NS) == line


def test_combined_adds_what_the_client_says_of_itself() -> None:
    assert line_writer("combined")(REQUEST, NOW_NS).endswith(r'200 12 "x\" evil" "curl"')


def test_every_field_can_be_written() -> None:
    assert line_writer(" ".join(f"${name}" for name in FIELDS))(REQUEST, NOW_NS)


def test_a_client_cannot_forge_a_line() -> None:
    forged = msgspec.structs.replace(REQUEST, host="a\nb")
    assert line_writer("$request_host")(forged, NOW_NS) == "a\\x0ab"


@pytest.mark.parametrize(("form", "said"), [("nothing", "names no field"), ("$nonsense", "not known")])
def test_forms_that_cannot_be(form: str, said: str) -> None:
    with pytest.raises(LepaError, match=said):
        line_writer(form)


def test_lines_are_written_together(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog(str(path), "$request_uri", ManualClock())
    log.note(REQUEST)
    log.note(REQUEST)
    assert path.read_text() == ""
    log.flush()
    assert path.read_text() == "/a?b=c\n/a?b=c\n"
    log.note(REQUEST)
    log.close()
    assert len(path.read_text().splitlines()) == 3


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="cannot write"):
        AccessLog(str(tmp_path / "missing" / "access.log"), "common", ManualClock())
