"""The podman driver against a real Podman service (lepa.drivers.podman)."""

import asyncio
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests import components
from tests.integration.conftest import MakeTask
from tests.integration.driver_host import DriverHost
from tests.integration.shared_cores import tasks_keep_off_cores_of_others

from lepa.drivers.docker_api import DockerApi
from lepa.drivers.podman import PodmanDriver
from lepa.drivers.podman_config import PodmanSettings
from lepa.drivers.protocol import DriverError, Started, TaskConfig
from lepa.kit.sources import SystemClock

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    # Podman takes no directory whose name is longer than 50 characters.
    with tempfile.TemporaryDirectory(prefix="lepa-", ignore_cleanup_errors=True) as home:
        with components.podman_service(Path(home)) as found:
            yield found


class Host(DriverHost[PodmanDriver]):
    """The podman driver on a service of the test's own."""

    def __init__(self, service: str, state_dir: Path) -> None:
        self.service, self.state_dir = service, state_dir
        self.api = DockerApi(f"unix://{service}")
        super().__init__(self.new_driver())

    async def __aexit__(self, *exit_of: object) -> None:
        await super().__aexit__(*exit_of)
        await self.api.close()

    def new_driver(self, **settings: Any) -> PodmanDriver:
        return PodmanDriver(SystemClock(), PodmanSettings(socket_path=self.service, **settings), str(self.state_dir))


