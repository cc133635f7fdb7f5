"""Settings of the control plane. Defaults are Nomad's unless the field says otherwise; *_s are seconds."""

import msgspec

from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration


class GarbageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long what has ended is kept."""

    interval_s: float = 300.0
    """How often to look for garbage."""
    job_s: float = 4 * 3600.0
    """Jobs that are dead, with all that belongs to them."""
    evaluation_s: float = 3600.0
    """Evaluations that have ended, with their allocations."""
    batch_evaluation_s: float = 24 * 3600.0
    """The same for batch jobs, whose allocations say that the work is done."""
    deployment_s: float = 3600.0
    """Deployments that have ended."""
    node_s: float = 24 * 3600.0
    """Nodes that are down."""


class HeartbeatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How soon a silent node counts as down."""

    min_ttl_s: float = 10.0
    """The shortest time to live of a heartbeat."""
    max_per_s: float = 50.0
    """Heartbeats a second that the cluster aims at: with more nodes each has a longer time to live."""
    grace_s: float = 10.0
    """How long after its time to live a node may still be heard of: networks and clients pause."""
    failover_ttl_s: float = 300.0
    """What all nodes get when a server begins to lead: they may not know of it yet."""


class AclSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Access control, the keyring and identities."""

    enabled: bool = False
    token_min_ttl_ns: int = 60 * 1_000_000_000
    """The shortest life of a token that expires."""
    token_max_ttl_ns: int = 24 * 3600 * 1_000_000_000
    """The longest."""
    directory: str = ""
    """Where the file is looked for that allows another bootstrap; "" where it never is."""
    keyring_directory: str = ""
    """Where the key-encryption key is kept; "" keeps it in memory (tests)."""
    shared_secret: str = ""
    """What all servers of the region share, from which the key-encryption key is derived; "" makes one by chance."""
    key_rotation_s: float = 720 * 3600.0
    """How old the active root key may grow."""
    key_gc_s: float = 3600.0
    """How long a root key stays after nothing needs it any more."""
    oidc_issuer: str = ""
    """Whom identities name as their issuer; with it others may discover the public keys."""


class SearchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a search answers with at most."""

    fuzzy_enabled: bool = True
    """Whether names are searched for a text anywhere in them: that looks at every object."""
    limit_query: int = 20
    """Ids of each kind that a search by prefix answers with."""
    limit_results: int = 100
    """Names of each kind that a search by text answers with."""
    min_term_length: int = 2
    """Characters of a text, below which nearly everything would match."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one server is and does."""

    name: str = "server.global"
    region: str = "global"
    datacenter: str = "dc1"
    build: str = ""
    """The version that members see."""
    rpc_address: str = "127.0.0.1:4647"
    """Host and port of the internal port, as others reach it."""
    http_address: str = ""
    """Host and port of the HTTP API, as others reach it."""
    lease_ttl_s: float = 15.0
    """How long a leader that says nothing any more still counts as one."""
    workers: int = 2
    """Evaluations processed at once. Each takes a thread while it computes; more than cores is of no use."""
    scheduler_types: tuple[str, ...] = ("service", "batch", "system", "sysbatch")
    scheduler_defaults: SchedulerConfiguration = SchedulerConfiguration()
    """The scheduler's configuration while nobody has stored one; a leader stores it when it is not the usual one."""
    autopilot_defaults: AutopilotConfiguration = AutopilotConfiguration()
    """How servers look after each other while nobody has stored it; stored in the same way."""
    search: SearchSettings = SearchSettings()
    versions_kept: int = 6
    """Versions of a job that `job history` and `job revert` know."""
    job_default_priority: int = 50
    """Of a job that names none."""
    job_max_priority: int = 100
    job_max_count: int = 50_000
    """Allocations that one job may ask for in all groups."""
    source_bytes_max: int = 1_000_000
    """The largest job text kept beside a job; 0 keeps none."""
    event_batches_max: int = 100
    """Batches of events kept for those who begin to follow later."""
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    garbage: GarbageSettings = GarbageSettings()
    acl: AclSettings = AclSettings()
