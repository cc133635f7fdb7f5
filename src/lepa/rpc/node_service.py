"""Pure: what the HTTP edge may ask of a node: files, logs, commands and figures of its allocations.

The node's client implements it; the edge calls it when the node is its own, else it passes the request to the node's
HTTP address otherwise. Unknown allocations raise LepaError(not_found) `Unknown allocation "<id>"`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Protocol

from lepa.model.service import CheckQueryResult
from lepa.model.stats import AllocFileInfo, AllocResourceUsage, HostStats
from lepa.model.wire import OmitEmpty


class StreamFrame(OmitEmpty, frozen=True, omit_defaults=True):
    """A piece of a file; a heartbeat when empty. offset: of the first byte after `data`'s file position when read."""

    offset: int = 0
    data: bytes = b""
    file: str = ""
    file_event: str = ""


class TaskSession(Protocol):
    """A command running inside a task."""

    async def write(self, data: bytes) -> None:
        """Send to its standard input; b"" closes it."""

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""

    def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of ("stdout" | "stderr", data) until the command ends."""

    async def wait(self) -> int:
        """Its exit code, after `output` has ended."""

    async def close(self) -> None:
        """End it if it still runs."""


class NodeService(Protocol):
    """One node, as the HTTP edge sees it."""

    @property
    def node_id(self) -> str:
        """The node's id."""

    def has_allocation(self, alloc_id: str) -> bool:
        """Whether this node knows the allocation."""

    async def list_files(self, alloc_id: str, path: str) -> Sequence[AllocFileInfo]:
        """Entries of a directory of the allocation."""

    async def stat_file(self, alloc_id: str, path: str) -> AllocFileInfo:
        """One file or directory."""

    async def read_file(self, alloc_id: str, path: str, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of a file; limit -1 reads to its end, up to the largest answer the edge allows."""

    def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """A file from `offset` counted from origin "start" or "end", then what is appended while follow."""

    def stream_logs(
        self, alloc_id: str, task: str, stream: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """A task's "stdout" or "stderr" over all rotated files."""

    async def snapshot(self, alloc_id: str, token: str) -> AsyncGenerator[bytes]:
        """The data of an allocation that moves to another node, as a tar stream, once it has ended."""

    def command_of_action(self, alloc_id: str, job_id: str, task: str, action: str) -> list[str]:
        """The command that an action of a job is in a task of one of its allocations."""

    async def exec(self, alloc_id: str, task: str, command: Sequence[str], *, tty: bool) -> TaskSession:
        """Run a command inside a running task."""

    async def allocation_stats(self, alloc_id: str, task: str = "") -> AllocResourceUsage:
        """Present use of the allocation's tasks."""

    async def checks(self, alloc_id: str) -> dict[str, CheckQueryResult]:
        """Last results of the allocation's checks by check id."""

    async def restart(self, alloc_id: str, task: str = "", *, all_tasks: bool = False) -> None:
        """Restart one task, or all that run."""

    async def signal(self, alloc_id: str, task: str, signal: str) -> None:
        """Signal one task, or all when `task` is ""."""

    async def collect(self, alloc_id: str = "") -> None:
        """Remove an ended allocation from the disk, or all of them."""

    async def host_stats(self) -> HostStats:
        """Present use of the host."""

    async def metadata(self) -> dict[str, Any]:
        """The node's metadata: {"Meta", "Dynamic", "Static"}."""

    async def set_metadata(self, changes: dict[str, str | None]) -> dict[str, Any]:
        """Set or (None) unset keys that stay over restarts; answers like `metadata`."""
