"""Three servers on one store: one leads, each answers, and losing one loses nothing.

Holds lepa.server.contact, lepa.server.forwarding, lepa.server.desk, lepa.server.remote_desk, lepa.server.lending,
lepa.server.endpoints.servers and lepa.rpc.server_requests together.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_job, make_node
from tests.cluster.linearizability import Call, violation
from tests.integration.server_cluster import FakeNode, Report, completes, runs
from tests.integration.several_servers import Member, Region, region, until

from lepa.kit.durations import SECOND
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.policies import ParameterizedJobConfig
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.channel import HttpCaller, Lost, ServerSession
from lepa.server.settings import HeartbeatSettings

ROOM = 100_000
HERD_LEASE_S = 9.0
"""Three servers and all their callers share one event loop here: three times what each has of its own."""


async def register(member: Member, job: Job) -> r.Reply[r.JobRegisterResponse]:
    return await member.server.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job))


async def jobs(member: Member, **how: Any) -> r.Reply[tuple[Any, ...]]:
    return await member.server.caller.call(m.JOB_LIST, r.JobListRequest(**how))


def ids(reply: r.Reply[tuple[Any, ...]]) -> set[str]:
    return {job.id for job in reply.value}


def live(member: Member, job_id: str) -> list[str]:
    """Names of a job's live allocations as a server has them."""
    allocations = member.server.replica.snapshot.job_allocations("default", job_id)
    return sorted(a.name for a in allocations if a.desired_status == "run" and a.client_status == "running")


def names(job_id: str, count: int) -> list[str]:
    return sorted(f"{job_id}.web[{number}]" for number in range(count))


async def all_run(member: Member, job_ids: list[str], count: int) -> None:
    for job_id in job_ids:
        await until(lambda job_id=job_id: live(member, job_id) == names(job_id, count), f"{job_id} runs", 30.0)


@asynccontextmanager
async def caller_of(made: Region) -> AsyncIterator[HttpCaller]:
    """A node's way to the servers, a follower first."""
    servers = [member.address for member in (*await made.followers(), await made.leader())]
    async with ServerSession() as client:
        yield HttpCaller(client, servers, SystemClock(), SystemRandom())


@asynccontextmanager
async def node(
    made: Region, name: str = "node-1", memory_mb: int = ROOM, report: Report = runs
) -> AsyncIterator[FakeNode]:
    """A node that lives: it beats."""
    made_of = make_node(name, memory_mb=memory_mb, cpu=ROOM)
    async with caller_of(made) as caller, FakeNode(caller, made_of, report) as one:
        one.tasks.start("beat", beat(one))
        yield one


async def beat(one: FakeNode) -> None:
    while True:
        with contextlib.suppress(LepaError):
            await one.beat()
        await asyncio.sleep(0.4)


# Answering


async def test_every_server_takes_writes_and_what_was_written_is_read_at_every_server() -> None:
    async with region() as made:
        for number, member in enumerate(made.members.values()):
            written = await register(member, make_job(f"job-{number}"))
            assert written.value.eval_id
            for other in made.members.values():
                reply = await jobs(other)
                assert f"job-{number}" in ids(reply)
                assert reply.index >= written.index
                assert (reply.known_leader, reply.last_contact_ms) == (True, 0)


async def test_stale_reads_are_answered_without_a_leader_and_tell_their_age() -> None:
    async with region(lease_ttl_s=30.0) as made:
        leader, followers = await made.leader(), await made.followers()
        await register(leader, make_job("kept"))
        await until(lambda: all(f.server.replica.snapshot.job("default", "kept") for f in followers), "copies")
        reply = await jobs(followers[0], stale=True)
        assert reply.known_leader
        assert reply.last_contact_ms < 2_000
        for member in made.members.values():
            member.cable.cut()
        await leader.close_port()
        await until(lambda: followers[0].server.contact.age_ms() > 1_500, "an old copy")
        reply = await jobs(followers[0], stale=True)
        assert ids(reply) == {"kept"}
        assert reply.last_contact_ms > 1_500


