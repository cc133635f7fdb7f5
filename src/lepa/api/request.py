"""What is the same for every request: parameters in, headers and bodies out, errors as plain text.

Query parameters become a `ReadRequest`; a `Reply` becomes a JSON body with `X-Nomad-Index` and its companions; a
`LepaError` becomes a status and its message.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from lepa.kit.durations import parse_duration
from lepa.model import wire
from lepa.model.errors import Code, LepaError, invalid, not_found
from lepa.rpc.requests import WAIT_MAX_NS, ReadRequest, Reply, Request

BODY_MAX = 16 * 1024 * 1024
DECODED_ON_LOOP_MAX = 1024 * 1024
"""Bytes of a body that are decoded on the event loop (some 10 ms); larger ones go to a thread, in parts."""
PART_BYTES = 64 * 1024
PARTED_LEVELS = 8
"""A job, its groups, a group, its tasks, a task and its templates are five."""
BLANKS_MAX = 256
"""Before the first character of a value; after more blanks than that it is decoded whole."""
INTEGER_END = 2**63
"""Integers are kept in 64 bits with their sign."""
NATURAL_END = 2**64
"""Those that have no sign, such as the flags of a key."""
DIGITS_MAX = 19
JSON = "application/json"
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
"""Only a body that holds this can hold an integer of more than 64 bits."""
TEXT = "text/plain"

STATUS: Mapping[Code, int] = {
    "invalid": 400,
    "not_found": 404,
    "conflict": 409,
    "denied": 403,
    "no_leader": 500,
    "timeout": 504,
    "unsupported": 501,
    "internal": 500,
}

R = TypeVar("R", bound=Request)
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_KINDS: Mapping[type, str] = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}


def read_request(request: web.Request, kind: type[R], **extra: Any) -> R:
    """The query parameters that every read knows, as a request of `kind` with `extra` fields."""
    query = request.query
    fields: dict[str, Any] = common(request)
    if issubclass(kind, ReadRequest):
        fields |= {
            "index": _index(query),
            "wait_ns": _wait(query),
            "stale": _stale(query),
            "prefix": query.get("prefix", ""),
            "filter": query.get("filter", ""),
            "per_page": number(query, "per_page"),
            "next_token": query.get("next_token", ""),
            "reverse": flag(query, "reverse"),
        }
    return kind(**(fields | extra))


def common(request: web.Request) -> dict[str, Any]:
    """Region, namespace and token of any request."""
    if not request.query_string and not request.headers.get("Authorization") and "X-Nomad-Token" not in request.headers:
        return {}
    query = request.query
    return {
        "region": query.get("region", ""),
        "namespace": query.get("namespace", ""),
        "auth_token": token(request),
    }


def token(request: web.Request) -> str:
    """The caller's secret: `X-Nomad-Token`, or the bearer of `Authorization`."""
    if given := request.headers.get("X-Nomad-Token"):
        return given.strip()
    scheme, _, rest = request.headers.get("Authorization", "").strip().partition(" ")
    return rest.split()[0] if scheme.lower() == "bearer" and rest.split() else ""


def _index(query: Mapping[str, str]) -> int:
    value = _natural(query.get("index", "") or "0")
    if value is None:
        raise invalid("Invalid index")
    return value


def _natural(text: str) -> int | None:
    """A whole number that is not negative and fits into 64 bits."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else INTEGER_END
    return value if value < INTEGER_END else None


def _wait(query: Mapping[str, str]) -> int:
    text = query.get("wait", "")
    if not text:
        return WAIT_MAX_NS
    try:
        wait = parse_duration(text)
    except ValueError as error:
        raise invalid("Invalid wait time") from error
    return min(wait, WAIT_MAX_NS) if wait > 0 else WAIT_MAX_NS


def _stale(query: Mapping[str, str]) -> bool:
    value = query.get("stale", "false")
    if value in {"", "true"}:
        return True
    if value == "false":
        return False
    raise invalid("Expect `true` or `false` for `stale` query string parameter")


def number(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """A whole number that is not negative."""
    text = query.get(name, "")
    if not text:
        return default
    value = _natural(text)
    if value is None:
        raise invalid(f"Expect a number for `{name}` query string parameter")
    return value


def flag(query: Mapping[str, str], name: str, default: bool = False) -> bool:
    """A boolean as Go's parser takes it."""
    text = query.get(name)
    if text is None or text == "":
        return default
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise invalid(f'Failed to parse value of "{name}" ("{text}") as a bool: expected true or false')


