"""The ingress beside an agent: a process of its own, so that neither traffic nor scheduling waits for the other.

It is started with its settings on standard input, and ends when that input ends: it never outlives the agent for longer
than it takes to drain. When it ends by itself it is started again.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.sdk.address import Target

log = logging.getLogger(__name__)

START_S = 30.0
STOP_MARGIN_S = 5.0
AGAIN_S, AGAIN_MAX_S = 1.0, 30.0
STARTED = "started"


class IngressProcess:
    """One ingress, as an async context manager. agent: the HTTP API that it follows, and what it shows there."""

    def __init__(
        self,
        settings: IngressSettings,
        agent: Target,
        log_level: str,
        *,
        log_json: bool,
        environment: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """environment: variables that say how the agent is reached, besides those of this process."""
        self._settings = settings
        token = {"LEPA_TOKEN": agent.token} if agent.token else {}
        self._environment = {**os.environ, **environment, **token}
        self._command = [sys.executable, "-m", "lepa.ingress", "--settings", "-", "--agent", agent.url]
        self._command += ["--log-level", log_level, *(["--log-json"] if log_json else [])]
        self._clock = clock
        self._tasks = Tasks("ingress")
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "IngressProcess":
        await self._tasks.__aenter__()
        self._process = await self._start()
        self._tasks.start("watch", self._keep_running())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        if self._process is not None:
            await self._end(self._process)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start it and wait until it serves. Raises LepaError with what it says when it cannot."""
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--tell",
                str(writing),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(writing,),
                env=self._environment,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._settings) + b"\n")
        said = await self._listen(reading)
        if said != STARTED:
            await self._end(process)
            raise LepaError("conflict", said or "ingress: its process ended at once; its log says why")
        return process

    async def _listen(self, reading: int) -> str:
        """What the new process says of its start, "" when it ends without a word."""
        with os.fdopen(reading, "r") as words:
            try:
                async with asyncio.timeout(START_S):
                    return (await asyncio.to_thread(words.readline)).strip()
            except TimeoutError:
                return f"ingress: its process did not serve within {START_S:g} s"

    async def _keep_running(self) -> None:
        """Start it again whenever it has ended."""
        wait_s = AGAIN_S
        while self._process is not None:
            began = self._clock.now()
            code = await self._process.wait()
            log.error("ingress ended code=%s again_s=%g", code, wait_s)
            await self._clock.sleep(wait_s)
            wait_s = AGAIN_S if self._clock.now() - began > AGAIN_MAX_S else min(AGAIN_MAX_S, 2 * wait_s)
            with suppress(LepaError):
                self._process = await self._start()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Let it drain, and end it when that takes too long."""
        if process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(self._settings.drain_s + STOP_MARGIN_S):
                await process.wait()
        except TimeoutError:
            log.warning("ingress did not drain in time pid=%d", process.pid)
            process.kill()
            await process.wait()
