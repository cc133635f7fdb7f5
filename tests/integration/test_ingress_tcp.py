"""TCP through lepa.ingress.plane, lepa.ingress.tcp_proxy, lepa.ingress.tunnel and lepa.ingress.event_loop, with real
sockets: the demands that model containers and long-lived clients make of a balancer."""

import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zmq
from tests.integration.ingress_world import (
    HOST,
    Server,
    World,
    eventually,
    free_port,
    instance,
    read_all,
    read_size,
    serving,
    world,
)

from lepa.ingress.proxy_protocol import SIGNATURE, Source, header
from lepa.ingress.settings import Listener
from lepa.ingress.tunnel import PIPES_KEPT_MAX, Pipes
from lepa.model.errors import LepaError


def echo(client: socket.socket) -> None:
    """Send back what comes, then the end."""
    while data := client.recv(65_536):
        client.sendall(data)


def greeting(word: bytes) -> object:
    """A server that speaks first, then says what it got until the end."""

    def serve(client: socket.socket) -> None:
        client.sendall(word)
        client.sendall(read_all(client))

    return serve


def tcp(server: Server, port: int, more: str = "", *, number: int = 1, healthy: bool = True) -> object:
    return instance(server.port, f"urlprefix-:{port} proto=tcp {more}", number=number, healthy=healthy)


def test_a_server_that_speaks_first_is_heard() -> None:
    port = free_port()
    with serving(greeting(b"220 ready\r\n")) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            assert read_size(client, 11) == b"220 ready\r\n"


def test_an_end_is_passed_on_in_one_direction() -> None:
    port = free_port()
    with serving(greeting(b"")) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"question"


