"""The client block of the configuration -> the settings of this machine's node."""

import ipaddress
from pathlib import Path

from lepa.agent.config import Artifact, Config, Plugin, ShipLogs, Template, seconds, size
from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.client.hooks.template_settings import TemplateSettings
from lepa.client.settings import ClientSettings, OverlaySettings, ReservedSettings
from lepa.client.shipping.settings import ShipSettings, check
from lepa.model.errors import invalid
from lepa.model.node import ClientHostNetworkConfig, ClientHostVolumeConfig


def client_settings(config: Config, data: Path, http_address: str, version: str, *, dev: bool) -> ClientSettings:
    """Settings of the node of this agent. dev: everything stops with the agent."""
    client = config.client
    return ClientSettings(
        directory=Path(client.state_dir) if client.state_dir else data / "client",
        alloc_dir=Path(client.alloc_dir) if client.alloc_dir else data / "alloc",
        name=config.name,
        region=config.region,
        datacenter=config.datacenter,
        node_class=client.node_class,
        node_pool=client.node_pool,
        http_address=http_address,
        meta=client.meta,
        options=client.options,
        plugins={name: plugin.config for name, plugin in _plugins(config, dev=dev).items()},
        reserved=ReservedSettings(
            cpu=client.reserved.cpu,
            memory_mb=client.reserved.memory,
            disk_mb=client.reserved.disk,
            cores=numbers(client.reserved.cores),
            ports=client.reserved.reserved_ports,
        ),
        cpu_mhz=client.cpu_total_compute,
        memory_mb=client.memory_total_mb,
        disk_mb=client.disk_total_mb,
        network_interface=client.network_interface or ("lo" if dev else ""),
        network_speed_mbits=client.network_speed,
        min_dynamic_port=client.min_dynamic_port,
        max_dynamic_port=client.max_dynamic_port,
        host_volumes=tuple(
            ClientHostVolumeConfig(name=name, path=volume.path, read_only=volume.read_only)
            for name, volume in client.host_volume.items()
        ),
        host_volumes_path=Path(client.host_volumes_dir or data / "host_volumes"),
        host_volume_plugin_path=Path(client.host_volume_plugin_dir or data / "host_volume_plugins"),
        host_networks=tuple(
            ClientHostNetworkConfig(
                name=name, cidr=network.cidr, interface=network.interface, reserved_ports=network.reserved_ports
            )
            for name, network in client.host_network.items()
        ),
        cloud_metadata_url=client.cloud_metadata_url,
        max_kill_timeout_s=seconds(client.max_kill_timeout, "client.max_kill_timeout"),
        gc_interval_s=seconds(client.gc_interval, "client.gc_interval"),
        gc_allocs_max=client.gc_max_allocs,
        gc_disk_usage_percent=client.gc_disk_usage_threshold,
        templates=_templates(client.template),
        artifacts=_artifacts(client.artifact),
        ship_logs=tuple(_receiver(name, receiver) for name, receiver in client.ship_logs.items()),
        gc_inode_usage_percent=client.gc_inode_usage_threshold,
        gc_parallel_destroys=max(1, client.gc_parallel_destroys),
        exec_allowed=not client.disable_remote_exec,
        cni_path=client.cni_path,
        cni_config_dir=client.cni_config_dir,
        bridge_name=client.bridge_network_name,
        bridge_subnet=client.bridge_network_subnet,
        bridge_subnet_ipv6=client.bridge_network_subnet_ipv6,
        bridge_hairpin=client.bridge_network_hairpin_mode,
        bind_wildcard=client.bind_wildcard_default_host_network,
        dns_port=_reachable_dns(config),
        overlays=tuple(
            OverlaySettings(
                name=name,
                pool=overlay.pool,
                subnet_prefix=overlay.subnet_prefix,
                vni=overlay.vni,
                port=overlay.port,
                encrypted=overlay.encrypted,
            )
            for name, overlay in client.overlay.items()
        ),
        allocs_max=client.node_max_allocs,
        exit_with_agent=dev,
        version=version,
    )


