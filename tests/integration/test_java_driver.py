"""The java driver with a real Java in an OCI container (lepa.drivers.java)."""

import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests import components
from tests.integration.conftest import MakeTask

from lepa.drivers.java import OciJava
from lepa.drivers.oci import ExecSettings
from lepa.drivers.protocol import TaskConfig
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return components.java_program(tmp_path_factory.mktemp("java")).parent


@pytest.fixture
async def driver(supervisor: Supervisor, tmp_path: Path) -> AsyncIterator[OciJava]:
    components.require_root()
    components.require("crun", components.OCI_PACKAGES)
    components.allow_crun()
    found = OciJava(supervisor, SystemClock(), ExecSettings(), str(tmp_path / "state"))
    yield found
    for task in await supervisor.list_tasks():
        await supervisor.stop(task.id, signal.SIGKILL, 0)
        await found.remove_leftovers(task.id)
    await found.close()


def java(make_task: MakeTask, program: Path, folder: Path, **config: object) -> TaskConfig:
    for name in ("Hello.class", "hello.jar"):
        shutil.copy(program / name, folder / "alloc/task/local" / name)
    return make_task(memory_mb=200, config=config)


async def test_java_is_detected_with_its_version(driver: OciJava) -> None:
    info = await driver.fingerprint()
    assert info.detected, info.health_description
    assert info.attributes["driver.java.version"].split(".")[0].isdigit()
    assert "VM" in info.attributes["driver.java.vm"]
    assert info.attributes["driver.java.runtime"]


async def test_a_jar_runs_isolated_with_its_options(
    driver: OciJava, make_task: MakeTask, program: Path, tmp_path: Path
) -> None:
    options = ["-Xmx32m", "-Dmood=fine", "-XX:+UseSerialGC"]
    task = java(make_task, program, tmp_path, jar_path="local/hello.jar", jvm_options=options, args=["fail", "x"])
    await driver.start(task)
    assert (await driver.wait(task.id)).exit_code == 3
    out = (tmp_path / "t.stdout.0").read_text().splitlines()
    assert out[0] == "hello fail,x fine"
    assert 28 <= int(out[1].split()[1]) <= 34
    assert out[2] == "bye"


async def test_a_class_runs_sees_its_memory_limit_and_ends_on_a_signal(
    driver: OciJava, make_task: MakeTask, program: Path, tmp_path: Path
) -> None:
    task = java(make_task, program, tmp_path, **{"class": "Hello", "class_path": "/local", "args": ["stay"]})
    await driver.start(task)
    out = tmp_path / "t.stdout.0"
    for _ in range(1000):
        if out.exists() and "heap" in out.read_text():
            break
        session = await driver.exec(task.id, ["/bin/sleep", "0.02"], tty=False)
        assert await session.wait() == 0
        await session.close()
    await driver.stop(task.id, "SIGTERM", 20)
    result = await driver.wait(task.id)
    assert result.exit_code == 143
    lines = out.read_text().splitlines()
    assert int(lines[1].split()[1]) < 200, "the heap follows the task's memory, not the host's"
    assert lines[-1] == "bye"