def test_an_end_of_the_server_leaves_the_client_speaking() -> None:
    port, got = free_port(), []

    def serve(client: socket.socket) -> None:
        client.sendall(b"bye")
        client.shutdown(socket.SHUT_WR)
        got.append(read_all(client))

    with serving(serve) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            assert read_all(client) == b"bye"
            client.sendall(b"still here")
        eventually(lambda: got == [b"still here"])


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_reset_is_passed_on_as_a_reset(side: str) -> None:
    port = free_port()
    held: list[socket.socket] = []
    done = threading.Event()

    def serve(client: socket.socket) -> None:
        held.append(client)
        client.sendall(b"x")
        done.wait(10)

    with serving(serve) as server, world() as here:
        here.route(tcp(server, port))
        client = here.connect(port)
        assert client.recv(1) == b"x"
        first, second = (client, held[0]) if side == "client" else (held[0], client)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        with pytest.raises(ConnectionResetError):
            second.recv(1)
        done.set()
        client.close()
        eventually(lambda: here.count("tcp_aborted_total") == 1)


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 20_000_000])
def test_everything_arrives_both_ways_at_once(size: int) -> None:
    port = free_port()
    sent = (bytes(range(251)) * (size // 251 + 1))[:size]
    with serving(echo) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            writer = threading.Thread(target=lambda: (client.sendall(sent), client.shutdown(socket.SHUT_WR)))
            writer.start()
            assert read_all(client) == sent
            writer.join()
        eventually(lambda: here.plane.traffic.open == 0)
        assert here.count("tcp_bytes_total") == 2 * size


def test_a_slow_reader_holds_the_writer_back() -> None:
    port, sent = free_port(), []

    def serve(client: socket.socket) -> None:
        client.settimeout(1.0)
        try:
            while len(sent) < 10_000:
                client.sendall(b"z" * 65_536)
                sent.append(1)
        except TimeoutError:
            pass

    with serving(serve) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            time.sleep(1.5)
            assert len(sent) * 65_536 < 60_000_000
            client.recv(10)


def test_the_target_is_looked_up_for_each_connection() -> None:
    port = free_port()
    with serving(greeting(b"one")) as one, serving(greeting(b"two")) as two, world(close_on_leave=False) as here:
        here.route(tcp(one, port))
        first = here.connect(port)
        assert read_size(first, 3) == b"one"
        here.route(tcp(two, port, number=2))
        with here.connect(port) as second:
            assert read_size(second, 3) == b"two"
        first.sendall(b"still one")
        first.shutdown(socket.SHUT_WR)
        assert read_all(first) == b"still one"
        first.close()


def test_connections_end_when_their_instance_leaves() -> None:
    port = free_port()
    with serving(greeting(b"one")) as one, serving(greeting(b"two")) as two, world() as here:
        here.route(tcp(one, port), tcp(two, port, number=2))
        clients = {}
        for _ in range(2):
            client = here.connect(port)
            clients[read_size(client, 3)] = client
        here.route(tcp(two, port, number=2))
        with pytest.raises(ConnectionResetError):
            clients[b"one"].recv(1)
        clients[b"two"].sendall(b"ok")
        clients[b"two"].shutdown(socket.SHUT_WR)
        assert read_all(clients[b"two"]) == b"ok"
        assert here.count("left_total") == 1
        for client in clients.values():
            client.close()


@pytest.mark.parametrize("change", ["unhealthy", "keep"])
def test_connections_stay_while_their_instance_is_unhealthy_or_its_tag_says_so(change: str) -> None:
    port = free_port()
    with serving(greeting(b"one")) as server, world() as here:
        more = "onleave=keep" if change == "keep" else ""
        here.route(tcp(server, port, more))
        with here.connect(port) as client:
            assert read_size(client, 3) == b"one"
            here.route(*([] if change == "keep" else [tcp(server, port, healthy=False)]))
            client.sendall(b"ok")
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"ok"


def test_without_a_healthy_instance_the_client_is_closed_at_once() -> None:
    port = free_port()
    with serving(echo) as server, world() as here:
        here.route(tcp(server, port, healthy=False))
        with here.connect(port) as client:
            assert client.recv(1) == b""
        assert here.count("no_target_total") == 1
        assert server.accepted == 0


def test_a_target_that_refuses_gives_way_to_another() -> None:
    port = free_port()
    with serving(greeting(b"x")) as server, world() as here:
        dead = instance(free_port(), f"urlprefix-:{port} proto=tcp", number=2)
        here.route(tcp(server, port), dead)
        for _ in range(4):
            with here.connect(port) as client:
                assert client.recv(1) == b"x"
        assert here.count("retries_total") == 1


def test_when_every_target_refuses_the_client_is_closed() -> None:
    port = free_port()
    with world() as here:
        here.route(instance(free_port(), f"urlprefix-:{port} proto=tcp"))
        with here.connect(port) as client:
            assert client.recv(1) == b""


def test_two_healthy_instances_and_all_connections_go_to_one() -> None:
    port = free_port()
    with serving(greeting(b"one")) as one, serving(greeting(b"two")) as two, world() as here:
        here.route(tcp(one, port, "pick=first"), tcp(two, port, "pick=first", number=2))
        for _ in range(4):
            with here.connect(port) as client:
                assert read_size(client, 3) == b"one"


def test_the_fewest_connections() -> None:
    port = free_port()
    with serving(greeting(b"one")) as one, serving(greeting(b"two")) as two, world(strategy="lc") as here:
        here.route(tcp(one, port), tcp(two, port, number=2))
        held = [here.connect(port) for _ in range(4)]
        words = [read_size(client, 3) for client in held]
        assert sorted(words) == [b"one", b"one", b"two", b"two"]
        for client, word in zip(held, words, strict=True):
            if word == b"one":
                client.close()
        eventually(lambda: here.plane.traffic.open == 2)
        for _ in range(2):
            with here.connect(port) as client:
                assert read_size(client, 3) == b"one"
        for client in held:
            client.close()


def test_addresses_that_may_not_pass_are_closed() -> None:
    port = free_port()
    with serving(echo) as server, world() as here:
        here.route(tcp(server, port, "deny=ip:127.0.0.0/8"))
        with here.connect(port) as client:
            assert client.recv(1) == b""
        assert server.accepted == 0


# Listeners


def test_ports_open_and_close_as_tags_come_and_go() -> None:
    port = free_port()
    with serving(echo) as server, world() as here:
        with pytest.raises(ConnectionRefusedError):
            here.connect(port)
        here.route(tcp(server, port))
        held = here.connect(port)
        held.sendall(b"x")
        assert held.recv(1) == b"x"
        here.route()
        with pytest.raises(ConnectionRefusedError):
            here.connect(port)
        held.close()


def test_tags_open_no_ports_where_that_is_not_wanted() -> None:
    port = free_port()
    with serving(echo) as server, world(dynamic=False) as here:
        here.route(tcp(server, port))
        with pytest.raises(ConnectionRefusedError):
            here.connect(port)


def test_a_port_of_a_service_is_open_before_the_service_is_there() -> None:
    port = free_port()
    with serving(greeting(b"x")) as server, world(tcp=(f"{port}=web",)) as here:
        with here.connect(port) as client:
            assert client.recv(1) == b""
        here.route(instance(server.port))
        with here.connect(port) as client:
            assert client.recv(1) == b"x"


def test_a_port_that_another_program_has_is_named_and_harms_nobody() -> None:
    port = free_port()
    with serving(greeting(b"x")) as server, socket.create_server((HOST, port)), world() as here:
        other = free_port()
        here.route(tcp(server, port), tcp(server, other, number=2))
        assert f"port {port}" in here.plane.notices()[0].problem
        with here.connect(other) as client:
            assert client.recv(1) == b"x"


def test_an_ingress_whose_own_port_is_taken_does_not_start() -> None:
    port = free_port()
    with socket.create_server((HOST, port)), pytest.raises(LepaError, match="another program has it"):
        World(https=port)


# The PROXY protocol


@pytest.mark.parametrize("version", [1, 2])
def test_the_target_is_told_who_the_client_is(version: int) -> None:
    port = free_port()
    with serving(greeting(b"")) as server, world() as here:
        here.route(tcp(server, port, f"pxyproto=v{version}"))
        with here.connect(port) as client:
            own = client.getsockname()
            client.sendall(b"hello")
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == header(Source(own[0], own[1], HOST, port), version) + b"hello"


def test_without_being_asked_the_target_is_told_nothing() -> None:
    port = free_port()
    with serving(greeting(b"")) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            client.shutdown(socket.SHUT_WR)
            assert read_all(client) == b""


@pytest.mark.parametrize("version", [1, 2])
def test_a_balancer_in_front_tells_who_the_client_is(version: int) -> None:
    def serve(client: socket.socket) -> None:
        data = client.recv(65_536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

    told = header(Source("192.0.2.7", 1234, "198.51.100.1", 80), version)
    with serving(serve) as server, world(proxy_protocol=True) as here:
        here.route(instance(server.port, "urlprefix-/ allow=ip:192.0.2.0/24"))
        with here.connect() as client:
            for piece in (told[:7], told[7:] + b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"):
                client.sendall(piece)
                time.sleep(0.05)
            assert b"X-Forwarded-For: 192.0.2.7\r\n" in read_all(client)


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"", SIGNATURE])
def test_clients_without_a_proxy_header_are_closed(first: bytes) -> None:
    with world(proxy_protocol=True, head_s=0.3) as here:
        here.route()
        with here.connect() as client:
            client.sendall(first)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        assert here.count("bad_requests_total") == 1


# Model containers


def test_models_reach_the_frontend_and_come_again_when_it_moves() -> None:
    """A DEALER keeps its connection through :7000, and dials anew when the instance behind it is replaced."""
    port, context = free_port(), zmq.Context()
    with world() as here:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.setsockopt(zmq.RECONNECT_IVL, 20)
        dealer.connect(f"tcp://{HOST}:{port}")
        for turn in range(2):
            router = context.socket(zmq.ROUTER)
            router.setsockopt(zmq.LINGER, 0)
            bound = router.bind_to_random_port(f"tcp://{HOST}")
            here.route(instance(bound, f"urlprefix-:{port} proto=tcp", number=turn))

            def heard(router: "zmq.Socket[bytes]" = router) -> bool:
                dealer.send(b"heartbeat", zmq.DONTWAIT)
                return bool(router.poll(50))

            eventually(heard)
            identity, message = router.recv_multipart()
            assert message == b"heartbeat"
            router.send_multipart([identity, b"back"])
            assert dealer.poll(5_000)
            dealer.recv()
            router.close()
        dealer.close()
    context.term()


# Churn


def test_a_thousand_short_connections_leave_nothing_behind() -> None:
    port = free_port()
    with serving(echo) as server, world() as here:
        here.route(tcp(server, port))

        def many() -> None:
            for turn in range(125):
                with here.connect(port) as client:
                    client.sendall(b"x" * (turn * 997 % 100_000))
                    client.shutdown(socket.SHUT_WR)
                    assert len(read_all(client)) == turn * 997 % 100_000

        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: here.plane.traffic.open == 0)
        assert here.count("tcp_connections_total") == 1_000


def test_pipes_are_used_again_and_bounded() -> None:
    pipes = Pipes()
    pipe = pipes.take()
    assert pipe is not None
    pipes.give(pipe, empty=True)
    assert pipes.take() == pipe
    pipes.give(pipe, empty=False)
    taken = [pipes.take() for _ in range(PIPES_KEPT_MAX + 3)]
    for each in taken:
        assert each is not None
        pipes.give(each, empty=True)
    pipes.close()


def test_listeners_are_told_apart_by_kind_and_place() -> None:
    assert Listener("tcp", HOST, 1) != Listener("http", HOST, 1)


def test_an_end_that_comes_with_the_connection_is_not_lost() -> None:
    port = free_port()

    def serve(client: socket.socket) -> None:
        client.sendall(b"bye")

    with serving(serve) as server, world() as here:
        here.route(tcp(server, port))
        for _ in range(200):
            with here.connect(port) as client:
                assert read_all(client) == b"bye"


def test_both_sides_are_probed_while_nothing_is_said() -> None:
    port = free_port()
    with serving(greeting(b"x")) as server, world() as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            assert client.recv(1) == b"x"
            (connection,) = here.plane.tcp.connections
            assert connection.tunnel is not None
            legs = (connection.tunnel.client.sock, connection.tunnel.target.sock)
            eventually(lambda: all(leg.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for leg in legs))
            assert [leg.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for leg in legs] == [1, 1]


def test_a_port_on_one_address_is_opened_there_alone() -> None:
    port = free_port()
    with serving(greeting(b"x")) as server, world() as here:
        here.route(instance(server.port, f"urlprefix-127.0.0.2:{port} proto=tcp"))
        with pytest.raises(ConnectionRefusedError):
            here.connect(port)
        with socket.create_connection(("127.0.0.2", port), 10) as client:
            assert client.recv(1) == b"x"


def test_a_silent_connection_is_kept_and_probed_on_both_sides() -> None:
    """Heartbeats may be far apart: nothing is ended for being idle, and a peer that has vanished is noticed."""
    port = free_port()
    with serving(echo) as server, world(idle_s=0.1, head_s=0.1) as here:
        here.route(tcp(server, port))
        with here.connect(port) as client:
            client.sendall(b"a")
            assert read_size(client, 1) == b"a"
            time.sleep(0.5)
            client.sendall(b"b")
            assert read_size(client, 1) == b"b"
            assert _probed(local_port=port)
            assert _probed(remote_port=server.port)


def _probed(local_port: int = 0, remote_port: int = 0) -> bool:
    """Whether the kernel runs the keep-alive timer of an established connection with one of these ports."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, _, timer, *_ = line.split()
        ports = int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)
        if (ports[0] == local_port or ports[1] == remote_port) and state == "01" and timer.startswith("02:"):
            return True
    return False
