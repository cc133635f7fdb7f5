"""Calls to the frontends' HTTP, for people's programs: blocking, standard library only."""

import http.client
import json
from typing import Any

from lepa.model.errors import Code, LepaError
from lepa.serving.addressing import Address

TIMEOUT_S = 10.0

_CODES: dict[int, Code] = {400: "invalid", 404: "not_found", 409: "conflict"}


def call(address: Address, method: str, path: str, body: Any = None, timeout_s: float = TIMEOUT_S) -> Any:
    """The decoded JSON of a 200 answer, or its text where it is none.

    Raises LepaError: with the frontend's own sentence for a refusal, `timeout` when nobody answers.
    """
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise LepaError("timeout", f"{method} {path}: nobody answers at {address}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise LepaError(_CODES.get(response.status, "internal"), _sentence(text), status=response.status)
    return _json_or_text(text)


def _sentence(text: str) -> str:
    answer = _json_or_text(text)
    return str(answer.get("cause", text)) if isinstance(answer, dict) else text


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