async def test_without_a_leader_calls_wait_and_are_then_refused_in_nomads_words() -> None:
    async with region(lease_ttl_s=30.0) as made:
        leader, followers = await made.leader(), await made.followers()
        await leader.stop()
        for follower in followers:
            follower.cable.cut()
        for follower in followers:
            follower.server._leadership.key.address = ""  # what the watch would tell if it were not cut
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(LepaError, match="No cluster leader") as refused:
            await register(followers[0], make_job())
        assert refused.value.code == "no_leader"
        assert 4.0 < loop.time() - began < 12.0


async def test_a_blocking_read_at_a_follower_hears_of_the_change() -> None:
    async with region() as made:
        first, second = await made.followers()
        index = (await jobs(first)).index
        waiting = asyncio.ensure_future(jobs(first, index=index, wait_ns=60 * SECOND))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await register(second, make_job("news"))
        async with asyncio.timeout(5):
            assert "news" in ids(await waiting)


async def test_every_server_streams_every_change_in_order() -> None:
    async with region() as made:
        request = r.EventStreamRequest(topics={"Job": ("*",)})
        streams = [member.server.caller.stream(m.EVENT_STREAM, request) for member in made.members.values()]
        wanted = {f"job-{number}" for number in range(5)}
        for job_id in sorted(wanted):
            await register(next(iter(made.members.values())), make_job(job_id))
        for stream in streams:
            seen: list[tuple[int, str]] = []
            async with asyncio.timeout(10):
                while {key for _, key in seen} != wanted:
                    batch = await anext(stream)
                    seen += [(event.index, event.key) for event in batch.events]
            assert [index for index, _ in seen] == sorted(index for index, _ in seen)
            await stream.aclose()  # type: ignore[attr-defined]


async def test_index_zero_does_not_wait_and_index_one_does() -> None:
    """B140, at a follower of a region in which nothing has happened."""
    async with region() as made:
        follower = (await made.followers())[0]
        call = follower.server.caller.call
        async with asyncio.timeout(4):
            reply = await call(m.ALLOCATION_LIST, r.AllocationListRequest(index=0, wait_ns=60 * SECOND))
        assert reply.index >= 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await call(m.ALLOCATION_LIST, r.AllocationListRequest(index=reply.index, wait_ns=60 * SECOND))


@pytest.mark.parametrize("stale", [False, True])
async def test_reads_at_a_follower_that_is_behind_are_linearizable_unless_they_are_stale(stale: bool) -> None:
    """R22: the checker of histories catches reads from a follower, and finds none where the leader was asked."""
    async with region() as made:
        leader, follower = await made.leader(), (await made.followers())[0]
        held = make_job("register", type="batch", parameterized_job=ParameterizedJobConfig())
        await register(leader, replace(held, meta={"value": "first"}))
        await until(lambda: follower.server.replica.snapshot.job("default", "register"), "known to the follower")
        follower.cable.lag_s = 0.2
        calls, loop = [], asyncio.get_running_loop()
        seen = "first"
        for number in range(20):
            began = loop.time()
            await register(leader, replace(held, meta={"value": str(number)}))
            calls.append(Call("writer", "cas", began, loop.time(), str(number), seen))
            seen, began = str(number), loop.time()
            request = r.JobReadRequest(id="register", stale=stale)
            found = (await follower.server.caller.call(m.JOB_GET, request)).value
            assert found is not None
            calls.append(Call("reader", "read", began, loop.time(), found.meta["value"]))
        assert bool(violation(calls, "first")) == stale


# Members


async def test_members_peers_and_heartbeats_tell_of_all_servers_and_of_those_that_failed() -> None:
    async with region() as made, node(made) as one:
        addresses = sorted(member.address for member in made.members.values())
        follower = (await made.followers())[0]
        peers = await follower.server.caller.call(m.STATUS_PEERS, r.ReadRequest())
        assert sorted(peers.value) == addresses
        leads = await follower.server.caller.call(m.STATUS_LEADER, r.ReadRequest())
        assert leads.value == (await made.leader()).address
        assert sorted((await one.beat()).servers) == addresses
        await follower.die()
        others = [member for member in made.members.values() if member is not follower]
        wanted = {f"{member.name}.global": "alive" for member in others} | {f"{follower.name}.global": "failed"}

        async def statuses(member: Member) -> dict[str, str]:
            found = await member.server.caller.call(m.STATUS_MEMBERS, r.ReadRequest())
            return {one.name: one.status for one in found.value.members}

        for member in others:
            for _ in range(150):
                if (found := await statuses(member)) == wanted:
                    break
                await asyncio.sleep(0.1)
            assert found == wanted
        assert sorted((await one.beat()).servers) == sorted(member.address for member in others)


