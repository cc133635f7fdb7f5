"""What must hold of routes, picking, framing and heads, whatever comes."""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lepa.catalog.table import Instance, ServiceTable
from lepa.ingress.client_hello import server_name
from lepa.ingress.fabio_tags import read_tags as read_fabio
from lepa.ingress.framing import Chunked
from lepa.ingress.heads import BadHead, RequestHead, ResponseHead
from lepa.ingress.picker import Picker, Strategy, ring_of, shares
from lepa.ingress.proxy_protocol import Source, header, read_header
from lepa.ingress.route_spec import PLAIN
from lepa.ingress.routes import RouteTable, plain_path
from lepa.ingress.traefik_rules import PLACES_MAX, places_of
from lepa.ingress.traefik_tags import read_tags as read_traefik
from lepa.model.errors import LepaError

LABELS = st.sampled_from(["a", "b", "www", "example"])
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
HOSTS = st.one_of(
    st.just(""), NAMES, NAMES.map("*.{}".format), st.just("*"), NAMES.map("{}:8080".format), NAMES.map("?{}".format)
)
PATHS = st.lists(st.sampled_from(["x", "xy", "y"]), max_size=3).map(lambda parts: "/" + "/".join(parts))
PLACES = st.lists(st.tuples(HOSTS, PATHS, st.booleans()), min_size=1, max_size=8)


# Routes


def table_of(places: Sequence[tuple[str, str, bool]]) -> RouteTable:
    rows = [
        Instance(
            id=f"i{n}", service=f"s{n}", address="10.0.0.1", port=80, tags=(f"urlprefix-{host}{path}",), healthy=up
        )
        for n, (host, path, up) in enumerate(places)
    ]
    return RouteTable.build(ServiceTable.build(rows, [], 1))


def slow_match(places: Sequence[tuple[str, str, bool]], host: str, path: str) -> tuple[str, str] | None:
    """The rules of the reference, read literally: all hosts that fit, in order; in each the longest path; the first
    that has a healthy instance."""
    name, _, port = host.partition(":")
    fitting = []
    for pattern in {place[0] for place in places}:
        own, _, own_port = pattern.partition(":")
        expression = re.escape(own).replace(r"\*", ".*").replace(r"\?", ".")
        if (not own or re.fullmatch(expression, name)) and own_port in {"", port or "80"}:
            fitting.append(((own != "", own[::-1], own_port), pattern))
    for _, pattern in sorted(fitting, reverse=True):
        paths = [place for place in places if place[0] == pattern and path.startswith(place[1])]
        longest = max((place[1] for place in paths), key=len, default=None)
        if longest is not None and any(place[2] for place in paths if place[1] == longest):
            return pattern, longest
    return None


@given(PLACES, st.one_of(NAMES, NAMES.map("{}:8080".format)), PATHS)
@settings(max_examples=500)
def test_the_index_finds_what_a_slow_search_finds(places: list[tuple[str, str, bool]], host: str, path: str) -> None:
    found = table_of(places).match(host, path, tls=False)
    expected = slow_match(places, host, path)
    if expected is None:
        assert found is None or not found.targets
    else:
        assert found is not None
        assert (found.key.host, found.key.path) == expected


@given(PLACES, PLACES)
def test_a_table_built_on_another_is_the_table_built_alone(
    before: list[tuple[str, str, bool]], after: list[tuple[str, str, bool]]
) -> None:
    def services(places: Sequence[tuple[str, str, bool]], old: ServiceTable | None = None) -> ServiceTable:
        rows = [
            Instance(
                id=f"i{n}", service=f"s{n % 3}", address=f"10.0.0.{n}", port=80, tags=(f"urlprefix-{h}{p}",), healthy=up
            )
            for n, (h, p, up) in enumerate(places)
        ]
        return ServiceTable.build(rows, [], 1, old)

    first = services(before)
    old = RouteTable.build(first)
    grown = RouteTable.build(services(after, first), None, old)
    alone = RouteTable.build(services(after))
    assert {key: set(route.registered) for key, route in grown.routes.items()} == {
        key: set(route.registered) for key, route in alone.routes.items()
    }


