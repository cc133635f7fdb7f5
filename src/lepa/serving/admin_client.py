"""Calls to the frontends' HTTP, for people's programs: blocking, standard library only."""

import http.client
import json
from typing import Any

from lepa.model.errors import Code, LepaError
from lepa.serving.addresses import Address

TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 2.0

_CODES: dict[int, Code] = {400: "invalid", 404: "not_found", 409: "conflict"}


def call(address: Address, method: str, path: str, body: Any = None, timeout_s: float = TIMEOUT_S) -> Any:
    """The decoded JSON of a 200 answer, or its text where it is none. Raises as `send` does."""
    payload = b"" if body is None else json.dumps(body).encode()
    return _json_or_text(send(address, method, path, payload, timeout_s).decode(errors="replace"))


def send(address: Address, method: str, path: str, body: bytes = b"", timeout_s: float = TIMEOUT_S) -> bytes:
    """The body of a 200 answer.

    Raises LepaError: with the frontend's own sentence for a refusal, `timeout` when nobody answers. Then the fact
    `unreached` says that no connection could be made, so that the request was certainly not carried out.
    """
    connection = http.client.HTTPConnection(*address, timeout=min(CONNECT_TIMEOUT_S, timeout_s))
    try:
        connection.connect()
    except OSError as error:
        sentence = f"{method} {path}: nobody answers at {address}: {error}"
        raise LepaError("timeout", sentence, unreached=True) from error
    try:
        connection.sock.settimeout(timeout_s)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise LepaError("timeout", f"{method} {path}: nobody answers at {address}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        sentence = _sentence(answer.decode(errors="replace"))
        raise LepaError(_CODES.get(response.status, "internal"), sentence, status=response.status)
    return answer


def _sentence(text: str) -> str:
    answer = _json_or_text(text)
    return str(answer.get("cause", text)) if isinstance(answer, dict) else text


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
