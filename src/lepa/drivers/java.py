"""Java programs, isolated as `exec` isolates: `java`.

The command line is the host's `java` with the job's options, and a jar or a class. The container sees its own limits
below /sys/fs/cgroup, so that the virtual machine sizes its heap and its threads by them.
"""

import asyncio
import re
import shutil
from collections.abc import Sequence
from typing import Any

from lepa.drivers import options
from lepa.drivers.oci import OciExec, inside
from lepa.drivers.oci_runtime import ENVIRONMENT, PATH
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.model.node import DriverInfo

OPTIONS = options.Options(
    "java",
    {
        "class": "text",
        "class_path": "text",
        "jar_path": "text",
        "jvm_options": "texts",
        "args": "texts",
        "pid_mode": "text",
        "ipc_mode": "text",
        "cap_add": "texts",
        "cap_drop": "texts",
        "cpu_hard_limit": "bool",
        "pids_limit": "number",
        "work_dir": "text",
    },
)
VERSION_S = 10.0
"""A Java virtual machine tells its version within some 50 ms."""


class OciJava(OciExec):
    """Driver "java"."""

    name = "java"
    options = OPTIONS
    cgroup_view = True

    async def fingerprint(self) -> DriverInfo:
        """Detected when a Java is on the PATH and containers can be made; with what Java says of itself."""
        program = shutil.which("java", path=PATH)
        if program is None:
            return DriverInfo(health_description=f"java was not found on the PATH ({PATH})")
        said = await _version(program)
        facts = version_attributes(said)
        if not facts:
            return DriverInfo(health_description=f"{program} -version told no version: {said.strip()[:200]}")
        info = await super().fingerprint()
        if not info.detected:
            return info
        attributes = {**info.attributes, **facts}
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        found = [*super().problems(config)]
        if not config.get("jar_path") and not config.get("class"):
            found.append("jar_path or class must be set")
        if config.get("jar_path") and config.get("class"):
            found.append("only one of jar_path and class may be set")
        return found

    def words(self, task: TaskConfig) -> tuple[str, ...]:
        """The command line inside the container."""
        program = shutil.which("java", path=PATH)
        if program is None:
            raise DriverError("java is not on this node any more")
        return command_line(program, task)


def command_line(program: str, task: TaskConfig) -> tuple[str, ...]:
    """`java`, its own options, the class path, what to run, and the program's arguments."""
    config = task.config
    words = [program, *options.texts(config, "jvm_options")]
    if class_path := options.text(config, "class_path"):
        words += ["-cp", class_path]
    if jar := options.text(config, "jar_path"):
        words += ["-jar", inside(jar, task.task_dir)]
    else:
        words.append(options.text(config, "class"))
    return (*words, *options.texts(config, "args"))


def version_attributes(said: str) -> dict[str, str]:
    """What `java -version` says on its three lines, as attributes of the node; {} when that is no version."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if match := re.search(r'version "([^"]+)"', line):
            rest = [*lines[number + 1 :], "", ""]
            return {"driver.java.version": match[1], "driver.java.runtime": rest[0], "driver.java.vm": rest[1]}
    return {}


async def _version(program: str) -> str:
    """Java tells its version on standard error."""
    process = await asyncio.create_subprocess_exec(
        program,
        "-version",
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(VERSION_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"no answer within {VERSION_S:g} s"
    return said.decode(errors="replace")
