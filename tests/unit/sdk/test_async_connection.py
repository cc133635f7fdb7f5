"""Calls of the HTTP API for running parts."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lepa.model.errors import LepaError
from lepa.sdk.address import target
from lepa.sdk.async_connection import AsyncConnection


async def answer(request: web.Request) -> web.StreamResponse:
    if request.path == "/missing":
        return web.Response(status=404, text="job not found", headers={"X-Nomad-Index": "6"})
    if request.path == "/echo":
        return web.json_response([request.method, await request.json()])
    if request.path == "/lines":
        return web.Response(body=b'{}\n{"Index":1}\n')
    return web.json_response({"query": dict(request.query)}, headers={"X-Nomad-Index": "9", "X-Nomad-NextToken": "n"})


@pytest.fixture
async def connection() -> AsyncIterator[AsyncConnection]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    async with AsyncConnection(target({}, address=f"127.0.0.1:{server.port}", namespace="*")) as made:
        yield made
    await server.close()


async def test_an_answer_has_its_value_index_and_next_page(connection: AsyncConnection) -> None:
    got = await connection.get("/v1/jobs", {"index": 3})
    assert (got.value, got.index, got.next_token) == ({"query": {"namespace": "*", "index": "3"}}, 9, "n")


async def test_a_refusal_is_its_text_and_code(connection: AsyncConnection) -> None:
    with pytest.raises(LepaError, match="job not found") as caught:
        await connection.get("/missing")
    assert caught.value.code == "not_found"
    assert (caught.value.facts["status"], caught.value.facts["index"]) == (404, 6)


async def test_a_body_is_sent_as_json(connection: AsyncConnection) -> None:
    assert (await connection.send("PUT", "/echo", body={"a": 1})).value == ["PUT", {"a": 1}]


async def test_a_stream_gives_its_lines(connection: AsyncConnection) -> None:
    assert [line async for line in connection.lines("/lines")] == [b"{}\n", b'{"Index":1}\n']


async def test_nobody_there_is_no_leader() -> None:
    async with AsyncConnection(target({}, address="127.0.0.1:1")) as nowhere:
        with pytest.raises(LepaError, match="no agent answers") as caught:
            await nowhere.get("/v1/jobs")
    assert caught.value.code == "no_leader"
