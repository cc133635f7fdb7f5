"""Calls of the HTTP API with the standard library, against a small server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lepa.model.errors import LepaError
from lepa.sdk.address import target
from lepa.sdk.connection import Connection


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, str, str, bytes]] = []

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Answers.seen.append((self.command, self.path, self.headers.get("X-Nomad-Token", ""), body))
        path = self.path.partition("?")[0]
        if path == "/missing":
            return self.reply(404, b"job not found")
        if path == "/other":
            return self.reply(404, b"<!DOCTYPE HTML>\n<html lang='en'>")
        if path == "/text":
            return self.reply(200, b"<html>")
        if path == "/pages":
            last = "next_token=2" in self.path
            return self.reply(200, b"[3]" if last else b"[1,2]", {} if last else {"X-Nomad-NextToken": "2"})
        if path in ("/stream", "/torn"):
            return self.stream(torn=path == "/torn")
        return self.reply(200, json.dumps({"echo": body.decode()}).encode(), {"X-Nomad-Index": "7"})

    def stream(self, *, torn: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"4\r\na\nb\n\r\n")
        self.wfile.write(b"ff\r\nc" if torn else b"2\r\nc\n\r\n0\r\n\r\n")
        self.close_connection = torn

    do_GET = do_PUT = do_POST = do_DELETE = answer

    def reply(self, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def connection() -> Iterator[Connection]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Answers.seen = []
    with Connection(target({}, address=f"127.0.0.1:{server.server_port}", token="t", namespace="n"), 5.0) as made:
        yield made
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_answer_has_its_value_and_index(connection: Connection) -> None:
    answer = connection.put("/v1/jobs", {"Job": 1}, {"region": "r"})
    assert (answer.value, answer.index) == ({"echo": '{"Job": 1}'}, 7)
    assert Answers.seen == [("PUT", "/v1/jobs?namespace=n&region=r", "t", b'{"Job": 1}')]


def test_a_refusal_is_its_text_code_and_status(connection: Connection) -> None:
    with pytest.raises(LepaError, match="job not found") as caught:
        connection.get("/missing")
    assert (caught.value.code, caught.value.facts["status"]) == ("not_found", 404)
    assert connection.find("/missing") is None


def test_what_is_no_api_of_an_agent_is_told_in_a_sentence(connection: Connection) -> None:
    with pytest.raises(LepaError, match=r"^http://.* answers, but not as the HTTP API of an agent, which listens on"):
        connection.get("/other")


def test_pages_are_read_to_the_last(connection: Connection) -> None:
    assert list(connection.pages("/pages")) == [1, 2, 3]


def test_an_answer_that_is_not_json_is_told(connection: Connection) -> None:
    with pytest.raises(LepaError, match="something else than JSON"):
        connection.get("/text")


def test_one_connection_serves_many_calls_and_is_opened_again(connection: Connection) -> None:
    connection.get("/a")
    kept = connection._http
    connection.get("/b")
    assert connection._http is kept
    connection.close()
    assert connection.get("/c").index == 7


def test_nobody_there_is_a_sentence_that_says_what_to_do() -> None:
    with pytest.raises(LepaError, match=r"no agent answers at .*`lepa agent -dev`") as caught:
        Connection(target({}, address="127.0.0.1:1")).get("/v1/jobs")
    assert caught.value.code == "no_leader"


def test_a_stream_comes_in_lines_or_pieces(connection: Connection) -> None:
    assert list(connection.lines("/stream")) == [b"a\n", b"b\n", b"c\n"]
    assert b"".join(connection.chunks("/stream")) == b"a\nb\nc\n"
    assert connection.get("/after").index == 7


def test_a_stream_that_breaks_off_is_an_error(connection: Connection) -> None:
    with pytest.raises(LepaError, match="was lost while it answered"):
        list(connection.chunks("/torn"))


def test_any_request_may_be_made_and_its_headers_read(connection: Connection) -> None:
    response = connection.send("PUT", "/x", {"a": 1}, b"{}", {"X-Nomad-Token": "other"})
    assert response.headers["X-Nomad-Index"] == "7"
    assert Answers.seen[-1][2:] == ("other", b"{}")