# Losing the leader


@pytest.mark.parametrize("how", ["die", "stop"])
async def test_a_leader_that_is_gone_is_followed_within_seconds_and_nothing_acknowledged_is_lost(how: str) -> None:
    async with region(lease_ttl_s=20.0) as made, node(made), node(made, "node-2"):
        leader, followers = await made.leader(), await made.followers()
        acknowledged: list[str] = []
        refused: set[str] = set()

        async def write() -> None:
            for number in range(1_000):
                try:
                    await register(followers[number % 2], make_job(f"job-{number}", count=2))
                    acknowledged.append(f"job-{number}")
                except LepaError as error:
                    refused.add(error.code)
                await asyncio.sleep(0.01)

        writing = asyncio.ensure_future(write())
        await until(lambda: len(acknowledged) > 20, "writes")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await getattr(leader, how)()
        await until(lambda: any(f.server.leads for f in followers), "a new leader")
        assert loop.time() - began < 6.0
        before = len(acknowledged)
        await until(lambda: len(acknowledged) > before + 20, "writes after")
        writing.cancel()
        assert refused <= {"no_leader", "timeout"}
        next_leader = next(f for f in followers if f.server.leads)
        await all_run(next_leader, acknowledged, 2)


async def test_a_leader_that_is_cut_from_the_store_answers_no_read_and_writes_nothing() -> None:
    async with region() as made:
        leader, followers = await made.leader(), await made.followers()
        await register(leader, make_job("before"))
        leader.cable.cut()
        as_leader = leader.server.caller.as_leader
        with pytest.raises(LepaError):
            await as_leader.call(m.JOB_LIST, r.JobListRequest())
        with pytest.raises(LepaError):
            await as_leader.call(m.JOB_REGISTER, r.JobRegisterRequest(job=make_job("lost")))
        await until(lambda: any(f.server.leads for f in followers), "another leader")
        await until(lambda: not leader.server.leads, "stepped down")
        leader.cable.mend()
        for member in made.members.values():
            assert ids(await jobs(member)) == {"before"}


async def test_a_server_that_still_believes_that_it_leads_serves_nothing_old_and_writes_nothing() -> None:
    """As one that was stopped and goes on: its lease, its watch and its clock all tell of the past."""
    async with region(lease_ttl_s=2.0) as made:
        sleeper, followers = await made.leader(), await made.followers()
        await register(sleeper, make_job("before"))
        sleeper.cable.sleep()
        await until(lambda: any(f.server.leads for f in followers), "another leader")
        await register(followers[0], make_job("unseen"))
        assert sleeper.server.leads, "nothing has told it yet"
        assert sleeper.server.replica.snapshot.job("default", "unseen") is None
        as_leader = sleeper.server.caller.as_leader
        with pytest.raises(LepaError, match="No cluster leader"):
            await as_leader.call(m.JOB_LIST, r.JobListRequest())
        with pytest.raises(LepaError, match="no longer leads"):
            await as_leader.call(m.JOB_REGISTER, r.JobRegisterRequest(job=make_job("late")))
        await until(lambda: not sleeper.server.leads, "stepped down")
        sleeper.cable.mend()
        await until(lambda: sleeper.server.leader_address not in ("", sleeper.address), "the new leader is known")
        assert ids(await jobs(sleeper)) == {"before", "unseen"}


