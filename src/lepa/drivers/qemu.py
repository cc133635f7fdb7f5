"""Virtual machines: `qemu`. One QEMU process a task, under the supervisor, which outlives the agent.

With `graceful_shutdown` the machine is told to power down by way of QEMU's monitor before it is killed. An image is
opened as what its first bytes say, and only if all its parts lie in the allocation or where the operator says: an image
that names another file as its backing could otherwise show any file of the host to the guest.
"""

import asyncio
import contextlib
import os
import re
import shutil
import struct
from collections.abc import Sequence
from typing import Any

from lepa.drivers import options
from lepa.drivers.oci_runtime import ENVIRONMENT, PATH
from lepa.drivers.protocol import Capabilities, DriverError, TaskConfig
from lepa.drivers.qemu_config import GUEST_AGENT, MONITOR, QemuSettings, command_line, config_problems
from lepa.drivers.supervised import SupervisedDriver, find_user, log_files, own_identity, without_no_change
from lepa.drivers.supervisor.client import Supervisor
from lepa.drivers.supervisor.messages import Command, TaskSpec
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.model.node import DriverInfo

EMULATOR = "qemu-system-x86_64"
KVM = "/dev/kvm"
VERSION_S = 10.0
MONITOR_S = 2.0
QCOW2 = struct.Struct(">4sIQI")
"""Magic, version, offset and length of the backing file's name (docs/interop/qcow2.txt of QEMU)."""
QCOW2_FEATURES = struct.Struct(">Q")
QCOW2_FEATURES_AT, QCOW2_EXTERNAL_DATA = 72, 1 << 2
BACKING_MAX = 1023


