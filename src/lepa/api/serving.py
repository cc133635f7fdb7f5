"""What the query frontends of a serving cluster do now, asked by the agent for callers who reach only the agent.

The frontends are the instances of the cluster's service, which the caller must be allowed to read. Each is asked for
its `GET /top`, and only figures of that shape are passed on: a service that is something else gives an error, not its
answer, so nobody reads other addresses through an agent.
"""

import asyncio
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from lepa.api.edge import Edge, Route, answers
from lepa.api.request import json_response, read_request, reply_headers
from lepa.model.service import ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.serving.container_managers.job_files import ClusterPlan

FRONTENDS_MAX = 32
ANSWER_S = 2.0
ANSWER_BYTES_MAX = 4 << 20


class ApplicationFigures(msgspec.Struct, frozen=True):
    """An application at one query frontend, as `lepa.serving.reports.top` shows it. arms: model versions."""

    name: str
    predictions: int
    defaults: int
    rate_1min: float
    p50_ms: float
    p99_ms: float
    slo_ms: float
    arms: tuple[str, ...]
    policy: str


class ModelFigures(msgspec.Struct, frozen=True):
    """A model version at one query frontend."""

    model: str
    version: str
    replicas: int
    queued: int
    predictions: int
    failures: int
    rate_1min: float
    p50_ms: float
    p99_ms: float
    batch_p50: float
    batch_limit: int


class Top(msgspec.Struct, frozen=True):
    """What a query frontend answers to `GET /top`, the keys that are passed on."""

    applications: tuple[ApplicationFigures, ...]
    models: tuple[ModelFigures, ...]


@answers(m.SERVICE_GET)
async def serving(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Applications and models as each query frontend of a serving cluster sees them."""
    service = ClusterPlan(request.match_info["cluster"], python="", discovery="").query_service
    query = read_request(request, r.ServiceReadRequest, id=service)
    reply = await edge.caller.call(m.SERVICE_GET, query)
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        found = await asyncio.gather(*(_asked(session, each) for each in reply.value[:FRONTENDS_MAX]))
    return json_response(request, found, headers=reply_headers(reply))


async def _asked(session: aiohttp.ClientSession, instance: ServiceRegistration) -> dict[str, Any]:
    host = f"[{instance.address}]" if ":" in instance.address else instance.address
    shown: dict[str, Any] = {"Address": f"{host}:{instance.port}", "Error": "", "Applications": (), "Models": ()}
    try:
        async with session.get(f"http://{shown['Address']}/top", allow_redirects=False) as answer:
            body = await answer.content.read(ANSWER_BYTES_MAX)
            while not answer.content.at_eof() and len(body) < ANSWER_BYTES_MAX:
                body += await answer.content.read(ANSWER_BYTES_MAX - len(body))
        top = msgspec.json.decode(body, type=Top)
    except msgspec.MsgspecError:
        return shown | {"Error": "this is no query frontend"}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return shown | {"Error": f"the query frontend does not answer: {str(error) or 'in time'}"}
    return shown | {"Applications": top.applications, "Models": top.models}


ROUTES = (Route("GET", "serving/{cluster}", serving),)
