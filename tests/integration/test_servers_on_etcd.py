"""Three servers on three real etcds: what becomes of calls when etcd loses its leader, stalls, or is away."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.builders import make_job
from tests.etcd import EtcdServer, etcd_servers
from tests.integration.several_servers import Member, Region, region, until
from tests.integration.test_several_servers import all_run, ids, jobs, node, register

from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.store.etcd import EtcdStore
from lepa.store.etcd_connection import STATUS
from lepa.store.etcd_messages import StatusRequest


@pytest.fixture(scope="module")
def etcds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EtcdServer]]:
    with etcd_servers(tmp_path_factory.mktemp("etcds"), 3) as servers:
        yield servers


@asynccontextmanager
async def on(etcds: list[EtcdServer]) -> AsyncIterator[Region]:
    """Three servers, each beginning at an etcd of its own."""
    endpoints, prefix = [etcd.endpoint for etcd in etcds], f"{uuid.uuid4()}/"
    stores = [
        await EtcdStore.open(endpoints[at:] + endpoints[:at], SystemClock(), random=SystemRandom(), prefix=prefix)
        for at in range(3)
    ]
    async with region(stores=stores) as made:
        yield made


async def etcd_leader(made: Region, etcds: list[EtcdServer]) -> EtcdServer:
    store = next(iter(made.members.values())).store
    assert isinstance(store, EtcdStore)
    for etcd in etcds:
        status = await store.connection.once(STATUS, StatusRequest(), endpoint=etcd.endpoint)
        if status.leader == status.header.member_id:
            return etcd
    raise AssertionError("no etcd leads")


class Load:
    """Registers jobs, one after the other, at every server in turn."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.acknowledged: list[str] = []
        self.longest_gap_s = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time()
        for number in range(10_000):
            try:
                await register(self.members[number % len(self.members)], make_job(f"job-{number}"))
            except LepaError:
                await asyncio.sleep(0.05)
                continue
            self.acknowledged.append(f"job-{number}")
            self.longest_gap_s = max(self.longest_gap_s, loop.time() - last)
            last = loop.time()

    async def more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted, f"{count} more writes", 30.0)


async def test_the_leader_of_etcd_and_the_leading_server_die_together_and_nothing_is_lost(
    etcds: list[EtcdServer],
) -> None:
    async with on(etcds) as made, node(made), node(made, "node-2"):
        leader, followers = await made.leader(), await made.followers()
        load = Load(followers)
        running = asyncio.ensure_future(load.run())
        await load.more(10)
        victim = await etcd_leader(made, etcds)
        victim.kill()
        await leader.die()
        await load.more(30)
        running.cancel()
        victim.start(etcds)
        heir = await until(lambda: [f for f in followers if f.server.leads], "a new leader")
        await all_run(heir[0], load.acknowledged, 1)
        assert set(load.acknowledged) <= ids(await jobs(heir[0]))


@pytest.mark.parametrize("how", ["stalled", "killed"])
async def test_while_etcd_is_away_reads_and_writes_are_refused_and_go_on_after_it(
    etcds: list[EtcdServer], how: str
) -> None:
    async with on(etcds) as made:
        leader, followers = await made.leader(), await made.followers()
        await register(followers[0], make_job("before"))
        copy = followers[0].server.replica
        await until(lambda: copy.snapshot.job("default", "before"), "the follower to hear of it")
        for etcd in etcds:
            etcd.stall() if how == "stalled" else etcd.kill()
        try:
            loop = asyncio.get_running_loop()
            for member in (leader, followers[0]):
                began = loop.time()
                with pytest.raises(LepaError) as refused:
                    await jobs(member)
                assert refused.value.code == "no_leader"
                assert loop.time() - began < 12.0
            assert ids(await jobs(followers[0], stale=True)) == {"before"}
            await until(lambda: not leader.server.leads, "stepped down", 20.0)
        finally:
            for etcd in etcds:
                etcd.go_on() if how == "stalled" else etcd.start(etcds)
        await made.leader()
        load = Load(list(made.members.values()))
        running = asyncio.ensure_future(load.run())
        await load.more(5)
        running.cancel()
        for member in made.members.values():
            assert {"before", *load.acknowledged} <= ids(await jobs(member))


async def test_a_leader_cut_from_etcd_answers_nothing_and_writes_nothing_while_another_leads(
    etcds: list[EtcdServer],
) -> None:
    async with on(etcds) as made:
        sleeper, followers = await made.leader(), await made.followers()
        await register(sleeper, make_job("before"))
        sleeper.cable.sleep()
        await until(lambda: any(f.server.leads for f in followers), "another leader", 20.0)
        await register(followers[0], make_job("unseen"))
        as_leader = sleeper.server.caller.as_leader
        with pytest.raises(LepaError, match="No cluster leader"):
            await as_leader.call(m.JOB_LIST, r.JobListRequest())
        with pytest.raises(LepaError, match=r"no longer leads|No cluster leader"):
            await as_leader.call(m.JOB_REGISTER, r.JobRegisterRequest(job=make_job("late")))
        sleeper.cable.mend()
        await until(lambda: not sleeper.server.leads, "stepped down")
        assert ids(await jobs(sleeper)) == {"before", "unseen"}
