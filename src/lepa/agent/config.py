"""The settings of an agent as one typed tree. Keys are Nomad's, so its configuration files can be used.

Unknown keys are errors that name the nearest known one. Durations are texts such as "30s". Blocks for things that this
agent does not do (yet) are refused when they ask for something that would silently be missing (access control, TLS),
and listed in a warning when leaving them out harms nobody.
"""

import difflib
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import structs

from lepa.agent import config_file
from lepa.api.pages import POLICY, PageSettings
from lepa.kit.durations import SECOND, parse_duration
from lepa.kit.telemetry import log_level
from lepa.model.errors import LepaError, invalid
from lepa.model.wire import to_builtins

PORT_MAX = 65_535
PRIORITY_MAX = 32_766
CORE_MAX = 4_095
EXPECT_MAX = 9

Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]
"""A text that nobody is shown."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of settings."""


class Ports(Section, frozen=True):
    """Ports that are listened on. serf: for gossip between servers. 0 picks a free port.

    etcd and etcd_peer: of the etcd beside one of several servers, for servers' calls and for its members.
    """

    http: int = 4646
    rpc: int = 4647
    serf: int = 4648
    dns: int = 8600
    etcd: int = 4649
    etcd_peer: int = 4650


class Addresses(Section, frozen=True):
    """Addresses that are listened on; "" takes bind_addr. http may list several, separated by blanks."""

    http: str = ""
    rpc: str = ""
    serf: str = ""
    dns: str = ""


class SchedulerDefaults(Section, frozen=True):
    """The scheduler's configuration while nobody has stored one."""

    scheduler_algorithm: str = "binpack"
    memory_oversubscription_enabled: bool = False
    reject_job_registration: bool = False
    pause_eval_broker: bool = False
    preemption_config: dict[str, bool] = {}


