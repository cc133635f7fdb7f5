"""What the HTTP edge asks of a node. Allocations, processes and agents' restarts: tests/integration/test_client.py."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.builders import make_group, make_job, make_task
from tests.node import Servers, placed, running_client

from lepa.client.client import Client
from lepa.client.settings import ReservedSettings
from lepa.drivers.mock import MockDriver
from lepa.kit.sources import SystemClock
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.node import ClientHostVolumeConfig, DriverInfo
from lepa.model.task import Action


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def client(tmp_path: Path, servers: Servers) -> AsyncIterator[Client]:
    settings = {
        "meta": {"rack": "r1"},
        "node_class": "big",
        "reserved": ReservedSettings(cpu=100, memory_mb=200, ports="22"),
        "host_volumes": (ClientHostVolumeConfig(name="data", path="/srv"),),
    }
    async with running_client(tmp_path, servers, **settings) as found:
        await servers.until(lambda: found.registered)
        yield found


@pytest.fixture
async def alloc(client: Client, servers: Servers) -> Allocation:
    config = {"run_for": "1h", "stdout_string": "said", "exec_command": {"stdout_string": "out", "exit_code": 2}}
    servers.place(found := placed(make_job(groups=(make_group(tasks=(make_task(config=config),)),))))
    await servers.status(found.id, "running")
    return found


async def test_the_node_says_what_it_is(client: Client, servers: Servers) -> None:
    node = servers.nodes[client.node_id]
    assert (node.status, node.name, node.node_class, node.meta) == ("ready", "here", "big", {"rack": "r1"})
    assert node.drivers["mock_driver"].healthy
    assert node.attributes["driver.mock_driver"] == "1"
    assert node.reserved_resources.cpu.cpu_shares == 100
    assert node.reserved_resources.networks.reserved_host_ports == "22"
    assert node.host_volumes["data"].path == "/srv"
    assert len(node.secret_id) == 36


async def test_logs_commands_and_figures(client: Client, alloc: Allocation) -> None:
    frames = client.stream_logs(alloc.id, "web", "stdout", offset=0, origin="start", follow=False)
    assert [frame.data async for frame in frames] == [b"said"]
    session = await client.exec(alloc.id, "web", ["x"], tty=False)
    assert [data async for _, data in session.output()] == [b"out"]
    assert await session.wait() == 2
    usage = await client.allocation_stats(alloc.id)
    assert set(usage.tasks) == {"web"}
    assert (await client.allocation_stats(alloc.id, "other")).tasks == {}
    assert await client.checks(alloc.id) == {}
    assert (await client.host_stats()).memory is not None
    assert client.counts() == {"running": 1}


async def test_an_action_is_a_command_of_its_task(client: Client, servers: Servers) -> None:
    warm = Action(name="warm", command="/bin/warm", args=("${NOMAD_TASK_NAME}", "${meta.rack}"))
    task = make_task(config={"run_for": "1h"}, actions=(warm,))
    servers.place(alloc := placed(make_job(groups=(make_group(tasks=(task,)),)), 3))
    await servers.until(lambda: client.has_allocation(alloc.id))
    assert client.command_of_action(alloc.id, "web", "web", "warm") == ["/bin/warm", "web", "r1"]
    with pytest.raises(LepaError, match='task "web" has no action "cool"; it has warm'):
        client.command_of_action(alloc.id, "web", "web", "cool")
    with pytest.raises(LepaError, match='is of job "web", not of "other"'):
        client.command_of_action(alloc.id, "other", "web", "warm")
    with pytest.raises(LepaError, match='unknown task name "other"'):
        client.command_of_action(alloc.id, "web", "other", "warm")


async def test_wrong_questions_are_answered_with_sentences(client: Client, alloc: Allocation) -> None:
    with pytest.raises(LepaError, match='unknown task name "other"'):
        client.stream_logs(alloc.id, "other", "stdout", offset=0, origin="start", follow=False)
    with pytest.raises(LepaError, match="stdout/stderr"):
        client.stream_logs(alloc.id, "web", "stdin", offset=0, origin="start", follow=False)
    with pytest.raises(LepaError, match='unknown task name "other"'):
        await client.exec(alloc.id, "other", ["x"], tty=False)
    with pytest.raises(LepaError, match="Could not find task runner"):
        await client.restart(alloc.id, "other")
    with pytest.raises(LepaError, match="Unknown allocation"):
        await client.signal("x", "web", "SIGHUP")
    with pytest.raises(LepaError, match="is not a name"):
        await client.set_metadata({"a b": "c"})


async def test_logs_of_a_task_that_has_not_started_are_not_there(client: Client, servers: Servers) -> None:
    waiting = make_task(config={"run_for": "1h", "start_block_for": "1h"})
    servers.place(alloc := placed(make_job(groups=(make_group(tasks=(waiting,)),)), 2))
    await servers.until(lambda: client.has_allocation(alloc.id))
    with pytest.raises(LepaError, match='task "web" not started yet'):
        client.stream_logs(alloc.id, "web", "stdout", offset=0, origin="start", follow=False)


async def test_commands_may_be_forbidden(tmp_path: Path, servers: Servers) -> None:
    async with running_client(tmp_path, servers, exec_allowed=False) as client:
        servers.place(alloc := placed(make_job(groups=(make_group(tasks=(make_task(config={"run_for": "1h"}),)),))))
        await servers.status(alloc.id, "running")
        with pytest.raises(LepaError, match="not allowed"):
            await client.exec(alloc.id, "web", ["x"], tty=False)


async def test_an_agent_for_development_ends_its_tasks(tmp_path: Path, servers: Servers) -> None:
    async with running_client(tmp_path, servers, exit_with_agent=True) as client:
        servers.place(alloc := placed(make_job(groups=(make_group(tasks=(make_task(config={"run_for": "1h"}),)),))))
        await servers.status(alloc.id, "running")
    assert client.counts() == {"complete": 1}


class Moody(MockDriver):
    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.well = True

    async def fingerprint(self) -> DriverInfo:
        found = await super().fingerprint()
        return found if self.well else DriverInfo(health_description="ill")


async def test_a_driver_that_falls_ill_is_told_of(
    tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lepa.client.client.CHECK_DRIVERS_S", 0.01)
    driver = Moody()
    async with running_client(tmp_path, servers, {"mock_driver": driver}) as client:
        await servers.until(lambda: client.registered)
        driver.well = False
        await servers.until(lambda: not servers.nodes[client.node_id].drivers["mock_driver"].healthy)
        assert "driver.mock_driver" not in servers.nodes[client.node_id].attributes