async def test_a_write_whose_connection_was_lost_is_not_made_twice() -> None:
    """The follower cannot know whether the leader did it, and says so."""
    async with region() as made:
        leader, follower = await made.leader(), (await made.followers())[0]
        leader.cable.swallow_answers()
        writing = asyncio.ensure_future(register(follower, make_job("once")))
        await until(lambda: follower.server.replica.snapshot.job("default", "once"), "written")
        await leader.die()
        with pytest.raises(Lost):
            await writing
        assert ids(await jobs(follower)) == {"once"}
        job = follower.server.replica.snapshot.job("default", "once")
        assert job is not None
        assert job.version == 0


async def test_a_node_that_is_alive_is_not_lost_by_a_change_of_leader() -> None:
    """The new leader has heard of no node; it gives all of them time (failover_ttl_s) and then counts again."""
    async with region() as made, node(made) as one:
        leader, followers = await made.leader(), await made.followers()
        await register(leader, make_job("web", count=2))
        await all_run(leader, ["web"], 2)
        before = {a.id for a in leader.server.replica.snapshot.job_allocations("default", "web")}
        await leader.die()
        await until(lambda: any(f.server.leads for f in followers), "a new leader")
        (heir,) = [f for f in followers if f.server.leads]
        await asyncio.sleep(4.0)
        snapshot = heir.server.replica.snapshot
        assert snapshot.node("node-1").status == "ready"  # type: ignore[union-attr]
        assert {a.id for a in snapshot.job_allocations("default", "web")} == before
        await one.tasks.close()
        await until(lambda: heir.server.replica.snapshot.node("node-1").status == "down", "silent at last")  # type: ignore[union-attr]


async def test_what_a_node_reports_is_kept_also_when_the_leader_does_not_know_the_allocation_yet() -> None:
    """A follower may be ahead of the leader's own copy: the leader waits until it knows what the node knows."""
    async with region() as made, node(made) as one:
        leader = await made.leader()
        one.stale = True
        await register(leader, make_job("first"))
        await all_run(leader, ["first"], 1)
        leader.cable.lag_s = 0.4
        await register(leader, make_job("second", count=3))
        await all_run(leader, ["second"], 3)


async def test_a_thousand_nodes_come_to_a_new_leader_at_once_and_it_goes_on_leading() -> None:
    """R19: nobody is refused, and all are ready soon."""
    patient = HeartbeatSettings(min_ttl_s=60.0, failover_ttl_s=60.0)
    async with region(heartbeat=patient, lease_ttl_s=HERD_LEASE_S) as made:
        leader, followers = await made.leader(), await made.followers()
        nodes = [make_node(f"node-{number:04}", cpu=2_000, memory_mb=2_000) for number in range(1_000)]

        async def herd(to: list[Member]) -> None:
            async def come(number: int) -> None:
                caller = to[number % len(to)].server.caller
                known = replace(nodes[number], secret_id=f"secret-{number}", status="ready")
                await caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=known))

            await asyncio.gather(*map(come, range(len(nodes))))

        await herd([leader])
        await register(leader, make_job("wide", count=400))
        await until(lambda: len(placed(leader, "wide")) == 400, "placed", 30.0)
        await leader.die()
        await until(lambda: any(f.server.leads for f in followers), "a new leader")
        (heir,) = [f for f in followers if f.server.leads]
        term = heir.server.term
        loop = asyncio.get_running_loop()
        began = loop.time()
        await herd(followers)
        assert loop.time() - began < 60.0
        assert {one.status for one in heir.server.replica.snapshot.nodes()} == {"ready"}
        assert heir.server.leads
        assert heir.server.term == term


