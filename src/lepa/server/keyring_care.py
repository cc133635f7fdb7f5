"""What the leader does about root keys as time goes by.

It activates a prepublished key when its time has come, replaces an active one that is too old, encrypts variables anew
after a full rotation, and removes keys that nothing needs any more: no variable was encrypted with them, no task runs
that may have an identity signed with them.
"""

import asyncio
import logging
from functools import partial
from typing import Any, Final

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.model.acl import RootKey, Variable
from lepa.model.errors import LepaError
from lepa.server.acl.guard import ENDED
from lepa.server.keyring import Keyring, place
from lepa.server.settings import AclSettings
from lepa.server.writer import Writer
from lepa.state.commands import keyring as commands
from lepa.state.commands.draft import Draft
from lepa.state.commands.variables import reencrypt
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

LOOK_S: Final = 60.0
RETRY_S: Final = 5.0

log = logging.getLogger(__name__)


class KeyringCare:
    """Looks after the root keys while its server leads."""

    def __init__(self, replica: Replica, writer: Writer, keyring: Keyring, clock: Clock, settings: AclSettings) -> None:
        self._replica = replica
        self._writer = writer
        self._keyring = keyring
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Look now and then, and whenever a key changes."""
        while True:
            seen = self._replica.snapshot.table_index("keyring")
            try:
                await self.look()
            except LepaError as error:
                if error.code == "no_leader":
                    raise
                log.warning("keyring not looked after error=%r", error.message)
                await self._clock.sleep(RETRY_S)
            await self._replica.changed((Watch("keyring"),), seen, LOOK_S)

    async def look(self) -> None:
        """Do what is due."""
        snapshot, now_ns = self._replica.snapshot, self._clock.now_ns()
        for key in list(snapshot.root_keys()):
            if key.state == "prepublished" and key.publish_time <= now_ns:
                await self._writer.write(partial(commands.activate, key_id=key.key_id))
                log.info("root key activated key_id=%s", key.key_id)
            elif key.state == "active" and now_ns - key.create_time > self._settings.key_rotation_s * SECOND:
                made = await self._keyring.rotate()
                log.info("root key rotated key_id=%s", made.key_id)
            elif key.state == "rekeying":
                await self._encrypt_anew(key)
            elif key.state == "inactive" and superfluous(snapshot, key, now_ns, self._settings):
                await self._writer.write(partial(commands.delete_key, key_id=key.key_id, force=False))
                log.info("root key removed key_id=%s", key.key_id)

    async def _encrypt_anew(self, key: RootKey) -> None:
        """Every variable that the key encrypted, one by one; what changes meanwhile has the new key already."""
        for variable in [one for one in self._replica.snapshot.variables() if one.key_id == key.key_id]:
            plain = self._keyring.decrypt(self._replica.snapshot, key.key_id, variable.data, place(variable))
            key_id, data = await self._keyring.encrypt(plain, place(variable))
            try:
                await self._writer.write(_stored_anew(variable, key_id, data))
            except LepaError as error:
                if error.code != "conflict":
                    raise
            await asyncio.sleep(0)
        await self._writer.write(lambda draft: commands.mark_rekeyed(draft, key.key_id))
        log.info("variables encrypted anew key_id=%s", key.key_id)


def _stored_anew(variable: Variable, key_id: str, data: bytes) -> Any:
    def command(draft: Draft) -> None:
        reencrypt(draft, variable, key_id, data)

    return command


def superfluous(snapshot: Snapshot, key: RootKey, now_ns: int, settings: AclSettings) -> bool:
    """Whether nothing needs a key that is not in use any more."""
    later = [other.create_time for other in snapshot.root_keys() if other.create_time > key.create_time]
    retired_ns = min(later, default=now_ns)
    if now_ns - retired_ns < (settings.key_rotation_s + settings.key_gc_s) * SECOND:
        return False
    if commands.in_use(snapshot, key.key_id):
        return False
    return not any(
        alloc.create_time <= retired_ns and alloc.client_status not in ENDED for alloc in snapshot.allocations()
    )
