"""Starts and supervises an etcd of our own, found on the PATH.

It listens only on the addresses it is given, and ends with the agent: told to in good time, or by the kernel when the
agent was killed. When it dies by itself it is started again, after a pause that grows up to half a minute. What it says
goes to our log at debug level; its last words are in the sentence that says why it ended.
"""

import asyncio
import logging
import os
import re
import shutil
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import invalid
from lepa.store.etcd_connection import Tls
from lepa.store.formation import Membership

VERSION_MIN: Final = (3, 4)
ASK_VERSION_S: Final = 10.0
STOP_S: Final = 10.0
AGAIN_FIRST_S, AGAIN_MAX_S = 0.2, 30.0
LASTED_S: Final = 60.0
"""An etcd that ran for so long is started again at once when it dies."""
WORDS_MAX: Final = 20
LINE_MAX: Final = 64 * 1024
REMOVED: Final = "permanently removed from the cluster"

log = logging.getLogger(__name__)


class EtcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One etcd. Hosts and ports as it listens, URLs as others reach it."""

    binary: str = "etcd"
    data_dir: str
    listen_host: str
    client_port: int
    peer_port: int
    client_url: str
    peer_url: str
    tls: Tls | None = None
    heartbeat_ms: int = 100
    election_ms: int = 1_000
    quota_bytes: int = 8 << 30
    """etcd takes no more writes when its file is larger."""


async def check_binary(binary: str) -> str:
    """The full path of a program that is an etcd new enough. Raises LepaError(invalid) with a sentence."""
    found = shutil.which(binary)
    if found is None:
        raise invalid(
            f'several servers keep their state in etcd, and there is no program "{binary}" on the PATH: install it '
            "(Debian: etcd-server), name it by `server { etcd { binary = … } }`, or give the endpoints of an etcd"
        )
    process = await asyncio.create_subprocess_exec(
        found, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(ASK_VERSION_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise invalid(f"{found} --version does not answer; is it an etcd?") from None
    match = re.search(r"etcd Version: (\d+)\.(\d+)\S*", said.decode(errors="replace"))
    if match is None:
        raise invalid(f"{found} does not say that it is an etcd: {said.decode(errors='replace')[:80].strip()!r}")
    if (int(match[1]), int(match[2])) < VERSION_MIN:
        raise invalid(f"{found} is etcd {match[1]}.{match[2]}; lepa needs 3.4 or newer (3.5.6 is a good choice)")
    return found


def command(settings: EtcdSettings, membership: Membership) -> list[str]:
    """How etcd is started. What is initial has no effect any more once it has its data."""
    scheme = "https" if settings.tls else "http"
    host = f"[{settings.listen_host}]" if ":" in settings.listen_host else settings.listen_host
    options = {
        "--name": membership.name,
        "--data-dir": settings.data_dir,
        "--listen-client-urls": f"{scheme}://{host}:{settings.client_port}",
        "--advertise-client-urls": settings.client_url,
        "--listen-peer-urls": f"{scheme}://{host}:{settings.peer_port}",
        "--initial-advertise-peer-urls": settings.peer_url,
        "--initial-cluster": ",".join(f"{peer.name}={peer.peer_url}" for peer in membership.peers),
        "--initial-cluster-token": membership.cluster,
        "--initial-cluster-state": "existing" if membership.joins else "new",
        "--heartbeat-interval": settings.heartbeat_ms,
        "--election-timeout": settings.election_ms,
        "--max-txn-ops": 4_096,
        "--max-request-bytes": 8 << 20,
        "--quota-backend-bytes": settings.quota_bytes,
        "--logger": "zap",
        "--log-level": "warn",
    }
    words = [settings.binary, "--pre-vote", *(f"{name}={value}" for name, value in options.items())]
    if settings.tls:
        for kind in ("", "peer-"):
            words += [f"--{kind}trusted-ca-file={settings.tls.ca_file}", f"--{kind}client-cert-auth"]
            words += [f"--{kind}cert-file={settings.tls.cert_file}", f"--{kind}key-file={settings.tls.key_file}"]
    return words


class EtcdProcess:
    """A running etcd, as an async context manager. It may take any time until it answers: others may be missing."""

    def __init__(self, settings: EtcdSettings, membership: Membership, clock: Clock) -> None:
        """settings.binary: a full path, as check_binary gives it."""
        self._command = command(settings, membership)
        self._folder = Path(settings.data_dir)
        self._clock = clock
        self._tasks = Tasks("etcd")
        self._process: asyncio.subprocess.Process | None = None
        self._words: deque[str] = deque(maxlen=WORDS_MAX)
        self.trouble = ""
        """A sentence while it does not run, else ""."""

    @property
    def pid(self) -> int:
        """Its process, 0 while there is none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def __aenter__(self) -> "EtcdProcess":
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tasks.start("run", self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        await self._stop()

    async def _run(self) -> None:
        pause_s = AGAIN_FIRST_S
        while True:
            began = self._clock.now()
            code = await self._run_once()
            said = next((word for word in reversed(self._words) if word), "it said nothing")
            if any(REMOVED in word for word in self._words):
                self.trouble = "this server was removed from the cluster; start the agent again to join anew"
                log.error("etcd ended: %s", self.trouble)
                return
            if self._clock.now() - began > LASTED_S:
                pause_s = AGAIN_FIRST_S
            self.trouble = f"etcd ended with code {code}: {said}"
            log.error("etcd ended code=%s again_s=%g said=%s", code, pause_s, said)
            await self._clock.sleep(pause_s)
            pause_s = min(AGAIN_MAX_S, 2 * pause_s)

    async def _run_once(self) -> int:
        self._words.clear()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_ends_with_us(),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                limit=LINE_MAX,
                start_new_session=True,  # what is typed at a terminal is for us; we end it
            )
        except OSError as error:
            self._words.append(f"cannot start {self._command[0]}: {error.strerror}")
            return -1
        self.trouble = ""
        log.info("etcd started pid=%d", self._process.pid)
        assert self._process.stdout is not None
        await self._listen(self._process.stdout)
        return await self._process.wait()

    async def _listen(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:  # longer than LINE_MAX
                continue
            if not line:
                return
            text = _said(line)
            self._words.append(text)
            log.debug("etcd says: %s", text)

    async def _stop(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            log.warning("etcd did not stop in time pid=%d", process.pid)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _ends_with_us() -> list[str]:
    """A prefix of the command by which the kernel ends it when this process is killed. Debian always has it."""
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "TERM", "--"] if found else []


def _said(line: bytes) -> str:
    """A line of etcd's log in few words."""
    text = line.decode(errors="replace").strip()
    try:
        entry = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return text
    reason = entry.get("error")
    return f"{entry.get('msg', '')}{f': {reason}' if reason else ''}"
