"""Builds the parts of one agent from its configuration, joins them, and runs them until it is told to stop.

    server   the state in one SQLite file, the control plane, the internal port
    client   this machine as a node, its drivers and their supervisor
    edge     the HTTP API
    guests   DNS and Consul's API: services for others, fed by a watcher that reads the HTTP API like anyone else

Parts are entered in this order and left in the opposite one. A second agent on the same data directory is refused.
"""

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from aiohttp import web

from lepa import __version__
from lepa.agent import config as settings
from lepa.agent.config import Config
from lepa.agent.log_tap import LogTap
from lepa.agent.node_settings import client_settings
from lepa.agent.server_settings import server_settings
from lepa.api.app import Api
from lepa.api.edge import Edge
from lepa.api.edge import Settings as EdgeSettings
from lepa.catalog.table import ServiceTable
from lepa.catalog.watcher import Watcher
from lepa.client.client import Client
from lepa.client.fingerprint.host import host_address
from lepa.client.fingerprint.registry import Fingerprint
from lepa.client.settings import ClientSettings
from lepa.consul.app import ConsulApi
from lepa.consul.edge import ConsulSettings, Guest
from lepa.consul.following import Following
from lepa.dns.resolver import DnsSettings
from lepa.dns.server import DnsServer
from lepa.drivers.registry import DriverHost, build_drivers
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics, set_up_logging
from lepa.model.errors import LepaError, conflict, invalid
from lepa.rpc import methods as m
from lepa.rpc.channel import HttpCaller, channel_app
from lepa.rpc.methods import Caller
from lepa.rpc.requests import Members, ReadRequest
from lepa.sdk.address import Target
from lepa.sdk.async_connection import AsyncConnection
from lepa.server.server import Server
from lepa.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

TICK_S = 0.25
SWITCH_S = 0.0005
GC_THRESHOLDS = (50_000, 25, 40)
HEALTH_S = 2.0
COMPATIBLE_VERSION = "1.9.5"
"""The version of Nomad whose API is spoken: what tools that ask for a version are told."""


