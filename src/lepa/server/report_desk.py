"""Writes what nodes report: reports that come while others are being written go together in the next transaction.

Thousands of nodes say a little each. A transaction of its own for every one of them would cost the store, and each
server that follows it, more than what is said. A report that comes alone is written at once.
"""

import asyncio
from collections import deque
from typing import Final, NamedTuple

from lepa.kit.tasks import Tasks
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.server.writer import Writer
from lepa.state.commands.allocations import update_allocations
from lepa.state.commands.draft import Draft
from lepa.state.commands.nodes import check_secret
from lepa.store.protocol import Limits

OPERATIONS_PER_REPORT: Final = 5
"""What a report on an allocation may write: itself, an evaluation, a deployment, instances of services."""
REPORTS_AT_ONCE_MAX: Final = 64
"""Reports of one transaction, which is made on the event loop (some 5 ms)."""
WRITERS: Final = 2
"""Transactions under way: while the store keeps one, the next is made."""
WAITING_MAX: Final = 20_000
"""Messages of nodes that may wait; more are refused, and the nodes say it again."""


class _Message(NamedTuple):
    """Some reports of one node, and where the revision of their write goes."""

    node_id: str
    secret_id: str
    reports: tuple[Allocation, ...]
    written: "asyncio.Future[int]"


class ReportDesk:
    """Takes reports while a server leads, as an async context manager."""

    def __init__(self, writer: Writer, limits: Limits) -> None:
        self._writer = writer
        self._most = max(1, min(REPORTS_AT_ONCE_MAX, limits.operations_max // OPERATIONS_PER_REPORT))
        self._waiting: deque[_Message] = deque()
        self._has_waiting = asyncio.Event()
        self._tasks = Tasks("reports")
        self._under_way: set[asyncio.Future[int]] = set()
        self._closed = False

    async def __aenter__(self) -> "ReportDesk":
        for number in range(WRITERS):
            self._tasks.start(f"write-{number}", self._write())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        await self._tasks.close()
        self._waiting.clear()
        for written in tuple(self._under_way):
            _refuse(written, LepaError("no_leader", "No cluster leader"))

    async def write(self, node_id: str, secret_id: str, reports: tuple[Allocation, ...]) -> int:
        """Store what a node says of its allocations; the revision. Raises LepaError."""
        index = 0
        for at in range(0, max(1, len(reports)), self._most):
            index = await self._submit(node_id, secret_id, reports[at : at + self._most])
        return index

    async def _submit(self, node_id: str, secret_id: str, reports: tuple[Allocation, ...]) -> int:
        if self._closed:
            raise LepaError("no_leader", "No cluster leader")
        if len(self._under_way) >= WAITING_MAX:
            raise LepaError("timeout", f"{WAITING_MAX} reports of nodes wait already; try again later")
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._under_way.add(written)
        self._waiting.append(_Message(node_id, secret_id, reports, written))
        self._has_waiting.set()
        try:
            return await written
        finally:
            self._under_way.discard(written)

    async def _write(self) -> None:
        while True:
            await self._has_waiting.wait()
            if messages := self._next():
                await self._write_together(messages)

    def _next(self) -> list[_Message]:
        """Messages for one transaction, in order. Whoever no longer waits for an answer is written all the same."""
        chosen: list[_Message] = []
        room = self._most
        while self._waiting and (not chosen or len(self._waiting[0].reports) <= room):
            chosen.append(self._waiting.popleft())
            room -= len(chosen[-1].reports)
        if not self._waiting:
            self._has_waiting.clear()
        return chosen

    async def _write_together(self, messages: list[_Message]) -> None:
        refused: dict[int, LepaError] = {}

        def command(draft: Draft) -> None:
            refused.clear()
            for number, message in enumerate(messages):
                try:
                    check_secret(draft, message.node_id, message.secret_id)
                except LepaError as error:
                    refused[number] = error
                else:
                    update_allocations(draft, message.node_id, message.reports)

        try:
            revision = (await self._writer.write(command)).revision
        except Exception as error:
            await self._one_by_one(messages, error)
            return
        for number, message in enumerate(messages):
            if number in refused:
                _refuse(message.written, refused[number])
            elif not message.written.done():
                message.written.set_result(revision)

    async def _one_by_one(self, messages: list[_Message], error: Exception) -> None:
        """What one node said must not keep what the others said from being written."""
        lone = len(messages) == 1 or (isinstance(error, LepaError) and error.code in ("no_leader", "timeout"))
        for message in messages:
            if lone:
                _refuse(message.written, error)
            else:
                await self._write_together([message])


def _refuse(written: "asyncio.Future[int]", error: Exception) -> None:
    if not written.done():
        written.set_exception(error)
