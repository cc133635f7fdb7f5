"""HTTP through lepa.ingress.plane, lepa.ingress.http_proxy, lepa.ingress.exchange, lepa.ingress.upstreams,
lepa.ingress.traffic and lepa.ingress.connector, with real sockets."""

import http.client
import json
import re
import socket
import threading
import time
from base64 import b64encode
from pathlib import Path

import pytest
from tests.integration.ingress_world import (
    HOST,
    Server,
    World,
    answering,
    eventually,
    free_port,
    instance,
    read_all,
    read_head,
    read_size,
    scripted,
    serving,
    world,
)

from lepa.ingress.heads import HEAD_MAX


def echo_head(client: socket.socket) -> None:
    """Answer each request with its own head."""
    while head := read_head(client):
        client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(head)}\r\n\r\n".encode() + head)


def echo_body(client: socket.socket) -> None:
    """Answer a request with the body that it sends, framing included, once it has ended."""
    data = read_head(client)
    head, _, body = data.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        while not body.endswith(b"0\r\n\r\n"):
            body += client.recv(65_536)
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
        return
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body += read_size(client, size - len(body))
    client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def reset(client: socket.socket) -> None:
    """Read a request and end the connection without a word."""
    read_head(client)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def body(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_a_request_reaches_the_service_of_its_path() -> None:
    with serving(answering(b"api")) as api, serving(answering(b"web")) as web, world() as here:
        here.route(instance(api.port, "urlprefix-/api", service="api"), instance(web.port, "urlprefix-/"))
        assert [body(here.get(path)) for path in ("/api/x", "/x")] == [b"api", b"web"]


def test_what_the_target_is_told() -> None:
    with serving(echo_head) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/clipper strip=/clipper"))
        head = body(here.get("/clipper/predict?x=1", "h:1")).decode().split("\r\n")
    assert head[0] == "GET /predict?x=1 HTTP/1.1"
    assert {
        "Host: h:1",
        f"X-Forwarded-For: {HOST}",
        f"X-Forwarded-Port: {here.port}",
        "X-Forwarded-Prefix: /clipper",
    } <= set(head)


def test_one_connection_carries_many_requests_and_the_target_sees_one() -> None:
    with serving(answering(b"x")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            for _ in range(5):
                client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                assert read_head(client).endswith(b"x")
        assert server.accepted == 1


def test_pipelined_requests_are_answered_in_order() -> None:
    with serving(echo_head) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/yes"))
        with here.connect() as client:
            paths = ["/yes/1", "/no", "/yes/2", "/no", "/yes/3"] * 40
            client.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n" for path in paths).encode())
            client.shutdown(socket.SHUT_WR)
            answers = read_all(client)
    found = re.findall(rb"HTTP/1\.1 (\d+) |GET (\S+) HTTP", answers)
    wanted = [pair for path in paths for pair in _expected(path)]
    assert found == wanted


def _expected(path: str) -> list[tuple[bytes, bytes]]:
    return [(b"200", b""), (b"", path.encode())] if "yes" in path else [(b"404", b"")]


def test_a_request_byte_by_byte() -> None:
    with serving(echo_body) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            for byte in b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello":
                client.sendall(bytes([byte]))
            assert read_all(client).endswith(b"hello")


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_bodies_of_known_length_both_ways(size: int) -> None:
    with serving(echo_body) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        client = http.client.HTTPConnection(HOST, here.port, timeout=10)
        sent = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        client.request("POST", "/", sent, {"Content-Length": str(size)})
        assert client.getresponse().read() == sent
        client.close()


def test_chunks_and_trailers_both_ways() -> None:
    chunks = b"5;a=b\r\nhello\r\n" + b"ffff\r\n" + b"y" * 0xFFFF + b"\r\n0\r\n\r\n"
    with serving(echo_body) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
            for start in range(0, len(chunks), 5_000):
                client.sendall(chunks[start : start + 5_000])
            assert body(read_all(client)) == chunks


def test_malformed_chunks_of_a_client_are_refused() -> None:
    with serving(echo_body) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        answer = here.ask("POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\nnonsense\n")
        assert status(answer) == 400


def test_the_target_may_ask_for_the_body_first() -> None:
    def serve(client: socket.socket) -> None:
        assert b"Expect: 100-continue" in read_head(client)
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert read_size(client, 5) == b"hello"
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with serving(serve) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            assert read_head(client) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.sendall(b"hello")
            assert read_head(client).endswith(b"ok")


def test_an_answer_that_streams_comes_as_it_is_sent() -> None:
    go_on = threading.Event()

    def serve(client: socket.socket) -> None:
        read_head(client)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"7\r\ndata: 1\r\n")
        go_on.wait(10)
        client.sendall(b"0\r\n\r\n")

    with serving(serve) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            seen = b""
            while b"data: 1" not in seen:
                seen += client.recv(4_096)
            go_on.set()
            assert read_all(client).endswith(b"0\r\n\r\n")


def test_an_answer_without_length_ends_with_the_connection() -> None:
    with serving(scripted(b"HTTP/1.1 200 OK\r\n\r\nsome", b"thing")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        answer = here.ask("GET / HTTP/1.1\nHost: h\n\n")
        assert (body(answer), b"Connection: close" in answer) == (b"something", True)


def test_an_answer_to_head_has_no_body() -> None:
    with serving(scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        assert body(here.ask("HEAD / HTTP/1.1\nHost: h\nConnection: close\n\n")) == b""


def test_a_client_of_http_1_0_may_keep_its_connection() -> None:
    with serving(answering(b"x")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            for _ in range(2):
                client.sendall(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert b"Connection: keep-alive" in read_head(client)
        assert body(here.ask("GET / HTTP/1.0\n\n")) == b"x"


def test_no_route_no_healthy_instance_and_no_table_yet() -> None:
    with world() as here:
        assert status(here.get()) == 503
        here.route(instance(1, "urlprefix-/down", healthy=False))
        assert [status(here.get(path)) for path in ("/other", "/down")] == [404, 503]
        assert (here.count("no_route_total"), here.count("no_target_total")) == (2, 1)


def test_the_status_without_route_can_be_chosen() -> None:
    with world(no_route_status=410) as here:
        here.route()
        assert status(here.get()) == 410


# Targets that misbehave


def test_a_target_that_refuses_is_left_out_and_the_request_goes_elsewhere() -> None:
    with serving(answering(b"x")) as server, world() as here:
        rows = [instance(free_port(), "urlprefix-/", number=1), instance(server.port, "urlprefix-/", number=2)]
        here.route(*rows)
        assert [status(here.get()) for _ in range(6)] == [200] * 6
        assert here.count("retries_total") == 1
        assert here.plane.gauges()["targets_out"] == 1


def test_a_body_goes_to_the_next_target_when_the_first_refuses() -> None:
    with serving(echo_body) as server, world() as here:
        here.route(*(instance(port, "urlprefix-/", number=n) for n, port in enumerate((free_port(), server.port))))
        client = http.client.HTTPConnection(HOST, here.port, timeout=10)
        client.request("POST", "/", b"z" * 500_000)
        assert len(client.getresponse().read()) == 500_000
        client.close()


def test_when_all_refuse_the_answer_says_so() -> None:
    with world() as here:
        here.route(instance(free_port(), "urlprefix-/"))
        assert status(here.get()) == 502


def test_a_request_that_may_be_repeated_is_when_a_target_ends_without_a_word() -> None:
    with serving(reset) as bad, serving(answering(b"x")) as good, world() as here:
        here.route(instance(bad.port, "urlprefix-/", number=1), instance(good.port, "urlprefix-/", number=2))
        assert status(here.get()) == 200
        assert bad.accepted == 1


def test_a_request_that_may_not_be_repeated_is_not() -> None:
    with serving(reset) as bad, serving(answering(b"x")) as good, world() as here:
        here.route(instance(bad.port, "urlprefix-/", number=1), instance(good.port, "urlprefix-/", number=2))
        assert status(here.ask("POST / HTTP/1.1\nHost: h\nContent-Length: 0\nConnection: close\n\n")) == 502
        assert good.accepted == 0


def test_kept_connections_that_a_restart_closed_cost_no_request() -> None:
    with world() as here:
        server = Server(answering(b"x"))
        here.route(instance(server.port, "urlprefix-/"))
        clients = [here.connect() for _ in range(5)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert all(read_head(client) for client in clients)
        server.close()
        again = Server(answering(b"y"), server.port)
        for client in clients:
            client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            assert read_head(client).endswith(b"y")
            client.close()
        again.close()


def test_a_target_that_accepts_and_hangs_is_given_up() -> None:
    hold = threading.Event()
    with serving(lambda client: hold.wait(10) and None) as server, world(response_s=0.3) as here:
        here.route(instance(server.port, "urlprefix-/"))
        assert status(here.get()) == 504
        hold.set()


def test_an_answer_that_breaks_off_breaks_the_client_off() -> None:
    with serving(scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                read_all(client)


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 8_000,
    ],
)
def test_a_malformed_answer_is_a_bad_gateway(answer: bytes) -> None:
    with serving(scripted(answer)) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        assert status(here.get()) == 502


def test_an_answer_before_the_body_has_been_sent_is_seen() -> None:
    refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig"
    with serving(scripted(refusal)) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000000\r\n\r\n" + b"z" * 300_000)
            assert read_all(client).endswith(b"big")


def test_bytes_after_an_answer_end_the_targets_connection() -> None:
    with serving(scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n")) as server:
        with world() as here:
            here.route(instance(server.port, "urlprefix-/"))
            assert body(here.get()) == b"ok"
            assert here.plane.gauges()["idle_upstreams"] == 0


# Clients that misbehave


def test_a_slow_head_is_ended_in_time_and_others_are_served() -> None:
    with serving(answering(b"x")) as server, world(head_s=0.4) as here:
        here.route(instance(server.port, "urlprefix-/"))
        slow = [here.connect() for _ in range(50)]
        for client in slow:
            client.sendall(b"GET / HTTP/1.1\r\nHo")
        assert status(here.get()) == 200
        assert all(status(read_all(client)) == 408 for client in slow)
        for client in slow:
            client.close()
        assert here.count("bad_requests_total") == 50


def test_a_client_that_says_nothing_is_closed() -> None:
    with world(head_s=0.3) as here, here.connect() as client:
        assert client.recv(1) == b""


def test_a_slow_body_is_ended_in_time() -> None:
    with serving(echo_body) as server, world(idle_s=0.3) as here:
        here.route(instance(server.port, "urlprefix-/"))
        assert status(here.ask("POST / HTTP/1.1\nHost: h\nContent-Length: 10\n\nabc")) == 408


def test_an_idle_connection_is_closed() -> None:
    with serving(answering(b"x")) as server, world(idle_s=0.3) as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert read_all(client).endswith(b"x")


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("GET /\n\n", 505),
        ("GET / HTTP/1.1\n\n", 400),
        ("GET / HTTP/1.1\nHost: a\nHost: b\n\n", 400),
        ("CONNECT a:1 HTTP/1.1\nHost: a\n\n", 405),
        ("GET / HTTP/1.1\nHost: h\nX: " + "y" * HEAD_MAX + "\n\n", 431),
        ("GET /" + "y" * HEAD_MAX * 2, 431),
        ("\x16\x03\x01 hello\n\n", 400),
    ],
)
def test_what_is_no_request_gets_an_answer(request_text: str, expected: int) -> None:
    with world() as here:
        here.route()
        assert status(here.ask(request_text)) == expected


def test_a_client_that_does_not_read_does_not_fill_the_memory() -> None:
    size = 30_000_000
    with serving(answering(b"z" * size)) as server, world(idle_s=1.0) as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            eventually(lambda: any(session.out for session in list(here.plane.http.sessions)))
            waiting = max(len(session.out) for session in list(here.plane.http.sessions))
            assert waiting < 1_000_000
            time.sleep(1.6)
            with pytest.raises(ConnectionResetError):
                read_all(client)


def test_a_client_that_goes_away_ends_the_targets_request() -> None:
    gone = threading.Event()

    def serve(client: socket.socket) -> None:
        read_head(client)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        try:
            while True:
                client.sendall(b"z" * 65_536)
        except OSError:
            gone.set()

    with serving(serve) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            client.recv(1_000)
        assert gone.wait(10)


def test_connections_beyond_the_bound_wait() -> None:
    with serving(answering(b"x")) as server, world(connections_max=3) as here:
        here.route(instance(server.port, "urlprefix-/"))
        held = [here.connect() for _ in range(3)]
        eventually(lambda: here.plane.traffic.open == 3)
        with here.connect() as waiting:
            waiting.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert here.plane.traffic.open == 3
            for client in held:
                client.close()
            assert read_all(waiting).endswith(b"x")


# Options of tags


def test_redirects() -> None:
    with world() as here:
        here.route(instance(0, "urlprefix-/old redirect=301,https://new.example.com$path"))
        answer = here.get("/old/x?y=1")
        assert status(answer) == 301
        assert b"Location: https://new.example.com/old/x?y=1\r\n" in answer


def test_who_may_pass() -> None:
    with serving(answering(b"x")) as server, world() as here:
        here.route(
            instance(server.port, "urlprefix-/no deny=ip:127.0.0.0/8", "urlprefix-/yes allow=ip:127.0.0.1"),
            instance(server.port, "urlprefix-/other allow=ip:10.0.0.0/8", number=2),
        )
        assert [status(here.get(path)) for path in ("/no", "/yes", "/other", "/%6eo", "/yes/../no")] == [
            403,
            200,
            403,
            403,
            403,
        ]


def test_passwords() -> None:
    with serving(answering(b"x")) as server, world() as here:
        here.plane.http.passwords = {"staff": {"ann": "secret"}}
        here.route(instance(server.port, "urlprefix-/a auth=staff", "urlprefix-/b auth=unknown"))
        right = f"Authorization: Basic {b64encode(b'ann:secret').decode()}\n"
        ask = "GET {} HTTP/1.1\nHost: h\nConnection: close\n{}\n"
        assert [status(here.ask(ask.format(*words))) for words in (("/a", ""), ("/a", right), ("/b", right))] == [
            401,
            200,
            401,
        ]


def test_weights() -> None:
    with serving(answering(b"canary")) as canary, serving(answering(b"stable")) as stable, world() as here:
        here.route(
            instance(canary.port, "urlprefix-/ weight=0.2", service="canary"), instance(stable.port, "urlprefix-/")
        )
        found = [body(here.get()) for _ in range(20)]
        assert found.count(b"canary") == 4


def test_everything_goes_to_https() -> None:
    with world(redirect_https=True, https=free_port()) as here:
        answer = here.get("/a?b", "h:80")
        assert (status(answer), f"Location: https://h:{here.settings.https}/a?b".encode() in answer) == (308, True)


# Websockets


def websocket(client: socket.socket) -> None:
    """Change the protocol, speak first, then echo."""
    head = read_head(client)
    assert b"Upgrade: websocket" in head
    client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
    while data := client.recv(65_536):
        client.sendall(data)


def test_a_websocket_carries_both_ways_and_ends_when_either_does() -> None:
    with serving(websocket) as server, world(idle_s=0.3) as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            client.sendall(
                b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\nearly"
            )
            seen = b""
            while not seen.endswith(b"early"):
                seen += client.recv(65_536)
            assert b"101 Switching" in seen
            assert b"hello" in seen
            time.sleep(0.8)  # longer than the idle limit of HTTP
            client.sendall(b"z" * 1_000_000)
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"z" * 1_000_000
        eventually(lambda: here.plane.traffic.open == 0)
        assert here.count("websockets_total") == 1


def test_a_refused_upgrade_is_an_ordinary_answer() -> None:
    with serving(answering(b"no")) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        with here.connect() as client:
            for _ in range(2):
                client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                assert read_head(client).endswith(b"no")


def test_an_http2_connection_goes_whole_to_a_grpc_target() -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def serve(client: socket.socket) -> None:
        assert read_size(client, len(preface)) == preface
        client.sendall(b"settings")
        client.sendall(read_size(client, 4))

    with serving(serve) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/pkg.Service/ proto=grpc", "urlprefix-/ proto=grpc"))
        with here.connect() as client:
            client.sendall(preface)
            assert read_size(client, 8) == b"settings"
            client.sendall(b"more")
            assert read_size(client, 4) == b"more"


# Changes


def test_a_table_is_swapped_without_losing_a_request() -> None:
    with serving(answering(b"a")) as one, serving(answering(b"b")) as two, world() as here:
        rows = [instance(one.port, "urlprefix-/", number=1), instance(two.port, "urlprefix-/", number=2)]
        here.route(*rows)
        failed: list[object] = []
        stop = threading.Event()

        def load() -> None:
            client = http.client.HTTPConnection(HOST, here.port, timeout=10)
            while not stop.is_set():
                try:
                    client.request("GET", "/")
                    answer = client.getresponse()
                    answer.read()
                    if answer.status != 200:
                        failed.append(answer.status)
                except OSError as error:
                    failed.append(error)
            client.close()

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(60):
            here.route(*(rows if turn % 3 == 0 else rows[turn % 3 - 1 : turn % 3]))
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []


def test_draining_answers_what_is_under_way_and_accepts_no_more() -> None:
    go_on = threading.Event()

    def serve(client: socket.socket) -> None:
        read_head(client)
        go_on.wait(10)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with serving(serve) as server, world(drain_s=5.0) as here:
        here.route(instance(server.port, "urlprefix-/"))
        idle = here.connect()
        eventually(lambda: here.plane.traffic.open == 1)
        with here.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            eventually(lambda: server.accepted == 1)
            here.plane.drain()
            assert idle.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                here.connect()
            go_on.set()
            answer = read_all(client)
            assert answer.endswith(b"ok")
            assert b"Connection: close" in answer
        idle.close()


def test_the_access_log(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    form = "$request_method $request_uri $response_status $upstream_service"
    with serving(answering(b"x")) as server, world(access_log=str(path), access_format=form) as here:
        here.route(instance(server.port, "urlprefix-/a"))
        here.get("/a?b")
        here.get("/c")
    assert path.read_text().splitlines() == ["GET /a?b 200 web", "GET /c 404 "]


def test_counters_of_services() -> None:
    with serving(echo_body) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        here.ask("POST / HTTP/1.1\nHost: h\nContent-Length: 5\nConnection: close\n\nhello")
        text = here.plane.traffic.counters.exposition(here.plane.gauges())
    assert 'lepa_ingress_requests_total{service="web",code="2xx"} 1' in text
    assert 'lepa_ingress_received_bytes_total{service="web"} 5' in text
    assert json.dumps(here.plane.gauges())


def test_a_world_is_made_of_its_own(tmp_path: Path) -> None:
    with world() as one, world() as two:
        assert isinstance(one, World)
        assert one.port != two.port


def test_an_answer_and_an_end_that_come_with_the_connection_are_not_lost() -> None:
    def serve(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\nat once")
        client.shutdown(socket.SHUT_WR)
        read_all(client)

    with serving(serve) as server, world() as here:
        here.route(instance(server.port, "urlprefix-/"))
        for _ in range(100):
            assert body(here.get()) == b"at once"
