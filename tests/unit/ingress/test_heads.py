import pytest

from lepa.ingress.framing import CHUNKED, UNTIL_CLOSE
from lepa.ingress.heads import (
    HEADERS_MAX,
    REMEMBERED_MAX,
    REMEMBERED_SIZE_MAX,
    BadHead,
    ClientFacts,
    Memo,
    RequestHead,
    ResponseHead,
    answer,
)
from lepa.ingress.route_spec import PLAIN, Options

FACTS = ClientFacts("10.1.1.1", "10.0.0.9", 9999, secure=False)


def head(first: str, *lines: str) -> bytes:
    return "\r\n".join((first, *lines, "", "")).encode("latin-1")


def request(*lines: str, first: str = "GET /a/b?c=d HTTP/1.1", host: str = "h") -> RequestHead:
    return RequestHead(head(first, *([f"Host: {host}"] if host else []), *lines))


def response(*lines: str, first: str = "HTTP/1.1 200 OK", method: bytes = b"GET") -> ResponseHead:
    return ResponseHead(head(first, *lines), method)


def wired(found: RequestHead, options: Options = PLAIN, key: str = "10.0.0.1:80") -> list[str]:
    return (found.wire(options, key) + FACTS.lines(found)).decode("latin-1").split("\r\n")


def test_what_a_request_says() -> None:
    found = request("User-Agent: x")
    assert (found.method, found.host, found.target, found.path) == (b"GET", "h", b"/a/b?c=d", "/a/b")
    assert (found.body, found.keep_alive, found.may_repeat, found.upgrade) == (0, True, True, b"")


def test_the_head_for_a_target() -> None:
    assert wired(request("User-Agent: x", "Connection: keep-alive")) == [
        "GET /a/b?c=d HTTP/1.1",
        "Host: h",
        "User-Agent: x",
        "X-Forwarded-Host: h",
        "X-Forwarded-For: 10.1.1.1",
        "X-Real-Ip: 10.1.1.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Port: 9999",
        "Forwarded: for=10.1.1.1;proto=http;by=10.0.0.9;httpproto=http/1.1",
        "",
        "",
    ]


def test_lists_of_another_balancer_are_continued_and_its_facts_kept() -> None:
    lines = wired(
        request(
            "X-Forwarded-For: 9.9.9.9",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: outside",
            "Forwarded: for=9.9.9.9",
        )
    )
    assert "X-Forwarded-For: 9.9.9.9, 10.1.1.1" in lines
    assert "X-Forwarded-Proto: https" in lines
    assert "X-Forwarded-Host: outside" in lines
    assert "X-Forwarded-Port: 9999" in lines
    assert any(line.startswith("Forwarded: for=9.9.9.9, for=10.1.1.1") for line in lines)
    assert len([line for line in lines if line.startswith("X-Forwarded-Proto")]) == 1


def test_headers_of_one_connection_are_left_out() -> None:
    lines = wired(
        request("Connection: close, X-Mine", "X-Mine: 1", "Keep-Alive: timeout=5", "Proxy-Connection: x", "TE: gzip")
    )
    assert not any(line.startswith(("Connection", "X-Mine", "Keep-Alive", "Proxy-Connection", "TE")) for line in lines)


def test_trailers_are_asked_for() -> None:
    assert "TE: trailers" in wired(request("TE: gzip, trailers"))


@pytest.mark.parametrize(
    ("version", "connection", "stays"),
    [
        ("1.1", "", True),
        ("1.1", "Close", False),
        ("1.1", "x, close", False),
        ("1.0", "", False),
        ("1.0", "Keep-Alive", True),
        ("1.0", "keep-alive, close", False),
    ],
)
def test_whether_a_connection_stays(version: str, connection: str, stays: bool) -> None:
    lines = (f"Connection: {connection}",) if connection else ()
    assert request(*lines, first=f"GET / HTTP/{version}").keep_alive is stays
    assert response("Content-Length: 1", *lines, first=f"HTTP/{version} 200 OK").keep_alive is stays


def test_strip_and_prepend() -> None:
    lines = wired(request(), Options(strip=("/a",), prepend="/v1"))
    assert lines[0] == "GET /v1/b?c=d HTTP/1.1"
    assert "X-Forwarded-Prefix: /a" in lines


