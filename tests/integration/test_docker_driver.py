"""The docker driver against a real daemon."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.components import BUSYBOX_IMAGE
from tests.integration.conftest import MakeTask
from tests.integration.driver_host import DriverHost

from lepa.drivers.docker import DockerDriver, DockerSettings
from lepa.drivers.docker_api import DockerApi
from lepa.drivers.docker_config import container_name
from lepa.drivers.docker_rules import VolumesSettings
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.resources import AllocatedPortMapping

pytestmark = pytest.mark.docker


class Host(DriverHost[DockerDriver]):
    """The docker driver on a daemon of the test's own."""

    def __init__(self, endpoint: str, state_dir: Path) -> None:
        self.endpoint, self.state_dir = endpoint, state_dir
        super().__init__(self.new_driver())
        self.api = DockerApi(endpoint)

    async def __aexit__(self, *exit_of: object) -> None:
        await super().__aexit__(*exit_of)
        await self.api.close()

    async def number(self, task: TaskConfig) -> str:
        """The id of a task's container."""
        return str((await self.api.inspect(container_name(task)))["Id"])

    def new_driver(self, **settings: Any) -> DockerDriver:
        return DockerDriver(SystemClock(), DockerSettings(endpoint=self.endpoint, **settings), str(self.state_dir))


