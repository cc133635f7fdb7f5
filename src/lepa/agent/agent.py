"""Builds the parts of one agent from its configuration, joins them, and runs them until it is told to stop.

    server   the state in one SQLite file, the control plane, the internal port
    gossip   the servers of all regions, and the way to those of others
    client   this machine as a node, its drivers and their supervisor
    edge     the HTTP API
    guests   DNS and Consul's API: services for others, fed by a watcher that reads the HTTP API like anyone else
    ingress  traffic from outside, in a process beside this one

Parts are entered in this order and left in the opposite one. A second agent on the same data directory is refused.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from lepa import __version__
from lepa.agent.addresses import advertised_http, near
from lepa.agent.config import Config, seconds
from lepa.agent.data_directory import owned_directory
from lepa.agent.ingress_process import IngressProcess
from lepa.agent.ingress_settings import announced, ingress_settings
from lepa.agent.join_settings import Retry, retry
from lepa.agent.limit_settings import http_limits
from lepa.agent.log_tap import LogTap
from lepa.agent.metric_sinks import send_for_ever, sinks_of
from lepa.agent.node_settings import client_settings
from lepa.agent.page_settings import page_settings
from lepa.agent.self_view import COMPATIBLE_VERSION, SelfView
from lepa.agent.server_part import ServerPart
from lepa.agent.server_settings import KEYRING_FOLDER
from lepa.agent.servers_known import client_servers, join_servers
from lepa.agent.store_settings import server_folder
from lepa.agent.tls import AgentTls
from lepa.api.app import Api
from lepa.api.edge import Edge
from lepa.api.edge import Settings as EdgeSettings
from lepa.api.task_api import TaskSockets
from lepa.catalog.table import ServiceTable
from lepa.catalog.watcher import Watcher
from lepa.client.client import Client
from lepa.client.devices import Devices
from lepa.client.fingerprint.registry import Fingerprint
from lepa.client.node_options import allowed
from lepa.consul.app import ConsulApi
from lepa.consul.edge import Bodies, ConsulSettings, Guest, own_services
from lepa.consul.following import Following
from lepa.consul.local_services import LocalServices
from lepa.consul.registrations import AgentNode
from lepa.dns.server import DnsServer
from lepa.dns.settings import DnsSettings
from lepa.drivers.devices.registry import build_device_plugins
from lepa.drivers.registry import FACTORIES, DriverHost, build_drivers, unknown_blocks
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.channel import HttpCaller, ServerSession
from lepa.rpc.methods import Caller
from lepa.sdk.address import Target
from lepa.sdk.async_connection import AsyncConnection
from lepa.server.key_file import load_or_make

log = logging.getLogger(__name__)

TICK_S = 0.25
LEAVE_S = 10.0


class Agent:
    """One running agent. As an async context manager it runs while it is entered."""

    def __init__(
        self,
        config: Config,
        give_up: Callable[[LepaError], None],
        *,
        dev: bool = False,
        tap: LogTap | None = None,
    ) -> None:
        """give_up: is told when the agent should end because it can join no server."""
        self.config = config
        self.dev = dev
        self._give_up = give_up
        self._clock = SystemClock()
        self._random = SystemRandom()
        telemetry = config.telemetry
        self._metrics = Metrics(shown_by_default=telemetry.filter_default, prefixes=telemetry.prefix_filter)
        self._stack = AsyncExitStack()
        self._task_sockets = TaskSockets()
        self._tasks = Tasks("agent")
        self._http_address = ""
        self._tls = AgentTls(config)
        self.view = SelfView(config, self._metrics, tap or LogTap(), dev=dev, reloads=(self._tls.reload,))

    async def __aenter__(self) -> "Agent":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def leave(self) -> None:
        """Tell the servers of all regions that this one leaves for good."""
        if self.view.gossip is not None:
            await self.view.gossip.leave()

    # Parts

    async def _start(self) -> None:
        config = self.config
        data = Path(config.data_dir)
        self._stack.enter_context(owned_directory(data))
        await self._stack.enter_async_context(self._tasks)
        await self._stack.enter_async_context(self._task_sockets)
        self.view.caller = await self._servers()
        hosts = (config.addresses.http or config.bind_addr).split()
        self._http_address = advertised_http(config, hosts[0])
        if config.client.enabled:
            self.view.client = await self._node(data, self.view.caller)
        edge = Edge(
            caller=self.view.caller,
            agent=self.view,
            node=self.view.client,
            clock=self._clock,
            metrics=self._metrics,
            settings=EdgeSettings(
                region=config.region,
                response_headers=tuple(config.http_api_response_headers.items()),
                prometheus=config.telemetry.prometheus_metrics,
                debug=config.enable_debug,
                tls=self._tls.towards_agents(),
                acl=config.acl.enabled,
                pages=page_settings(config),
            ),
        )
        listeners = [(host, config.ports.http) for host in hosts]
        context = self._tls.http.context if self._tls.http else None
        await self._stack.enter_async_context(Api(edge, listeners, ssl=context, limits=http_limits(config)))
        await self._task_sockets.serve(edge)
        await self._guests(hosts[0])
        await self._ingress(hosts[0])
        self._tasks.start("tick", self._tick())
        if sinks := sinks_of(config):
            update = self.view.update_metrics
            self._tasks.start("sinks", send_for_ever(config, sinks, self._metrics, update, self._clock))
        gc.freeze()

    async def _servers(self) -> Caller:
        """A way to the servers: the one in this process, or those that the client block names."""
        config = self.config
        if not config.server.enabled:
            session = await self._stack.enter_async_context(ServerSession(self._tls.towards_servers()))
            caller = HttpCaller(session, client_servers(config), self._clock, self._random)
            self._tasks.start("join", self._join(caller, retry(config.client.server_join, "client")))
            return caller
        part = ServerPart(config, self._tls, self._clock, self._random, self._metrics, self.view, self._give_up)
        return (await self._stack.enter_async_context(part)).caller

    async def _join(self, caller: Caller, how_often: Retry) -> None:
        """A node goes on for ever, unless `retry_max` says otherwise."""
        try:
            await join_servers(caller, how_often, self._clock)
        except LepaError as error:
            self._give_up(error)

    async def _node(self, data: Path, caller: Caller) -> Client:
        wanted = client_settings(self.config, data, self._http_address, COMPATIBLE_VERSION, dev=self.dev)
        supervisor = await Supervisor.connect(str(data / "supervisor"), clock=self._clock)
        self._stack.push_async_callback(self._leave_supervisor, supervisor)
        host = DriverHost(
            supervisor=supervisor,
            clock=self._clock,
            state_dir=str(data / "drivers"),
            chroot_env=self.config.client.chroot_env,
        )
        drivers = {
            name: driver
            for name, driver in build_drivers(host, wanted.plugins).items()
            if allowed(wanted.options, "driver", name)
        }
        fingerprint = Fingerprint(wanted, self._clock)
        plugins = build_device_plugins(wanted.plugins)
        for name in unknown_blocks(wanted.plugins, [*FACTORIES, *drivers, *(plugin.name for plugin in plugins)]):
            log.warning("plugin block belongs to no driver or device plugin of this node name=%s", name)
        devices = Devices(plugins)
        client = Client(
            wanted,
            caller,
            drivers,
            fingerprint,
            self._clock,
            self._random,
            self._metrics,
            devices=devices,
            task_api=self._task_sockets,
            agents_tls=self._tls.towards_agents(),
        )
        running = {task.id for task in await supervisor.list_tasks()}
        await self._stack.enter_async_context(client)
        for task_id in running - client.task_ids():
            log.warning("task ended: it runs, but this node does not know it any more task_id=%s", task_id)
            await supervisor.forget(task_id)
        return client

    async def _leave_supervisor(self, supervisor: Supervisor) -> None:
        """An agent for development takes its tasks with it; any other leaves them running."""
        if not self.dev:
            await supervisor.close()
            return
        with contextlib.suppress(LepaError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await supervisor.shutdown(kill=True)
        await supervisor.close()

    async def _guests(self, http_host: str) -> None:
        """Whoever shows services to others: DNS and Consul's API, fed by one watcher."""
        config = self.config
        if not config.dns.enabled and not config.consul_api.enabled:
            return
        connection = await self._stack.enter_async_context(
            AsyncConnection(self._own_api(http_host)._replace(namespace="*"))
        )
        address = self._http_address.rpartition(":")[0].strip("[]")
        readers: list[Callable[[ServiceTable], None]] = []
        if config.dns.enabled:
            readers.append(self._names().publish)
        if config.consul_api.enabled:
            readers.append((await self._consul(connection)).publish)

        def publish(table: ServiceTable) -> None:
            shown = announced(table, config, address) if config.ingress.enabled else table
            for reader in readers:
                reader(shown)

        watching = await self._stack.enter_async_context(Tasks("agent"))  # ends before its connection does
        watching.start("names", Watcher(connection, self._clock, publish, config.region).run())

    def _own_api(self, host: str) -> Target:
        """This agent's HTTP API, as its guests call it: parts of it that read there what they show to others."""
        token = self._guest_token()
        return Target(self._tls.scheme, near(host), self.config.ports.http, token=token, tls=self._tls.own())

    def _guest_token(self) -> str:
        """What these parts show: servers know it of each other's agents, and nodes by their secrets."""
        if not self.config.acl.enabled:
            return ""
        if self.config.server.enabled:
            folder = server_folder(self.config) / KEYRING_FOLDER
            return load_or_make(folder, self.config.server.encrypt).guest_token
        return self.view.client.node.secret_id if self.view.client is not None else ""

    def _names(self) -> DnsServer:
        config = self.config
        ttl = int(seconds(config.dns.ttl, "dns.ttl"))
        wanted = DnsSettings(
            domains=tuple(config.dns.domains),
            recursors=tuple(config.dns.recursors),
            service_ttl_s={"*": ttl} if ttl else {},
            node_ttl_s=ttl,
        )
        self.view.dns = DnsServer(config.addresses.dns or config.bind_addr, config.ports.dns, wanted, self._clock)
        self.view.dns.start()
        self._stack.callback(self.view.dns.stop)
        return self.view.dns

    async def _consul(self, connection: AsyncConnection) -> Following:
        config = self.config
        address, _, _ = self._http_address.rpartition(":")
        identity = ConsulSettings(
            node_name=config.name,
            node_id=self.view.client.node_id if self.view.client else "",
            address=address.strip("[]"),
            datacenter=config.datacenter,
            server=config.server.enabled,
            server_port=config.ports.rpc,
            version=__version__,
        )
        following = Following(self._clock, own_services(identity))
        node = AgentNode(config.name, identity.node_id, identity.address, config.datacenter)
        local = LocalServices(node, connection, following, self._clock, self._random)
        await self._stack.enter_async_context(local)
        guest = Guest(identity, following, local, connection, self._clock, self._random, Bodies(), config.acl.enabled)
        where = config.consul_api.address or config.bind_addr
        await self._stack.enter_async_context(ConsulApi(guest, where, config.consul_api.port))
        return following

    async def _ingress(self, http_host: str) -> None:
        """Traffic from outside, carried by a process of its own."""
        config = self.config
        if not config.ingress.enabled:
            return
        process = IngressProcess(
            ingress_settings(config),
            self._own_api(http_host),
            config.log_level,
            log_json=config.log_json,
            environment=self._tls.own_environment(),
            clock=self._clock,
        )
        await self._stack.enter_async_context(process)

    async def _tick(self) -> None:
        """Measures how late the event loop is, and closes intervals of metrics."""
        while True:
            before = self._clock.now()
            await self._clock.sleep(TICK_S)
            self.view.lag_ms = max(0.0, (self._clock.now() - before - TICK_S) * 1000)
            self._metrics.sample("nomad.runtime.loop_lag", self.view.lag_ms)
            self._metrics.tick(self._clock.now())
