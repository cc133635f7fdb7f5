"""A whole node, with servers in memory: with the mock driver, and with real processes under a real supervisor."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job, make_task
from tests.node import WITHIN_S, Servers, own_supervisor, placed, running_client

from lepa.client import secrets_mount
from lepa.client.client import Client
from lepa.client.local_state import LocalState
from lepa.drivers.mock import MockDriver
from lepa.drivers.protocol import Started, TaskConfig
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import Clock, SystemClock
from lepa.model.allocation import AllocDeploymentStatus
from lepa.model.errors import LepaError
from lepa.model.job import EphemeralDisk, Job
from lepa.model.policies import DisconnectStrategy, RestartPolicy, TaskLifecycle, UpdateStrategy
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
)
from lepa.model.service import CheckRestart, Service, ServiceCheck
from lepa.model.task import LogConfig, Task

SECOND = 1_000_000_000
OFTEN = RestartPolicy(attempts=2, interval=60 * SECOND, delay=10_000_000, mode="fail")
NEVER = RestartPolicy(attempts=0)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture(autouse=True)
def no_mounts_left(tmp_path: Path) -> Iterator[None]:
    """Agents leave their tasks' secrets mounted when they go; these tests end without another agent."""
    yield
    secrets_mount.unmount_below(tmp_path)


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    async with own_supervisor(tmp_path) as found:
        yield found


RawClient = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def raw_client(tmp_path: Path, servers: Servers, supervisor: Supervisor) -> RawClient:
    """Clients on the same directory and supervisor, one after the other."""

    @asynccontextmanager
    async def open_client(**settings: Any) -> AsyncIterator[Client]:
        drivers = {"raw_exec": RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True))}
        async with running_client(tmp_path / "node", servers, drivers, **settings) as client:
            yield client

    return open_client


def mock(name: str = "web", run_for: str = "1h", exit_code: int = 0, **fields: Any) -> Task:
    config = {"run_for": run_for, "exit_code": exit_code} | fields.pop("config", {})
    return make_task(name, config=config, **fields)


def shell(script: str, name: str = "web", **fields: Any) -> Task:
    return make_task(name, driver="raw_exec", config={"command": "/bin/sh", "args": ["-c", script]}, **fields)


def job_of(*tasks: Task, type: str = "service", **group: Any) -> Job:
    return make_job(type=type, groups=(make_group(tasks=tasks, **({"restart_policy": OFTEN} | group)),))


def port(label: str, value: int) -> AllocatedResources:
    mapping = AllocatedPortMapping(label=label, value=value, host_ip="127.0.0.1")
    return AllocatedResources(shared=AllocatedSharedResources(ports=(mapping,)))


async def output(client: Client, alloc_id: str, task: str = "web", stream: str = "stdout") -> bytes:
    frames = client.stream_logs(alloc_id, task, stream, offset=0, origin="start", follow=False)
    return b"".join([frame.data async for frame in frames])


async def said(client: Client, alloc_id: str, text: bytes) -> None:
    """Wait until a task has written `text` to its standard output."""
    frames = client.stream_logs(alloc_id, "web", "stdout", offset=0, origin="start", follow=True)
    data = b""
    async with asyncio.timeout(WITHIN_S), contextlib.aclosing(frames):  # type: ignore[type-var]
        async for frame in frames:
            data += frame.data
            if text in data:
                return