@given(st.text(alphabet="/.%2fFeEaA", max_size=20).map("/{}".format))
def test_resolving_a_path_twice_leads_nowhere_else_unless_escaped_twice(path: str) -> None:
    once = plain_path(path)
    assert "/../" not in once
    if "%" not in once:
        assert plain_path(once) == once


# Tags


@given(st.text(max_size=60))
def test_no_tag_is_ever_fatal(text: str) -> None:
    for tag in (f"urlprefix-{text}", f"urlprefix-/ {text}", text):
        found = read_fabio("web", (tag,), "urlprefix-", "dc1")
        assert len(found.specs) <= 1
        RouteTable.build(ServiceTable.build([Instance(id="i", service="web", address="h", port=1, tags=(tag,))], [], 1))
    read_traefik("web", (f"traefik.http.routers.r.rule={text}", f"traefik.{text}", text), {"web": "http"})


@given(st.text(alphabet='Host(`ab`)&|!, PathPrefix/"', max_size=40))
def test_a_rule_is_read_or_refused(rule: str) -> None:
    with contextlib.suppress(LepaError):
        assert len(places_of(rule)) <= PLACES_MAX


# Picking


@dataclass(frozen=True)
class Target:
    key: str
    fixed_share: float | None
    weight: int


class Route:
    first = False
    cursor = 0

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets
        self.ring = ring_of(targets)


SHARES = st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1)), st.integers(1, 10)), min_size=1, max_size=8).map(
    lambda rows: [Target(str(n), share, weight) for n, (share, weight) in enumerate(rows)]
)


@given(SHARES)
def test_shares_are_a_whole(targets: list[Target]) -> None:
    found = shares(targets)
    assert sum(found) == pytest.approx(1)
    assert min(found) >= 0


@given(SHARES)
@settings(max_examples=100, deadline=None)
def test_a_round_gives_each_target_its_share(targets: list[Target]) -> None:
    route, picker = Route(targets), Picker("rr")
    times = len(route.ring)
    counts = Counter(found.key for _ in range(times) if (found := picker.pick(route, 0.0)))
    for target, share in zip(targets, shares(targets), strict=True):
        assert counts[target.key] / times == pytest.approx(share, abs=0.01)
        assert (counts[target.key] > 0) == (share > 0)


@given(st.integers(1, 12), st.integers(0, 5))
def test_equal_targets_differ_by_one_at_most_at_any_time(count: int, extra: int) -> None:
    route, picker = Route([Target(str(n), None, 1) for n in range(count)]), Picker("rr")
    counts: Counter[str] = Counter({str(n): 0 for n in range(count)})
    for _ in range(3 * count + extra):
        found = picker.pick(route, 0.0)
        assert found is not None
        counts[found.key] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


@given(
    st.sampled_from(["rr", "rnd", "lc"]),
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from(["pick", "refused", "worked", "later"]), st.integers(0, 5)), max_size=60),
)
def test_a_target_that_is_out_is_picked_only_when_all_are(
    strategy: Strategy, count: int, steps: list[tuple[str, int]]
) -> None:
    route, picker, now = Route([Target(str(n), None, 1) for n in range(count)]), Picker(strategy, 3), 0.0
    for step, number in steps:
        key = str(number % count)
        if step == "later":
            now += number
        elif step == "refused":
            picker.refused(key, now)
        elif step == "worked":
            picker.worked(key)
        else:
            found = picker.pick(route, now)
            assert found is not None
            free = [target.key for target in route.targets if picker.is_in(target.key, now)]
            assert found.key in (free or [target.key for target in route.targets])


# Framing and heads

CHUNKS = st.lists(st.binary(min_size=1, max_size=40), max_size=5)


@given(CHUNKS, st.lists(st.integers(1, 30), min_size=1, max_size=20), st.binary(max_size=20))
def test_chunks_end_at_their_end(chunks: list[bytes], cuts: list[int], after: bytes) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data, framing, taken, turn = body + after, Chunked(), 0, 0
    while not framing.done:
        step = cuts[turn % len(cuts)]
        taken += framing.feed(data[taken : taken + step])
        turn += 1
    assert taken == len(body)


