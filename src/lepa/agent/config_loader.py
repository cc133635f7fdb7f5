"""From settings as they are written to the typed tree: what is taken, what is refused, and what is doubted.

Unknown keys are errors that name the nearest known one. Blocks for things that this agent does not do (yet) are refused
when they ask for something that would silently be missing (access control, TLS), and listed in a warning when leaving
them out harms nobody.
"""

import difflib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from lepa.agent import config_file
from lepa.agent.config import Config, Section, seconds
from lepa.agent.page_settings import page_settings
from lepa.kit.telemetry import log_level
from lepa.model.errors import LepaError, invalid
from lepa.model.wire import to_builtins

PORT_MAX = 65_535
PRIORITY_MAX = 32_766
CORE_MAX = 4_095
EXPECT_MAX = 9

IGNORED = (
    "consul", "vault", "rpc", "enable_syslog", "plugin_dir", "ui.show_cli_hints", "ui.consul",
    "ui.vault", "autopilot.enable_redundancy_zones", "autopilot.disable_upgrade_migration",
    "autopilot.enable_custom_upgrades",
    "client.default_ineligible", "client.drain_on_shutdown", "client.disk_free_mb",
    "client.nomad_service_discovery", "client.no_host_uuid", "telemetry.include_alloc_metadata_in_metrics",
    "telemetry.allowed_metadata_keys_in_metrics", "telemetry.disable_allocation_hook_metrics",
    "telemetry.disable_rpc_rate_metrics_labels", "telemetry.in_memory_collection_interval",
    "telemetry.in_memory_retention_period",
)  # fmt: skip
"""Settings that are taken and have no effect here."""


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, and doubts about it."""

    config: Config
    warnings: tuple[str, ...] = ()


def load(paths: Sequence[Path], overrides: dict[str, Any]) -> Loaded:
    """The configuration that files and command-line flags give together. Raises LepaError(invalid)."""
    return build(config_file.merge(config_file.load(paths), overrides))


def build(raw: dict[str, Any]) -> Loaded:
    """The typed tree of merged settings."""
    named = {"name": socket.gethostname()} | raw
    try:
        config = msgspec.convert(named, Config)
    except msgspec.ValidationError as error:
        raise invalid(f"configuration: {_explained(error)}") from error
    _check(config)
    warnings = [f'"{key}" has no effect in this version' for key in IGNORED if _given(raw, key)]
    return Loaded(config, tuple(warnings))


def _given(raw: dict[str, Any], key: str) -> bool:
    """Whether the configuration says something else than nothing about a dotted key."""
    value: Any = raw
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return bool(value)


def _explained(error: msgspec.ValidationError) -> str:
    """The message, with the nearest known name when a key is unknown."""
    text = str(error)
    if "unknown field" not in text:
        return text
    unknown = text.split("`")[1]
    near = difflib.get_close_matches(unknown, set(_known(Config)), n=1)
    return text + (f'; did you mean "{near[0]}"?' if near else "")


def _known(kind: Any) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        yield field.name
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from _known(field.type)


def _check(config: Config) -> None:
    if not config.server.enabled and not config.client.enabled:
        raise invalid(
            "configuration: neither server nor client is enabled; set `server { enabled = true }`, "
            "`client { enabled = true }`, or start with -dev"
        )
    if not config.data_dir:
        raise invalid("configuration: data_dir is missing; set it to a directory for the agent's state, or use -dev")
    if not Path(config.data_dir).is_absolute():
        raise invalid(f'configuration: data_dir must be an absolute path, not "{config.data_dir}"')
    if not 0 <= config.server.bootstrap_expect <= EXPECT_MAX:
        raise invalid(
            f"configuration: server.bootstrap_expect: {config.server.bootstrap_expect} is not a number of servers; "
            f"it has to be 1, 3, 5 or at most {EXPECT_MAX}"
        )
    if (config.server.etcd.cert_file or config.server.etcd.key_file) and not config.server.etcd.ca_file:
        raise invalid("configuration: server.etcd: cert_file and key_file need a ca_file")
    known = config.client.servers or config.client.server_join
    if config.client.enabled and not config.server.enabled and not known:
        raise invalid('configuration: a client without a server needs `client { servers = ["host:4647"] }`')
    if config.tls.rpc_upgrade_mode:
        raise LepaError(
            "unsupported", "configuration: tls.rpc_upgrade_mode: the internal port speaks TLS to all, or to none"
        )
    for text in config.telemetry.prefix_filter:
        if text[:1] not in ("+", "-"):
            raise invalid(f'configuration: telemetry.prefix_filter: "{text}" has to begin with + or -')
    for name, text in _durations(config):
        seconds(text, name)
    for name, port in to_builtins(config.ports).items():
        if not 0 <= port <= PORT_MAX:
            raise invalid(f"configuration: ports.{name}: {port} is not a port; it has to be 0 to {PORT_MAX}")
    for name, text in _port_lists(config):
        _check_ranges(text, name, PORT_MAX)
    if not 1 <= config.server.job_default_priority <= config.server.job_max_priority <= PRIORITY_MAX:
        raise invalid(
            "configuration: server.job_default_priority has to be at least 1 and at most job_max_priority, and that at "
            f"most {PRIORITY_MAX}"
        )
    for name in ("http_max_conns_per_client", "rpc_max_conns_per_client"):
        if getattr(config.limits, name) < 0:
            raise invalid(f"configuration: limits.{name}: a number of connections, or 0 for any number")
    _check_ranges(config.client.reserved.cores, "client.reserved.cores", CORE_MAX)
    page_settings(config)
    try:
        log_level(config.log_level)
    except ValueError as error:
        raise invalid(f"configuration: log_level: {error}") from error


def _port_lists(config: Config) -> Iterator[tuple[str, str]]:
    yield "client.reserved.reserved_ports", config.client.reserved.reserved_ports
    for name, network in config.client.host_network.items():
        yield f"client.host_network.{name}.reserved_ports", network.reserved_ports


def _check_ranges(text: str, name: str, largest: int) -> None:
    """A text such as "22,80,8000-8010", or "". Raises LepaError(invalid)."""
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        low, dash, high = part.partition("-")
        bounds = [low, high] if dash else [low]
        if not all(bound.isascii() and bound.isdigit() and int(bound) <= largest for bound in bounds):
            raise invalid(f'configuration: {name}: "{part}" is neither a number nor a range up to {largest}')


def _durations(config: Config) -> Iterator[tuple[str, str]]:
    server, client = config.server, config.client
    for name in (
        "heartbeat_grace", "min_heartbeat_ttl", "failover_heartbeat_ttl", "job_gc_interval", "job_gc_threshold",
        "eval_gc_threshold", "batch_eval_gc_threshold", "node_gc_threshold", "deployment_gc_threshold",
        "root_key_rotation_threshold", "root_key_gc_threshold",
    ):  # fmt: skip
        yield f"server.{name}", getattr(server, name)
    yield "server.retry_interval", server.retry_interval
    yield "server.etcd.heartbeat_interval", server.etcd.heartbeat_interval
    yield "server.etcd.election_timeout", server.etcd.election_timeout
    yield "client.max_kill_timeout", client.max_kill_timeout
    yield "client.gc_interval", client.gc_interval
    yield "dns.ttl", config.dns.ttl
    yield "telemetry.collection_interval", config.telemetry.collection_interval
    for name in ("token_min_expiration_ttl", "token_max_expiration_ttl"):
        yield f"acl.{name}", getattr(config.acl, name)
    for name in ("https_handshake_timeout", "rpc_handshake_timeout"):
        yield f"limits.{name}", getattr(config.limits, name)
    for name in ("connect_timeout", "head_timeout", "idle_timeout", "response_timeout", "drain_timeout"):
        yield f"ingress.{name}", getattr(config.ingress, name)
