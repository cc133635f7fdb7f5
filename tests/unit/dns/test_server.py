import contextlib
import gc
import socket
import threading
from collections.abc import Iterator

import dns.message
import dns.query
import dns.rcode
import pytest

from lepa.catalog.table import Instance, ServiceTable
from lepa.dns.server import DnsServer
from lepa.dns.settings import DnsSettings
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError

WAIT_MAX_S = 5.0
TABLE = ServiceTable.build(
    [
        Instance(id="1", service="web", datacenter="dc1", address="10.0.0.1", port=8001),
        *(Instance(id=f"big-{n}", service="big", datacenter="dc1", address="10.1.0.1", port=n) for n in range(1_000)),
    ],
    [],
    1,
)


def started(table: ServiceTable | None = TABLE, **settings: object) -> DnsServer:
    server = DnsServer("127.0.0.1", 0, DnsSettings(**settings), SystemClock())
    server.start()
    if table is not None:
        server.publish(table)
    return server


@pytest.fixture
def server() -> Iterator[DnsServer]:
    running = started(tcp_connections_max=3)
    yield running
    running.stop()


def udp(server: DnsServer, name: str, rtype: str = "A") -> dns.message.Message:
    return dns.query.udp(dns.message.make_query(name, rtype), "127.0.0.1", WAIT_MAX_S, server.port)


def connected(server: DnsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), WAIT_MAX_S)


def framed(message: dns.message.Message) -> bytes:
    return len(message.to_wire()).to_bytes(2, "big") + message.to_wire()


def read_answer(stream: socket.socket) -> dns.message.Message:
    with stream.makefile("rb") as reader:
        return dns.message.from_wire(reader.read(int.from_bytes(reader.read(2), "big")))


def test_a_name_is_answered_over_udp_and_tcp(server: DnsServer) -> None:
    asked = dns.message.make_query("web.service.consul", "SRV")
    for answer in (
        dns.query.udp(asked, "127.0.0.1", WAIT_MAX_S, server.port),
        dns.query.tcp(asked, "127.0.0.1", WAIT_MAX_S, server.port),
    ):
        assert [str(row) for row in answer.answer[0]] == ["1 1 8001 0a000001.addr.dc1.consul."]


def test_an_answer_too_long_for_udp_is_whole_over_tcp(server: DnsServer) -> None:
    asked = dns.message.make_query("big.service.consul", "SRV")
    answer, used_tcp = dns.query.udp_with_fallback(asked, "127.0.0.1", WAIT_MAX_S, server.port)
    assert used_tcp
    assert len(answer.answer[0]) == 1_000


def test_published_tables_are_answered_from_at_once(server: DnsServer) -> None:
    assert udp(server, "new.service.consul").rcode() == dns.rcode.NXDOMAIN
    server.publish(TABLE.with_service("default", "new", [Instance(id="2", service="new", address="10.0.0.2")], 2))
    assert str(udp(server, "new.service.consul").answer[0][0]) == "10.0.0.2"


def test_before_the_first_table_there_is_an_answer() -> None:
    server = started(None)
    try:
        assert udp(server, "web.service.consul").rcode() == dns.rcode.SERVFAIL
    finally:
        server.stop()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_port_in_use_is_told_in_a_sentence(kind: int) -> None:
    with socket.socket(socket.AF_INET, kind) as other:
        other.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LepaError, match=f"127.0.0.1 port {port} .* another program has it") as caught:
            DnsServer("127.0.0.1", port, DnsSettings(), SystemClock()).start()
    assert caught.value.code == "conflict"


@pytest.mark.parametrize(("bind", "port"), [("203.0.113.1", 0), ("localhost", 0), ("127.0.0.1", 99_999)])
def test_an_address_that_cannot_be_had_is_told_in_a_sentence(bind: str, port: int) -> None:
    with pytest.raises(LepaError, match="dns: ") as caught:
        DnsServer(bind, port, DnsSettings(), SystemClock()).start()
    assert caught.value.code == "invalid"


def test_nothing_is_left_after_stop_and_the_port_is_free_again() -> None:
    before = threading.active_count()
    server = started()
    with connected(server) as stream:
        stream.send(b"\0")
        server.stop()
        with contextlib.suppress(ConnectionResetError):  # what was sent had not been read
            assert stream.recv(1) == b""
    assert threading.active_count() == before
    gc.collect()
    again = DnsServer("127.0.0.1", server.port, DnsSettings(), SystemClock())
    again.start()
    again.publish(TABLE)
    assert udp(again, "web.service.consul").answer
    again.stop()
    again.stop()


