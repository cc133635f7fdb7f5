"""What runs here: collecting, earlier allocations. Whole nodes are in tests/integration/test_client.py."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.builders import make_group, make_job, make_task
from tests.node import Servers, placed, running_client

from lepa.client.client import Client
from lepa.model.errors import LepaError


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def client(tmp_path: Path, servers: Servers) -> AsyncIterator[Client]:
    async with running_client(tmp_path, servers, gc_interval_s=0.02, gc_allocs_max=2) as found:
        yield found


async def test_only_so_many_ended_allocations_are_kept_and_the_oldest_go(client: Client, servers: Servers) -> None:
    job = make_job(type="batch", groups=(make_group(tasks=(make_task(config={"run_for": "0s"}),)),))
    allocs = [placed(job, number) for number in range(4)]
    for alloc in allocs:
        servers.place(alloc)
        await servers.status(alloc.id, "complete")
    await servers.until(lambda: sum(client.has_allocation(alloc.id) for alloc in allocs) == 2)
    assert client.has_allocation(allocs[-1].id)


async def test_an_end_that_the_servers_do_not_know_is_kept(client: Client, servers: Servers) -> None:
    job = make_job(type="batch", groups=(make_group(tasks=(make_task(config={"run_for": "1h"}),)),))
    servers.place(alloc := placed(job))
    await servers.status(alloc.id, "running")
    servers.away = True
    client._allocations.runner(alloc.id).stop()
    await servers.until(lambda: client.counts() == {"complete": 1})
    await client.collect()
    assert client.has_allocation(alloc.id)
    servers.away = False
    await servers.removed(client, alloc.id)
    assert not client.has_allocation(alloc.id)


async def test_an_allocation_that_the_servers_call_unknown_is_told_again(client: Client, servers: Servers) -> None:
    job = make_job(groups=(make_group(tasks=(make_task(config={"run_for": "1h"}),)),))
    servers.place(alloc := placed(job))
    await servers.status(alloc.id, "running")
    for _ in range(2):
        servers.reported.clear()
        servers.change(alloc.id, client_status="unknown", client_description="its node is disconnected")
        await servers.status(alloc.id, "running")


async def test_only_allocations_that_make_room_are_waited_for(client: Client, servers: Servers) -> None:
    job = make_job(groups=(make_group(tasks=(make_task(config={"run_for": "1h", "kill_after": "1h"}),)),))
    running, stopping = placed(job, 1), placed(job, 2)
    servers.place(running, stopping)
    for alloc in (running, stopping):
        await servers.status(alloc.id, "running")
    client._allocations.runner(stopping.id).stop()
    wanted = placed(job, 3, previous_allocation=running.id, preempted_allocations=(stopping.id, "elsewhere"))
    assert [runner.alloc.id for runner in client._allocations.earlier(wanted)] == [stopping.id]


async def test_an_unknown_allocation_is_named(client: Client) -> None:
    with pytest.raises(LepaError, match='Unknown allocation "x"'):
        await client.checks("x")
    with pytest.raises(LepaError, match="Unknown allocation"):
        await client.collect("x")