@pytest.mark.parametrize(("option", "sent"), [("", "h"), ("dst", "10.0.0.1:80"), ("other", "other")])
def test_the_host_that_is_sent(option: str, sent: str) -> None:
    assert wired(request(), Options(host=option))[1] == f"Host: {sent}"


def test_the_host_of_one_target_is_not_sent_to_another() -> None:
    found, options = request(), Options(host="dst")
    assert [wired(found, options, key)[1] for key in ("a:1", "b:2")] == ["Host: a:1", "Host: b:2"]


def test_an_old_client_without_host_gets_the_targets() -> None:
    found = request(first="GET / HTTP/1.0", host="")
    assert (found.minor, found.keep_alive) == (0, False)
    assert wired(found)[:2] == ["GET / HTTP/1.0", "Host: 10.0.0.1:80"]


def test_the_absolute_form_names_the_host() -> None:
    found = request(first="GET http://Other:80/x?y HTTP/1.1")
    assert (found.host, found.target) == ("Other:80", b"/x?y")
    assert request(first="GET http://other HTTP/1.1").target == b"/"
    assert request(first="GET http://other?x HTTP/1.1").target == b"/?x"


def test_options_for_the_whole_server() -> None:
    assert request(first="OPTIONS * HTTP/1.1").target == b"*"


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (("Content-Length: 5",), 5),
        (("Content-Length: 0",), 0),
        (("Transfer-Encoding: chunked",), CHUNKED),
        (("Transfer-Encoding: Chunked",), CHUNKED),
    ],
)
def test_bodies_of_requests(lines: tuple[str, ...], body: int) -> None:
    found = request(*lines, first="POST / HTTP/1.1")
    assert (found.body, found.may_repeat) == (body, False)
    sent = wired(found)
    assert (f"Content-Length: {body}" in sent) == (body >= 0)
    assert ("Transfer-Encoding: chunked" in sent) == (body == CHUNKED)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (head("GET / HTTP/1.1"), 400),
        (head("GET / HTTP/1.1", "Host: a", "Host: b"), 400),
        (head("GET / HTTP/1.1", "Host: a b"), 400),
        (head("GET / HTTP/1.1", "Host: a/b"), 400),
        (head("GET x HTTP/1.1", "Host: a"), 400),
        (head("GET ftp://x/ HTTP/1.1", "Host: a"), 400),
        (head("GET /a b HTTP/1.1", "Host: a"), 400),
        (head("CONNECT x:80 HTTP/1.1", "Host: a"), 405),
        (head("GET / HTTP/2.0", "Host: a"), 505),
        (head("GET / HTTP/1.1", "Host : a"), 400),
        (head("GET / HTTP/1.1", "Host: a", " folded"), 400),
        (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        (head("GET / HTTP/1.1", "Host: a", "no colon"), 400),
        (head("POST / HTTP/1.1", "Host: a", "Content-Length: 5", "Content-Length: 5"), 400),
        (head("POST / HTTP/1.1", "Host: a", "Content-Length: 5, 5"), 400),
        (head("POST / HTTP/1.1", "Host: a", "Content-Length: -5"), 400),
        (head("POST / HTTP/1.1", "Host: a", "Content-Length: +5"), 400),
        (head("POST / HTTP/1.1", "Host: a", "Content-Length: 5", "Transfer-Encoding: chunked"), 400),
        (head("POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"), 400),
        (head("GET / HTTP/1.1", "Host: a", *["X: y"] * HEADERS_MAX), 431),
        (b"\x16\x03\x01\x02\0\x01\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
    ],
)
def test_heads_that_two_readers_could_understand_differently_are_refused(raw: bytes, status: int) -> None:
    with pytest.raises(BadHead) as caught:
        RequestHead(raw)
    assert caught.value.status == status


@pytest.mark.parametrize("encoding", ["gzip", "gzip, chunked", "chunked, chunked", "chunked, identity"])
def test_other_transfer_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(BadHead):
        request(f"Transfer-Encoding: {encoding}", first="POST / HTTP/1.1")