def test_ipv6_is_served_too() -> None:
    server = DnsServer("::1", 0, DnsSettings(), SystemClock())
    server.start()
    server.publish(TABLE)
    try:
        answer = dns.query.udp(dns.message.make_query("web.service.lepa", "A"), "::1", WAIT_MAX_S, server.port)
        assert str(answer.answer[0][0]) == "10.0.0.1"
    finally:
        server.stop()


def test_pipelined_queries_are_all_answered(server: DnsServer) -> None:
    with connected(server) as stream, stream.makefile("rb") as reader:
        asked = [dns.message.make_query("web.service.consul", "A", id=number) for number in range(1, 501)]
        stream.sendall(b"".join(framed(message) for message in asked))
        for message in asked:
            answer = dns.message.from_wire(reader.read(int.from_bytes(reader.read(2), "big")))
            assert answer.id == message.id


def test_a_client_that_does_not_read_is_not_answered_without_end(server: DnsServer) -> None:
    with connected(server) as stream:
        question = framed(dns.message.make_query("big.service.consul", "SRV"))
        stream.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stream.sendall(question * 1_000_000)
        assert udp(server, "web.service.consul").answer
        assert server.metrics()["tcp_queries"] < 1_000


def test_a_query_in_pieces_and_a_client_that_has_said_its_last_are_answered(server: DnsServer) -> None:
    with connected(server) as stream:
        question = framed(dns.message.make_query("web.service.consul", "A"))
        for octet in question[:-1]:
            stream.send(bytes([octet]))
        stream.send(question[-1:])
        stream.shutdown(socket.SHUT_WR)
        assert read_answer(stream).answer
        assert stream.recv(1) == b""


def test_junk_over_tcp_ends_the_connection(server: DnsServer) -> None:
    with connected(server) as stream:
        stream.send(b"\0\x03abc")
        assert stream.recv(1) == b""


def test_the_connection_idle_for_longest_makes_room(server: DnsServer) -> None:
    streams = [connected(server) for _ in range(4)]
    try:
        streams[3].send(framed(dns.message.make_query("web.service.consul", "A")))
        assert read_answer(streams[3]).answer
        assert streams[0].recv(1) == b""
        assert server.metrics()["tcp_evicted"] == 1
    finally:
        for stream in streams:
            stream.close()


def test_idle_connections_are_closed() -> None:
    server = started(tcp_idle_s=0.0)
    try:
        with connected(server) as stream:
            assert stream.recv(1) == b""
        assert server.metrics()["tcp_idle_closed"] == 1
    finally:
        server.stop()


@pytest.mark.parametrize("over_tcp", [False, True])
def test_other_domains_are_asked_of_the_recursor(over_tcp: bool) -> None:
    recursor = started(TABLE, domains=("example.",))
    server = started(recursors=(f"127.0.0.1:{recursor.port}",))
    try:
        asked = dns.message.make_query("web.service.example", "A")
        ask = dns.query.tcp if over_tcp else dns.query.udp
        assert str(ask(asked, "127.0.0.1", WAIT_MAX_S, server.port).answer[0][0]) == "10.0.0.1"
        assert server.metrics()["forwarded"] == 1
    finally:
        server.stop()
        recursor.stop()


@pytest.mark.parametrize("over_tcp", [False, True])
def test_without_a_working_recursor_the_answer_is_servfail(over_tcp: bool) -> None:
    gone = started()
    gone.stop()
    server = started(recursors=(f"127.0.0.1:{gone.port}",))
    try:
        ask = dns.query.tcp if over_tcp else dns.query.udp
        answer = ask(dns.message.make_query("example.com", "A"), "127.0.0.1", WAIT_MAX_S, server.port)
        assert answer.rcode() == dns.rcode.SERVFAIL
        assert server.metrics()["forward_failed"] == 1
    finally:
        server.stop()


def test_it_answers_while_another_thread_computes(server: DnsServer) -> None:
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1_000))

    busy = threading.Thread(target=compute)
    busy.start()
    try:
        for _ in range(20):
            assert udp(server, "web.service.consul").answer
    finally:
        ended.set()
        busy.join()


def test_what_was_done_is_counted(server: DnsServer) -> None:
    for name in ("web.service.consul", "none.service.consul", "example.com"):
        udp(server, name)
    counts = server.metrics()
    assert (counts["udp_queries"], counts["noerror"], counts["nxdomain"], counts["refused"]) == (3, 1, 1, 1)