class TestLife:
    async def test_an_allocation_runs_and_ends(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(run_for="50ms"), type="batch")))
            await servers.status(alloc.id, "running")
            await servers.status(alloc.id, "complete")
        assert servers.events(alloc.id) == ["Received", "Task Setup", "Started", "Terminated"]

    async def test_a_failing_task_is_restarted_as_often_as_its_policy_says(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(run_for="1ms", exit_code=7), type="batch")))
            failed = await servers.status(alloc.id, "failed")
        state = failed.task_states["web"]
        assert state.restarts == 2
        assert servers.events(alloc.id).count("Started") == 3
        assert state.events[-1].display_message == 'Exceeded allowed attempts 2 in interval 1m0s and mode is "fail"'
        assert "Exit Code: 7" in state.events[-2].display_message

    async def test_a_service_that_ends_well_is_restarted_too(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(run_for="1ms"))))
            failed = await servers.status(alloc.id, "failed")
        assert failed.task_states["web"].restarts == 2

    async def test_an_unknown_driver_fails_the_task_and_says_why(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(make_task(driver="firecracker"))))
            failed = await servers.status(alloc.id, "failed")
        assert "firecracker" in failed.task_states["web"].events[-2].display_message

    async def test_a_group_that_the_job_does_not_have_fails_the_allocation(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock()), task_group="other"))
            assert "other" in (await servers.status(alloc.id, "failed")).client_description

    async def test_a_stopped_allocation_completes(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock())))
            await servers.status(alloc.id, "running")
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete")
        assert servers.events(alloc.id)[-3:] == ["Killing", "Terminated", "Killed"]

    async def test_a_start_that_is_killed_meanwhile_does_not_happen(self, tmp_path: Path, servers: Servers) -> None:
        policy = RestartPolicy(attempts=3, interval=60 * SECOND, delay=3600 * SECOND)
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(run_for="1ms", exit_code=1), restart_policy=policy)))
            await servers.until(lambda: "Restarting" in servers.events(alloc.id) if alloc.id in servers.reported else 0)
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete", "failed")
        assert servers.events(alloc.id).count("Started") == 1

    async def test_a_batch_allocation_ends_after_max_run_duration(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(), type="batch", max_run_duration=200_000_000)))
            done = await servers.status(alloc.id, "complete")
        assert done.client_description == "allocation exceeded max_run_duration"

    async def test_allocations_end_when_the_servers_are_away_for_too_long(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        rule = DisconnectStrategy(stop_on_client_after=100_000_000)
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(mock(), disconnect=rule)))
            await servers.status(alloc.id, "running")
            servers.away = True
            servers._wake()
            await servers.until(lambda: client.counts() == {"complete": 1})


