"""The server block of the configuration -> the settings of the control plane."""

from lepa.agent.config import Config, seconds
from lepa.server.settings import GarbageSettings, HeartbeatSettings, ServerSettings


def server_settings(config: Config, rpc_address: str, version: str) -> ServerSettings:
    """Settings of this agent's server. rpc_address: where others reach its port. version: what it says it is."""
    server = config.server

    def time(name: str) -> float:
        return seconds(getattr(server, name), f"server.{name}")

    return ServerSettings(
        name=f"{config.name}.{config.region}",
        region=config.region,
        datacenter=config.datacenter,
        build=version,
        rpc_address=rpc_address,
        workers=max(1, server.num_schedulers),
        scheduler_types=tuple(server.enabled_schedulers),
        versions_kept=server.job_tracked_versions,
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
    )
