"""`lepa agent`: flags become settings, and the agent runs until it is told to stop."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from lepa.cli.flags import command, flag, option, repeated
from lepa.model.errors import invalid

Settings = dict[str, Any]

DEVELOPMENT: Settings = {
    "bind_addr": "127.0.0.1",
    "enable_debug": True,
    "server": {"enabled": True},
    "client": {"enabled": True},
    "telemetry": {"publish_allocation_metrics": True, "publish_node_metrics": True},
}
"""What -dev means, before configuration files and flags."""

PLACES = {
    "data_dir": ("data_dir",),
    "bind": ("bind_addr",),
    "node": ("name",),
    "region": ("region",),
    "dc": ("datacenter",),
    "log_level": ("log_level",),
    "log_file": ("log_file",),
    "log_json": ("log_json",),
    "plugin_dir": ("plugin_dir",),
    "server": ("server", "enabled"),
    "bootstrap_expect": ("server", "bootstrap_expect"),
    "encrypt": ("server", "encrypt"),
    "client": ("client", "enabled"),
    "node_class": ("client", "node_class"),
    "node_pool": ("client", "node_pool"),
    "state_dir": ("client", "state_dir"),
    "alloc_dir": ("client", "alloc_dir"),
    "network_interface": ("client", "network_interface"),
    "network_speed": ("client", "network_speed"),
    "cpu_total_compute": ("client", "cpu_total_compute"),
    "servers": ("client", "servers"),
    "host_volumes_dir": ("client", "host_volumes_dir"),
    "retry_join": ("server", "retry_join"),
    "retry_interval": ("server", "retry_interval"),
    "retry_max": ("server", "retry_max"),
    "rejoin": ("server", "rejoin_after_leave"),
    "acl_replication_token": ("acl", "replication_token"),
    "join": ("server", "start_join"),
    "meta": ("client", "meta"),
    "acl_enabled": ("acl", "enabled"),
}
"""Where in the configuration each flag belongs."""


@command()
@flag("dev", "Server and client in one, for trying things out: local address, temporary data.")
@repeated("config", "Configuration file, or directory of them; later ones win.", metavar="path")
@option("data-dir", "Directory of the agent's state.", metavar="path")
@option("bind", "Address to listen on.", metavar="address")
@option("node", "Name of this agent.", metavar="name")
@option("region", "Region of this agent.", metavar="name")
@option("dc", "Datacenter of this agent.", metavar="name")
@option("log-level", "TRACE, DEBUG, INFO, WARN or ERROR.", metavar="level")
@flag("log-json", "Log lines as JSON.", default=None)
@option("log-file", "Also log to this file.", metavar="path")
@option("plugin-dir", "Directory of plugins.", metavar="path")
@flag("server", "Run a server.", default=None)
@option("bootstrap-expect", "Servers to wait for.", kind=int, metavar="count")
@option("encrypt", "Key of the gossip.", metavar="key")
@repeated("retry-join", "Server to join, tried until it answers.", metavar="address")
@option("retry-interval", "Time between tries to join.", metavar="duration")
@option("retry-max", "Tries to join; 0 for ever.", kind=int, metavar="count")
@flag("rejoin", "Join again the servers known before, also after leaving.", default=None)
@repeated("join", "Server to join.", metavar="address")
@option("raft-protocol", "Accepted: there is no raft.", kind=int, hidden=True)
@flag("client", "Run a client.", default=None)
@option("node-class", "Class of the node.", metavar="name")
@option("node-pool", "Pool of the node.", metavar="name")
@option("state-dir", "Directory of the client's state.", metavar="path")
@option("alloc-dir", "Directory of the allocations.", metavar="path")
@option("host-volumes-dir", "Directory of the volumes that nodes make.", metavar="path")
@option("network-interface", "Interface whose address tasks get.", metavar="name")
@option("network-speed", "Speed of the interface in MBits.", kind=int, metavar="mbits")
@option("cpu-total-compute", "MHz of the machine, instead of what is found.", kind=int, metavar="mhz")
@option("servers", "Servers of the client, parted by commas.", metavar="addresses")
@repeated("meta", "Metadata of the node.", metavar="key=value")
@flag("acl-enabled", "Ask everybody for a token that says what they may do.", default=None)
@option("acl-replication-token", "Token for reading what another region holds.", metavar="token")
def agent(dev: bool, config: tuple[str, ...], raft_protocol: int | None, **given: Any) -> int:
    """Run an agent.

    It runs until it gets SIGINT or SIGTERM. SIGHUP makes it read what can change while it runs.
    """
    from lepa.agent import config_file
    from lepa.agent.config_loader import build
    from lepa.agent.run import run

    with_files = config_file.merge(DEVELOPMENT if dev else {}, config_file.load(map(Path, config)))
    raw = config_file.merge(with_files, overrides(given))
    if not dev or raw.get("data_dir"):
        loaded = build(raw)
        return run(loaded.config, loaded.warnings, dev=dev)
    temporary = tempfile.mkdtemp(prefix="lepa-dev-")
    try:
        loaded = build({**raw, "data_dir": temporary})
        return run(loaded.config, loaded.warnings, dev=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def overrides(given: Settings) -> Settings:
    """The flags that were given, as nested settings."""
    settings: Settings = {}
    for name, value in given.items():
        if value in (None, ()):
            continue
        *above, key = PLACES[name]
        place = settings
        for part in above:
            place = place.setdefault(part, {})
        place[key] = _setting(name, value)
    return settings


def _setting(name: str, value: Any) -> Any:
    if name == "meta":
        return dict(_pair(text) for text in value)
    if name == "servers":
        return value.split(",")
    return list(value) if isinstance(value, tuple) else value


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise invalid(f'-meta wants key=value, not "{text}"')
    return key, value
