"""The HTTP API described as OpenAPI 3.1, made of the routes, the table of methods and the wire types.

Each handler says which call answers it (`edge.answers`); the call's types become schemas. A handler that says nothing
is described by its path and verbs alone. `GET /v1/openapi.json` shows it.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from lepa import __version__
from lepa.api.edge import ByVerb, Described, Edge, Route, described
from lepa.api.jobs import OF_ONE_JOB
from lepa.api.request import JSON
from lepa.model.wire import to_json

ONE_JOB = "job/{tail:.+}"
READ_QUERY: dict[str, tuple[str, str]] = {
    "index": ("integer", "Wait until the data is newer than this."),
    "wait": ("string", "How long to wait, such as 30s; at most 300s."),
    "stale": ("string", "Any server may answer."),
    "prefix": ("string", "Only ids that begin so."),
    "filter": ("string", "Only what this expression holds for."),
    "per_page": ("integer", "How many to answer with."),
    "next_token": ("string", "Where to begin."),
    "reverse": ("string", "The other way round."),
}
COMMON_QUERY: dict[str, tuple[str, str]] = {
    "namespace": ("string", "Namespace, * for all where something is listed."),
    "region": ("string", "Region that answers."),
    "pretty": ("string", "Indent the answer."),
}
_NAME = re.compile(r"\{(\w+)\}")


class Operation(NamedTuple):
    """One verb of one path. path: after `/v1/`, with names in braces."""

    verb: str
    path: str
    summary: str
    takes: Described


def operations(routes: Iterable[Route]) -> Iterator[Operation]:
    """Every verb of every route, those of one job by their suffix."""
    for route in routes:
        if route.path == ONE_JOB:
            yield from _of_one_job()
            continue
        handlers = route.handle.handlers if isinstance(route.handle, ByVerb) else {}
        for verb in route.verbs.split():
            handle = handlers.get("PUT" if verb == "POST" else verb, route.handle)
            yield Operation(verb, _plain(route.path), _summary(handle), described(handle))


def _of_one_job() -> Iterator[Operation]:
    for (verb, suffix), handle in OF_ONE_JOB.items():
        path = f"job/{{id}}/{suffix}" if suffix else "job/{id}"
        for spelled in (verb, "POST") if verb == "PUT" else (verb,):
            yield Operation(spelled, path, _summary(handle), described(handle))


def _plain(path: str) -> str:
    """A path whose names have no patterns."""
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", path)


def _summary(handle: Callable[..., Any]) -> str:
    method = described(handle).method
    text = inspect.getdoc(handle) or (method.name if method is not None else "")
    return text.partition("\n")[0]


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole description."""
    found = list(operations(routes))
    types = list(dict.fromkeys(kind for each in found for kind in _types(each.takes)))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in found:
        paths.setdefault(f"/v1/{each.path}", {})[each.verb.lower()] = _operation(each, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lepa",
            "version": __version__,
            "description": "Nomad's HTTP API. Errors are a sentence as plain text.",
        },
        "servers": [{"url": "http://127.0.0.1:4646"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Nomad-Token"}},
        },
    }


def _types(takes: Described) -> Iterator[Any]:
    if takes.method is not None and takes.method.answer is not None:
        yield takes.method.answer
    if takes.body is not None:
        yield takes.body


def _operation(each: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    takes = each.takes
    answer = takes.method.answer if takes.method is not None else None
    success: dict[str, Any] = {"description": "Done."}
    if answer is not None:
        success["content"] = {JSON: {"schema": schema_of[answer]}}
    made: dict[str, Any] = {
        "operationId": operation_id(each),
        "tags": [each.path.partition("/")[0]],
        "summary": each.summary,
        "parameters": list(_parameters(each)),
        "responses": {
            "200": success,
            "default": {"description": "A sentence.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        },
    }
    if each.verb in ("PUT", "POST") or takes.body is not None:
        made["requestBody"] = {"content": {JSON: {"schema": schema_of.get(takes.body, {})}}}
    if takes.method is not None:
        made["x-lepa-method"] = takes.method.name
    return made


def operation_id(each: Operation) -> str:
    """A name that no other operation has."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", each.path) if word]
    return each.verb.lower() + "".join(word[:1].upper() + word[1:] for word in words)


def _parameters(each: Operation) -> Iterator[dict[str, Any]]:
    for name in _NAME.findall(each.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    method = each.takes.method
    reads = each.verb == "GET" and method is not None and method.kind == "read"
    for name, (kind, about) in {**(READ_QUERY if reads else {}), **COMMON_QUERY}.items():
        yield {"name": name, "in": "query", "description": about, "schema": {"type": kind}}
    for name in each.takes.query:
        yield {"name": name, "in": "query", "schema": {"type": "string"}}


@cache
def rendered(routes: tuple[Route, ...]) -> bytes:
    """The description as JSON; it never changes while a program runs."""
    return to_json(document(routes))


def route_of(all_routes: Callable[[], tuple[Route, ...]]) -> Route:
    """The route that shows the description of all routes, itself included."""

    async def describe(edge: Edge, request: web.Request) -> web.StreamResponse:
        """This description of the API, as OpenAPI 3.1."""
        return web.Response(body=rendered(all_routes()), content_type=JSON)

    return Route("GET", "openapi.json", describe)
