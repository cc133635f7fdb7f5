"""The internal port: the same calls over HTTP, refusals and streams included."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.builders import make_job, make_node
from tests.integration.server_cluster import FakeNode, cluster

from lepa.kit.durations import SECOND
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller, LocalCaller, ServerSession, channel_app


@asynccontextmanager
async def served(caller: LocalCaller) -> AsyncIterator[str]:
    """The internal port of `caller`; gives its address."""
    runner = web.AppRunner(channel_app(caller), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def dialled(*servers: str) -> AsyncIterator[HttpCaller]:
    """A caller of these servers."""
    async with ServerSession() as session:
        yield HttpCaller(session, servers, SystemClock(), SystemRandom())


async def test_a_node_on_another_machine_runs_a_job() -> None:
    async with cluster() as c, served(c.caller) as address, dialled(address) as remote:
        async with FakeNode(remote, make_node("node-1")):
            await c.register(make_job(count=2))
            await c.until(lambda: c.statuses("web") == [("run", "running")] * 2, "running")
        job = (await remote.call(m.JOB_GET, r.JobReadRequest(id="web"))).value
        assert job == c.server.replica.snapshot.job("default", "web")


async def test_errors_arrive_as_they_were_raised() -> None:
    async with cluster() as c, served(c.caller) as address, dialled(address) as remote:
        with pytest.raises(LepaError, match="node not found") as refused:
            await remote.call(m.NODE_HEARTBEAT, r.NodeHeartbeatRequest(node_id="nobody"))
        assert (refused.value.code, refused.value.facts) == ("not_found", {"node_id": "nobody"})


async def test_a_blocking_query_waits_at_the_server() -> None:
    async with cluster() as c, served(c.caller) as address, dialled(address) as remote:
        index = (await remote.call(m.JOB_LIST, r.JobListRequest())).index
        waiting = asyncio.ensure_future(remote.call(m.JOB_LIST, r.JobListRequest(index=index, wait_ns=30 * SECOND)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await c.register(make_job())
        reply = await asyncio.wait_for(waiting, 5)
        assert [job.id for job in reply.value] == ["web"]


async def test_events_stream_over_the_port() -> None:
    async with cluster() as c, served(c.caller) as address, dialled(address) as remote:
        await c.register(make_job())
        stream = remote.stream(m.EVENT_STREAM, r.EventStreamRequest(topics={"Job": ("web",)}))
        batch = await anext(stream)
        assert [(event.topic, event.key) for event in batch.events] == [("Job", "web")]
        await stream.aclose()  # type: ignore[attr-defined]


async def test_a_reader_that_leaves_a_stream_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def events(request: r.EventStreamRequest) -> AsyncIterator[r.EventBatch]:
        try:
            yield r.EventBatch(index=1)
            await left.wait()
            for index in range(2, 1_000):
                yield r.EventBatch(index=index)
                await asyncio.sleep(0)
        finally:
            ended.set()

    runner = web.AppRunner(channel_app(LocalCaller({}, {m.EVENT_STREAM.name: events})), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with dialled(f"127.0.0.1:{runner.addresses[0][1]}") as remote:
            stream = remote.stream(m.EVENT_STREAM, r.EventStreamRequest())
            assert (await anext(stream)).index == 1
            await stream.aclose()  # type: ignore[attr-defined]
        left.set()
        async with asyncio.timeout(10):
            await ended.wait()
        await asyncio.sleep(0.05)
    finally:
        await runner.cleanup()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_server_that_cannot_be_reached_is_passed_over() -> None:
    async with cluster() as c, served(c.caller) as address, dialled("127.0.0.1:1", address) as remote:
        await remote.call(m.JOB_REGISTER, r.JobRegisterRequest(job=make_job()))
        assert remote.servers == (address, "127.0.0.1:1")


async def test_without_any_server_a_call_says_so() -> None:
    async with dialled() as remote:
        with pytest.raises(LepaError, match="no server is known"):
            await remote.call(m.STATUS_LEADER, r.ReadRequest())
        with pytest.raises(LepaError, match="no server is known"):
            await anext(remote.stream(m.EVENT_STREAM, r.EventStreamRequest()))


async def test_an_unknown_method_and_a_broken_body_are_refused() -> None:
    async with cluster() as c, served(c.caller) as address, aiohttp.ClientSession() as session:
        async with session.post(f"http://{address}/rpc/Job.Nothing", data=b"") as response:
            assert response.status == 501
        async with session.post(f"http://{address}/rpc/Job.List", data=b"\xc1") as response:
            assert response.status == 400


def test_a_new_list_of_servers_keeps_the_present_one_first() -> None:
    caller = HttpCaller(None, ("a:1", "b:1"), SystemClock(), SystemRandom())  # type: ignore[arg-type]
    caller.use(["c:1", "a:1"])
    assert caller.servers == ("a:1", "c:1")
    caller.use(["d:1"])
    assert caller.servers == ("a:1", "d:1")
    assert not caller.moved.is_set()


async def test_who_waits_at_a_server_hears_that_another_is_asked_first() -> None:
    async with dialled("127.0.0.1:1", "127.0.0.1:2") as caller:
        moved = caller.moved
        with pytest.raises(LepaError):
            await caller.call(m.STATUS_LEADER, r.ReadRequest())
        assert moved.is_set()
        caller.use(["127.0.0.1:3"])
        assert caller.servers[-1] == "127.0.0.1:3"