class Etcd(Section, frozen=True):
    """Where several servers keep their state. endpoints: of an etcd that somebody else runs, `host:port`; none: each
    server runs an etcd of its own, the program `binary`. The files are certificates in PEM. prefix: of all keys.
    """

    endpoints: tuple[str, ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    prefix: str = "lepa/"
    binary: str = "etcd"
    heartbeat_interval: str = "100ms"
    election_timeout: str = "1s"


class Search(Section, frozen=True):
    """What a search answers with at most: ids of each kind by prefix, names of each kind by a text in them."""

    fuzzy_enabled: bool = True
    limit_query: int = 20
    limit_results: int = 100
    min_term_length: int = 2


class Server(Section, frozen=True):
    """The server part. Thresholds say how long ended things are kept."""

    enabled: bool = False
    bootstrap_expect: int = 0
    data_dir: str = ""
    etcd: Etcd = Etcd()
    num_schedulers: int = 1
    enabled_schedulers: tuple[str, ...] = ("service", "batch", "system", "sysbatch")
    heartbeat_grace: str = "10s"
    min_heartbeat_ttl: str = "10s"
    max_heartbeats_per_second: float = 50.0
    failover_heartbeat_ttl: str = "5m"
    job_gc_interval: str = "5m"
    job_gc_threshold: str = "4h"
    eval_gc_threshold: str = "1h"
    batch_eval_gc_threshold: str = "24h"
    node_gc_threshold: str = "24h"
    deployment_gc_threshold: str = "1h"
    event_buffer_size: int = 100
    job_default_priority: int = 50
    job_max_priority: int = 100
    job_max_count: int = 50_000
    job_tracked_versions: int = 6
    default_scheduler_config: SchedulerDefaults = SchedulerDefaults()
    encrypt: Secret = ""
    gossip_profile: Literal["wan", "lan", "local"] = "wan"
    retry_join: tuple[str, ...] = ()
    retry_max: int = 0
    retry_interval: str = "30s"
    start_join: tuple[str, ...] = ()
    server_join: dict[str, Any] = {}
    rejoin_after_leave: bool = False
    search: Search = Search()
    root_key_rotation_threshold: str = "720h"
    root_key_gc_threshold: str = "1h"
    oidc_issuer: str = ""
    raft_protocol: int = 3


class Reserved(Section, frozen=True):
    """Kept from jobs: MHz, MiB, ports such as "22,80,8000-9000"."""

    cpu: int = 0
    memory: int = 0
    disk: int = 0
    cores: str = ""
    reserved_ports: str = ""


class HostVolume(Section, frozen=True):
    """A directory that jobs may mount."""

    path: str
    read_only: bool = False


class HostNetwork(Section, frozen=True):
    """A network that ports may bind to."""

    cidr: str = ""
    interface: str = ""
    reserved_ports: str = ""


class Overlay(Section, frozen=True):
    """An overlay network that this node takes part in. vni 0 makes one of the name."""

    pool: str
    subnet_prefix: int = 24
    vni: int = 0
    port: int = 4789
    encrypted: bool = False


class Wait(Section, frozen=True):
    """The least and the most of a wait."""

    min: str = ""
    max: str = ""


class Retry(Section, frozen=True):
    """How often something is tried again (0: for ever), and the pauses between."""

    attempts: int = 12
    backoff: str = "250ms"
    max_backoff: str = "1m"


class Template(Section, frozen=True):
    """How templates are rendered."""

    function_denylist: tuple[str, ...] = ("executeTemplate", "plugin", "writeToFile")
    disable_file_sandbox: bool = False
    block_query_wait: str = "5m"
    wait: Wait = Wait(min="5s", max="4m")
    wait_bounds: Wait = Wait(min="0s", max="24h")
    nomad_retry: Retry = Retry()
    consul_retry: Retry = Retry()
    vault_retry: Retry = Retry()
    max_stale: str = "87600h"
    vault_default_lease_duration: str = "5m"


class Artifact(Section, frozen=True):
    """What artifacts may cost and where they may come from; sizes such as "100GB", in powers of 1,000."""

    http_read_timeout: str = "30m"
    http_max_size: str = "100GB"
    gcs_timeout: str = "30m"
    git_timeout: str = "30m"
    hg_timeout: str = "30m"
    s3_timeout: str = "30m"
    decompression_size_limit: str = "100GB"
    decompression_file_count_limit: int = 4096
    disable_artifact_inspection: bool = False
    disable_filesystem_isolation: bool = False
    filesystem_isolation_extra_paths: tuple[str, ...] = ()
    set_environment_variables: str = ""
    denied_networks: tuple[str, ...] = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
    allow_local_git: bool = False


class ShipLogs(Section, frozen=True):
    """A receiver of what tasks write."""

    type: str
    address: str
    jobs: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    streams: tuple[str, ...] = ("stdout", "stderr")
    opt_in: bool = False
    labels: dict[str, str] = {}
    facility: str = "local0"
    tag: str = "lepa"
    headers: dict[str, Secret] = {}
    timeout: str = "10s"


class Client(Section, frozen=True):
    """The client part: this machine as a node."""

    enabled: bool = False
    servers: tuple[str, ...] = ()
    server_join: dict[str, Any] = {}
    node_class: str = ""
    node_pool: str = "default"
    meta: dict[str, str] = {}
    options: dict[str, str] = {}
    state_dir: str = ""
    alloc_dir: str = ""
    network_interface: str = ""
    network_speed: int = 0
    cpu_total_compute: int = 0
    memory_total_mb: int = 0
    disk_total_mb: int = 0
    disk_free_mb: int = 0
    reserved: Reserved = Reserved()
    min_dynamic_port: int = 20_000
    max_dynamic_port: int = 32_000
    max_kill_timeout: str = "30s"
    gc_interval: str = "1m"
    gc_max_allocs: int = 50
    gc_disk_usage_threshold: float = 80.0
    gc_inode_usage_threshold: float = 70.0
    gc_parallel_destroys: int = 2
    node_max_allocs: int = 0
    cloud_metadata_url: str = ""
    host_volume: dict[str, HostVolume] = {}
    host_volumes_dir: str = ""
    host_volume_plugin_dir: str = ""
    host_network: dict[str, HostNetwork] = {}
    ship_logs: dict[str, ShipLogs] = {}
    default_ineligible: bool = False
    no_host_uuid: bool = True
    disable_remote_exec: bool = False
    nomad_service_discovery: bool = True
    overlay: dict[str, Overlay] = {}
    cni_path: str = "/opt/cni/bin:/usr/lib/cni"
    cni_config_dir: str = "/opt/cni/config"
    bridge_network_name: str = "lepa"
    bridge_network_subnet: str = "172.26.64.0/20"
    bridge_network_subnet_ipv6: str = ""
    bridge_network_hairpin_mode: bool = False
    bind_wildcard_default_host_network: bool = True
    chroot_env: dict[str, str] = {}
    template: Template = Template()
    artifact: Artifact = Artifact()
    drain_on_shutdown: dict[str, Any] | None = None


class Acl(Section, frozen=True):
    """Who may do what. The lives of tokens are for tokens that expire. policy_ttl, role_ttl, token_ttl: taken for the
    sake of Nomad's files; rights are worked out anew for each call here."""

    enabled: bool = False
    token_ttl: str = "30s"
    policy_ttl: str = "30s"
    role_ttl: str = "30s"
    token_min_expiration_ttl: str = "1m"
    token_max_expiration_ttl: str = "24h"
    replication_token: Secret = ""


class Dns(Section, frozen=True):
    """Names of services by DNS. recursors: servers for other domains, `ip` or `ip:port`. ttl: of answers."""

    enabled: bool = True
    domains: tuple[str, ...] = ("consul.", "lepa.")
    recursors: tuple[str, ...] = ()
    ttl: str = "0s"


class Ingress(Section, frozen=True):
    """Traffic from outside to services by their tags. Ports: 0 for none. address "" takes bind_addr, ui_address ""
    takes address. names: services as which DNS shows this ingress. The rest is explained in docs/reference/ingress.md.
    """

    enabled: bool = False
    address: str = ""
    ui_address: str = ""
    names: tuple[str, ...] = ("ingress", "fabio")
    http: int = 9999
    https: int = 0
    ui: int = 9998
    sni: int = 0
    tcp: tuple[str, ...] = ()
    dynamic: bool = True
    certificates: tuple[str, ...] = ()
    redirect_https: bool = False
    tag_prefix: str = "urlprefix-"
    matcher: Literal["prefix", "iprefix", "glob"] = "prefix"
    strategy: Literal["rr", "rnd", "lc"] = "rr"
    no_route_status: int = 404
    proxy_protocol: bool = False
    entrypoints: dict[str, str] = {}
    auth: dict[str, str] = {}
    access_log: str = ""
    access_format: str = "common"
    close_on_leave: bool = True
    connect_timeout: str = "5s"
    head_timeout: str = "10s"
    idle_timeout: str = "60s"
    response_timeout: str = "11m"
    drain_timeout: str = "5s"
    connections_max: int = 10_000


class ConsulApi(Section, frozen=True):
    """Consul's HTTP API for its clients. address "" takes bind_addr; port 0 is any free one."""

    enabled: bool = False
    address: str = ""
    port: int = 8500


class Plugin(Section, frozen=True):
    """Settings of one driver."""

    config: dict[str, Any] = {}
    args: tuple[str, ...] = ()


class Tls(Section, frozen=True):
    """`tls`: encryption, and who may speak to whom. Files are PEM.

    http: the HTTP API speaks TLS. rpc: the internal port speaks TLS, and both sides show certificates.
    verify_server_hostname: the names in them say what a peer may be, `server.REGION.nomad` or `client.REGION.nomad`.
    verify_https_client: callers of the HTTP API must show a certificate of ca_file. tls_cipher_suites: names of TLS
    1.2, by commas. tls_min_version: tls12 or tls13.
    """

    http: bool = False
    rpc: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify_server_hostname: bool = False
    verify_https_client: bool = False
    rpc_upgrade_mode: bool = False
    tls_cipher_suites: str = ""
    tls_min_version: str = "tls12"
    tls_prefer_server_cipher_suites: bool = False


class Limits(Section, frozen=True):
    """`limits`: what one address may hold of the HTTP API and of the internal port; 0 is without a limit.

    A connection that has not finished its TLS handshake, and then its first request, within the timeout is closed.
    Nodes and servers use a connection for every call that waits: the internal port lets them have more than Nomad's.
    """

    https_handshake_timeout: str = "5s"
    http_max_conns_per_client: int = 100
    rpc_handshake_timeout: str = "5s"
    rpc_max_conns_per_client: int = 1000


class Label(Section, frozen=True):
    """A short text on every page, to tell clusters apart. Colours are CSS's: a name, or # and digits."""

    text: str = ""
    background_color: str = ""
    text_color: str = ""


class ContentSecurityPolicy(Section, frozen=True):
    """Where the pages' browser may load things from: lists of sources; an empty one leaves its line out."""

    connect_src: tuple[str, ...] = POLICY["connect-src"]
    default_src: tuple[str, ...] = POLICY["default-src"]
    form_action: tuple[str, ...] = POLICY["form-action"]
    frame_ancestors: tuple[str, ...] = POLICY["frame-ancestors"]
    img_src: tuple[str, ...] = POLICY["img-src"]
    script_src: tuple[str, ...] = POLICY["script-src"]
    style_src: tuple[str, ...] = POLICY["style-src"]


class Ui(Section, frozen=True):
    """The pages for a browser, at /ui/ of the HTTP API. consul, vault: links to other pages, which are not shown."""

    enabled: bool = True
    label: Label = Label()
    content_security_policy: ContentSecurityPolicy = ContentSecurityPolicy()
    show_cli_hints: bool = True
    consul: dict[str, Any] = {}
    vault: dict[str, Any] = {}


class Telemetry(Section, frozen=True):
    """Metrics. Where they are not sent anywhere, /v1/metrics shows them."""

    prometheus_metrics: bool = True
    collection_interval: str = "1s"
    publish_allocation_metrics: bool = False
    publish_node_metrics: bool = False
    disable_dispatched_job_summary_metrics: bool = False
    in_memory_collection_interval: str = "10s"
    in_memory_retention_period: str = "1m"
    disable_hostname: bool = False
    use_node_name: bool = False
    filter_default: bool = True
    prefix_filter: tuple[str, ...] = ()
    include_alloc_metadata_in_metrics: bool = False
    allowed_metadata_keys_in_metrics: tuple[str, ...] = ()
    disable_allocation_hook_metrics: bool = False
    disable_rpc_rate_metrics_labels: bool = False
    statsd_address: str = ""
    statsite_address: str = ""
    datadog_address: str = ""
    datadog_tags: tuple[str, ...] = ()


class Config(Section, frozen=True):
    """An agent. name "" is the host's name."""

    region: str = "global"
    datacenter: str = "dc1"
    name: str = ""
    data_dir: str = ""
    bind_addr: str = "0.0.0.0"
    ports: Ports = Ports()
    addresses: Addresses = Addresses()
    advertise: dict[str, str] = {}
    log_level: str = "INFO"
    log_json: bool = False
    log_file: str = ""
    enable_debug: bool = False
    leave_on_interrupt: bool = False
    leave_on_terminate: bool = False
    http_api_response_headers: dict[str, str] = {}
    server: Server = Server()
    client: Client = Client()
    dns: Dns = Dns()
    consul_api: ConsulApi = ConsulApi()
    ingress: Ingress = Ingress()
    plugin: dict[str, Plugin] = {}
    telemetry: Telemetry = Telemetry()
    acl: Acl = Acl()
    tls: Tls = Tls()
    consul: dict[str, Any] = {}
    vault: dict[str, Any] = {}
    autopilot: dict[str, Any] = {}
    ui: Ui = Ui()
    limits: Limits = Limits()
    rpc: dict[str, Any] = {}
    plugin_dir: str = ""
    disable_update_check: bool = True
    disable_anonymous_signature: bool = True
    enable_syslog: bool = False
    syslog_facility: str = "LOCAL0"


IGNORED = (
    "consul", "vault", "autopilot", "rpc", "enable_syslog", "plugin_dir", "ui.show_cli_hints", "ui.consul",
    "ui.vault",
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


LABEL_MAX = 64
_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]*")
_SOURCE = re.compile(r"[^\s;,]+")


def page_settings(config: Config) -> PageSettings:
    """Settings of the pages for a browser. Raises LepaError(invalid)."""
    label = config.ui.label
    if len(label.text) > LABEL_MAX:
        raise invalid(f"configuration: ui.label.text: {len(label.text)} characters; at most {LABEL_MAX} are shown")
    for name in ("background_color", "text_color"):
        if not _COLOR.fullmatch(getattr(label, name)):
            raise invalid(
                f'configuration: ui.label.{name}: "{getattr(label, name)}" is no colour such as "#aa0000" or "darkred"'
            )
    given = {name.replace("_", "-"): value for name, value in structs.asdict(config.ui.content_security_policy).items()}
    for name, sources in given.items():
        for source in sources:
            if not _SOURCE.fullmatch(source):
                raise invalid(f'configuration: ui.content_security_policy: "{source}" of {name} is not one source')
    return PageSettings(
        enabled=config.ui.enabled,
        label=label.text,
        label_background=label.background_color,
        label_color=label.text_color,
        policy={**POLICY, **given},
    )


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


def seconds(text: str, name: str) -> float:
    """Seconds of a duration text. Raises LepaError(invalid) that names the setting."""
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid(f"configuration: {name}: {error}") from error


_SIZE = re.compile(r"(\d+)\s*([kKMGT]?)(i?)B?")


def size(text: str, name: str) -> int:
    """Bytes of a text such as "100GB", "512MiB" or "1000". Raises LepaError(invalid)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise invalid(f'configuration: {name}: "{text}" is not a size such as "100GB"')
    base = 1024 if match[3] else 1000
    power: int = base ** ["", "K", "M", "G", "T"].index(match[2].upper())
    return int(match[1]) * power


REDACTED = "<redacted>"
SECRET_NAMES = ("auth", "encrypt", "key", "password", "secret", "secret_id", "token")
"""Of texts in blocks whose settings are not known here (`vault`, those of drivers); also how such a name may end."""
_USER = re.compile(r"(?<=://)[^/?#\s]*@")


def shown(config: Config) -> dict[str, Any]:
    """The tree as /v1/agent/self shows it, without secrets: the settings that are said to be some, what is called so
    where settings are not known, and names and passwords in URLs."""
    found = _redacted(to_builtins(config), msgspec.inspect.type_info(Config))
    assert isinstance(found, dict)
    return found


def _redacted(value: Any, known: msgspec.inspect.Type) -> Any:
    """Builtins of a known type without its secrets."""
    if isinstance(known, msgspec.inspect.Metadata) and (known.extra or {}).get("secret"):
        return REDACTED if value else value
    if isinstance(known, msgspec.inspect.StructType):
        kinds = {field.encode_name: field.type for field in known.fields}
        return {key: _redacted(item, kinds[key]) for key, item in value.items()}
    if isinstance(known, msgspec.inspect.DictType) and not isinstance(known.value_type, msgspec.inspect.AnyType):
        return {key: _redacted(item, known.value_type) for key, item in value.items()}
    return _unnamed(value)


def _unnamed(value: Any) -> Any:
    """Builtins without what is called a secret."""
    if isinstance(value, dict):
        return {
            key: REDACTED if item and isinstance(item, str) and _called_secret(key) else _unnamed(item)
            for key, item in value.items()
        }
    if isinstance(value, str):
        return _USER.sub(f"{REDACTED}@", value)
    return [_unnamed(item) for item in value] if isinstance(value, list | tuple) else value


def _called_secret(name: str) -> bool:
    return any(name.lower() == word or name.lower().endswith(f"_{word}") for word in SECRET_NAMES)