class Qemu(SupervisedDriver):
    """Driver "qemu"."""

    name = "qemu"
    capabilities = Capabilities(isolation="none", exec=False)

    def __init__(self, supervisor: Supervisor, clock: Clock, settings: QemuSettings) -> None:
        super().__init__(supervisor, clock)
        self._settings = settings

    async def fingerprint(self) -> DriverInfo:
        """Detected when an emulator is on the PATH; which ones, and whether the host lends its processor (KVM)."""
        found = emulators()
        if not found:
            return DriverInfo(health_description=f"no qemu-system-… was found on the PATH ({PATH})")
        program = EMULATOR if EMULATOR in found else found[0]
        version = await _version(program)
        if not version:
            return DriverInfo(health_description=f"{program} told no version")
        attributes = {
            "driver.qemu": "1",
            "driver.qemu.version": version,
            "driver.qemu.emulators": ",".join(found),
        }
        if os.access(KVM, os.R_OK | os.W_OK):
            attributes["driver.qemu.kvm"] = "1"
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        return config_problems(config, self._settings)

    async def prepare(self, task: TaskConfig) -> TaskSpec:
        """The QEMU process to start."""
        name = options.text(task.config, "emulator", EMULATOR)
        program = shutil.which(name, path=PATH)
        if program is None or not os.path.basename(program).startswith("qemu"):
            raise DriverError(f"emulator {name!r} was not found on the PATH ({PATH})")
        if "kvm" in options.text(task.config, "accelerator").split(":")[:1] and not os.path.exists(KVM):
            raise DriverError(f'accelerator = "kvm" needs {KVM}, which this node does not have')
        allowed = (task.alloc_dir, task.task_dir, *self._settings.image_paths)
        image = find_image(options.text(task.config, "image_path"), task.task_dir, allowed)
        for leftover in (MONITOR, GUEST_AGENT):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(task.task_dir, leftover))
        identity = find_user(task.user) if task.user else own_identity()
        return TaskSpec(
            id=task.id,
            command=Command(
                argv=command_line(program, task, image, image_format(image, allowed)),
                env={"PATH": PATH, **task.env},
                cwd=task.task_dir or "/",
                identity=without_no_change(identity),
                network=task.network_namespace,
            ),
            stdout=log_files(task.stdout_path, task.logs),
            stderr=log_files(task.stderr_path, task.logs),
            cores=self.cores_of(task),
        )

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Power the machine down as its owner would, where the job asks for that; kill it after `timeout_s`."""
        task = self._known(task_id)
        if options.flag(task.config, "graceful_shutdown") and await power_down(task.task_dir):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._supervisor.wait(task_id)
                return
            timeout_s = 0
        await super().stop(task_id, signal, timeout_s)

    async def command_beside(self, task: TaskConfig, command: Sequence[str], *, tty: bool) -> tuple[Command, bool]:
        """There is no way into a virtual machine that every guest has."""
        raise LepaError("unsupported", "commands cannot be run inside a virtual machine")

    async def remove_leftovers(self, task_id: str) -> None:
        """Nothing is left: the task's files are the allocation's."""

    async def close(self) -> None:
        """Nothing of its own to let go of."""


def emulators() -> list[str]:
    """The programs qemu-system-… on the PATH."""
    found: set[str] = set()
    for folder in PATH.split(":"):
        with contextlib.suppress(OSError):
            found |= {name for name in os.listdir(folder) if re.fullmatch(r"qemu-system-[a-z0-9_]+", name)}
    return sorted(name for name in found if shutil.which(name, path=PATH))


def find_image(path: str, task_dir: str, allowed: Sequence[str]) -> str:
    """The real path of an image. Raises DriverError when it lies, links followed, in none of the allowed places."""
    candidates = (
        [path] if os.path.isabs(path) else [os.path.join(task_dir, path), os.path.join(task_dir, "local", path)]
    )
    real = next(
        (os.path.realpath(each) for each in candidates if os.path.exists(each)), os.path.realpath(candidates[0])
    )
    if not _within(real, allowed):
        raise DriverError(f"image_path {path!r} is neither in the allocation nor in image_paths of the plugin block")
    if not os.path.isfile(real):
        raise DriverError(f"image_path {path!r} is no file")
    return real


def image_format(image: str, allowed: Sequence[str]) -> str:
    """ "qcow2" or "raw", by the image's first bytes. Raises DriverError for one that is made of files elsewhere."""
    with open(image, "rb") as file:
        head = file.read(QCOW2.size)
        if len(head) < QCOW2.size or not head.startswith(b"QFI\xfb"):
            return "raw"
        _, version, offset, length = QCOW2.unpack(head)
        file.seek(QCOW2_FEATURES_AT)
        features = file.read(QCOW2_FEATURES.size) if version >= 3 else b""
        if len(features) == QCOW2_FEATURES.size and QCOW2_FEATURES.unpack(features)[0] & QCOW2_EXTERNAL_DATA:
            raise DriverError(f"image {image} keeps its data in another file, which is not allowed")
        if offset:
            file.seek(offset)
            backing = os.fsdecode(file.read(min(length, BACKING_MAX)))
            real = os.path.realpath(os.path.join(os.path.dirname(image), backing))
            if "\0" in backing or ":" in backing or not _within(real, allowed):
                raise DriverError(f"image {image} is backed by {backing!r}, which is not in the allocation")
            image_format(real, allowed)
    return "qcow2"


def _within(real: str, allowed: Sequence[str]) -> bool:
    return any(folder and real.startswith(os.path.realpath(folder) + "/") for folder in allowed)


async def power_down(task_dir: str) -> bool:
    """Press the machine's power button by way of QEMU's monitor; False when it does not listen."""
    try:
        directory = os.open(task_dir, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        async with asyncio.timeout(MONITOR_S):
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{MONITOR}")
            try:
                await reader.readuntil(b"(qemu) ")
                writer.write(b"system_powerdown\n")
                await writer.drain()
                with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    await reader.readuntil(b"(qemu) ")  # the machine may be off before QEMU answers
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False
    finally:
        os.close(directory)
    return True


async def _version(program: str) -> str:
    """ "QEMU emulator version 7.2.17 (Debian …)" -> "7.2.17"."""
    process = await asyncio.create_subprocess_exec(
        shutil.which(program, path=PATH) or program,
        "--version",
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(VERSION_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    match = re.search(rb"version (\d[\w.]*)", said)
    return match[1].decode() if match else ""