class Agent:
    """One running agent. As an async context manager it runs while it is entered."""

    def __init__(self, config: Config, *, dev: bool = False, tap: LogTap | None = None) -> None:
        self.config = config
        self.dev = dev
        self._tap = tap or LogTap()
        self._clock = SystemClock()
        self._random = SystemRandom()
        self._metrics = Metrics()
        self._stack = AsyncExitStack()
        self._tasks = Tasks("agent")
        self._started = time.time()
        self._server: Server | None = None
        self._client: Client | None = None
        self._dns: DnsServer | None = None
        self._lag_ms = 0.0
        self._http_address = ""
        self._caller: Caller | None = None

    async def __aenter__(self) -> "Agent":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # Parts

    async def _start(self) -> None:
        config = self.config
        data = Path(config.data_dir)
        self._stack.enter_context(owned_directory(data))
        await self._stack.enter_async_context(self._tasks)
        self._caller = await self._servers(data)
        hosts = (config.addresses.http or config.bind_addr).split()
        self._http_address = _advertised(config, hosts[0])
        if config.client.enabled:
            self._client = await self._node(data, self._caller)
        edge = Edge(
            caller=self._caller,
            agent=self,
            node=self._client,
            clock=self._clock,
            metrics=self._metrics,
            settings=EdgeSettings(
                region=config.region,
                response_headers=tuple(config.http_api_response_headers.items()),
                prometheus=config.telemetry.prometheus_metrics,
                debug=config.enable_debug,
            ),
        )
        await self._stack.enter_async_context(Api(edge, [(host, config.ports.http) for host in hosts]))
        await self._guests(hosts[0])
        self._tasks.start("tick", self._tick())
        gc.freeze()

    async def _servers(self, data: Path) -> Caller:
        """A way to the servers: the one in this process, or those that the client block names."""
        config = self.config
        if not config.server.enabled:
            session = await self._stack.enter_async_context(aiohttp.ClientSession())
            return HttpCaller(session, config.client.servers, self._clock, self._random)
        path = Path(config.server.data_dir) if config.server.data_dir else data / "server"
        path.mkdir(parents=True, exist_ok=True)
        store = await SqliteStore.open(path / "state.db", self._clock)
        self._stack.push_async_callback(store.close)
        address = _advertised_rpc(config)
        server = Server(store, server_settings(config, address), self._clock, self._random, self._metrics)
        self._server = await self._stack.enter_async_context(server)
        await self._internal_port(server)
        return server.caller

    async def _internal_port(self, server: Server) -> None:
        host, port = self.config.addresses.rpc or self.config.bind_addr, self.config.ports.rpc
        runner = web.AppRunner(
            channel_app(server.caller), access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise conflict(
                f"cannot listen on {host}:{port} for servers and nodes: {error.strerror or error}; "
                "stop the other process, or set `ports { rpc = … }`"
            ) from error

    async def _node(self, data: Path, caller: Caller) -> Client:
        wanted = client_settings(self.config, data, self._http_address, COMPATIBLE_VERSION, dev=self.dev)
        supervisor = await Supervisor.connect(str(data / "supervisor"), clock=self._clock)
        self._stack.push_async_callback(self._leave_supervisor, supervisor)
        host = DriverHost(supervisor=supervisor, clock=self._clock, state_dir=str(data / "drivers"))
        drivers = build_drivers(host, wanted.plugins)
        fingerprint = Fingerprint(wanted, self._clock)
        client = Client(wanted, caller, drivers, fingerprint, self._clock, self._random, self._metrics)
        return await self._stack.enter_async_context(client)

    async def _leave_supervisor(self, supervisor: Supervisor) -> None:
        """An agent for development takes its tasks with it; any other leaves them running."""
        if not self.dev:
            await supervisor.close()
            return
        with contextlib.suppress(LepaError, TimeoutError):
            await asyncio.wait_for(supervisor.shutdown(kill=True), 10.0)
        await supervisor.close()

    async def _guests(self, http_host: str) -> None:
        """Whoever shows services to others: DNS and Consul's API, fed by one watcher."""
        config = self.config
        if not config.dns.enabled and not config.consul_api.enabled:
            return
        near = "127.0.0.1" if http_host in {"0.0.0.0", "::"} else http_host
        connection = await self._stack.enter_async_context(
            AsyncConnection(Target("http", near, config.ports.http, namespace="*"))
        )
        readers: list[Callable[[ServiceTable], None]] = []
        if config.dns.enabled:
            readers.append(self._names().publish)
        if config.consul_api.enabled:
            readers.append((await self._consul(connection)).publish)

        def publish(table: ServiceTable) -> None:
            for reader in readers:
                reader(table)

        self._tasks.start("names", Watcher(connection, self._clock, publish, config.region).run())

    def _names(self) -> DnsServer:
        config = self.config
        ttl = int(settings.seconds(config.dns.ttl, "dns.ttl"))
        wanted = DnsSettings(
            domains=tuple(config.dns.domains),
            recursors=tuple(config.dns.recursors),
            service_ttl_s={"*": ttl} if ttl else {},
            node_ttl_s=ttl,
        )
        self._dns = DnsServer(config.addresses.dns or config.bind_addr, config.ports.dns, wanted, self._clock)
        self._dns.start()
        self._stack.callback(self._dns.stop)
        return self._dns

    async def _consul(self, connection: AsyncConnection) -> Following:
        config, following = self.config, Following(self._clock)
        address, _, _ = self._http_address.rpartition(":")
        identity = ConsulSettings(
            node_name=config.name,
            node_id=self._client.node_id if self._client else "",
            address=address.strip("[]"),
            datacenter=config.datacenter,
            server=config.server.enabled,
            server_port=config.ports.rpc,
            version=__version__,
        )
        guest = Guest(identity, following, connection, self._clock, self._random)
        where = config.consul_api.address or config.bind_addr
        await self._stack.enter_async_context(ConsulApi(guest, where, config.consul_api.port))
        return following

    async def _tick(self) -> None:
        """Measures how late the event loop is, and closes intervals of metrics."""
        while True:
            before = self._clock.now()
            await self._clock.sleep(TICK_S)
            self._lag_ms = max(0.0, (self._clock.now() - before - TICK_S) * 1000)
            self._metrics.sample("nomad.runtime.loop_lag", self._lag_ms)
            self._metrics.tick(self._clock.now())

    # What the API shows of this agent

    def describe(self) -> dict[str, Any]:
        """The configuration in force, secrets left out, with the keys that Nomad's clients read."""
        config = self.config
        shown = settings.shown(config)
        names = {"bind_addr": "BindAddr", "datacenter": "Datacenter", "region": "Region", "name": "NodeName"}
        renamed = {names.get(key, "".join(w.capitalize() for w in key.split("_"))): v for key, v in shown.items()}
        return renamed | {
            "Name": config.name,
            "DataDir": config.data_dir,
            "DevMode": self.dev,
            "Version": {"Version": COMPATIBLE_VERSION, "VersionMetadata": "lepa", "Lepa": __version__},
            "Ports": {
                "HTTP": config.ports.http,
                "RPC": config.ports.rpc,
                "Serf": config.ports.serf,
                "DNS": config.ports.dns,
            },
            "ACL": {"Enabled": False},
        }

    def stats(self) -> dict[str, dict[str, str]]:
        """Figures by part, all texts."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "lepa": {"version": __version__, "server": _yes(self._server), "client": _yes(self._client)},
            "nomad": {
                "version": COMPATIBLE_VERSION,
                "server": _yes(self._server),
                "leader": _yes(self._server),
                "leader_addr": _advertised_rpc(self.config) if self._server else "",
            },
            "runtime": {
                "version": platform.python_version(),
                "arch": platform.machine(),
                "kernel.name": platform.system().lower(),
                "max_rss_kb": str(usage.ru_maxrss),
                "cpu_s": f"{usage.ru_utime + usage.ru_stime:.1f}",
                "uptime_s": f"{time.time() - self._started:.0f}",
                "loop_lag_ms": f"{self._lag_ms:.2f}",
            },
        }
        if self._client is not None:
            found["client"] = {
                "node_id": self._client.node_id,
                "known_servers": ",".join(self.servers()),
                "num_allocations": str(sum(self._client.counts().values())),
            }
        return found

    async def health(self) -> dict[str, tuple[bool, str]]:
        """Whether server and client work."""
        found: dict[str, tuple[bool, str]] = {}
        if self._server is not None:
            found["server"] = await self._leader_known()
        if self._client is not None:
            known = self._client.registered
            found["client"] = (known, "ok" if known else "no known servers")
        return found

    async def _leader_known(self) -> tuple[bool, str]:
        assert self._caller is not None
        try:
            async with asyncio.timeout(HEALTH_S):
                leader = (await self._caller.call(m.STATUS_LEADER, ReadRequest(stale=True))).value
        except (LepaError, TimeoutError):
            leader = ""
        return (True, "ok") if leader else (False, "no leader")

    def servers(self) -> list[str]:
        """Addresses of the servers that the client knows."""
        if self.config.server.enabled:
            return [_advertised_rpc(self.config)]
        return sorted(self.config.client.servers)

    async def members(self) -> Members:
        """Servers as this agent sees them."""
        assert self._caller is not None
        return (await self._caller.call(m.STATUS_MEMBERS, ReadRequest(stale=True))).value

    async def host(self) -> dict[str, Any]:
        """Facts about the host; the environment is left out because it may hold secrets."""
        return {
            "AgentID": self._client.node_id if self._client else self.config.name,
            "HostData": {"OS": platform.platform(), "Network": [], "Disk": {}, "Environment": {}},
        }

    def reload(self) -> None:
        """Take in what can change while running: the log level."""
        logging.getLogger("lepa").setLevel(self.config.log_level.upper())

    async def log_lines(self, level: str, *, as_json: bool) -> AsyncIterator[bytes]:
        """This agent's log from now on."""
        async for line in self._tap.follow(level, as_json=as_json):
            yield line

    def update_metrics(self) -> None:
        """Gauges that are cheap to read, read now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._metrics.gauge("nomad.runtime.max_rss_bytes", usage.ru_maxrss * 1024)
        self._metrics.gauge("nomad.runtime.cpu_seconds", usage.ru_utime + usage.ru_stime)
        self._metrics.gauge("nomad.runtime.loop_lag_ms", self._lag_ms)
        if self._client is not None:
            node = {"node_id": self._client.node_id}
            for status in ("pending", "running", "complete", "failed"):
                self._metrics.gauge(f"nomad.client.allocations.{status}", self._client.counts().get(status, 0), **node)
        if self._dns is not None:
            for name, value in self._dns.metrics().items():
                self._metrics.gauge(f"nomad.dns.{name}", value)


def _yes(part: object | None) -> str:
    return "true" if part is not None else "false"


def _advertised(config: Config, host: str) -> str:
    """Where others reach the HTTP API."""
    return _with_port(config.advertise.get("http", ""), host, config.ports.http)


def _advertised_rpc(config: Config) -> str:
    """Where others reach the internal port."""
    return _with_port(config.advertise.get("rpc", ""), config.addresses.rpc or config.bind_addr, config.ports.rpc)


def _with_port(given: str, host: str, port: int) -> str:
    if given:
        return given if ":" in given else f"{given}:{port}"
    if host in {"0.0.0.0", "::"}:
        host = _own_address()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _own_address() -> str:
    """The address of the interface with the default route, else loopback."""
    return host_address(ClientSettings(directory=Path("/"), name=""))


@contextlib.contextmanager
def owned_directory(path: Path) -> Any:
    """The data directory, held by this process alone. Raises LepaError when another agent has it or it is not ours."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        known = {"agent.lock", "server", "client", "alloc", "supervisor", "drivers", "plugins", "lost+found"}
        strange = sorted(entry.name for entry in path.iterdir() if entry.name not in known)
        if strange and not (path / "agent.lock").exists():
            raise invalid(
                f"data_dir {path} holds {', '.join(strange[:3])}, which no agent of lepa put there; "
                "choose an empty directory"
            )
        lock = open(path / "agent.lock", "a+")  # noqa: SIM115
    except OSError as error:
        raise invalid(f"cannot use data_dir {path}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            pid = lock.read().strip()
            raise conflict(f"another agent (pid {pid or 'unknown'}) uses data_dir {path}; stop it first") from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield path


def run(
    config: Config, warnings: tuple[str, ...] = (), *, dev: bool = False, out: Callable[[str], None] = print
) -> int:
    """Run an agent until SIGINT or SIGTERM; the process's exit code. Never raises LepaError: says what is wrong."""
    handler = set_up_logging(config.log_level, as_json=config.log_json)
    tap = LogTap()
    logging.getLogger("lepa").addHandler(tap)
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)  # a full collection over 100,000 allocations stops everything for 100 ms
    _raise_file_limit()
    for warning in warnings:
        log.warning("configuration: %s", warning)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, dev=dev, tap=tap, out=out))
    except LepaError as error:
        print(f"Error starting agent: {error.message}", file=sys.stderr)
        return 1
    finally:
        handler.flush()


