"""The settings of an agent as one typed tree. Keys are Nomad's, so its configuration files can be used.

Durations are texts such as "30s", sizes such as "100GB". What of it is refused or doubted is in `config_loader`.
"""

import re
from typing import Annotated, Any, Literal

import msgspec

from lepa.api.page_policy import POLICY
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import invalid

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


class Autopilot(Section, frozen=True):
    """How servers look after each other while nobody has stored it otherwise (`operator autopilot set-config`)."""

    cleanup_dead_servers: bool = False
    last_contact_threshold: str = "200ms"
    max_trailing_logs: int = 250
    min_quorum: int = 0
    server_stabilization_time: str = "10s"
    enable_redundancy_zones: bool = False
    disable_upgrade_migration: bool = False
    enable_custom_upgrades: bool = False


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
    autopilot: Autopilot = Autopilot()
    ui: Ui = Ui()
    limits: Limits = Limits()
    rpc: dict[str, Any] = {}
    plugin_dir: str = ""
    disable_update_check: bool = True
    disable_anonymous_signature: bool = True
    enable_syslog: bool = False
    syslog_facility: str = "LOCAL0"


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