async def test_five_thousand_allocations_lost_at_once_are_placed_elsewhere_by_the_same_leader() -> None:
    """R19: half of the nodes go down at once; every evaluation ends and nobody else has to lead."""
    patient = HeartbeatSettings(min_ttl_s=600.0, failover_ttl_s=600.0)
    wanted = [f"job-{number}" for number in range(10)]
    async with region(heartbeat=patient, lease_ttl_s=HERD_LEASE_S) as made:
        leader = await made.leader()
        term = leader.server._leadership.key.created

        async def come(prefix: str) -> None:
            fresh = [make_node(f"{prefix}-{number}", cpu=ROOM, memory_mb=ROOM) for number in range(25)]
            known = [replace(node, secret_id=node.id, status="ready") for node in fresh]
            await asyncio.gather(*(call(m.NODE_REGISTER, r.NodeRegisterRequest(node=node)) for node in known))

        def all_on(prefix: str) -> bool:
            snapshot = leader.server.replica.snapshot
            at = [a for a in snapshot.allocations() if a.desired_status == "run" and a.client_status == "pending"]
            return len(at) == 5_000 and all(a.node_id.startswith(prefix) for a in at)

        call = leader.server.caller.call
        await come("first")
        await asyncio.gather(*(register(leader, make_job(job_id, count=500)) for job_id in wanted))
        await until(lambda: all_on("first"), "placed", 60.0)
        await come("second")
        lost = [f"first-{number}" for number in range(25)]
        down = [r.NodeHeartbeatRequest(node_id=one, secret_id=one, status="down") for one in lost]
        await asyncio.gather(*(call(m.NODE_HEARTBEAT, request) for request in down))
        await until(lambda: all_on("second"), "placed elsewhere", 60.0)
        await until(lambda: not unfinished(leader), "the queue of evaluations is empty", 60.0)
        assert leader.server.leads
        assert leader.server._leadership.key.created == term


def unfinished(member: Member) -> set[str]:
    """What evaluations are that have not ended."""
    return {e.status for e in member.server.replica.snapshot.evaluations()} - {"complete", "canceled"}


def placed(member: Member, job_id: str) -> list[str]:
    return [a.node_id for a in member.server.replica.snapshot.job_allocations("default", job_id)]


# Scheduling on followers


async def test_followers_schedule_and_every_evaluation_ends() -> None:
    async with region(workers=1) as made, node(made):
        leader = await made.leader()
        wanted = [f"job-{number}" for number in range(60)]
        await asyncio.gather(*(register(leader, make_job(job_id, count=3)) for job_id in wanted))
        await all_run(leader, wanted, 3)
        assert made.count("lepa.evaluations.lent") > 5

        def statuses() -> set[str]:
            return {e.status for e in leader.server.replica.snapshot.evaluations()}

        await until(lambda: statuses() <= {"complete", "canceled"}, "all evaluations ended")
        kinds = ("ready", "unacked", "pending", "waiting")

        def held() -> list[float]:
            return [leader.metrics.gauges[f"nomad.nomad.broker.total_{kind}", ()] for kind in kinds]

        await until(lambda: not any(held()), "nothing is held")


async def test_plans_that_compete_for_the_same_room_are_counted_and_made_again() -> None:
    """Each node has room for two; workers of three servers want it at the same time."""
    async with region(workers=2) as made:
        async with node(made, "a", 600, completes), node(made, "b", 600, completes), node(made, "c", 600, completes):
            leader = await made.leader()
            batch = [make_job(f"sum-{number}", type="batch") for number in range(60)]
            await asyncio.gather(*(register(leader, job) for job in batch))

            def complete() -> bool:
                snapshot = leader.server.replica.snapshot
                found = [snapshot.job_allocations("default", job.id) for job in batch]
                return all([a.client_status for a in of_job] == ["complete"] for of_job in found)

            await until(complete, "everything ran once", 40.0)
            triggers = {evaluation.triggered_by for evaluation in leader.server.replica.snapshot.evaluations()}
            assert "max-plan-attempts" not in triggers, "a job waits because others were faster, and nothing else"


async def test_a_plan_too_large_to_send_is_made_by_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lepa.server.remote_desk.PLAN_ITEMS_MAX", 2)
    async with region(workers=1) as made, node(made):
        leader = await made.leader()
        wanted = [f"large-{number}" for number in range(12)]
        await asyncio.gather(*(register(leader, make_job(job_id, count=5)) for job_id in wanted))
        await all_run(leader, wanted, 5)


async def test_what_a_follower_had_when_it_died_is_scheduled_by_others() -> None:
    async with region(workers=1) as made, node(made):
        leader, (victim, _) = await made.leader(), await made.followers()
        wanted = [f"job-{number}" for number in range(40)]
        await asyncio.gather(*(register(leader, make_job(job_id)) for job_id in wanted))
        await victim.die()
        await all_run(leader, wanted, 1)