async def json_body(request: web.Request, *, required: bool = True, integer_end: int = INTEGER_END) -> Any:
    """The decoded JSON body; {} for an absent one that need not be there. integer_end: above all of its integers."""
    raw = await request.read()
    if not raw.strip():
        if required:
            raise invalid("Request body is empty")
        return {}
    try:
        if len(raw) > DECODED_ON_LOOP_MAX:
            return await asyncio.to_thread(_decode_parts, raw, PARTED_LEVELS, integer_end)
        return _decode(raw, integer_end)
    except msgspec.DecodeError as error:
        raise invalid(f"request body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise invalid("request body is nested too deeply") from error


def _decode_parts(raw: bytes | msgspec.Raw, levels: int, integer_end: int) -> Any:
    """The same as `_decode`, part by part: one call of a decoder keeps all other threads waiting until it returns.

    levels: of objects and lists that may still be parted; each costs a walk over the text, some 1 ms a megabyte.
    """
    opening = bytes(memoryview(raw)[:BLANKS_MAX]).lstrip()[:1] if levels and len(memoryview(raw)) > PART_BYTES else b""
    if opening == b"{":
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return {name: _decode_parts(value, levels - 1, integer_end) for name, value in members.items()}
    if opening == b"[":
        items = msgspec.json.decode(raw, type=list[msgspec.Raw])
        return [_decode_parts(item, levels - 1, integer_end) for item in items]
    return _decode(raw, integer_end)


def _decode(raw: bytes | msgspec.Raw, integer_end: int) -> Any:
    body = msgspec.json.decode(raw)
    if _LONG_NUMBER.search(raw):
        _check_integers(body, integer_end)
    return body


def _check_integers(value: Any, integer_end: int) -> None:
    """Every integer is kept in 64 bits."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_integers(item, integer_end)
    elif isinstance(value, int) and not -INTEGER_END <= value < integer_end:
        raise invalid(f"request body holds the number {value}, which does not fit into 64 bits")


async def json_object(request: web.Request, *, required: bool = True, integer_end: int = INTEGER_END) -> dict[str, Any]:
    """The decoded JSON body, which has to be an object."""
    body = await json_body(request, required=required, integer_end=integer_end)
    if not isinstance(body, dict):
        raise invalid(f"request body must be a JSON object, not {type(body).__name__}")
    return body


def member(body: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """A member of a JSON object by name in any case."""
    if name in body:
        return body[name] if body[name] is not None else default
    wanted = name.lower()
    return next((value for key, value in body.items() if key.lower() == wanted and value is not None), default)


def typed_member(body: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    """A member of a JSON object that has to be of one kind: `str`, `bool`, `dict` or `list`."""
    value = member(body, name, default)
    if not isinstance(value, kind):
        raise invalid(f"{name} must be {_KINDS[kind]}, not {_KINDS.get(type(value), 'a number')}")
    return value


def with_durations(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The body with these durations in nanoseconds."""
    found = dict(body)
    for key, value in body.items():
        name = next((name for name in names if name.lower() == key.lower()), "")
        if name and isinstance(value, str):
            try:
                found[key] = parse_duration(value) if value else 0
            except ValueError as error:
                raise invalid(f"{name}: {error}") from error
    return found


def reply_response(request: web.Request, reply: Reply[Any], missing: str = "") -> web.Response:
    """A read's answer. A value of None is 404 with the text `missing`, or null when there is none."""
    if reply.value is None and missing:
        raise not_found(missing)
    return json_response(request, reply.value, headers=reply_headers(reply))


def reply_headers(reply: Reply[Any]) -> dict[str, str]:
    """How fresh an answer is."""
    headers = {
        "X-Nomad-Index": str(reply.index),
        "X-Nomad-KnownLeader": "true" if reply.known_leader else "false",
        "X-Nomad-LastContact": str(reply.last_contact_ms),
    }
    if reply.next_token:
        headers["X-Nomad-NextToken"] = reply.next_token
    return headers


def json_response(
    request: web.Request, value: Any, *, headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """A JSON body, indented when `pretty` asks for it."""
    body = wire.to_json(value)
    if "pretty" in request.query and request.query["pretty"] != "0":
        body = msgspec.json.format(body, indent=4) + b"\n"
    return web.Response(body=body, status=status, content_type=JSON, headers=headers)


def empty_response(index: int = 0) -> web.Response:
    """200 without a body; with the write's index when there is one."""
    return web.Response(headers={"X-Nomad-Index": str(index)} if index else None, content_type=JSON)


def text_response(status: int, message: str) -> web.Response:
    """An error as Nomad sends it: its text and nothing else."""
    return web.Response(status=status, text=message, content_type=TEXT, charset="utf-8")


def error_response(error: LepaError) -> web.Response:
    """A LepaError as a response; `http_status` among its facts wins over its code's status."""
    status = error.facts.get("http_status", STATUS[error.code])
    return text_response(int(status), error.message)
