"""lepa.serving.addressing"""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest

from lepa.model.errors import LepaError
from lepa.serving import addressing
from lepa.serving.addresses import Address, Located
from lepa.serving.addressing import (
    Direct,
    Fabio,
    Locator,
    NomadServiceProvider,
    Resolution,
    SrvDnsProvider,
    StaticProvider,
    dns_provider,
)

A, B = Address("a", 1), Address("b", 2)


class Provider:
    """Says what it is told to say."""

    def __init__(self, *addresses: Address, ttl_s: float = 10.0) -> None:
        self.resolution: Resolution | None = Resolution(tuple(map(Located, addresses)), ttl_s)
        self.asked = 0

    def resolve(self, service: str) -> Resolution:
        self.asked += 1
        if self.resolution is None:
            raise LepaError("timeout", "away")
        return self.resolution


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_answers_are_kept_for_their_ttl() -> None:
    provider, clock = Provider(A), Time()
    locator = Locator(provider, clock)
    assert locator.locate("s") == [A]
    clock.now = 9.9
    assert locator.first("s") == A
    assert provider.asked == 1
    clock.now = 10.0
    provider.resolution = Resolution((Located(B),), 10.0)
    assert locator.first("s") == B


def test_nobody_is_remembered_for_a_moment() -> None:
    provider, clock = Provider(), Time()
    locator = Locator(provider, clock)
    assert locator.locate("s") == locator.locate("s") == []
    assert provider.asked == 1
    with pytest.raises(LepaError, match="nobody offers the service s"):
        locator.first("s")
    clock.now = addressing.NEGATIVE_TTL_S
    locator.locate("s")
    assert provider.asked == 2


def test_the_old_answer_goes_on_while_the_provider_is_away_and_forgetting_asks_again() -> None:
    provider, clock = Provider(A), Time()
    locator = Locator(provider, clock)
    locator.locate("s")
    clock.now, provider.resolution = 100.0, None
    assert locator.locate("s") == [A]
    locator.forget("s")
    with pytest.raises(LepaError, match="away"):
        locator.locate("s")


def test_providers_are_named_by_urls() -> None:
    assert isinstance(dns_provider("dns://127.0.0.1:8600/consul"), SrvDnsProvider)
    assert isinstance(dns_provider("nomad://127.0.0.1:4646"), NomadServiceProvider)
    static = dns_provider("static://a:1,b:2")
    assert isinstance(static, StaticProvider)
    assert [place.address for place in static.resolve("x").places] == [A, B]
    with pytest.raises(LepaError, match="names no way to find services; known are dns://"):
        dns_provider("http://a:1")


def test_a_lost_address_is_tried_last_for_a_while_and_looked_up_anew() -> None:
    clock = Time()
    provider = Provider(A, B, ttl_s=60.0)
    locator = Locator(provider, clock)
    locator.locate("x")
    locator.lost("x", A)
    assert [locator.locate("x") for _ in range(20)] == [[B, A]] * 20
    assert provider.asked == 2
    clock.now += addressing.LOST_S
    assert sorted(locator.locate("x")) == [A, B]


def test_instances_that_are_known_to_be_ill_are_left_out() -> None:
    answer = [{"Address": "a", "Port": 1, "Status": "critical"}, {"Address": "b", "Port": 2, "Status": "passing"}]
    with service_api(answer) as (api, _):
        assert [place.address for place in NomadServiceProvider(api).resolve("web").places] == [B]


def test_load_balancers_say_where_to_go_and_how_they_find_the_service() -> None:
    fabio = Fabio("lb")
    assert (fabio.http(), fabio.rpc()) == (Address("lb", 9999), Address("lb", 7000))
    assert fabio.tags("rpc", "a") == ("urlprefix-:7000 proto=tcp",)
    assert fabio.tags("http", "a") == ("urlprefix-/clipper-a/ strip=/clipper-a",)
    assert fabio.path("a") == "/clipper-a"
    assert Fabio("lb", prefix="/ml").tags("http", "a") == ("urlprefix-/ml/ strip=/ml",)
    assert (Fabio("lb", prefix="/").tags("http", "a"), Fabio("lb", prefix="/").path("a")) == (("urlprefix-/",), "")
    assert (Direct().http(), Direct().rpc(), Direct().path("a"), Direct().tags("rpc", "a")) == (None, None, "", ())


