"""Collects ended child processes and tells whoever waits for them."""

import ctypes
import os
import signal
from collections.abc import Callable

from lepa.drivers.supervisor.reactor import READABLE, Reactor

STRAYS_MAX = 4096
"""Ends that are remembered of children nobody waits for: orphans of tasks, containers whose launcher still runs."""

_PR_SET_CHILD_SUBREAPER = 36


class Reaper:
    """Woken by SIGCHLD. Orphans of tasks become our children too (PR_SET_CHILD_SUBREAPER), and so do containers when
    their launcher ends; the end of such a process may be seen before it is known to be one of ours.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._strays: dict[int, int] = {}
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        reactor.watch(self._wake_reader, READABLE, self._woken)

    def expect(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call `ended(wait status)` once the child has ended, at once when it has been collected already."""
        status = self._strays.pop(pid, None)
        if status is None:
            self._waiting[pid] = ended
        else:
            ended(status)

    def forget_strays(self, pid: int) -> None:
        """A new process has this pid: what is remembered of an older one is not about it."""
        self._strays.pop(pid, None)

    def reap(self) -> None:
        """Collect everything that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._waiting.pop(pid, None)
            if ended is not None:
                ended(status)
            else:
                self._remember(pid, status)

    def _remember(self, pid: int, status: int) -> None:
        self._strays[pid] = status
        if len(self._strays) > STRAYS_MAX:
            del self._strays[next(iter(self._strays))]

    def _woken(self, mask: int) -> None:
        while True:
            try:
                if len(os.read(self._wake_reader, 4096)) < 4096:
                    break
            except BlockingIOError:
                break
        self.reap()
