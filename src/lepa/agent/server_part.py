"""The server of an agent: its internal port, its gossip, its store, and the control plane on top.

With a file the server is there when the agent has started. With an etcd it may take as long as the other servers do:
meanwhile the internal port answers them, the HTTP API says what is waited for, and this machine's node goes on with its
tasks.
"""

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from lepa.agent.addresses import advertised_rpc
from lepa.agent.cluster_care import take_out_departed
from lepa.agent.cluster_service import Cluster
from lepa.agent.config import Config, seconds
from lepa.agent.gossip_part import GossipPart
from lepa.agent.limit_settings import rpc_limits
from lepa.agent.multiregion import MultiregionCaller, MultiregionWatcher
from lepa.agent.regions import RegionCaller
from lepa.agent.self_view import COMPATIBLE_VERSION, SelfView
from lepa.agent.server_settings import server_settings
from lepa.agent.store_peers import PeerExchange, join_addresses
from lepa.agent.store_settings import (
    CLUSTER_FILE,
    ETCD_FOLDER,
    STATE_FILE,
    check_cluster_id,
    check_folder,
    joins,
    kind_of,
    server_folder,
)
from lepa.agent.tls import AgentTls
from lepa.kit.doorman import Doorman, heard, listen
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError, conflict, invalid
from lepa.rpc.channel import HttpPeers, ServerSession, channel_app
from lepa.rpc.methods import Caller, Method
from lepa.rpc.requests import Reply
from lepa.server.server import Server
from lepa.store.formation import Membership, Peer
from lepa.store.protocol import Store
from lepa.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from lepa.agent.own_etcd import OwnEtcd

RETRY_S: Final = 1.0
REMIND_S: Final = 10.0

log = logging.getLogger(__name__)


