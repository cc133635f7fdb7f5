"""This agent, as its own API shows it: configuration, health, figures, log."""

import asyncio
import gc
import math
import platform
import resource
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from lepa import __version__
from lepa.agent.config import Config, seconds
from lepa.agent.config_view import shown
from lepa.agent.gossip_part import GossipPart
from lepa.agent.log_tap import LogTap
from lepa.client.client import Client
from lepa.dns.server import DnsServer
from lepa.kit.telemetry import Metrics, change_log_level, log_path
from lepa.model.errors import LepaError
from lepa.model.stats import Figure
from lepa.rpc import methods as m
from lepa.rpc.channel import HttpCaller
from lepa.rpc.cluster_service import ClusterService
from lepa.rpc.methods import Caller
from lepa.rpc.requests import Members, ReadRequest
from lepa.server.figures import state_figures
from lepa.server.server import Server
from lepa.state.snapshot import Snapshot

COMPATIBLE_VERSION = "1.9.5"
"""The version of Nomad whose API is spoken: what tools that ask for a version are told."""
HEALTH_S = 2.0


class SelfView:
    """Fits `lepa.api.edge.AgentView`. The agent fills in its parts as it starts them; those that it lacks stay None."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        tap: LogTap,
        *,
        dev: bool,
        reloads: Sequence[Callable[[], None]] = (),
    ) -> None:
        """reloads: what else is to be done when the agent is told to reload."""
        self._reloads = reloads
        self.config = config
        self.dev = dev
        self.server: Server | None = None
        self.operated: ClusterService | None = None
        self.gossip: GossipPart | None = None
        self.client: Client | None = None
        self.dns: DnsServer | None = None
        self.caller: Caller | None = None
        self.lag_ms = 0.0
        self._metrics = metrics
        self._tap = tap
        self._started = time.time()
        self._collected = -math.inf

    def describe(self) -> dict[str, Any]:
        """The configuration in force, secrets left out, with the keys that Nomad's clients read."""
        config = self.config
        names = {"bind_addr": "BindAddr", "datacenter": "Datacenter", "region": "Region", "name": "NodeName"}
        found = shown(config)
        renamed = {names.get(key, "".join(w.capitalize() for w in key.split("_"))): v for key, v in found.items()}
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
            "ACL": {"Enabled": config.acl.enabled},
        }

    def stats(self) -> dict[str, dict[str, str]]:
        """Figures by part, all texts."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "lepa": {"version": __version__, "server": _yes(self.server), "client": _yes(self.client)},
            "nomad": {
                "version": COMPATIBLE_VERSION,
                "server": _yes(self.server),
                "leader": "true" if self.server is not None and self.server.leads else "false",
                "leader_addr": self.server.leader_address if self.server else "",
                "leader_term": str(self.server.term) if self.server else "",
            },
            "runtime": {
                "version": platform.python_version(),
                "arch": platform.machine(),
                "kernel.name": platform.system().lower(),
                "max_rss_kb": str(usage.ru_maxrss),
                "cpu_s": f"{usage.ru_utime + usage.ru_stime:.1f}",
                "uptime_s": f"{time.time() - self._started:.0f}",
                "loop_lag_ms": f"{self.lag_ms:.2f}",
            },
        }
        if self.gossip is not None:
            found["serf"] = self.gossip.stats()
        if self.client is not None:
            found["client"] = {
                "node_id": self.client.node_id,
                "known_servers": ",".join(self.servers()),
                "num_allocations": str(sum(self.client.counts().values())),
            }
        return found

    async def health(self) -> dict[str, tuple[bool, str]]:
        """Whether server and client work."""
        found: dict[str, tuple[bool, str]] = {}
        if self.server is not None:
            found["server"] = await self._leader_known()
        if self.client is not None:
            known = self.client.registered
            found["client"] = (known, "ok" if known else "no known servers")
        return found

    async def _leader_known(self) -> tuple[bool, str]:
        assert self.caller is not None
        try:
            async with asyncio.timeout(HEALTH_S):
                leader = (await self.caller.call(m.STATUS_LEADER, ReadRequest(stale=True))).value
        except (LepaError, TimeoutError):
            leader = ""
        return (True, "ok") if leader else (False, "no leader")

    def servers(self) -> list[str]:
        """Addresses of the servers that the client knows."""
        if self.server is not None:
            return sorted(self.server.contact.addresses())
        return sorted(self.caller.servers) if isinstance(self.caller, HttpCaller) else []

    def cluster(self) -> ClusterService | None:
        """This agent's server among the others."""
        return self.operated

    async def members(self) -> Members:
        """Servers as this agent sees them."""
        assert self.caller is not None
        return (await self.caller.call(m.STATUS_MEMBERS, ReadRequest(stale=True))).value

    def knows_region(self, region: str) -> bool:
        """Whether a server of a region is known; an agent without a server leaves it to its servers to say."""
        return self.gossip is None or region in self.gossip.regions()

    async def join(self, addresses: Sequence[str]) -> tuple[int, str, str]:
        """Join other servers: how many were reached, why none was, what is doubtful."""
        return await self._gossip().join(addresses)

    def force_leave(self, name: str, *, prune: bool) -> None:
        """Declare a failed server gone for good."""
        self._gossip().force_leave(name, prune=prune)

    async def gossip_keyring(self, operation: str, key: str) -> dict[str, Any]:
        """list, install, use or remove a key of gossip on all servers."""
        return await self._gossip().keyring(operation, key)

    def _gossip(self) -> GossipPart:
        if self.gossip is None:
            raise LepaError("unsupported", "Server only endpoint: this agent runs no server")
        return self.gossip

    async def host(self) -> dict[str, Any]:
        """Facts about the host; the environment is left out because it may hold secrets."""
        return {
            "AgentID": self.client.node_id if self.client else self.config.name,
            "HostData": {"OS": platform.platform(), "Network": [], "Disk": {}, "Environment": {}},
        }

    def reload(self) -> None:
        """Take in what can change while running: the log level, certificates, the node's CNI networks."""
        change_log_level(self.config.log_level)
        for take_in in self._reloads:
            take_in()
        if self.client is not None:
            self.client.reload()

    async def log_lines(self, level: str, *, as_json: bool) -> AsyncIterator[bytes]:
        """This agent's log from now on."""
        async for line in self._tap.follow(level, as_json=as_json):
            yield line

    def log_file(self) -> Path | None:
        """Where this agent's log is written, None when it is not."""
        return log_path(self.config.log_file)

    def schedulers(self) -> dict[str, Any]:
        """Workers of this agent's server, and whether they work: they wait while nobody leads."""
        if self.server is None:
            raise LepaError("unsupported", "Server only endpoint")
        settings, works = self.config.server, bool(self.server.leader_address)
        workers = [
            {
                "id": f"worker-{number}",
                "enabled_schedulers": list(settings.enabled_schedulers),
                "started": works,
                "status": "Started" if works else "Waiting",
                "workload_status": "WaitingToDequeue" if works else "Paused",
            }
            for number in range(max(1, settings.num_schedulers))
        ]
        return {"server_id": self.config.name, "schedulers": workers}

    async def update_metrics(self) -> None:
        """Bring gauges up to date; those of the state and of the node at most once in a collection interval."""
        self._runtime()
        if self.dns is not None:
            for name, value in self.dns.metrics().items():
                self._metrics.gauge(f"nomad.dns.{name}", value)
        interval_s = seconds(self.config.telemetry.collection_interval, "telemetry.collection_interval")
        if time.monotonic() - self._collected < interval_s:
            return
        self._collected = time.monotonic()
        wanted = self.config.telemetry
        if self.server is not None:
            dispatched = not wanted.disable_dispatched_job_summary_metrics
            found = await asyncio.to_thread(_listed, self.server.replica.snapshot, dispatched)
            self._metrics.replace("state", found)
        if self.client is not None:
            figures = await self.client.figures(
                host=wanted.publish_node_metrics, allocations=wanted.publish_allocation_metrics
            )
            self._metrics.replace("node", figures)

    def _runtime(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._metrics.gauge("nomad.runtime.num_goroutines", len(asyncio.all_tasks()))
        self._metrics.gauge("nomad.runtime.num_threads", threading.active_count())
        self._metrics.gauge("nomad.runtime.alloc_bytes", usage.ru_maxrss * 1024)
        self._metrics.gauge("nomad.runtime.heap_objects", sum(gc.get_count()) + gc.get_freeze_count())
        self._metrics.gauge("nomad.runtime.cpu_seconds", usage.ru_utime + usage.ru_stime)


def _listed(snapshot: Snapshot, dispatched: bool) -> list[Figure]:
    return list(state_figures(snapshot, dispatched=dispatched))


def _yes(part: object | None) -> str:
    return "true" if part is not None else "false"
