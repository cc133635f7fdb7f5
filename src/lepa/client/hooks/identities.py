"""Hands a task its identities: as variables, as files in its secrets, and the socket on which it may show them.

    identity { env = true }                     NOMAD_TOKEN
    identity { file = true }                    secrets/nomad_token
    identity { name = "aws" file = true ttl }   NOMAD_TOKEN_aws, secrets/nomad_aws.jwt, renewed before it is over

What is renewed is written to the file; then the block's change_mode says whether the task is told or started again.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from lepa.client import confined
from lepa.client.alloc_dir import AllocDir, task_owner
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.client.identities import Identities
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.identity import WorkloadIdentity
from lepa.model.task import Task
from lepa.rpc.acl_requests import SignedIdentity

log = logging.getLogger(__name__)

DEFAULT: Final = "default"
SOCKET: Final = "api.sock"
RENEWED_AT: Final = 0.5
"""The part of its life after which an identity is renewed."""
RETRY_S, RETRY_MAX_S = 1.0, 60.0


class TaskApi(Protocol):
    """Where tasks talk to this agent."""

    async def open(self, path: Path) -> None:
        """Listen on a socket at `path`. Raises OSError."""

    async def close(self, path: Path) -> None:
        """Listen there no longer."""


def shown(task: Task) -> list[WorkloadIdentity]:
    """The identities that a task gets to see."""
    own = [task.identity] if task.identity is not None else []
    return [each for each in (*own, *task.identities) if each.env or each.file or each.filepath]


class IdentityHook(QuietHook):
    """Signs, hands over, renews."""

    name = "identities"

    def __init__(
        self, directory: AllocDir, identities: Identities, api: TaskApi | None, clock: Clock, random: Random
    ) -> None:
        self._directory = directory
        self._identities = identities
        self._api = api
        self._clock = clock
        self._random = random
        self._tasks = Tasks("client.identities")
        self._socket: Path | None = None

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Sign what the task shall see, and open its socket."""
        wanted = {each.name: each for each in shown(setup.place.task)}
        try:
            signed = await self._identities.sign(setup.place, wanted)
            added: dict[str, str] = {}
            for each in signed:
                identity = wanted[each.wanted.identity]
                added |= await asyncio.to_thread(self._hand_over, identity, each, setup)
        except LepaError as error:
            recoverable = error.code in {"timeout", "no_leader", "internal"}
            raise HookError(error.message, recoverable=recoverable, event="Setup Failure") from error
        except OSError as error:
            raise HookError(f"identity cannot be written: {error.strerror or error}") from error
        await self._open(setup)
        await self._tasks.close()
        self._renew_later(wanted, signed, setup)
        return added | {"NOMAD_UNIX_ADDR": f"unix://{setup.place.directories.secrets}/{SOCKET}"}

    async def recovered(self, setup: Setup) -> Mapping[str, str]:
        """Open the socket again; identities that end are renewed at once, the others are where they were."""
        await self._open(setup)
        for identity in shown(setup.place.task):
            if identity.ttl:
                self._tasks.start("renew", self._renew(identity, 0, setup))
        return {"NOMAD_UNIX_ADDR": f"unix://{setup.place.directories.secrets}/{SOCKET}"}

    async def exited(self) -> None:
        """The task has ended: nobody renews, nobody listens."""
        await self._end()

    async def close(self) -> None:
        """Let go."""
        await self._end()

    async def _end(self) -> None:
        await self._tasks.close()
        if self._socket is not None and self._api is not None:
            await self._api.close(self._socket)
            self._socket = None

    async def _open(self, setup: Setup) -> None:
        """A task without its socket runs all the same; its events tell why it has none."""
        if self._api is None or self._socket is not None:
            return
        path = self._directory.task(setup.place.task.name).secrets / SOCKET
        try:
            await self._api.open(path)
            self._socket = path
        except OSError as error:
            setup.task.note("Setup Failure", f"the task's socket {SOCKET} cannot be opened: {error.strerror or error}")

    def _hand_over(self, identity: WorkloadIdentity, signed: SignedIdentity, setup: Setup) -> dict[str, str]:
        """Write the file, when there shall be one; the variables to add."""
        if identity.file or identity.filepath:
            task = setup.place.task
            where = identity.filepath or f"secrets/{_file_name(identity)}"
            path = self._directory.of_task(task.name, where)
            owner = task_owner(task.user) if task.user else confined.Owner(-1, -1)
            mode = 0o600 if task.user or task.driver == "raw_exec" else 0o644
            confined.write_file(self._directory.path, path, signed.jwt.encode(), mode=mode, owner=owner)
        if not identity.env:
            return {}
        return {"NOMAD_TOKEN" if identity.name == DEFAULT else f"NOMAD_TOKEN_{identity.name}": signed.jwt}

    # Renewal

    def _renew_later(self, wanted: Mapping[str, WorkloadIdentity], signed: list[SignedIdentity], setup: Setup) -> None:
        for each in signed:
            if each.expires_at:
                self._tasks.start("renew", self._renew(wanted[each.wanted.identity], each.expires_at, setup))

    async def _renew(self, identity: WorkloadIdentity, expires_at: int, setup: Setup) -> None:
        """Renew an identity for as long as the task runs. expires_at: of the one that it has, 0: now."""
        delay_s = RETRY_S
        while True:
            await self._clock.sleep(self._pause_s(identity, expires_at))
            try:
                (signed,) = await self._identities.sign(setup.place, [identity.name])
                await asyncio.to_thread(self._hand_over, identity, signed, setup)
            except (LepaError, OSError) as error:
                log.warning("identity not renewed identity=%s error=%s", identity.name, error)
                await self._clock.sleep(delay_s)
                delay_s, expires_at = min(2 * delay_s, RETRY_MAX_S), 0
                continue
            delay_s, expires_at = RETRY_S, signed.expires_at
            await self._tell(identity, setup)

    def _pause_s(self, identity: WorkloadIdentity, expires_at: int) -> float:
        if not expires_at:
            return 0.0
        left_s = (expires_at - self._clock.now_ns()) / SECOND
        return max(0.0, left_s - identity.ttl / SECOND * RENEWED_AT * self._random.uniform(0.8, 1.0))

    async def _tell(self, identity: WorkloadIdentity, setup: Setup) -> None:
        try:
            if identity.change_mode == "restart":
                setup.task.restart(f"Identity[{identity.name}]: new token acquired")
            elif identity.change_mode == "signal":
                await setup.task.signal(identity.change_signal, f"Identity[{identity.name}]: new token acquired")
        except LepaError as error:
            setup.task.note("Setup Failure", f"identity {identity.name} was renewed, but: {error.message}")


def _file_name(identity: WorkloadIdentity) -> str:
    return "nomad_token" if identity.name == DEFAULT else f"nomad_{identity.name}.jwt"
