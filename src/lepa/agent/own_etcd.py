"""The etcd beside this server: becomes part of a cluster, runs, and is known to the others.

begin     what was begun before goes on, if the others still count it; else a cluster is formed or joined
run       the process, supervised; a learner that has caught up asks to be made a voter, after autopilot's
          `server_stabilization_time`
follow    the endpoints of the store are the members' as they come and go
"""

import logging
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from lepa.agent.config import Config
from lepa.agent.store_peers import PeerExchange
from lepa.agent.store_settings import ETCD_FOLDER, RECORD, read_record, write_record
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.operator import AutopilotConfiguration
from lepa.model.wire import from_msgpack
from lepa.state.keys import autopilot_key
from lepa.store.etcd import OWN_LIMITS, EtcdStore
from lepa.store.etcd_connection import EtcdConnection, Tls
from lepa.store.etcd_members import Members
from lepa.store.etcd_process import EtcdProcess, EtcdSettings, check_binary
from lepa.store.formation import Membership

FOLLOW_S: Final = 5.0
PROMOTE_S: Final = 0.5
REMIND_S: Final = 10.0

log = logging.getLogger(__name__)


class OwnEtcd:
    """An etcd of our own, as an async context manager; `open` gives the store in it."""

    def __init__(
        self,
        settings: EtcdSettings,
        exchange: PeerExchange,
        folder: Path,
        clock: Clock,
        random: Random,
        tell: Callable[[str], None],
    ) -> None:
        """tell: hears what is waited for, "" when that is over."""
        self._settings = settings
        self._exchange = exchange
        self._folder = folder
        self._clock = clock
        self._random = random
        self._tasks = Tasks("own_etcd")
        self._stack = AsyncExitStack()
        self._tell = tell
        self._process: EtcdProcess | None = None
        self.members: Members | None = None

    @classmethod
    async def prepared(
        cls,
        settings: EtcdSettings,
        make_exchange: Callable[[Callable[[Membership], None]], PeerExchange],
        folder: Path,
        clock: Clock,
        random: Random,
        tell: Callable[[str], None],
    ) -> "OwnEtcd":
        """Check what can be checked before anything runs. Raises LepaError with a sentence."""
        settings = replace(settings, binary=await check_binary(settings.binary))
        exchange = make_exchange(lambda membership: write_record(folder, membership))
        own = cls(settings, exchange, folder, clock, random, tell)
        await own._go_on_with_record()
        return own

    async def _go_on_with_record(self) -> None:
        if not (self._folder / RECORD).exists():
            return
        mine = read_record(self._folder)
        if not await self._exchange.check(mine):
            log.warning("removed from its cluster, joins anew cluster=%s", mine.cluster)
        elif (self._folder / ETCD_FOLDER / "member").exists():
            self._exchange.membership = mine
            return
        self._forget()

    def _forget(self) -> None:
        """Begin anew: the data of a member that was removed is of no use to anybody."""
        (self._folder / RECORD).unlink(missing_ok=True)
        shutil.rmtree(self._folder / ETCD_FOLDER, ignore_errors=True)

    async def __aenter__(self) -> "OwnEtcd":
        await self._stack.enter_async_context(self._tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(self) -> EtcdStore:
        """The store, once there is a cluster with a majority. Close it before this is left."""
        membership = await self._exchange.form()
        if self._process is None:
            self._process = await self._stack.enter_async_context(EtcdProcess(self._settings, membership, self._clock))
        await self._tasks.close()  # of a store that was opened before and closed again
        store = await self._opened(membership)
        members = Members(store.connection, self._clock)
        self.members = self._exchange.registry = members
        self._tell("")
        self._tasks.start("follow", self._follow(store.connection, members))
        if membership.joins:
            self._tasks.start("promote", self._promote(store, members))
        return store

    async def _opened(self, membership: Membership) -> EtcdStore:
        others = [peer.client_url for peer in membership.peers if peer.name != membership.name and peer.client_url]
        endpoints = [*others, self._settings.client_url] if membership.joins else [self._settings.client_url, *others]
        said_at = self._clock.now()
        while True:
            try:
                return await EtcdStore.open(
                    endpoints,
                    self._clock,
                    random=self._random,
                    tls=self._settings.tls,
                    limits=OWN_LIMITS,
                    patience_s=5.0,
                )
            except LepaError as error:
                if error.code != "timeout":
                    raise
                assert self._process is not None
                names = ", ".join(peer.name for peer in membership.peers)
                why = await self._misplaced(membership)
                why = why or self._process.trouble or f"the servers {names} have no majority yet: {error.message}"
            self._tell(why)
            if self._clock.now() - said_at >= REMIND_S:
                said_at = self._clock.now()
                log.warning("waiting for a majority: %s", why)

    async def _misplaced(self, membership: Membership) -> str:
        """Why this server waits in vain: others are of another cluster, or have taken it out. "" when it does not."""
        try:
            if await self._exchange.check(membership):
                return ""
        except LepaError as error:
            return error.message
        return "this server was taken out of its cluster; start the agent again to join anew"

    async def _follow(self, connection: EtcdConnection, members: Members) -> None:
        """Endpoints of the store: the voters' addresses, this server's own first as long as it answers."""
        while True:
            await self._clock.sleep(FOLLOW_S)
            try:
                voters = [one.client_url for one in await members.list() if one.client_url and not one.learner]
            except LepaError as error:
                log.warning("members of etcd not known error=%s", error.message)
                continue
            if voters:
                connection.use(voters)

    async def _promote(self, store: EtcdStore, members: Members) -> None:
        since = self._clock.now()
        while True:
            try:
                stable_s = (await _autopilot(store)).stabilization_s
                if self._clock.now() - since >= stable_s and await members.promote(self._settings.peer_url):
                    log.info("votes in the cluster")
                    return
            except LepaError as error:
                log.warning("not a voter yet reason=%s", error.message)
            await self._clock.sleep(PROMOTE_S)


async def _autopilot(store: EtcdStore) -> AutopilotConfiguration:
    """How servers look after each other, as it stands in the store: the server is not there yet."""
    entries = (await store.read(autopilot_key())).entries
    raw = next((entry.value for entry in entries if entry.key == autopilot_key()), None)
    return AutopilotConfiguration() if raw is None else from_msgpack(raw, AutopilotConfiguration)


def etcd_tls(config: Config) -> Tls | None:
    """Certificates for etcd: its own; else, for an etcd of our own, those of the internal port; None for plain text."""
    etcd, tls = config.server.etcd, config.tls
    if etcd.ca_file:
        return Tls(etcd.ca_file, etcd.cert_file, etcd.key_file)
    if tls.rpc and not etcd.endpoints:
        return Tls(tls.ca_file, tls.cert_file, tls.key_file)
    return None
