"""Calls of the HTTP API with the standard library only, so that a command starts quickly.

    with Connection(target(os.environ)) as nomad:
        jobs = nomad.get("/v1/jobs").value

Errors: LepaError with the answer's text; `facts["status"]` is its HTTP status. An agent that cannot be reached is
`no_leader` with a sentence that says how to start one.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from lepa.model.errors import Code, LepaError, invalid
from lepa.sdk.address import Params, Target, headers, path_with

TIMEOUT_S = 330.0
CONNECT_S = 10.0
BYTES = "application/octet-stream"
CODES: dict[int, Code] = {
    400: "invalid",
    403: "denied",
    404: "not_found",
    409: "conflict",
    413: "invalid",
    501: "unsupported",
}

NO_API = frozenset({"404: Not Found", "404 page not found"})
PAGES = ("<!doctype", "<html")
"""How web servers, and an agent's other ports, say that they have no such page; the API never does."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A decoded body, and the index and next page that its headers name."""

    value: Any
    index: int = 0
    next_token: str = ""


class Connection:
    """One agent. Requests are made one after another over one connection that is opened when first needed.

    timeout_s: how long an answer, and each piece of it, may take; None for streams that may be silent for long.
    """

    def __init__(self, to: Target, timeout_s: float | None = TIMEOUT_S) -> None:
        self.target = to
        self._timeout_s = timeout_s
        self._http: http.client.HTTPConnection | None = None

    def get(self, path: str, params: Params | None = None) -> Answer:
        """A read. Raises LepaError."""
        return self._json("GET", path, params)

    def find(self, path: str, params: Params | None = None) -> Answer | None:
        """A read that may find nothing."""
        try:
            return self.get(path, params)
        except LepaError as error:
            if error.facts.get("status") == 404:
                return None
            raise

    def put(self, path: str, body: Any = None, params: Params | None = None) -> Answer:
        """A write."""
        return self._json("PUT", path, params, body)

    def post(self, path: str, body: Any = None, params: Params | None = None) -> Answer:
        """A write."""
        return self._json("POST", path, params, body)

    def delete(self, path: str, params: Params | None = None, body: Any = None) -> Answer:
        """A removal."""
        return self._json("DELETE", path, params, body)

    def pages(self, path: str, params: Params | None = None) -> Iterator[Any]:
        """All items of a list, page after page."""
        token = ""
        while True:
            answer = self.get(path, {**(params or {}), "next_token": token or None})
            yield from answer.value
            if not (token := answer.next_token):
                return

    def raw(self, method: str, path: str, params: Params | None = None, body: bytes | None = None) -> bytes:
        """The body of any answer as it is."""
        response = self._request(method, path, params, body)
        return response.read()

    def send(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Any answer, with its headers, to be read by the caller. extra: more headers."""
        return self._request(method, path, params, body, extra)

    def upload(self, method: str, path: str, file: IO[bytes], size: int) -> bytes:
        """Send `size` bytes of a file, however many; the body of the answer."""
        self.close()  # a kept connection may turn out to be closed when half of the file is gone
        return self._request(method, path, None, file, {"Content-Length": str(size), "Content-Type": BYTES}).read()

    def lines(self, path: str, params: Params | None = None) -> Iterator[bytes]:
        """Lines of a streamed answer as they come."""
        response = self._request("GET", path, params, None)
        yield from self._streamed(response.readline)

    def chunks(self, path: str, params: Params | None = None, size: int = 65536) -> Iterator[bytes]:
        """Pieces of a streamed answer as they come."""
        response = self._request("GET", path, params, None)
        yield from self._streamed(lambda: response.read1(size))

    def _streamed(self, read: Callable[[], bytes]) -> Iterator[bytes]:
        """Pieces until the end; a stream is not read to its end, so its connection is not used again."""
        try:
            while piece := read():
                yield piece
        except TimeoutError as error:
            raise self._unreachable(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise LepaError("no_leader", f"the connection to {self.target.url} was lost while it answered") from error
        finally:
            self.close()

    def _json(self, method: str, path: str, params: Params | None, body: Any = None) -> Answer:
        raw = None if body is None else json.dumps(body).encode()
        response = self._request(method, path, params, raw)
        text = response.read()
        try:
            value = json.loads(text) if text.strip() else None
        except ValueError as error:
            raise LepaError("internal", f"{self.target.url} answered {path} with something else than JSON") from error
        index = response.headers.get("X-Nomad-Index", "0")
        return Answer(value, int(index) if index.isdigit() else 0, response.headers.get("X-Nomad-NextToken", ""))

    def _request(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | IO[bytes] | None,
        more: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """An answer below 300. A kept connection that the agent has closed is opened once more."""
        wanted = path_with(self.target, path, params)
        extra = {**({"Content-Type": "application/json"} if body is not None else {}), **(more or {})}
        for fresh in (False, True):
            kept = self._http is not None
            try:
                connection = self._open()
                connection.request(method, wanted, body=body, headers=headers(self.target) | extra)
                response = connection.getresponse()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                self.close()
                if fresh or not kept:
                    raise self._unreachable(error) from error
            except (OSError, http.client.HTTPException) as error:
                self.close()
                raise self._unreachable(error) from error
        if response.status >= 300:
            raise self._refused(response)
        return response

    def _open(self) -> http.client.HTTPConnection:
        if self._http is None:
            to = self.target
            if to.scheme == "https":
                self._http = http.client.HTTPSConnection(to.host, to.port, timeout=CONNECT_S, context=context_of(to))
            else:
                self._http = http.client.HTTPConnection(to.host, to.port, timeout=CONNECT_S)
            self._http.connect()
            self._http.sock.settimeout(self._timeout_s)
        return self._http

    def _unreachable(self, error: Exception) -> LepaError:
        if isinstance(error, TimeoutError):
            return LepaError("timeout", f"{self.target.url} did not answer in time")
        if isinstance(error, ssl.SSLCertVerificationError):
            return LepaError(
                "denied",
                f"{self.target.url} shows a certificate that is not trusted ({error.verify_message}); name its "
                "authority with -ca-cert or LEPA_CACERT, and the name it bears with -tls-server-name",
            )
        if isinstance(error, ssl.SSLError):
            return LepaError(
                "denied",
                f"no TLS connection to {self.target.url} ({error.reason or error}); an agent may want a certificate, "
                "by -client-cert and -client-key, or speak plain http",
            )
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
            secure = self.target.scheme == "https"
            hint = "may want a certificate, by -client-cert and -client-key" if secure else "speaks TLS, by https://"
            return LepaError(
                "no_leader", f"{self.target.url} ended the connection without a word; perhaps the agent {hint}"
            )
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return LepaError(
            "no_leader",
            f"no agent answers at {self.target.url} ({reason}); start one with `lepa agent -dev`, or set LEPA_ADDR",
        )

    def _refused(self, response: http.client.HTTPResponse) -> LepaError:
        text = response.read().decode("utf-8", "replace").strip() or response.reason
        if response.status == 404 and (text in NO_API or text.lower().startswith(PAGES)):
            text = (
                f"{self.target.url} answers, but not as the HTTP API of an agent, which listens on port 4646 unless "
                "told otherwise; look at -address or LEPA_ADDR"
            )
        return LepaError(CODES.get(response.status, "internal"), text, status=response.status)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._http is not None:
            with contextlib.suppress(OSError):
                self._http.close()
            self._http = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def context_of(to: Target) -> ssl.SSLContext:
    """How to check an agent that speaks https. Raises LepaError(invalid)."""
    from lepa.kit.tls import client_context

    try:
        return client_context(to.tls)
    except ValueError as error:
        raise invalid(f"TLS: {error}") from error
