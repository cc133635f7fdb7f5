"""TLS through lepa.ingress.plane, lepa.ingress.tls_socket and lepa.ingress.certificates, with certificates that openssl
made."""

import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import make_certificate
from tests.integration.ingress_world import (
    HOST,
    World,
    answering,
    free_port,
    instance,
    read_all,
    read_head,
    serving,
    world,
)

from lepa.ingress.certificates import Certificates


@contextmanager
def secure(*certificates: Path, **settings: Any) -> Iterator[World]:
    with world(https=free_port(), certificates=tuple(map(str, certificates)), **settings) as made:
        yield made


def shake(here: World, name: str = "a.example.com", *, trusted: Path | None = None, alpn: str = "") -> ssl.SSLSocket:
    """A client's TLS connection. trusted: what it checks the certificate against."""
    context = ssl.create_default_context(cafile=trusted)
    if trusted is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([alpn])
    return context.wrap_socket(socket.create_connection((HOST, here.settings.https), 10), server_hostname=name)


def presented(here: World, name: str) -> bytes:
    with shake(here, name) as client:
        return client.getpeercert(binary_form=True) or b""


def der(path: Path) -> bytes:
    text = path.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path / "a.pem", "a.example.com")


def test_requests_over_tls(certificate: Path) -> None:
    def serve(client: socket.socket) -> None:
        head = read_head(client)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)

    with serving(serve) as server, secure(certificate) as here:
        here.route(instance(server.port, "urlprefix-a.example.com/"))
        with shake(here, trusted=certificate) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n")
            answer = read_all(client)
    assert b"X-Forwarded-Proto: https\r\n" in answer
    assert f"X-Forwarded-Port: {here.settings.https}\r\n".encode() in answer


