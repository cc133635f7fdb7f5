"""An agent that answers from a table, for tests of commands."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """What a command asked. path: without query, unquoted."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """An answer other than 200 with JSON. chunks: pieces of a streamed body."""

    status: int = 200
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None


Answer = Callable[[Request], Any]


class FakeAgent:
    """Listens on a free port while it is entered."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: dict[str, Any] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_GET(self) -> None:
                fake.serve(self)

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeAgent":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on(self, call: str, answer: Any) -> None:
        """Answer `"GET /v1/jobs"` with a value, a Reply, or what a function of the request returns."""
        self.answers[call] = answer

    def asked(self, call: str) -> list[Request]:
        """The requests of one kind."""
        return [each for each in self.requests if f"{each.method} {each.path}" == call]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length)
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        request = Request(
            handler.command, unquote(parts.path), dict(parse_qsl(parts.query)), body, dict(handler.headers.items())
        )
        self.requests.append(request)
        missing = Reply(404, f"the fake agent has no answer to {request.method} {request.path}")
        answer = self.answers.get(f"{request.method} {request.path}", missing)
        _send(handler, answer(request) if callable(answer) else answer)


def _send(handler: BaseHTTPRequestHandler, answer: Any) -> None:
    reply = answer if isinstance(answer, Reply) else Reply(200, json.dumps(answer))
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.chunks is None:
        data = reply.text.encode()
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in reply.chunks:
        handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
    handler.wfile.write(b"0\r\n\r\n")