async def _serve(config: Config, *, dev: bool, tap: LogTap, out: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    agent = Agent(config, dev=dev, tap=tap)
    loop.add_signal_handler(signal.SIGHUP, agent.reload)
    for line in banner(config):
        out(line)
    async with agent:
        out("==> lepa agent started! Log data will stream in below:\n")
        sys.stdout.flush()
        await told.wait()
        log.info("agent told to stop")
    return 0


def banner(config: Config) -> list[str]:
    """What the agent says of itself when it starts."""
    host = config.addresses.http or config.bind_addr
    facts = {
        "Client": str(config.client.enabled).lower(),
        "Server": str(config.server.enabled).lower(),
        "Log Level": config.log_level.upper(),
        "Region": f"{config.region} (DC: {config.datacenter})",
        "HTTP": f"http://{host}:{config.ports.http}",
        "Internal": f"{config.addresses.rpc or config.bind_addr}:{config.ports.rpc}",
        "DNS": f"{config.addresses.dns or config.bind_addr}:{config.ports.dns}" if config.dns.enabled else "off",
        "Data": config.data_dir,
        "Version": f"{__version__} (API of Nomad {COMPATIBLE_VERSION})",
    }
    width = max(map(len, facts))
    return [
        "==> lepa agent configuration:",
        "",
        *(f"{name:>{width + 4}}: {value}" for name, value in facts.items()),
        "",
    ]


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("open files limit raised from=%d to=%d", soft, hard)
