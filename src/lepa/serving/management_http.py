"""How the management frontend's requests are read and answered, whatever they ask.

Errors are `{"error": code, "cause": sentence}`, or, for old clients, a sentence as Clipper wrote it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from lepa.model.errors import LepaError, invalid
from lepa.serving import compat

WAIT_MAX_S = 60.0
STATUS = {"invalid": 400, "not_found": 404, "conflict": 409, "unsupported": 501, "internal": 500}


def index_and_wait(request: web.Request) -> tuple[int, float]:
    try:
        return int(request.query.get("index", "-1")), float(request.query.get("wait", "0"))
    except ValueError as error:
        raise invalid(f"index and wait are numbers: {error}") from error


async def within(wait_s: float, changed: asyncio.Event) -> None:
    """Return when it has changed, or after that time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(max(wait_s, 0.0), WAIT_MAX_S)):
            await changed.wait()


def decoding(shape: type[Any], handler: Callable[[Any], Awaitable[Any]]) -> Any:
    """An aiohttp handler that decodes the body, and encodes what `handler` returns."""
    decoder = msgspec.json.Decoder(shape)

    async def handle(request: web.Request) -> web.Response:
        try:
            body = decoder.decode(await request.read() or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"Error parsing JSON: {error}. Expected JSON schema: {_schema(shape)}") from error
        answer = await handler(body)
        encoded = answer.encode() if isinstance(answer, str) else msgspec.json.encode(answer)
        return web.Response(body=encoded, content_type="application/json")

    return handle


def _schema(shape: type[Any]) -> str:
    return compat.schema({f.name: getattr(f.type, "__name__", str(f.type)) for f in msgspec.structs.fields(shape)})


def errors(shown: Callable[[int, str, str], web.Response]) -> Any:
    """A middleware that answers errors as `shown` writes them."""

    @web.middleware
    async def answer(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except LepaError as error:
            return shown(STATUS.get(error.code, 500), error.code, error.message)
        except web.HTTPException as error:
            return shown(error.status, "invalid", f"{request.method} {request.path}: {error.reason}")
        return response

    return answer


def json_error(status: int, code: str, cause: str) -> web.Response:
    body = msgspec.json.encode({"error": code, "cause": cause})
    return web.Response(body=body, status=status, content_type="application/json")


def plain_error(status: int, code: str, cause: str) -> web.Response:
    """As Clipper: a sentence, and one status for everything."""
    mistake, _, schema = cause.partition(". Expected JSON schema: ")
    return web.Response(text=compat.cause(mistake, schema), status=400, content_type="application/json")
