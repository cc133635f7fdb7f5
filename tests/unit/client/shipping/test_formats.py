import json

import msgspec

from lepa.client.shipping.formats import (
    SYSLOG_BYTES_MAX,
    Line,
    Origin,
    acknowledged,
    forward,
    octet_counted,
    push,
    syslog,
)

ORIGIN = Origin("node 1", "default", "web", "all", "main", "0123456789ab", {"team": 'a"b]'})
LINE = Line("stderr", b"oh no", 1_700_000_000_123_456_789)


def test_syslog_is_rfc_5424() -> None:
    assert syslog(LINE, ORIGIN, "local0").decode() == (
        "<131>1 2023-11-14T22:13:20.123456Z node_1 web/main 01234567 stderr "
        '[lepa@32473 team="a\\"b\\]" namespace="default" job="web" group="all" task="main" '
        'alloc_id="0123456789ab"] oh no'
    )
    assert syslog(LINE._replace(stream="stdout"), ORIGIN, "kern").startswith(b"<6>1 ")
    assert len(syslog(LINE._replace(text=b"x" * 20_000), ORIGIN, "user")) == SYSLOG_BYTES_MAX
    assert octet_counted(b"abc") == b"3 abc"


def test_fluentd_gets_moments_records_and_a_chunk_to_acknowledge() -> None:
    tag, entries, options = msgspec.msgpack.decode(forward([LINE], ORIGIN, "lepa", "c1"))
    assert (tag, options) == ("lepa", {"chunk": "c1", "size": 1})
    ((moment, record),) = entries
    assert moment.code == 0
    assert int.from_bytes(moment.data[:4], "big") == 1_700_000_000
    assert int.from_bytes(moment.data[4:], "big") == 123_456_789
    assert record["log"] == "oh no"
    assert (record["job"], record["stream"], record["team"]) == ("web", "stderr", 'a"b]')
    answer = msgspec.msgpack.encode({"ack": "c1"})
    assert acknowledged(answer) == "c1"
    assert acknowledged(answer[:-1]) is None
    assert acknowledged(b"\xc0") == ""


def test_loki_gets_streams_with_moments_that_only_grow() -> None:
    body = json.loads(push([LINE, LINE, Line("stdout", b"\xff", 5)], ORIGIN))
    out, err = sorted(body["streams"], key=lambda each: -len(each["values"]))
    assert out["stream"]["stream"] == "stderr"
    assert [int(at) for at, _ in out["values"]] == [LINE.at, LINE.at + 1]
    assert err["values"][0][1] == "\ufffd"