def _templates(wanted: Template) -> TemplateSettings:
    """How templates are rendered. Raises LepaError(invalid) for what is no time."""

    def of(value: str, name: str, default: str) -> float:
        return seconds(value or default, f"client.template.{name}")

    return TemplateSettings(
        denied=wanted.function_denylist,
        file_sandbox=not wanted.disable_file_sandbox,
        quiet_s=of(wanted.wait.min, "wait.min", "5s"),
        quiet_max_s=of(wanted.wait.max, "wait.max", "4m"),
        bounds_s=(
            of(wanted.wait_bounds.min, "wait_bounds.min", "0s"),
            of(wanted.wait_bounds.max, "wait_bounds.max", "24h"),
        ),
        query_s=of(wanted.block_query_wait, "block_query_wait", "5m"),
        attempts=wanted.nomad_retry.attempts,
        backoff_s=of(wanted.nomad_retry.backoff, "nomad_retry.backoff", "250ms"),
        backoff_max_s=of(wanted.nomad_retry.max_backoff, "nomad_retry.max_backoff", "1m"),
    )


def _artifacts(wanted: Artifact) -> ArtifactSettings:
    """Limits of artifacts. Raises LepaError(invalid) for what is no network, size or time."""
    where = "client.artifact."
    for network in wanted.denied_networks:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise invalid(f"configuration: {where}denied_networks: {error}") from error
    return ArtifactSettings(
        http_s=seconds(wanted.http_read_timeout, f"{where}http_read_timeout"),
        http_bytes_max=size(wanted.http_max_size, f"{where}http_max_size"),
        git_s=seconds(wanted.git_timeout, f"{where}git_timeout"),
        hg_s=seconds(wanted.hg_timeout, f"{where}hg_timeout"),
        files_max=wanted.decompression_file_count_limit,
        unpacked_bytes_max=size(wanted.decompression_size_limit, f"{where}decompression_size_limit"),
        environment=tuple(filter(None, (name.strip() for name in wanted.set_environment_variables.split(",")))),
        denied_networks=wanted.denied_networks,
        local_git=wanted.allow_local_git,
    )


def _receiver(name: str, wanted: ShipLogs) -> ShipSettings:
    """A receiver of what tasks write. Raises LepaError(invalid) for settings that make none."""
    return check(
        ShipSettings(
            name=name,
            type=wanted.type,
            address=wanted.address,
            jobs=wanted.jobs,
            namespaces=wanted.namespaces,
            streams=wanted.streams,
            opt_in=wanted.opt_in,
            labels=wanted.labels,
            facility=wanted.facility,
            tag=wanted.tag,
            headers=wanted.headers,
            timeout_s=seconds(wanted.timeout, f"client.ship_logs.{name}.timeout"),
        )
    )


def _plugins(config: Config, *, dev: bool) -> dict[str, Plugin]:
    """Settings of drivers; for development raw_exec is on unless the configuration says otherwise."""
    plugins = dict(config.plugin)
    if dev and "raw_exec" not in plugins:
        plugins["raw_exec"] = Plugin(config={"enabled": True})
    enabled = config.client.options.get("driver.raw_exec.enable", "").lower() in {"1", "true"}
    if enabled and "raw_exec" not in plugins:
        plugins["raw_exec"] = Plugin(config={"enabled": True})
    return plugins


def _reachable_dns(config: Config) -> int:
    """The port of this agent's DNS when it listens on every address, so that namespaces reach it; else 0."""
    everywhere = (config.addresses.dns or config.bind_addr) in ("0.0.0.0", "::")
    return config.ports.dns if config.dns.enabled and everywhere else 0


def numbers(text: str) -> tuple[int, ...]:
    """Numbers of a text such as "0,2-4"."""
    found: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
