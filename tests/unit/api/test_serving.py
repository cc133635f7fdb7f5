"""Figures of query frontends through the agent: what they say, and nothing of anybody else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lepa.model.errors import LepaError
from lepa.model.service import ServiceRegistration

APPLICATION = {
    "name": "digits", "predictions": 9, "defaults": 0, "rate_1min": 1.5, "p50_ms": 2.0, "p99_ms": 4.0, "slo_ms": 100.0,
    "arms": ["digits:1"], "policy": "DefaultOutputSelectionPolicy",
}  # fmt: skip
MODEL = {
    "model": "digits", "version": "1", "replicas": 2, "queued": 0, "predictions": 9, "failures": 0, "rate_1min": 1.5,
    "p50_ms": 1.0, "p99_ms": 3.0, "batch_p50": 1.0, "batch_limit": 8,
}  # fmt: skip


def saying(value: Any) -> TestServer:
    """A server that answers `GET /top` so."""

    async def top(request: web.Request) -> web.Response:
        return web.json_response(value)

    app = web.Application()
    app.router.add_get("/top", top)
    return TestServer(app)


@pytest.fixture
async def frontend() -> AsyncIterator[TestServer]:
    """A query frontend, which says more than is passed on."""
    top = {"applications": [APPLICATION], "models": [MODEL | {"streams": 0}], "secret": "swordfish"}
    async with saying(top) as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[TestServer]:
    async with saying({"password": "swordfish"}) as server:
        yield server


def instance(port: int | None) -> ServiceRegistration:
    return ServiceRegistration(id=f"i{port}", service_name="s", address="127.0.0.1", port=port or 1)


async def test_each_frontend_tells_its_figures(http: Any, parts: Any, frontend: TestServer, other: TestServer) -> None:
    parts.caller.answers["Service.Get"] = (instance(frontend.port), instance(other.port), instance(None))
    answer = await http.get("/v1/serving/Digits?namespace=apps")
    assert "swordfish" not in await answer.text()
    good, wrong, silent = await answer.json()
    assert good["Address"] == f"127.0.0.1:{frontend.port}"
    assert (good["Error"], good["Applications"], good["Models"]) == ("", [APPLICATION], [MODEL])
    assert (wrong["Error"], wrong["Applications"]) == ("this is no query frontend", [])
    assert silent["Error"].startswith("the query frontend does not answer")
    asked = parts.caller.last()
    assert (asked.id, asked.namespace) == ("clipper-Digits-query-frontend-service", "apps")


async def test_who_may_not_read_the_service_gets_no_figures(http: Any, parts: Any) -> None:
    parts.caller.answers["Service.Get"] = LepaError("denied", "Permission denied")
    assert (await http.get("/v1/serving/Digits")).status == 403
