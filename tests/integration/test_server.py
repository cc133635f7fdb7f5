"""A server from registration to running allocations, with nodes that only answer."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.model.policies import ReschedulePolicy
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.server import Server
from lepa.server.settings import HeartbeatSettings, ServerSettings
from lepa.store.sqlite import SqliteStore
from tests.builders import make_group, make_job, make_node, make_update
from tests.integration.server_cluster import WAIT_S, FakeNode, cluster, completes, fails


async def test_a_service_job_comes_to_run() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        answer = await c.register(make_job(count=3))
        assert answer.eval_id
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 3, "three running allocations")
        evaluation = c.server.replica.snapshot.evaluation(answer.eval_id)
        assert evaluation is not None
        assert evaluation.triggered_by == "job-register"
        await c.until(lambda: c.server.replica.snapshot.evaluation(answer.eval_id).status == "complete", "the end")
        assert c.job_status("web") == "running"


async def test_a_batch_job_runs_to_completion_and_is_dead() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), completes):
        await c.register(make_job("sums", count=2, type="batch"))
        await c.until(lambda: c.statuses("sums") == [("run", "complete")] * 2, "two complete allocations")
        await c.until(lambda: c.job_status("sums") == "dead", "a dead job")