@pytest.fixture
async def host(service: str, tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(service, tmp_path / "state") as found:
        yield found


def container(make_task: MakeTask, script: str, **config: Any) -> TaskConfig:
    network = {} if "network_mode" in config else {"network_mode": "none"}
    found: TaskConfig = make_task(
        config={
            "image": f"docker://{components.PODMAN_IMAGE}",
            "command": "/bin/sh",
            "args": ["-c", script],
            **network,
            **config,
        }
    )
    return found


async def test_a_service_is_detected_and_one_that_is_not_there_says_why(host: Host, tmp_path: Path) -> None:
    info = await host.driver.fingerprint()
    assert info.detected, info.health_description
    assert info.attributes["driver.podman.version"][0].isdigit()
    assert info.attributes["driver.podman.rootless"] == "false"
    nothing = PodmanDriver(SystemClock(), PodmanSettings(socket_path=f"unix://{tmp_path}/none"), str(tmp_path))
    said = await nothing.fingerprint()
    await nothing.close()
    assert not said.detected
    assert said.health_description.startswith("Podman at")


async def test_output_exit_code_environment_and_directories_are_the_tasks(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    result = await host.run(container(make_task, "echo $GREETING; echo bad >&2; echo x > /local/made; exit 3"))
    assert (result.exit_code, result.successful) == (3, False)
    assert (tmp_path / "t.stdout.0").read_text() == "hello\n"
    assert (tmp_path / "t.stderr.0").read_text() == "bad\n"
    assert (tmp_path / "alloc/task/local/made").exists()


async def test_a_stopped_container_gets_its_signal_and_a_deaf_one_is_killed(host: Host, make_task: MakeTask) -> None:
    polite = container(make_task, "trap 'exit 12' TERM; while :; do sleep 0.1; done")
    await host.start(polite)
    await asyncio.sleep(0.3)
    await host.driver.stop(polite.id, "", 10)
    assert (await host.driver.wait(polite.id)).exit_code == 12
    deaf = container(make_task, "trap '' TERM; while :; do sleep 0.1; done")
    await host.start(deaf)
    await asyncio.sleep(0.3)
    await host.driver.stop(deaf.id, "SIGTERM", 0.3)
    assert (await host.driver.wait(deaf.id)).signal == 9


async def test_limits_reach_the_container(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    script = (
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max; ulimit -n; "
        "touch /x 2>&1; mount | grep -c ' /scratch '; x=a; while :; do x=$x$x; done"
    )
    options = {"pids_limit": 33, "ulimit": [{"nofile": "100:200"}], "readonly_rootfs": True, "tmpfs": ["/scratch"]}
    task = replace(container(make_task, script, **options))
    assert (await host.run(task)).exit_code == 137
    lines = (tmp_path / "t.stdout.0").read_text().splitlines()
    assert lines[:3] == [str(100 * 1024 * 1024), "33", "100"]
    assert "Read-only" in lines[3]
    assert lines[4] == "1"


async def test_exec_stats_and_a_signal(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    task = container(make_task, "trap 'echo got' HUP; while :; do sleep 0.1; done")
    await host.start(task)
    session = await host.driver.exec(task.id, ["sh", "-c", "cat; echo err >&2; exit 7"], tty=False)
    await session.write(b"x" * 100_000)
    await session.write(b"")
    out: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    async for stream, data in session.output():
        out[stream] += data
    assert await session.wait() == 7
    await session.close()
    assert out == {"stdout": b"x" * 100_000, "stderr": b"err\n"}
    usage = (await host.driver.stats(task.id)).resource_usage
    assert usage is not None
    assert usage.memory_stats is not None
    assert usage.memory_stats.usage > 0
    await host.driver.signal(task.id, "SIGHUP")
    async with asyncio.timeout(20):
        out = tmp_path / "t.stdout.0"
        while not out.exists() or "got" not in out.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_new_agent_takes_up_the_container_without_losing_or_doubling_a_line(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    task = container(make_task, "i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; exit 5")
    started = await host.start(task)
    await asyncio.sleep(0.7)
    await host.driver.close()
    await asyncio.sleep(0.7)
    host.driver = host.new_driver()
    await host.driver.recover(task, started.handle)
    assert (await host.driver.wait(task.id)).exit_code == 5
    assert (tmp_path / "t.stdout.0").read_text() == "".join(f"line {number}\n" for number in range(50))


async def test_a_task_joins_its_groups_network(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    name = f"lepa-t-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "address", "add", "10.123.45.7/32", "dev", "lo"], check=True)
        task = replace(container(make_task, "ip address", network_mode=""), network_namespace=f"/run/netns/{name}")
        assert (await host.run(task)).successful
        assert "10.123.45.7" in (tmp_path / "t.stdout.0").read_text()
        await host.driver.destroy(task.id)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


async def test_images_that_cannot_be_had_and_volumes_that_are_not_allowed_are_refused(
    host: Host, make_task: MakeTask
) -> None:
    with pytest.raises(DriverError, match="was not pulled") as caught:
        await host.driver.start(make_task(config={"image": "127.0.0.1:9/nothing:1", "image_pull_timeout": "1s"}))
    assert caught.value.recoverable
    with pytest.raises(DriverError, match="volumes are disabled"):
        await host.driver.start(container(make_task, "true", volumes=["/etc:/data"]))


async def test_an_image_comes_from_an_archive(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    archive = tmp_path / "alloc/task/local/image.tar"
    exported = subprocess.run(
        ["curl", "-s", "--unix-socket", host.service, f"http://d/v4.0.0/libpod/images/{components.PODMAN_IMAGE}/get"],
        check=True,
        capture_output=True,
    )
    archive.write_bytes(exported.stdout)
    assert (await host.run(container(make_task, "exit 0", image="docker-archive:local/image.tar"))).successful


async def test_much_output_is_all_copied(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    """More than Podman keeps at a time."""
    line = "x" * 1000
    task = container(make_task, f"i=0; while [ $i -lt 30000 ]; do echo $i {line}; i=$((i+1)); done")
    assert (await host.run(task)).successful
    files = sorted(tmp_path.glob("t.stdout.*"), key=lambda path: int(path.suffix[1:]))
    numbers = [int(each.split(" ", 1)[0]) for path in files for each in path.read_text().splitlines()]
    assert numbers == list(range(30000))


async def test_containers_without_cores_keep_off_those_of_others(host: Host, make_task: MakeTask) -> None:
    """And keep their other limits: asked for when the last container starts, after the first was moved."""
    containers: list[str] = []

    def make(name: str) -> TaskConfig:
        task = container(make_task, "sleep 600 & wait", pids_limit=77)
        return replace(task, id=f"{name}-{uuid.uuid4().hex[:12]}", task_name=name)

    async def first_process(started: Started) -> int:
        containers.append(started.handle.state["container_id"])
        for number in containers:
            limits = (await host.api.inspect(number))["HostConfig"]
            assert (limits["PidsLimit"], limits["Memory"]) == (77, 100 << 20)
        return int((await host.api.inspect(containers[-1]))["State"]["Pid"])

    await tasks_keep_off_cores_of_others(host.driver, make, first_process)
