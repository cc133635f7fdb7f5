"""The one way to start an asyncio task: named, kept until it ends, and never failing in silence.

`TaskGroup` of the standard library cancels all siblings when one fails; long-lived parts want the opposite. A `Tasks`
belongs to one part, logs what fails, and ends everything when the part is left.
"""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one part, as an async context manager: leaving it cancels and awaits them all."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._running: dict[asyncio.Task[Any], None] = {}  # ends them in the order in which they began

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` beside the caller. A failure is logged with its name; cancellation is not a failure."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}.{name}")
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed name=%s", task.get_name(), exc_info=error)

    def __len__(self) -> int:
        return len(self._running)

    async def close(self) -> None:
        """Cancel everything and wait until it has ended. Safe to call twice, and from one of the tasks.

        Whoever is cancelled while it waits is cancelled once all has ended: swallowing that would let it run for ever.
        """
        me = asyncio.current_task()
        asked = me.cancelling() if me is not None else 0
        cancelled: asyncio.CancelledError | None = None
        pending = [task for task in self._running if task is not me]
        for task in pending:
            task.cancel()
        for task in pending:
            try:
                await task
            except asyncio.CancelledError as error:
                if me is not None and me.cancelling() > asked:  # not the end of the task, but of the one that waits
                    cancelled = error
            except Exception:
                log.debug("task ended by a failure name=%s", task.get_name())  # _ended has told of it
        for task in pending:
            self._running.pop(task, None)
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()