def _dns_answer(question: bytes, truncated: bool) -> bytes:
    asked = dns.message.from_wire(question)
    response = dns.message.make_response(asked)
    name, kind = asked.question[0].name, asked.question[0].rdtype
    if truncated:
        response.flags |= dns.flags.TC
    elif kind == dns.rdatatype.SRV and str(name).startswith("web.service"):
        response.answer = [dns.rrset.from_text(name, 5, "IN", "SRV", "1 1 80 n1.node.consul.")]
    elif kind == dns.rdatatype.SRV and str(name).startswith("outside.service"):
        response.answer = [dns.rrset.from_text(name, 5, "IN", "SRV", "1 1 80 localhost.", "1 1 81 nowhere.invalid.")]
    elif str(name) in ("localhost.", "nowhere.invalid."):
        response.set_rcode(dns.rcode.REFUSED)
    elif kind == dns.rdatatype.AAAA and str(name).startswith("n1."):
        response.answer = [dns.rrset.from_text(name, 5, "IN", "AAAA", "fd00::1")]
    return response.to_wire()


@contextmanager
def dns_server(truncates: bool) -> Iterator[Address]:
    class Udp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, reply = self.request
            reply.sendto(_dns_answer(data, truncates), self.client_address)

    class Tcp(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            length = int.from_bytes(self.request.recv(2), "big")
            encoded = _dns_answer(self.request.recv(length), truncated=False)
            self.request.sendall(len(encoded).to_bytes(2, "big") + encoded)

    tcp = socketserver.TCPServer(("127.0.0.1", 0), Tcp)
    udp = socketserver.UDPServer(tcp.server_address, Udp)
    servers: tuple[socketserver.BaseServer, ...] = (tcp, udp)
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield Address(*tcp.server_address)  # type: ignore[arg-type]
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.mark.parametrize("truncates", [False, True])
def test_any_dns_server_is_asked_over_udp_and_when_truncated_over_tcp(truncates: bool) -> None:
    with dns_server(truncates) as server:
        provider = SrvDnsProvider(server)
        assert provider.resolve("web") == Resolution((Located(Address("fd00:0:0:0:0:0:0:1", 80), 1, 1),), 5.0)
        assert provider.resolve("nobody").places == ()


def test_a_target_of_another_domain_is_left_to_the_machines_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolver(name: str, *_: Any, **__: Any) -> list[Any]:
        if name == "localhost":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with dns_server(truncates=False) as server:
        places = SrvDnsProvider(server).resolve("outside").places
    assert [place.address for place in places] == [Address("127.0.0.1", 80)]


def test_a_dns_server_that_is_away_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addressing, "ANSWER_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with pytest.raises(LepaError, match=f"DNS server 127.0.0.1:{port} gave no answer about web.service.consul"):
            SrvDnsProvider(Address("127.0.0.1", port)).resolve("web")


@contextmanager
def service_api(answer: Any) -> Iterator[tuple[Address, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('X-Nomad-Token')}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield Address("127.0.0.1", server.server_address[1]), asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_service_api_is_asked_with_namespace_and_token() -> None:
    with service_api([{"Address": "10.0.0.1", "Port": 80}, {"Address": "10.0.0.2", "Port": 81}]) as (api, asked):
        found = NomadServiceProvider(api, "team a", "secret").resolve("web")
    assert [place.address for place in found.places] == [Address("10.0.0.1", 80), Address("10.0.0.2", 81)]
    assert asked == ["/v1/service/web?namespace=team%20a secret"]


def test_an_answer_that_makes_no_sense_is_an_error() -> None:
    with service_api({"a": 1}) as (api, _), pytest.raises(LepaError, match="gave no answer about service web"):
        NomadServiceProvider(api).resolve("web")


def test_static_places_may_have_names() -> None:
    provider = dns_provider("static://one=a:1,two=b:2,one=c:3")
    assert [place.address for place in provider.resolve("one").places] == [Address("a", 1), Address("c", 3)]
    assert provider.resolve("three").places == ()
    assert [place.address for place in dns_provider("static://a:1").resolve("any").places] == [Address("a", 1)]