def test_a_websocket_may_be_asked_for_and_http2_may_not() -> None:
    found = request("Connection: keep-alive, Upgrade", "Upgrade: websocket")
    assert found.upgrade == b"websocket"
    assert {"Connection: Upgrade", "Upgrade: websocket"} <= {line.strip() for line in wired(found)}
    assert request("Connection: Upgrade", "Upgrade: h2c").upgrade == b""
    assert request("Upgrade: websocket").upgrade == b""
    assert "Upgrade: h2c" not in wired(request("Connection: Upgrade", "Upgrade: h2c"))


def test_what_a_response_says() -> None:
    found = response("Content-Length: 5", "Connection: keep-alive", "X: y")
    assert (found.status, found.body, found.keep_alive) == (200, 5, True)
    assert found.kept == b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\n"
    assert found.closing == b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "lines", "method", "body"),
    [
        ("HTTP/1.1 200 OK", (), b"GET", UNTIL_CLOSE),
        ("HTTP/1.0 200 OK", (), b"GET", UNTIL_CLOSE),
        ("HTTP/1.1 200 OK", ("Transfer-Encoding: chunked",), b"GET", CHUNKED),
        ("HTTP/1.1 200 OK", ("Content-Length: 5",), b"HEAD", 0),
        ("HTTP/1.1 204 No Content", (), b"GET", 0),
        ("HTTP/1.1 304 Not Modified", ("Content-Length: 5",), b"GET", 0),
        ("HTTP/1.1 100 Continue", (), b"POST", 0),
    ],
)
def test_bodies_of_responses(first: str, lines: tuple[str, ...], method: bytes, body: int) -> None:
    assert response(*lines, first=first, method=method).body == body


def test_the_length_of_an_answer_to_head_is_passed_on() -> None:
    assert b"Content-Length: 5\r\n" in response("Content-Length: 5", method=b"HEAD").kept


def test_a_response_that_ends_with_its_connection_is_not_followed_by_another() -> None:
    assert not response().keep_alive
    assert not response("Content-Length: 5", "Connection: close").keep_alive
    assert not response("Content-Length: 5", first="HTTP/1.0 200 OK").keep_alive


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: x",),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: gzip",),
        ("bad line",),
    ],
)
def test_malformed_responses_are_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(BadHead):
        response(*lines)


def test_equal_heads_are_read_once() -> None:
    memo, raw = Memo(), head("GET / HTTP/1.1", "Host: h")
    assert memo.request(raw) is memo.request(raw)
    answered = head("HTTP/1.1 200 OK", "Content-Length: 5")
    assert memo.response(answered, b"GET") is memo.response(answered, b"POST")
    assert memo.response(answered, b"HEAD").body == 0
    assert memo.response(answered, b"GET").body == 5


def test_what_is_remembered_is_bounded() -> None:
    memo = Memo()
    for number in range(REMEMBERED_MAX + 10):
        memo.request(head(f"GET /{number} HTTP/1.1", "Host: h"))
    assert len(memo.requests) <= REMEMBERED_MAX
    long = head("GET / HTTP/1.1", "Host: h", "X: " + "y" * REMEMBERED_SIZE_MAX)
    memo.request(long)
    assert long not in memo.requests


def test_bad_heads_are_not_remembered() -> None:
    memo = Memo()
    with pytest.raises(BadHead):
        memo.request(head("GET / HTTP/1.1"))
    assert memo.requests == {}


def test_facts_of_an_ipv6_client_are_quoted() -> None:
    facts = ClientFacts("fd00::2", "fd00::1", 443, secure=True)
    lines = facts.lines(request()).decode().split("\r\n")
    assert 'Forwarded: for="[fd00::2]";proto=https;by="[fd00::1]";httpproto=http/1.1' in lines
    assert "X-Forwarded-Proto: https" in lines


def test_an_answer_of_our_own() -> None:
    assert answer(404, "no", keep_alive=True, body=True) == (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\n\r\nno\n"
    )
    closing = answer(301, "x", (("Location", "/y"),), keep_alive=False, body=False)
    assert closing.endswith(b"Location: /y\r\nConnection: close\r\n\r\n")


def test_an_answer_cannot_be_split_by_what_it_repeats() -> None:
    assert b"\r\nEvil: 1" not in answer(301, "x", (("Location", "/\r\nEvil: 1"),), keep_alive=True, body=True)
