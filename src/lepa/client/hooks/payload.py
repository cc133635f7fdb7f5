"""Writes a dispatched job's payload into the task's local directory."""

from collections.abc import Mapping

from lepa.client import confined
from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.model.errors import LepaError


class PayloadHook(QuietHook):
    """`dispatch_payload { file = "input.json" }`"""

    name = "dispatch_payload"

    def __init__(self, directory: AllocDir) -> None:
        self._directory = directory

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Write the file when the task asks for it and there is a payload."""
        task, payload = setup.place.task, setup.place.job.payload
        if task.dispatch_payload is None or not payload:
            return {}
        try:
            path = self._directory.of_task(task.name, f"local/{task.dispatch_payload.file}")
            confined.write_file(self._directory.path, path, payload)
        except LepaError as error:
            text = f"cannot write the dispatch payload: {error.message}"
            raise HookError(text, recoverable=error.code == "internal") from error
        return {}
