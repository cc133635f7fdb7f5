"""A task driver that runs Python scripts: `driver = "python"`, `config { script = "print('hello')" }`.

Its tasks are processes of the node's supervisor, so they outlive the agent; all that is left to say here is what to
start. A driver for something else (a batch system, a cloud's functions) implements lepa.drivers.protocol.Driver itself.
"""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from lepa.drivers import options
from lepa.drivers.protocol import Capabilities, TaskConfig
from lepa.drivers.registry import DriverHost
from lepa.drivers.supervised import SupervisedDriver, find_user, log_files, own_identity, without_no_change
from lepa.drivers.supervisor.messages import Command, TaskSpec
from lepa.model.errors import invalid
from lepa.model.node import DriverInfo

OPTIONS = options.Options("python", {"script": "text", "args": "texts"}, required=("script",))


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "python"` block. interpreter: the agent's own unless it is set."""

    interpreter: str = sys.executable


def python(host: DriverHost, raw: dict[str, Any]) -> "PythonScripts":
    """The entry point: makes the driver of what the agent gives it and of its `plugin` block."""
    try:
        return PythonScripts(host, msgspec.convert(raw, Settings))
    except msgspec.ValidationError as error:
        raise invalid(f"plugin 'python': {error}") from error


class PythonScripts(SupervisedDriver):
    """Driver "python"."""

    name = "python"
    capabilities = Capabilities(isolation="none")

    def __init__(self, host: DriverHost, settings: Settings) -> None:
        super().__init__(host.supervisor, host.clock)
        self._settings = settings

    async def fingerprint(self) -> DriverInfo:
        """Always there, with the version as an attribute that jobs can ask for."""
        version = sys.version.split()[0]
        attributes = {"driver.python": "1", "driver.python.version": version}
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        return OPTIONS.problems(config)

    async def prepare(self, task: TaskConfig) -> TaskSpec:
        """The process to start."""
        script = options.text(task.config, "script")
        return TaskSpec(
            id=task.id,
            command=self._command(task, (self._settings.interpreter, "-c", script, *options.texts(task.config, "args"))),
            stdout=log_files(task.stdout_path, task.logs),
            stderr=log_files(task.stderr_path, task.logs),
        )

    async def command_beside(self, task: TaskConfig, command: Sequence[str], *, tty: bool) -> tuple[Command, bool]:
        """What `alloc exec` runs."""
        return self._command(task, tuple(command)), True

    async def remove_leftovers(self, task_id: str) -> None:
        """Nothing is left beyond processes."""

    async def close(self) -> None:
        """Nothing of its own to let go of."""

    def _command(self, task: TaskConfig, words: tuple[str, ...]) -> Command:
        identity = find_user(task.user) if task.user else own_identity()
        return Command(
            argv=words,
            env=task.env,
            cwd=task.task_dir,
            identity=without_no_change(identity),
            network=task.network_namespace,
        )
