"""The qemu driver with real virtual machines (lepa.drivers.qemu), emulated."""

import asyncio
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests import components, machines
from tests.integration.conftest import MakeTask
from tests.integration.shared_cores import tasks_keep_off_cores_of_others

from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.drivers.qemu import Qemu, find_image, image_format
from lepa.drivers.qemu_config import GUEST_AGENT, QemuSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.resources import AllocatedPortMapping

BOOT_S = 60.0


@pytest.fixture
async def driver(supervisor: Supervisor) -> AsyncIterator[Qemu]:
    components.require("qemu-system-x86_64", machines.QEMU_PACKAGES)
    found = Qemu(supervisor, SystemClock(), QemuSettings())
    yield found
    await found.close()


def machine(make_task: MakeTask, tmp_path: Path, name: str = "vm", **config: Any) -> TaskConfig:
    machines.boot_disk(tmp_path / "alloc/task/local/disk.img")
    task = make_task(memory_mb=32, name=name)
    return TaskConfig(
        **{name: getattr(task, name) for name in task.__struct_fields__}
        | {"config": {"image_path": "local/disk.img", "args": ["-nodefaults"], **config}}
    )


async def ready(tmp_path: Path) -> None:
    async with asyncio.timeout(BOOT_S):
        path = tmp_path / "vm.stdout.0"
        while not path.exists() or machines.READY not in path.read_text(errors="replace"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_emulators_are_detected_with_their_version(driver: Qemu) -> None:
    info = await driver.fingerprint()
    assert info.detected, info.health_description
    assert info.attributes["driver.qemu.version"][0].isdigit()
    assert "qemu-system-x86_64" in info.attributes["driver.qemu.emulators"].split(",")


async def test_a_machine_boots_forwards_a_port_and_powers_down_gracefully(
    driver: Qemu, supervisor: Supervisor, make_task: MakeTask, tmp_path: Path
) -> None:
    """Also taken up by a second driver in between, as after an agent's restart; the guest itself ends the machine."""
    port = free_port()
    task = machine(
        make_task, tmp_path, graceful_shutdown=True, guest_agent=True, port_map={"ssh": 22}, args=["-nographic"]
    )
    mapping = AllocatedPortMapping(label="ssh", value=port, host_ip="127.0.0.1")
    task = TaskConfig(**{name: getattr(task, name) for name in task.__struct_fields__} | {"ports": (mapping,)})
    started = await driver.start(task)
    await ready(tmp_path)
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    assert (tmp_path / "alloc/task" / GUEST_AGENT).is_socket()
    assert (await driver.stats(task.id)).resource_usage is not None
    with pytest.raises(LepaError, match="virtual machine"):
        await driver.exec(task.id, ["true"], tty=False)
    again = Qemu(supervisor, SystemClock(), QemuSettings())
    await again.recover(task, started.handle)
    await again.stop(task.id, "", 30)
    result = await again.wait(task.id)
    assert (result.exit_code, result.signal) == (0, 0)
    await again.destroy(task.id)


async def test_a_machine_that_ignores_its_power_button_is_killed(
    driver: Qemu, make_task: MakeTask, tmp_path: Path
) -> None:
    task = machine(make_task, tmp_path, graceful_shutdown=True)
    (tmp_path / "alloc/task/local/disk.img").write_bytes(b"\xeb\xfe".ljust(510, b"\0") + b"\x55\xaa" + bytes(4096))
    await driver.start(task)
    await driver.stop(task.id, "", 0.2)
    assert (await driver.wait(task.id)).signal in (2, 9) or (await driver.wait(task.id)).exit_code == 0
    await driver.destroy(task.id)


async def test_without_a_monitor_the_machine_gets_the_signal(driver: Qemu, make_task: MakeTask, tmp_path: Path) -> None:
    task = machine(make_task, tmp_path)
    await driver.start(task)
    await driver.stop(task.id, "SIGTERM", 20)
    assert (await driver.wait(task.id)).exit_code in (0, 143)
    await driver.destroy(task.id)


async def test_machines_without_cores_keep_off_those_of_others(
    driver: Qemu, make_task: MakeTask, tmp_path: Path
) -> None:
    def make(name: str) -> TaskConfig:
        return machine(make_task, tmp_path, name)

    await tasks_keep_off_cores_of_others(driver, make)


async def test_images_outside_the_allocation_are_refused(driver: Qemu, make_task: MakeTask, tmp_path: Path) -> None:
    """Links out of the allocation as well, and images that are backed by a file elsewhere."""
    outside = machines.boot_disk(tmp_path / "outside.img")
    (tmp_path / "alloc/task/local/link.img").symlink_to(outside)
    for path in (str(outside), "local/link.img", "../../outside.img"):
        with pytest.raises(DriverError, match="neither in the allocation"):
            await driver.start(machine(make_task, tmp_path, image_path=path))
    allowed = (str(tmp_path / "alloc"),)
    components.require("qemu-img", machines.QEMU_PACKAGES)
    backed = tmp_path / "alloc/backed.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", outside, backed], check=True)
    with pytest.raises(DriverError, match="backed by"):
        image_format(str(backed), allowed)
    own = tmp_path / "alloc/own.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", own, "1M"], check=True)
    assert image_format(find_image(str(own), "", allowed), allowed) == "qcow2"
    head = bytearray(own.read_bytes())
    head[72:80] = struct.pack(">Q", 4)
    own.write_bytes(head)
    with pytest.raises(DriverError, match="another file"):
        image_format(str(own), allowed)
    assert image_format(str(outside), ()) == "raw"