def test_large_bodies_over_tls_both_ways(certificate: Path) -> None:
    body = b"z" * 5_000_000

    def serve(client: socket.socket) -> None:
        data = read_head(client).partition(b"\r\n\r\n")[2]
        while len(data) < len(body):
            data += client.recv(65_536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    with serving(serve) as server, secure(certificate) as here:
        here.route(instance(server.port, "urlprefix-/"))
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        client = http.client.HTTPSConnection(HOST, here.settings.https, context=context, timeout=10)
        client.request("POST", "/", body)
        assert client.getresponse().read() == body
        client.close()


def test_a_websocket_over_tls(certificate: Path) -> None:
    def serve(client: socket.socket) -> None:
        read_head(client)
        client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while data := client.recv(65_536):
            client.sendall(data)

    with serving(serve) as server, secure(certificate) as here:
        here.route(instance(server.port, "urlprefix-/"))
        with shake(here) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert b"101" in read_head(client)
            client.sendall(b"z" * 300_000)
            seen = 0
            while seen < 300_000:
                seen += len(client.recv(65_536))


def test_the_name_chooses_the_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    first = make_certificate(tmp_path / "first.pem", "first.example.com")
    wild = make_certificate(folder / "wild.pem", "*.b.example.com")
    exact = make_certificate(folder / "exact.pem", "x.b.example.com")
    with secure(first, folder) as here:
        here.route()
        names = ("first.example.com", "y.b.example.com", "X.b.example.com", "unknown.example.com")
        assert [presented(here, name) for name in names] == [der(path) for path in (first, wild, exact, first)]


def test_a_renewed_certificate_is_used_and_open_connections_stay(certificate: Path) -> None:
    with serving(answering(b"x")) as server, secure(certificate) as here:
        here.route(instance(server.port, "urlprefix-/"))
        with shake(here) as before:
            old = presented(here, "a.example.com")
            make_certificate(certificate, "a.example.com")
            os.utime(certificate, ns=(1, 1))
            here.plane.certificates.refresh()
            assert presented(here, "a.example.com") == der(certificate) != old
            before.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert read_all(before).endswith(b"x")


def test_a_broken_renewal_leaves_the_good_one_and_is_named(certificate: Path) -> None:
    good = der(certificate)
    with secure(certificate) as here:
        here.route()
        certificate.write_text("nonsense")
        here.plane.certificates.refresh()
        assert presented(here, "a.example.com") == good
        assert "a.pem" in here.plane.notices()[0].problem


def test_missing_certificates_refuse_tls_and_harm_nobody(tmp_path: Path) -> None:
    with serving(answering(b"x")) as server, secure(tmp_path / "missing.pem") as here:
        here.route(instance(server.port, "urlprefix-/"))
        with pytest.raises(OSError):
            shake(here)
        assert here.get().endswith(b"x")
        assert "no certificate can be used" in " ".join(notice.problem for notice in here.plane.notices())
        make_certificate(tmp_path / "missing.pem", "a.example.com")
        here.plane.certificates.refresh()
        assert presented(here, "a.example.com")


def test_a_client_without_tls_on_the_tls_port_is_closed(certificate: Path) -> None:
    with secure(certificate) as here:
        here.route()
        with here.connect(here.settings.https) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"HTTP" not in read_all(client)


def test_a_handshake_that_never_ends_is_ended(certificate: Path) -> None:
    with secure(certificate, head_s=0.3) as here, here.connect(here.settings.https) as client:
        client.sendall(b"\x16\x03\x01")
        assert client.recv(1) == b""


def test_routes_for_tls_alone(certificate: Path) -> None:
    tags = ("traefik.http.routers.r.rule=PathPrefix(`/`)", "traefik.http.routers.r.tls=true")
    with serving(answering(b"x")) as server, secure(certificate) as here:
        here.route(instance(server.port, *tags))
        assert here.get().startswith(b"HTTP/1.1 404")
        with shake(here) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert read_all(client).endswith(b"x")


def test_http2_is_offered_for_names_of_grpc_only(certificate: Path) -> None:
    with secure(certificate) as here:
        here.route(instance(1, "urlprefix-g.example.com/ proto=grpc"))
        with shake(here, "g.example.com", alpn="h2") as one, shake(here, "a.example.com", alpn="h2") as two:
            assert (one.selected_alpn_protocol(), two.selected_alpn_protocol()) == ("h2", None)


@contextmanager
def tls_server(certificate: Path, answer: bytes) -> Iterator[Any]:
    """A server that speaks TLS itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as secured:
            while read_head(secured):
                secured.sendall(answer)

    with serving(serve) as server:
        yield server


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("port", ["https", "sni"])
def test_connections_are_passed_on_by_name(certificate: Path, tmp_path: Path, port: str) -> None:
    own = make_certificate(tmp_path / "own.pem", "own.example.com")
    sni = free_port()
    with tls_server(certificate, OK) as server, secure(own, sni=sni) as here:
        here.route(instance(server.port, "urlprefix-a.example.com/ proto=tcp+sni"))
        context = ssl.create_default_context(cafile=certificate)
        raw = socket.create_connection((HOST, here.settings.https if port == "https" else sni), 10)
        with context.wrap_socket(raw, server_hostname="a.example.com") as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert read_head(client) == OK
        assert presented(here, "own.example.com") == der(own)


def test_names_without_route_are_closed_on_the_port_that_passes_on(certificate: Path) -> None:
    sni = free_port()
    with world(sni=sni) as here:
        here.route()
        raw = socket.create_connection((HOST, sni), 10)
        with pytest.raises(OSError):
            ssl.create_default_context(cafile=certificate).wrap_socket(raw, server_hostname="a.example.com")


def test_a_target_that_speaks_tls(certificate: Path) -> None:
    with tls_server(certificate, OK) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/ proto=https tlsskipverify=true"))
        for _ in range(3):
            assert here.get().endswith(b"ok")
        assert server.accepted == 1


def test_a_target_whose_certificate_cannot_be_trusted_is_not_asked(certificate: Path) -> None:
    with tls_server(certificate, OK) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/ proto=https"))
        assert here.get().startswith(b"HTTP/1.1 502")


def test_files_beside_their_keys_and_bounds_of_names(tmp_path: Path) -> None:
    pem = make_certificate(tmp_path / "a.pem", "a.example.com").read_text()
    place = pem.index("-----BEGIN CERTIFICATE")
    (tmp_path / "a.pem").unlink()
    (tmp_path / "b.crt").write_text(pem[place:])
    (tmp_path / "b.key").write_text(pem[:place])
    (tmp_path / "notes.txt").write_text("no certificate")
    found = Certificates([str(tmp_path)], lambda name: False)
    found.refresh()
    assert found.problems == ()
    assert found.context() is not None