class LateCaller:
    """Carries calls to a server that is not there yet; until then they are refused with what is waited for."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why
        self.target: Caller | None = None

    async def call(self, method: Method[Any, Any], request: Any) -> Reply[Any]:
        return await self._found().call(method, request)

    def stream(self, method: Method[Any, Any], request: Any) -> AsyncIterator[Any]:
        return self._found().stream(method, request)

    def _found(self) -> Caller:
        if self.target is None:
            raise LepaError("no_leader", f"No cluster leader: {self._why() or 'the server is starting'}")
        return self.target


class ServerPart:
    """The server of an agent, as an async context manager. caller: the way to it from this process."""

    def __init__(
        self,
        config: Config,
        tls: AgentTls,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        view: SelfView,
        give_up: Callable[[LepaError], None],
    ) -> None:
        """view: is told the server when it runs. give_up: is told when there is no hope that it ever will be of use."""
        self._config = config
        self._tls = tls
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._kind = kind_of(config)
        self._folder = server_folder(config)
        self._stack = AsyncExitStack()
        self._tasks = Tasks("server_part")
        self.why = ""
        self._as_leader = LateCaller(lambda: self.why)
        self._near = LateCaller(lambda: self.why)
        self._view = view
        self._etcd: OwnEtcd | None = None
        shares_state = self._kind != "file"
        self._gossip = GossipPart(
            config, COMPATIBLE_VERSION, clock, random, metrics, give_up, shares_state=shares_state
        )
        self._regional = RegionCaller(
            self._near,
            config.region,
            self._gossip,
            lambda region: ServerSession(tls.towards_servers(region)),
            clock,
            random,
            metrics,
        )
        self.caller = MultiregionCaller(self._regional, config.region, self._gossip)

    async def __aenter__(self) -> "ServerPart":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(self._folder, self._kind)
        await self._stack.enter_async_context(self._regional)
        app = channel_app(self.caller, self._as_leader, self._tls.admission(self._gossip.regions))
        if self._kind == "file":
            await self._serve(await self._file())
            await self._listen(app)
            await self._join_others()
            return
        _need_extra()
        opening = await self._own(app) if self._kind == "own" else self._external
        await self._listen(app)
        await self._join_others()
        self._tasks.start("open", self._open(opening))

    async def _join_others(self) -> None:
        self._view.gossip = await self._stack.enter_async_context(self._gossip)
        await self._stack.enter_async_context(self._tasks)
        watcher = MultiregionWatcher(self._regional, self._config.region, lambda: self._view.server, self._clock)
        self._tasks.start("multiregion", watcher.run())

    async def _open(self, opening: Callable[[], Any]) -> None:
        """Until the store is open and the server runs."""
        while True:
            try:
                store = await opening()
                await self._serve(store, store.cluster_id)
                return
            except LepaError as error:
                self.why = error.message
                log.error("the state cannot be opened: %s", error.message)
                await self._clock.sleep(REMIND_S if error.code != "timeout" else RETRY_S)

    async def _serve(self, store: Store, cluster_id: str = "") -> None:
        config, several = self._config, self._kind != "file"
        async with AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            session = await stack.enter_async_context(ServerSession(self._tls.towards_servers())) if several else None
            server = Server(
                store,
                server_settings(config, COMPATIBLE_VERSION, several=several),
                self._clock,
                self._random,
                self._metrics,
                HttpPeers(session) if session is not None else None,
            )
            self._view.server = await stack.enter_async_context(server)
            await self._stack.enter_async_context(stack.pop_all())
        members = self._etcd.members if self._etcd else None
        self._view.operated = Cluster(store, server, members, self._folder, cluster_id, self._clock)
        self._near.target, self._as_leader.target = server.caller, server.caller.as_leader
        self._stack.callback(self._leave)
        if members is not None:
            self._tasks.start("care", take_out_departed(server, members, self._left, self._clock))

    def _leave(self) -> None:
        """The port still listens while the server ends."""
        self.why = "the server is stopping"
        self._near.target = self._as_leader.target = None

    def _left(self) -> frozenset[str]:
        """Servers that have left for good, as gossip knows."""
        return frozenset(member.name for member in self._gossip.members() if member.status == "left")

    async def _listen(self, app: web.Application) -> None:
        host, port = self._config.addresses.rpc or self._config.bind_addr, self._config.ports.rpc
        app.middlewares.insert(0, heard)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        assert runner.server is not None
        doorman = Doorman(runner.server, rpc_limits(self._config))
        try:
            context = self._tls.internal.context if self._tls.internal else None
            self._stack.callback((await listen(doorman, host, port, context)).close)
        except OSError as error:
            raise conflict(
                f"cannot listen on {host}:{port} for servers and nodes: {error.strerror or error}; "
                "stop the other process, or set `ports { rpc = … }`"
            ) from error

    # Stores

    async def _file(self) -> Store:
        return await SqliteStore.open(self._folder / STATE_FILE, self._clock)

    async def _external(self) -> Store:
        from lepa.agent.own_etcd import etcd_tls
        from lepa.store.etcd import EtcdStore

        config, etcd = self._config, self._config.server.etcd
        tls = etcd_tls(config)
        store = await EtcdStore.open(
            etcd.endpoints,
            self._clock,
            random=self._random,
            tls=tls,
            prefix=etcd.prefix,
            create=not (self._folder / CLUSTER_FILE).exists(),
        )
        try:
            check_cluster_id(self._folder, store.cluster_id)
        except LepaError:
            await store.close()
            raise
        return store

    async def _own(self, app: web.Application) -> Callable[[], Any]:
        """An etcd beside this server; what opens the store in it."""
        from lepa.agent.own_etcd import OwnEtcd, etcd_tls
        from lepa.store.etcd_process import EtcdSettings

        config, etcd = self._config, self._config.server.etcd
        tls = etcd_tls(config)
        me = own_peer(config, "https" if tls else "http")
        session = await self._stack.enter_async_context(ServerSession(self._tls.towards_servers()))
        addresses = join_addresses(joins(config), config.ports.rpc, config.ports.serf)

        def make_exchange(save: Callable[[Membership], None]) -> PeerExchange:
            exchange = PeerExchange(
                me,
                config.region,
                config.server.bootstrap_expect,
                addresses,
                session,
                self._clock,
                self._random,
                save,
                self._tell,
                lambda: self._gossip.servers(config.region),
            )
            exchange.add_routes(app)
            return exchange

        wanted = EtcdSettings(
            binary=etcd.binary,
            data_dir=str(self._folder / ETCD_FOLDER),
            listen_host=config.addresses.rpc or config.bind_addr,
            client_port=config.ports.etcd,
            peer_port=config.ports.etcd_peer,
            client_url=me.client_url,
            peer_url=me.peer_url,
            tls=tls,
            heartbeat_ms=round(1e3 * seconds(etcd.heartbeat_interval, "server.etcd.heartbeat_interval")),
            election_ms=round(1e3 * seconds(etcd.election_timeout, "server.etcd.election_timeout")),
        )
        own = await OwnEtcd.prepared(wanted, make_exchange, self._folder, self._clock, self._random, self._tell)
        await self._stack.enter_async_context(own)
        self._etcd = own
        return own.open

    def _tell(self, why: str) -> None:
        self.why = why


def own_peer(config: Config, scheme: str) -> Peer:
    """This server as others reach it."""
    rpc = advertised_rpc(config)
    host = rpc.rpartition(":")[0]
    return Peer(
        name=config.name,
        rpc_address=rpc,
        peer_url=f"{scheme}://{host}:{config.ports.etcd_peer}",
        client_url=f"{scheme}://{host}:{config.ports.etcd}",
    )


def _need_extra() -> None:
    """Raise LepaError(invalid) when what comes with lepa[ha] is missing."""
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # read at import: no child of ours goes on calling
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import google.protobuf
        import grpc
    except ImportError as error:
        raise invalid(f"several servers need grpcio and protobuf ({error}): pip install 'lepa[ha]'") from error
    del google, grpc
