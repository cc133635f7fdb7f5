"""The server block of the configuration -> the settings of the control plane."""

from typing import Final

from msgspec import structs

from lepa.agent.addresses import advertised_http, advertised_rpc
from lepa.agent.config import Autopilot, Config, SchedulerDefaults, seconds
from lepa.agent.store_settings import server_folder
from lepa.kit.durations import parse_duration
from lepa.model.errors import LepaError, invalid
from lepa.model.operator import (
    AutopilotConfiguration,
    PreemptionConfig,
    SchedulerConfiguration,
    canonical_autopilot,
)
from lepa.server.settings import AclSettings, GarbageSettings, HeartbeatSettings, SearchSettings, ServerSettings

SHARED_LEASE_TTL_S: Final = 3.0
"""How long a leader that says nothing still counts as one, where others may lead."""
LONE_LEASE_TTL_S: Final = 15.0
KEYRING_FOLDER: Final = "keyring"
SEARCH_MAX: Final = 10_000
"""Matches of one kind that a search may be told to answer with."""


def server_settings(config: Config, version: str, *, several: bool) -> ServerSettings:
    """Settings of this agent's server. version: what it says it is. several: others may have the same store."""
    server = config.server

    def time(name: str) -> float:
        return seconds(getattr(server, name), f"server.{name}")

    return ServerSettings(
        name=f"{config.name}.{config.region}",
        region=config.region,
        datacenter=config.datacenter,
        build=version,
        rpc_address=advertised_rpc(config),
        http_address=advertised_http(config, (config.addresses.http or config.bind_addr).split()[0]),
        lease_ttl_s=SHARED_LEASE_TTL_S if several else LONE_LEASE_TTL_S,
        workers=max(1, server.num_schedulers),
        scheduler_types=tuple(server.enabled_schedulers),
        search=SearchSettings(
            fuzzy_enabled=server.search.fuzzy_enabled,
            limit_query=_bounded(server.search.limit_query, 1, SEARCH_MAX, "limit_query"),
            limit_results=_bounded(server.search.limit_results, 1, SEARCH_MAX, "limit_results"),
            min_term_length=_bounded(server.search.min_term_length, 1, SEARCH_MAX, "min_term_length"),
        ),
        scheduler_defaults=_scheduler(server.default_scheduler_config),
        autopilot_defaults=_autopilot(config.autopilot),
        versions_kept=server.job_tracked_versions,
        job_default_priority=server.job_default_priority,
        job_max_priority=server.job_max_priority,
        job_max_count=server.job_max_count,
        event_batches_max=server.event_buffer_size,
        heartbeat=HeartbeatSettings(
            min_ttl_s=time("min_heartbeat_ttl"),
            max_per_s=server.max_heartbeats_per_second,
            grace_s=time("heartbeat_grace"),
            failover_ttl_s=time("failover_heartbeat_ttl"),
        ),
        garbage=GarbageSettings(
            interval_s=time("job_gc_interval"),
            job_s=time("job_gc_threshold"),
            evaluation_s=time("eval_gc_threshold"),
            batch_evaluation_s=time("batch_eval_gc_threshold"),
            deployment_s=time("deployment_gc_threshold"),
            node_s=time("node_gc_threshold"),
        ),
        acl=acl_settings(config),
    )


def acl_settings(config: Config) -> AclSettings:
    """Settings of access control and of the keyring."""
    acl, server, directory = config.acl, config.server, server_folder(config)
    return AclSettings(
        enabled=acl.enabled,
        token_min_ttl_ns=parse_duration(acl.token_min_expiration_ttl),
        token_max_ttl_ns=parse_duration(acl.token_max_expiration_ttl),
        directory=str(directory),
        keyring_directory=str(directory / KEYRING_FOLDER),
        shared_secret=server.encrypt,
        key_rotation_s=seconds(server.root_key_rotation_threshold, "server.root_key_rotation_threshold"),
        key_gc_s=seconds(server.root_key_gc_threshold, "server.root_key_gc_threshold"),
        oidc_issuer=server.oidc_issuer,
    )


def _scheduler(defaults: SchedulerDefaults) -> SchedulerConfiguration:
    """Settings of the scheduler from the configuration file, whose keys Nomad spells in small letters."""
    if defaults.scheduler_algorithm not in ("binpack", "spread"):
        raise invalid(
            "configuration: server.default_scheduler_config.scheduler_algorithm: "
            f'"{defaults.scheduler_algorithm}" is neither binpack nor spread'
        )
    return SchedulerConfiguration(
        scheduler_algorithm=defaults.scheduler_algorithm,
        memory_oversubscription_enabled=defaults.memory_oversubscription_enabled,
        reject_job_registration=defaults.reject_job_registration,
        pause_eval_broker=defaults.pause_eval_broker,
        preemption_config=PreemptionConfig(
            system_scheduler_enabled=defaults.preemption_config.get("system_scheduler_enabled", True),
            sys_batch_scheduler_enabled=defaults.preemption_config.get("sysbatch_scheduler_enabled", False),
            batch_scheduler_enabled=defaults.preemption_config.get("batch_scheduler_enabled", False),
            service_scheduler_enabled=defaults.preemption_config.get("service_scheduler_enabled", False),
        ),
    )


def _autopilot(block: Autopilot) -> AutopilotConfiguration:
    try:
        return canonical_autopilot(AutopilotConfiguration(**structs.asdict(block)))
    except LepaError as error:
        raise invalid(f"configuration: {error.message}") from error


def _bounded(value: int, least: int, most: int, name: str) -> int:
    if not least <= value <= most:
        raise invalid(f"configuration: server.search.{name}: {value} is not between {least} and {most}")
    return value
