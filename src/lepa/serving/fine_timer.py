"""A one-shot timer with microseconds, for waits that the event loop's millisecond clock would round away.

uvloop counts in whole milliseconds; the learned wait before a batch is often a fraction of one. Linux timerfd gives a
file descriptor that becomes readable at the time set; Python offers it from 3.13 on, so it is called through ctypes.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class FineTimer:
    """Calls `due` once, at the time last set. Open it inside the running loop; close it when done."""

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._setting = _Itimerspec()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._fired)

    def set(self, delay_s: float) -> None:
        """Be due in `delay_s` seconds; replaces an earlier setting."""
        nanoseconds = max(1, int(delay_s * 1e9))
        self._setting.value.seconds, self._setting.value.nanoseconds = divmod(nanoseconds, 1_000_000_000)
        if self._libc.timerfd_settime(self._fd, 0, ctypes.byref(self._setting), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._due()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