class TestLifecycle:
    async def test_tasks_start_and_end_in_their_order(self, tmp_path: Path, servers: Servers) -> None:
        def hook(name: str, hook: str, run_for: str, sidecar: bool = False) -> Task:
            return mock(name, run_for, lifecycle=TaskLifecycle(hook=hook, sidecar=sidecar))

        tasks = (
            hook("init", "prestart", "50ms"),
            hook("proxy", "prestart", "1h", sidecar=True),
            mock("main", "200ms"),
            hook("notify", "poststart", "10ms"),
            hook("clean", "poststop", "10ms"),
        )
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(*tasks, type="batch")))
            done = await servers.status(alloc.id, "complete")
        states = done.task_states
        assert states["init"].finished_at <= states["main"].started_at
        assert states["proxy"].started_at <= states["main"].started_at <= states["notify"].started_at
        assert states["main"].finished_at <= states["proxy"].finished_at <= states["clean"].started_at
        assert "Main Tasks Dead" in servers.events(alloc.id, "proxy")

    async def test_a_leader_takes_the_others_with_it(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock("web", "50ms", leader=True), mock("helper"), type="batch")))
            await servers.status(alloc.id, "complete")
        assert "Leader Task Dead" in servers.events(alloc.id, "helper")

    async def test_a_failed_task_ends_its_siblings(self, tmp_path: Path, servers: Servers) -> None:
        tasks = (mock("web", "50ms", exit_code=1), mock("other"))
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(*tasks, type="batch", restart_policy=NEVER)))
            await servers.until(
                lambda: "Killed" in servers.events(alloc.id, "other") if alloc.id in servers.reported else 0
            )
        assert "Sibling Task Failed" in servers.events(alloc.id, "other")

    async def test_when_stopping_the_main_task_ends_before_its_sidecar(self, tmp_path: Path, servers: Servers) -> None:
        """Case B211."""
        sidecar = mock("proxy", lifecycle=TaskLifecycle(hook="prestart", sidecar=True))
        slow = mock("main", config={"kill_after": "100ms"})
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(sidecar, slow)))
            await servers.until(
                lambda: (a := servers.reported.get(alloc.id)) and a.task_states["main"].state == "running"
            )
            servers.stop(alloc.id)
            done = await servers.status(alloc.id, "complete")
        assert done.task_states["main"].finished_at <= done.task_states["proxy"].finished_at

    async def test_restarting_all_tasks_runs_the_ended_ones_too(self, tmp_path: Path, servers: Servers) -> None:
        init = mock("init", "1ms", lifecycle=TaskLifecycle(hook="prestart"))
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(init, mock())))
            await servers.until(
                lambda: (a := servers.reported.get(alloc.id)) and a.task_states["web"].state == "running"
            )
            await client.restart(alloc.id, all_tasks=True)
            await servers.until(lambda: servers.events(alloc.id, "init").count("Started") == 2)
            await servers.until(lambda: servers.events(alloc.id).count("Started") == 2)
            assert servers.reported[alloc.id].task_states["web"].state == "running"
            await client.restart(alloc.id)
            await servers.until(lambda: servers.reported[alloc.id].task_states["web"].restarts == 2)
        assert servers.events(alloc.id, "init").count("Started") == 2

    async def test_an_allocation_waits_for_the_one_it_replaces_and_takes_its_data(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        disk = EphemeralDisk(sticky=True)
        job = job_of(mock(config={"kill_after": "200ms"}), ephemeral_disk=disk)
        async with running_client(tmp_path, servers) as client:
            servers.place(first := placed(job))
            await servers.status(first.id, "running")
            (client.alloc_root / first.id / "alloc/data/kept").write_text("kept")
            servers.allocations[first.id] = replace(servers.allocations[first.id], desired_status="stop")
            servers.place(servers.allocations[first.id], second := placed(job, 2, previous_allocation=first.id))
            await servers.status(second.id, "running")
            assert servers.reported[first.id].client_status == "complete"
            assert await client.read_file(second.id, "alloc/data/kept") == b"kept"


def web(port_label: str = "http", **fields: Any) -> Service:
    return Service(name="web", port_label=port_label, provider="nomad", **fields)


def check(kind: str = "tcp", **fields: Any) -> ServiceCheck:
    return ServiceCheck(**{"name": "alive", "type": kind, "interval": SECOND // 20, "timeout": SECOND} | fields)


@asynccontextmanager
async def listener(
    answer: Callable[[], bytes] = lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(answer())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


class TestServices:
    async def test_services_come_with_the_task_and_leave_before_it_is_killed(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        job = job_of(mock(services=(web(),), config={"kill_after": "50ms"}))
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job, allocated_resources=port("http", 8080)))
            await servers.until(lambda: servers.services)
            (registered,) = servers.services.values()
            assert (registered.address, registered.port, registered.status) == ("127.0.0.1", 8080, "passing")
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete")
        order = servers.log
        assert order.index("no service web") < order.index(f"complete {alloc.id[:8]}")

    async def test_the_shutdown_delay_lies_between_the_service_and_the_signal(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        job = job_of(mock(), services=(web(),), shutdown_delay=300_000_000)
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job, allocated_resources=port("http", 1)))
            await servers.until(lambda: servers.services)
            servers.stop(alloc.id)
            await servers.until(lambda: not servers.services)
            assert "Killing" not in servers.events(alloc.id)
            done = await servers.status(alloc.id, "complete")
        assert done.task_states["web"].events[-3].type == "Killing"

    async def test_an_allocation_is_healthy_once_its_checks_pass(self, tmp_path: Path, servers: Servers) -> None:
        update = UpdateStrategy(min_healthy_time=100_000_000, healthy_deadline=60 * SECOND)
        works = False

        def answer() -> bytes:
            return b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % (b"200 OK" if works else b"500 Oh")

        async with listener(answer) as number, running_client(tmp_path, servers) as client:
            service = web(checks=(check("http", path="/health"),))
            job = job_of(mock(services=(service,)), update=update)
            resources = port("http", number)
            servers.place(alloc := placed(job, deployment_id="d", allocated_resources=resources))
            await servers.until(lambda: alloc.id in servers.reported)
            async with asyncio.timeout(WITHIN_S):
                while not any(c.status == "failure" for c in (await client.checks(alloc.id)).values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            assert servers.reported[alloc.id].deployment_status is None
            works = True
            await servers.until(lambda: servers.reported[alloc.id].deployment_status)
            status = servers.reported[alloc.id].deployment_status
            assert status is not None
            assert status.healthy
            assert [each.status for each in servers.services.values()] == ["passing"]

    async def test_an_allocation_whose_checks_never_pass_is_unhealthy_at_the_deadline(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        update = UpdateStrategy(min_healthy_time=0, healthy_deadline=400_000_000)
        job = job_of(mock(services=(web(checks=(check("tcp"),)),)), update=update)
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job, deployment_id="d", allocated_resources=port("http", 1)))
            await servers.until(lambda: (a := servers.reported.get(alloc.id)) and a.deployment_status)
        status = servers.reported[alloc.id].deployment_status
        assert status is not None
        assert status.healthy is False
        assert "Alloc Unhealthy" in servers.events(alloc.id)

    async def test_a_check_that_fails_too_often_restarts_its_task(self, tmp_path: Path, servers: Servers) -> None:
        rule = CheckRestart(limit=2, grace=0)
        job = job_of(mock(services=(web(checks=(check("tcp", check_restart=rule),)),)))
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job, allocated_resources=port("http", 1)))
            await servers.until(
                lambda: "Restart Signaled" in servers.events(alloc.id) if alloc.id in servers.reported else 0
            )

    async def test_c53_a_service_with_a_port_that_is_none_fails_its_task(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        job = job_of(mock(services=(web(port_label="${meta.none}"),)))
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job))
            await servers.status(alloc.id, "failed")
        (told,) = [event for event in servers.reported[alloc.id].task_states["web"].events if "port" in event.message]
        assert told.type == "Task hook failed"
        assert "which is no port" in told.message
        assert servers.services == {}

    async def test_tags_change_in_place_and_at_promotion(self, tmp_path: Path, servers: Servers) -> None:
        service = web(tags=("v-${NOMAD_META_v}",), canary_tags=("canary",))
        job = replace(job_of(mock(services=(service,))), meta={"v": "1"})
        async with running_client(tmp_path, servers):
            canary = AllocDeploymentStatus(canary=True)
            given = port("http", 1)
            servers.place(alloc := placed(job, deployment_id="d", deployment_status=canary, allocated_resources=given))
            await servers.until(lambda: [each.tags for each in servers.services.values()] == [("canary",)])
            servers.change(alloc.id, deployment_status=AllocDeploymentStatus(canary=False, healthy=True))
            await servers.until(lambda: [each.tags for each in servers.services.values()] == [("v-1",)])
            servers.change(alloc.id, job=replace(job, meta={"v": "2"}, version=1))
            await servers.until(lambda: [each.tags for each in servers.services.values()] == [("v-2",)])
            await servers.status(alloc.id, "running")
        assert servers.events(alloc.id).count("Started") == 1

    async def test_many_restarts_leave_exactly_one_registration(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(mock(services=(web(),))), allocated_resources=port("http", 1)))
            await servers.status(alloc.id, "running")
            for number in range(1, 6):
                await client.restart(alloc.id)
                await servers.until(
                    lambda number=number: servers.reported[alloc.id].task_states["web"].restarts == number
                )
                await servers.status(alloc.id, "running")
            await servers.until(lambda: len(servers.services) == 1)