@given(st.binary(max_size=80), st.integers(1, 80))
def test_any_bytes_are_chunks_or_refused_however_they_come(data: bytes, cut: int) -> None:
    assert _fed(data, [len(data)]) == _fed(data, [cut])


def _fed(data: bytes, cuts: list[int]) -> tuple[int, bool] | None:
    framing, taken, place = Chunked(), 0, 0
    try:
        while place < len(data) and not framing.done:
            piece = data[place : place + cuts[0]]
            taken += framing.feed(piece)
            place += len(piece)
    except ValueError:
        return None
    return taken, framing.done


class Listener:
    """An independent reading of a head by llhttp, message by message."""

    def __init__(self) -> None:
        self.messages = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.messages += 1


LINES = st.sampled_from(
    [
        b"Host: h", b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked", b"X: y", b"X : y",
        b"Connection: close, x", b" folded", b"", b"\rX: y", b"X: a\rb", b"Content-Length:5,5", b"TE: trailers",
        b"Transfer-Encoding: identity", b"Host: other", b"X: \xff\x00", b"Upgrade: websocket", b"Connection: upgrade",
    ]
)  # fmt: skip
REQUESTS = st.sampled_from(
    [b"GET / HTTP/1.1", b"POST /x?y HTTP/1.1", b"GET http://o/ HTTP/1.0", b"GET /", b"PUT * HTTP/1.1"]
)


@given(REQUESTS, st.lists(LINES, max_size=6), st.sampled_from([b"\r\n", b"\n"]))
@settings(max_examples=500)
def test_a_head_that_is_taken_is_one_message_with_one_body(first: bytes, lines: list[bytes], end: bytes) -> None:
    head = end.join([first, *lines]) + b"\r\n\r\n"
    try:
        request = RequestHead(head)
    except BadHead:
        return
    listener = Listener()
    parser = httptools.HttpRequestParser(listener)
    with contextlib.suppress(httptools.HttpParserUpgrade):
        parser.feed_data(head)
    assert listener.messages == 1
    names = [name for name, _ in listener.headers]
    assert names.count(b"host") <= 1
    assert not (b"content-length" in names and b"transfer-encoding" in names)
    # What goes to the target is read the same way again.
    again = RequestHead(request.wire(PLAIN, "t:1") + b"\r\n")
    assert (again.method, again.body, again.upgrade) == (request.method, request.body, request.upgrade)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data: bytes) -> None:
    for read in (RequestHead, lambda head: ResponseHead(head, b"GET")):
        with contextlib.suppress(BadHead):
            read(data + b"\r\n\r\n")


@given(
    st.binary(max_size=120), st.sampled_from([b"", b"\x16\x03\x01", b"\x16\x03\x01\x00\x20\x01\x00\x00\x1c\x03\x03"])
)
def test_any_bytes_have_a_name_or_are_refused(data: bytes, start: bytes) -> None:
    try:
        found = server_name(start + data)
    except ValueError:
        return
    assert found is None or isinstance(found, str)


ADDRESSES: Any = st.ip_addresses().map(str)


@given(ADDRESSES, ADDRESSES, st.integers(0, 65_535), st.sampled_from([1, 2]), st.binary(max_size=20))
def test_a_proxy_header_survives_the_way(client: str, local: str, port: int, version: int, rest: bytes) -> None:
    source, came = Source(client, port, local, 80), Source("10.0.0.1", 1, "10.0.0.2", 2)
    written = header(source, version)
    found = read_header(written + rest, came)
    assert found is not None
    assert found[1] == len(written)
    assert found[0] == (source if (":" in client) == (":" in local) else came)


@given(st.binary(max_size=60), st.sampled_from([b"", b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"]))
def test_any_bytes_are_a_proxy_header_or_refused(data: bytes, start: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_header(start + data, Source("10.0.0.1", 1, "10.0.0.2", 2))
