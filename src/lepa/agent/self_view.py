"""This agent, as its own API shows it: configuration, health, figures, log."""

import asyncio
import logging
import platform
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lepa import __version__
from lepa.agent import config as settings
from lepa.agent.config import Config
from lepa.agent.log_tap import LogTap
from lepa.client.client import Client
from lepa.dns.server import DnsServer
from lepa.kit.telemetry import Metrics, log_level, log_path
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc.channel import HttpCaller
from lepa.rpc.methods import Caller
from lepa.rpc.requests import Members, ReadRequest
from lepa.server.server import Server

COMPATIBLE_VERSION = "1.9.5"
"""The version of Nomad whose API is spoken: what tools that ask for a version are told."""
HEALTH_S = 2.0


class SelfView:
    """Fits `lepa.api.edge.AgentView`. The agent fills in its parts as it starts them; those that it lacks stay None."""

    def __init__(self, config: Config, metrics: Metrics, tap: LogTap, *, dev: bool) -> None:
        self.config = config
        self.dev = dev
        self.server: Server | None = None
        self.client: Client | None = None
        self.dns: DnsServer | None = None
        self.caller: Caller | None = None
        self.lag_ms = 0.0
        self._metrics = metrics
        self._tap = tap
        self._started = time.time()

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
            "lepa": {"version": __version__, "server": _yes(self.server), "client": _yes(self.client)},
            "nomad": {
                "version": COMPATIBLE_VERSION,
                "server": _yes(self.server),
                "leader": "true" if self.server is not None and self.server.leads else "false",
                "leader_addr": self.server.leader_address if self.server else "",
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

    async def members(self) -> Members:
        """Servers as this agent sees them."""
        assert self.caller is not None
        return (await self.caller.call(m.STATUS_MEMBERS, ReadRequest(stale=True))).value

    async def host(self) -> dict[str, Any]:
        """Facts about the host; the environment is left out because it may hold secrets."""
        return {
            "AgentID": self.client.node_id if self.client else self.config.name,
            "HostData": {"OS": platform.platform(), "Network": [], "Disk": {}, "Environment": {}},
        }

    def reload(self) -> None:
        """Take in what can change while running: the log level."""
        logging.getLogger("lepa").setLevel(log_level(self.config.log_level))

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

    def update_metrics(self) -> None:
        """Gauges that are cheap to read, read now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._metrics.gauge("nomad.runtime.max_rss_bytes", usage.ru_maxrss * 1024)
        self._metrics.gauge("nomad.runtime.cpu_seconds", usage.ru_utime + usage.ru_stime)
        self._metrics.gauge("nomad.runtime.loop_lag_ms", self.lag_ms)
        if self.client is not None:
            node = {"node_id": self.client.node_id}
            for status in ("pending", "running", "complete", "failed"):
                self._metrics.gauge(f"nomad.client.allocations.{status}", self.client.counts().get(status, 0), **node)
        if self.dns is not None:
            for name, value in self.dns.metrics().items():
                self._metrics.gauge(f"nomad.dns.{name}", value)


def _yes(part: object | None) -> str:
    return "true" if part is not None else "false"