class Cored(MockDriver):
    """A driver that writes down what it is told, in order."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.told: list[Any] = []

    async def share_cores(self, cores: tuple[int, ...]) -> None:
        self.told.append(cores)

    async def start(self, task: TaskConfig) -> Started:
        self.told.append(task.task_name)
        return await super().start(task)


async def test_others_leave_reserved_cores_before_their_owner_starts_and_come_back_after_its_end(
    tmp_path: Path, servers: Servers
) -> None:
    driver = Cored(SystemClock())
    cpu = AllocatedCpuResources(cpu_shares=100, reserved_cores=(1,))
    resources = AllocatedResources(tasks={"web": AllocatedTaskResources(cpu=cpu)})
    async with running_client(tmp_path, servers, {"mock_driver": driver}) as client:
        cores = client.node.node_resources.cpu.reservable_cpu_cores
        assert 1 in cores
        servers.place(alloc := placed(job_of(mock()), allocated_resources=resources))
        await servers.status(alloc.id, "running")
        servers.stop(alloc.id)
        await servers.until(lambda: len(driver.told) == 3)
    rest = tuple(core for core in cores if core != 1)
    assert driver.told == [rest, "web", cores]


class TestServerTrouble:
    async def test_a_node_that_was_forgotten_registers_and_tells_everything_again(
        self, tmp_path: Path, servers: Servers
    ) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock(services=(web(),))), allocated_resources=port("http", 1)))
            await servers.until(lambda: servers.services and alloc.id in servers.reported)
            servers.nodes.clear()
            servers.services.clear()
            servers.reported.clear()
            servers.place()
            await servers.until(lambda: servers.log.count("register") == 2)
            await servers.status(alloc.id, "running")
            await servers.until(lambda: servers.services)

    async def test_an_old_answer_ends_nothing(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := placed(job_of(mock())))
            await servers.status(alloc.id, "running")
            servers.lagging = True
            servers.place()
            await servers.until(lambda: any(getattr(each, "stale", True) is False for each in servers.asked))
            servers.lagging = False
            servers.place(other := placed(job_of(mock()), 2))
            await servers.status(other.id, "running")
            assert servers.reported[alloc.id].client_status == "running"

    async def test_a_forgotten_allocation_is_ended_and_removed(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(mock())))
            await servers.status(alloc.id, "running")
            servers.forget(alloc.id)
            await servers.until(lambda: not client.has_allocation(alloc.id))
            assert not (client.alloc_root / alloc.id).exists()

    async def test_ended_allocations_are_kept_until_collected(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(mock(run_for="1ms"), type="batch")))
            await servers.status(alloc.id, "complete")
            assert (client.alloc_root / alloc.id).exists()
            await servers.removed(client, alloc.id)
            assert not (client.alloc_root / alloc.id).exists()
            with pytest.raises(LepaError, match="Unknown allocation"):
                await client.stat_file(alloc.id, "/")

    async def test_a_running_allocation_is_not_collected(self, tmp_path: Path, servers: Servers) -> None:
        """Case B210."""
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := placed(job_of(mock())))
            await servers.status(alloc.id, "running")
            await client.collect()
            with pytest.raises(LepaError, match="still running"):
                await client.collect(alloc.id)

    async def test_metadata_stay_when_the_agent_restarts(self, tmp_path: Path, servers: Servers) -> None:
        async with running_client(tmp_path, servers, meta={"rack": "r1", "zone": "z"}) as client:
            await client.set_metadata({"owner": "me", "zone": None})
            node_id = client.node_id
        async with running_client(tmp_path, servers, meta={"rack": "r1", "zone": "z"}) as client:
            assert client.node_id == node_id
            assert (await client.metadata())["Meta"] == {"rack": "r1", "owner": "me"}
            await servers.until(lambda: servers.nodes[node_id].meta == {"rack": "r1", "owner": "me"})


class TestProcesses:
    async def test_output_files_and_figures(self, raw_client: RawClient, servers: Servers) -> None:
        script = "echo hello; echo $NOMAD_ALLOC_ID > local/id; ln -s /etc/passwd local/out; ln -s id local/in; sleep 60"
        async with raw_client() as client:
            servers.place(alloc := placed(job_of(shell(script))))
            await servers.status(alloc.id, "running")
            await servers.until(lambda: (client.alloc_root / alloc.id / "web/local/in").is_symlink())
            assert await output(client, alloc.id) == b"hello\n"
            names = {entry.name for entry in await client.list_files(alloc.id, "/web/local")}
            assert names == {"id", "in", "out"}
            assert (await client.read_file(alloc.id, "web/local/in")).decode().strip() == alloc.id
            assert await client.read_file(alloc.id, "web/local/id", 2, 3) == alloc.id[2:5].encode()
            assert (await client.stat_file(alloc.id, "alloc/logs/web.stdout.0")).size == 6
            for path in ("web/local/out", "../../etc/passwd", "web/local/../../../../state.db"):
                with pytest.raises(LepaError, match="escapes"):
                    await client.read_file(alloc.id, path)
            with pytest.raises(LepaError, match="prohibited"):
                await client.list_files(alloc.id, "web/secrets")
            with pytest.raises(LepaError, match="no such file"):
                await client.read_file(alloc.id, "web/local/none")
            usage = await client.allocation_stats(alloc.id)
            assert usage.tasks["web"].resource_usage is not None

    async def test_logs_are_followed_over_rotated_files(self, raw_client: RawClient, servers: Servers) -> None:
        script = "i=0; while [ $i -lt 30 ]; do head -c 65535 /dev/zero | tr '\\0' a; echo; i=$((i+1)); sleep 0.01; done"
        task = shell(script + "; echo end; sleep 60", log_config=LogConfig(max_files=5, max_file_size_mb=1))
        async with raw_client() as client:
            servers.place(alloc := placed(job_of(task)))
            await servers.status(alloc.id, "running")
            received, files = 0, set()
            frames = client.stream_logs(alloc.id, "web", "stdout", offset=0, origin="start", follow=True)
            async with asyncio.timeout(20):
                async for frame in frames:
                    received += len(frame.data)
                    files.add(frame.file)
                    if frame.data.endswith(b"end\n"):
                        break
            await frames.aclose()  # type: ignore[attr-defined]
            sizes = {path.name: path.stat().st_size for path in (client.alloc_root / alloc.id / "alloc/logs").iterdir()}
            assert received == 30 * 65536 + 4, (sizes, servers.events(alloc.id))
            assert files == {"alloc/logs/web.stdout.0", "alloc/logs/web.stdout.1"}

    async def test_commands_signals_and_restarts(self, raw_client: RawClient, servers: Servers) -> None:
        script = "trap 'echo hup' HUP; echo begin; while true; do sleep 0.05; done"
        async with raw_client() as client:
            servers.place(alloc := placed(job_of(shell(script))))
            await servers.until(lambda: alloc.id in servers.reported)
            await servers.status(alloc.id, "running")
            session = await client.exec(alloc.id, "web", ["/bin/sh", "-c", "cat; exit 3"], tty=False)
            await session.write(b"to and fro")
            await session.write(b"")
            assert b"".join([data async for _, data in session.output()]) == b"to and fro"
            assert await session.wait() == 3
            await session.close()
            await said(client, alloc.id, b"begin")
            await client.signal(alloc.id, "web", "SIGHUP")
            await said(client, alloc.id, b"hup")
            await client.restart(alloc.id, "web")
            await servers.until(lambda: servers.events(alloc.id).count("Started") == 2)
            with pytest.raises(LepaError, match="unknown task"):
                await client.exec(alloc.id, "other", ["true"], tty=False)

    async def test_another_agent_takes_up_running_tasks(
        self, raw_client: RawClient, servers: Servers, tmp_path: Path
    ) -> None:
        jobs = [
            placed(job_of(shell(f"echo $$ > $NOMAD_TASK_DIR/pid; echo {n}; exec sleep 60")), n) for n in range(1, 6)
        ]
        async with raw_client() as client:
            servers.place(*jobs)
            for alloc in jobs:
                await servers.status(alloc.id, "running")
            pids = [_pid(client, alloc.id) for alloc in jobs]
        servers.reported.clear()
        async with raw_client() as client:
            for number, alloc in enumerate(jobs, 1):
                await servers.status(alloc.id, "running")
                assert servers.events(alloc.id) == ["Received", "Task Setup", "Started"]
                assert await output(client, alloc.id) == f"{number}\n".encode()
            assert [_pid(client, alloc.id) for alloc in jobs] == pids
            for alloc in jobs:
                servers.stop(alloc.id)
            for alloc in jobs:
                await servers.status(alloc.id, "complete")
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)

    async def test_a_task_that_ended_while_the_agent_was_away_is_not_run_again(
        self, raw_client: RawClient, servers: Servers, tmp_path: Path
    ) -> None:
        async with raw_client():
            servers.place(
                alloc := placed(job_of(shell("sleep 0.3; echo done; exit 5"), type="batch", restart_policy=NEVER))
            )
            await servers.status(alloc.id, "running")
        await asyncio.sleep(0.5)
        async with raw_client() as client:
            failed = await servers.status(alloc.id, "failed")
            assert await output(client, alloc.id) == b"done\n"
        assert servers.events(alloc.id).count("Started") == 1
        assert any("Exit Code: 5" in told.display_message for told in failed.task_states["web"].events)

    async def test_an_ended_allocation_does_not_run_again_after_a_restart(
        self, raw_client: RawClient, servers: Servers
    ) -> None:
        """Case B205."""
        async with raw_client() as client:
            servers.place(alloc := placed(job_of(shell("echo once"), type="batch")))
            await servers.status(alloc.id, "complete")
        async with raw_client() as client:
            await servers.until(lambda: servers.log.count("register") == 2)
            await asyncio.sleep(0.2)
            assert await output(client, alloc.id) == b"once\n"
            await servers.removed(client, alloc.id)
        async with raw_client() as client:
            await servers.until(lambda: servers.log.count("register") == 3)
            await asyncio.sleep(0.2)
            assert not client.has_allocation(alloc.id)

    async def test_nothing_is_started_before_the_servers_were_asked(
        self, raw_client: RawClient, servers: Servers, supervisor: Supervisor
    ) -> None:
        """Case B203."""
        async with raw_client():
            servers.place(alloc := placed(job_of(shell("sleep 60"))))
            await servers.status(alloc.id, "running")
        for info in await supervisor.list_tasks():
            await supervisor.stop(info.id, 9, 0.0)
            await supervisor.forget(info.id)
        servers.away = True
        async with raw_client() as client:
            await asyncio.sleep(0.3)
            assert await supervisor.list_tasks() == []
            servers.away = False
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete", "failed")
            assert await supervisor.list_tasks() == []
            assert client.counts() == {"complete": 1}

    async def test_an_unreadable_record_costs_one_allocation_only(
        self, raw_client: RawClient, servers: Servers, supervisor: Supervisor, tmp_path: Path
    ) -> None:
        """Case B206."""
        async with raw_client():
            servers.place(good := placed(job_of(shell("sleep 60"))), bad := placed(job_of(shell("sleep 60")), 2))
            await servers.status(good.id, "running")
            await servers.status(bad.id, "running")
        servers.forget(bad.id)
        state = LocalState(tmp_path / "node/state.db")
        await state._put("allocations", bad.id, b"")
        state.close()
        async with raw_client() as client:
            await servers.status(good.id, "running")
            assert not client.has_allocation(bad.id)
            assert not (client.alloc_root / bad.id).exists()
            assert len(await supervisor.list_tasks()) == 1

    async def test_secrets_are_in_memory_and_leave_nothing_behind(
        self, raw_client: RawClient, servers: Servers
    ) -> None:
        async with raw_client() as client:
            servers.place(alloc := placed(job_of(shell("echo s > $NOMAD_SECRETS_DIR/s; sleep 60"))))
            await servers.status(alloc.id, "running")
            root = client.alloc_root
            mounted = secrets_mount.mounted_below(root)
            assert mounted == ([(root / alloc.id / "web/secrets").resolve()] if os.geteuid() == 0 else [])
        async with raw_client() as client:
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete")
            await servers.removed(client, alloc.id)
        assert secrets_mount.mounted_below(root) == []
        assert not (root / alloc.id).exists()


def _pid(client: Client, alloc_id: str) -> int:
    return int((client.alloc_root / alloc_id / "web/local/pid").read_text())