@pytest.fixture
async def host(docker_endpoint: str, tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(docker_endpoint, tmp_path / "state") as found:
        yield found


def container(make_task: MakeTask, script: str, **config: Any) -> TaskConfig:
    return make_task(config={"image": BUSYBOX_IMAGE, "command": "/bin/sh", "args": ["-c", script], **config})


async def test_a_daemon_is_detected_with_its_version(host: Host) -> None:
    info = await host.driver.fingerprint()
    assert info.detected
    assert info.attributes["driver.docker"] == "1"
    assert info.attributes["driver.docker.version"]
    assert "runc" in info.attributes["driver.docker.runtimes"]


async def test_without_a_daemon_the_driver_is_undetected_with_the_reason(tmp_path: Path) -> None:
    driver = DockerDriver(SystemClock(), DockerSettings(endpoint=f"unix://{tmp_path}/nothing"), str(tmp_path))
    info = await driver.fingerprint()
    await driver.close()
    assert not info.detected
    assert "cannot be asked" in info.health_description


async def test_output_exit_code_and_environment_are_the_tasks(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    result = await host.run(container(make_task, "echo $GREETING; echo bad >&2; echo x > /local/made; exit 3"))
    assert result.exit_code == 3
    assert not result.successful
    assert (tmp_path / "t.stdout.0").read_text() == "hello\n"
    assert (tmp_path / "t.stderr.0").read_text() == "bad\n"
    assert (tmp_path / "alloc/task/local/made").exists()


async def test_a_stopped_container_gets_its_signal_and_keeps_its_exit_code(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "trap 'exit 12' TERM; echo up; while :; do sleep 0.1; done")
    await host.start(task)
    await asyncio.sleep(0.5)
    await host.driver.stop(task.id, "", 10)
    assert (await host.driver.wait(task.id)).exit_code == 12


async def test_a_container_that_ignores_signals_is_killed(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "trap '' TERM; while :; do sleep 0.1; done")
    await host.start(task)
    await asyncio.sleep(0.3)
    await host.driver.stop(task.id, "SIGTERM", 0.5)
    result = await host.driver.wait(task.id)
    assert (result.exit_code, result.signal) == (137, 9)


async def test_too_much_memory_is_told_as_such(host: Host, make_task: MakeTask) -> None:
    task = make_task(
        memory_mb=20,
        config={"image": BUSYBOX_IMAGE, "command": "/bin/sh", "args": ["-c", "x=a; while :; do x=$x$x; done"]},
    )
    result = await host.run(task)
    assert result.oom_killed
    assert result.exit_code == 137


async def test_a_published_port_leads_into_the_container(host: Host, make_task: MakeTask) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mapping = AllocatedPortMapping(label="http", value=port, to=8080, host_ip="127.0.0.1")
    task = make_task(
        config={
            "image": BUSYBOX_IMAGE,
            "command": "/bin/sh",
            "args": ["-c", "echo hi > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
            "ports": ["http"],
        },
        ports=(mapping,),
    )
    started = await host.start(task)
    assert started.network.port_map == {"http": 8080}
    for _ in range(100):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            if b"hi" in answer:
                return
        except OSError:
            pass
        await asyncio.sleep(0.05)
    pytest.fail("the port never answered")


async def test_volumes_of_the_task_mount_and_those_of_the_host_need_permission(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    (tmp_path / "alloc/task/local/data").mkdir()
    (tmp_path / "alloc/task/local/data/f").write_text("mine\n")
    result = await host.run(container(make_task, "cat /data/f", volumes=["local/data:/data:ro"]))
    assert result.successful
    assert (tmp_path / "t.stdout.0").read_text() == "mine\n"
    with pytest.raises(DriverError, match="volumes are disabled"):
        await host.driver.start(container(make_task, "true", volumes=["/etc:/data"]))
    os.symlink("/etc", tmp_path / "alloc/task/local/out")
    with pytest.raises(DriverError, match="leads out"):
        await host.driver.start(container(make_task, "true", volumes=["local/out:/data"]))
    await host.driver.close()
    host.driver = host.new_driver(volumes=VolumesSettings(enabled=True))
    assert (await host.run(container(make_task, "test -f /data/passwd", volumes=["/etc:/data"]))).successful


async def test_a_missing_image_fails_as_recoverable(host: Host, make_task: MakeTask) -> None:
    task = make_task(config={"image": "127.0.0.1:9/nothing:1", "image_pull_timeout": "5s"})
    with pytest.raises(DriverError, match="was not pulled") as caught:
        await host.driver.start(task)
    assert caught.value.recoverable


async def test_a_hanging_registry_is_given_up_in_time(host: Host, make_task: MakeTask) -> None:
    """Case B187."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    registry = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = registry.sockets[0].getsockname()[1]
    task = make_task(config={"image": f"127.0.0.1:{port}/slow:1", "image_pull_timeout": "1s"})
    with pytest.raises(DriverError, match="within 1 s") as caught:
        await asyncio.wait_for(host.driver.start(task), 10)
    assert caught.value.recoverable
    registry.close()


async def test_a_command_that_does_not_exist_fails_and_leaves_no_container(host: Host, make_task: MakeTask) -> None:
    task = make_task(config={"image": BUSYBOX_IMAGE, "command": "/nope"})
    with pytest.raises(DriverError, match="/nope"):
        await host.driver.start(task)
    await host.run(container(make_task, "true"))


async def test_exec_has_streams_and_an_exit_code(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    await host.start(task)
    session = await host.driver.exec(task.id, ["sh", "-c", "cat; echo err >&2; exit 7"], tty=False)
    await session.write(b"x" * 300_000)
    await session.write(b"")
    out: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    async for stream, data in session.output():
        out[stream] += data
    assert await session.wait() == 7
    assert out == {"stdout": b"x" * 300_000, "stderr": b"err\n"}
    await session.close()


async def test_exec_with_a_terminal_can_be_resized(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    await host.start(task)
    session = await host.driver.exec(task.id, ["sh", "-c", "read x; stty size; exit 4"], tty=True)
    await asyncio.sleep(0.2)
    await session.resize(33, 99)
    await session.write(b"go\n")
    said = b"".join([data async for _, data in session.output()])
    assert b"33 99" in said
    assert await session.wait() == 4
    await session.close()


async def test_stats_measure_memory(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    await host.start(task)
    usage = await host.driver.stats(task.id)
    assert usage.resource_usage is not None
    assert usage.resource_usage.memory_stats is not None
    assert usage.resource_usage.memory_stats.usage > 0


async def test_a_new_agent_takes_up_the_container_without_losing_or_doubling_a_line(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    task = container(make_task, "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; exit 5")
    started = await host.start(task)
    await asyncio.sleep(0.6)
    await host.driver.close()
    await asyncio.sleep(0.6)
    host.driver = host.new_driver()
    await host.driver.recover(task, started.handle)
    result = await host.driver.wait(task.id)
    assert result.exit_code == 5
    assert (tmp_path / "t.stdout.0").read_text() == "".join(f"line {number}\n" for number in range(60))


async def test_a_container_that_somebody_removed_is_not_found_again(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    started = await host.start(task)
    await host.driver.destroy(task.id)
    with pytest.raises(LepaError) as caught:
        await host.driver.recover(task, started.handle)
    assert caught.value.code == "not_found"


async def test_a_leftover_container_of_the_same_name_makes_room(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    await host.start(task)
    await host.driver.close()
    host.driver = host.new_driver()
    again = container(make_task, "exit 6")
    again = TaskConfig(**{name: getattr(again, name) for name in again.__struct_fields__} | {"alloc_id": task.alloc_id})
    assert (await host.run(again)).exit_code == 6
