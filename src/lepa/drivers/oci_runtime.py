"""crun or runc, whichever is installed and works here: the program that makes containers of bundles."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence

from lepa.drivers.protocol import DriverError
from lepa.drivers.supervisor.messages import CONSOLE
from lepa.model.wire import to_json

PROGRAMS = ("crun", "runc")
"""In order of preference: a start costs crun 7 ms of CPU, runc 25."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CALL_TIMEOUT_S = 30.0
"""The runtime's own commands take some 10 ms."""
ENVIRONMENT = {"PATH": PATH}


class OciRuntime:
    """One runtime with its own directory of states, so that it meets nobody else's containers."""

    def __init__(self, program: str, state_dir: str, *, no_pivot_root: bool = False) -> None:
        self.program = program
        self._state_dir = state_dir
        self._no_pivot_root = no_pivot_root

    @property
    def name(self) -> str:
        """ "crun" or "runc"."""
        return os.path.basename(self.program)

    def run_argv(self, container: str, bundle: str, pid_file: str, error_file: str) -> tuple[str, ...]:
        """Make and start a container, and end once it runs; its first process is then in `pid_file`."""
        pivot = ("--no-pivot",) if self._no_pivot_root else ()
        head = (self.program, "--root", self._state_dir, "--log", error_file)
        return (*head, "run", "--detach", "--pid-file", pid_file, "--bundle", bundle, *pivot, container)

    def exec_argv(self, container: str, process_file: str, *, tty: bool) -> tuple[str, ...]:
        """Run a process inside; it ends with the process, and with its exit code.

        crun 1.8 does not pass on a new size of our terminal, so it hands over the inner one; runc does pass it on, and
        would hand over only a terminal of a process it leaves.
        """
        console = ("--console-socket", CONSOLE) if self.name == "crun" else ()
        terminal = ("--tty", *console) if tty else ()
        return (self.program, "--root", self._state_dir, "exec", "--process", process_file, *terminal, container)

    async def delete(self, container: str) -> None:
        """Remove a container with its cgroups; harmless when there is none."""
        await call((self.program, "--root", self._state_dir, "delete", "--force", container))

    async def pin(self, container: str, cores: str) -> None:
        """Let a running container use these cores and no others. Raises DriverError."""
        words = ("update", "--cpuset-cpus", cores, container)
        code, said = await call((self.program, "--root", self._state_dir, *words))
        if code != 0:
            raise DriverError(f"container {container} cannot be moved to cores {cores}: {said}")

    async def works(self, directory: str, container: str, config: Mapping[str, object]) -> str:
        """Run a container of `config` to its end in a new `directory`; why that failed, "" when it did not."""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        try:
            write_private(os.path.join(directory, "config.json"), to_json(config))
            code, said = await call((self.program, "--root", self._state_dir, "run", "--bundle", directory, container))
            await self.delete(container)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return "" if code == 0 else said or f"exit code {code}"


def installed() -> list[str]:
    """The runtimes on this host, best first."""
    return [found for program in PROGRAMS if (found := shutil.which(program, path=PATH))]


async def call(argv: Sequence[str]) -> tuple[int, str]:
    """Run a runtime command: its exit code, and the last line it complained with."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        env=ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            _, stderr = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    lines = stderr.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else ""


def write_private(path: str, data: bytes) -> None:
    """Write a file that only we may read: it holds a task's environment."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(fd, data[written:])
    finally:
        os.close(fd)
