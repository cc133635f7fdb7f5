"""The real `serf` program, as a peer for tests: an agent on a loopback address, and the commands that ask it."""

import asyncio
import json
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.components import require

PACKAGE = "serf"
READY_S = 20.0
STOP_S = 10.0
HOST = "127.0.0.1"


def free_port() -> int:
    """A port that is free for packets and streams."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as packets:
        stream.bind((HOST, 0))
        port = int(stream.getsockname()[1])
        packets.bind((HOST, port))
        return port


class RealSerf:
    """One agent. As an async context manager it runs while it is entered."""

    def __init__(
        self, name: str, folder: Path, *, key: str = "", profile: str = "lan", options: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.program = require("serf", PACKAGE)
        self.port, self._rpc = free_port(), f"{HOST}:{free_port()}"
        self.address = f"{HOST}:{self.port}"
        self._log = folder / f"{name}.log"
        self._options = (
            f"-node={name}",
            f"-bind={self.address}",
            f"-rpc-addr={self._rpc}",
            "-profile=lan",
            "-log-level=debug",
            *((f"-encrypt={key}",) if key else ()),
            *options,
        )
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> "RealSerf":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.end, signal.SIGKILL)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self.program, "agent", *self._options], stdout=log, stderr=log)
        ends = time.monotonic() + READY_S
        while self.ask("info").returncode:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < ends, self._log.read_text()
            time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(STOP_S)
            self._process = None

    def ask(self, command: str, *words: str) -> "subprocess.CompletedProcess[str]":
        rpc = f"-rpc-addr={self._rpc}"
        return subprocess.run([self.program, command, rpc, *words], capture_output=True, text=True, timeout=30)

    async def run(self, command: str, *words: str) -> str:
        """What a command prints; it must succeed."""
        done = await asyncio.to_thread(self.ask, command, *words)
        assert done.returncode == 0, f"{command} {words}: {done.stdout}{done.stderr}\n{self.log()[-3000:]}"
        return done.stdout

    async def members(self) -> dict[str, Any]:
        """Members by name, as `serf members` lists them."""
        found = json.loads(await self.run("members", "-format=json"))
        return {member["name"]: member for member in found["members"]}

    async def statuses(self) -> dict[str, str]:
        return {name: member["status"] for name, member in (await self.members()).items()}

    def log(self) -> str:
        return self._log.read_text()
