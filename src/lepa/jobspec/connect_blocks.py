"""Pure: the blocks of Consul Connect (service mesh), as tables."""

from __future__ import annotations

from lepa.jobspec.resource_blocks import IDENTITY, LOGS, RESOURCES, VOLUME_MOUNT
from lepa.jobspec.schema import (
    block,
    boolean,
    duration,
    free,
    integer,
    integers,
    labelled,
    many,
    one,
    string,
    string_map,
    strings,
)

EXPOSE_PATH = block(
    "path",
    string("path", "Path"),
    string("protocol", "Protocol"),
    integer("local_path_port", "LocalPathPort"),
    string("listener_port", "ListenerPort"),
)

EXPOSE = block("expose", many(EXPOSE_PATH, "Paths"))

MESH_GATEWAY = block("mesh_gateway", string("mode", "Mode"))

UPSTREAM = block(
    "upstreams",
    string("destination_name", "DestinationName"),
    string("destination_namespace", "DestinationNamespace"),
    string("destination_peer", "DestinationPeer"),
    string("destination_partition", "DestinationPartition"),
    string("destination_type", "DestinationType"),
    integer("local_bind_port", "LocalBindPort"),
    string("datacenter", "Datacenter"),
    string("local_bind_address", "LocalBindAddress"),
    string("local_bind_socket_path", "LocalBindSocketPath"),
    string("local_bind_socket_mode", "LocalBindSocketMode"),
    one(MESH_GATEWAY, "MeshGateway"),
    free("config", "Config"),
)

TRANSPARENT_PROXY = block(
    "transparent_proxy",
    string("uid", "UID"),
    integer("outbound_port", "OutboundPort"),
    strings("exclude_inbound_ports", "ExcludeInboundPorts"),
    integers("exclude_outbound_ports", "ExcludeOutboundPorts"),
    strings("exclude_outbound_cidrs", "ExcludeOutboundCIDRs"),
    strings("exclude_uids", "ExcludeUIDs"),
    boolean("no_dns", "NoDNS"),
)

PROXY = block(
    "proxy",
    string("local_service_address", "LocalServiceAddress"),
    integer("local_service_port", "LocalServicePort"),
    one(EXPOSE, "Expose"),
    many(UPSTREAM, "Upstreams"),
    one(TRANSPARENT_PROXY, "TransparentProxy"),
    free("config", "Config"),
)

SIDECAR_SERVICE = block(
    "sidecar_service",
    strings("tags", "Tags"),
    string("port", "Port"),
    one(PROXY, "Proxy"),
    boolean("disable_default_tcp_check", "DisableDefaultTCPCheck"),
    string_map("meta", "Meta"),
)

SIDECAR_TASK = block(
    "sidecar_task",
    string("name", "Name"),
    string("driver", "Driver"),
    string("user", "User"),
    free("config", "Config"),
    string_map("env", "Env"),
    one(RESOURCES, "Resources"),
    string_map("meta", "Meta"),
    duration("kill_timeout", "KillTimeout"),
    one(LOGS, "LogConfig"),
    duration("shutdown_delay", "ShutdownDelay"),
    string("kill_signal", "KillSignal"),
    many(VOLUME_MOUNT, "VolumeMounts"),
    many(IDENTITY, "Identities"),
)

BIND_ADDRESS = block(
    "envoy_gateway_bind_addresses",
    string("address", "Address"),
    integer("port", "Port"),
    label="Name",
)

GATEWAY_PROXY = block(
    "proxy",
    duration("connect_timeout", "ConnectTimeout"),
    boolean("envoy_gateway_bind_tagged_addresses", "EnvoyGatewayBindTaggedAddresses"),
    labelled(BIND_ADDRESS, "EnvoyGatewayBindAddresses"),
    boolean("envoy_gateway_no_default_bind", "EnvoyGatewayNoDefaultBind"),
    string("envoy_dns_discovery_type", "EnvoyDNSDiscoveryType"),
    free("config", "Config"),
)

TLS_SDS = block("sds", string("cluster_name", "ClusterName"), string("cert_resource", "CertResource"))

GATEWAY_TLS = block(
    "tls",
    boolean("enabled", "Enabled"),
    string("tls_min_version", "TLSMinVersion"),
    string("tls_max_version", "TLSMaxVersion"),
    strings("cipher_suites", "CipherSuites"),
    one(TLS_SDS, "SDS"),
)

_HEADER_ROWS = (string_map("add", "Add"), string_map("set", "Set"), strings("remove", "Remove"))
REQUEST_HEADERS = block("request_headers", *_HEADER_ROWS)
RESPONSE_HEADERS = block("response_headers", *_HEADER_ROWS)

INGRESS_SERVICE = block(
    "service",
    string("name", "Name"),
    strings("hosts", "Hosts"),
    one(GATEWAY_TLS, "TLS"),
    one(REQUEST_HEADERS, "RequestHeaders"),
    one(RESPONSE_HEADERS, "ResponseHeaders"),
    integer("max_connections", "MaxConnections"),
    integer("max_pending_requests", "MaxPendingRequests"),
    integer("max_concurrent_requests", "MaxConcurrentRequests"),
)

INGRESS_LISTENER = block(
    "listener",
    integer("port", "Port"),
    string("protocol", "Protocol"),
    many(INGRESS_SERVICE, "Services"),
)

INGRESS = block("ingress", one(GATEWAY_TLS, "TLS"), many(INGRESS_LISTENER, "Listeners"))

LINKED_SERVICE = block(
    "service",
    string("name", "Name"),
    string("ca_file", "CAFile"),
    string("cert_file", "CertFile"),
    string("key_file", "KeyFile"),
    string("sni", "SNI"),
)

TERMINATING = block("terminating", many(LINKED_SERVICE, "Services"))

MESH = block("mesh")

GATEWAY = block(
    "gateway",
    one(GATEWAY_PROXY, "Proxy"),
    one(INGRESS, "Ingress"),
    one(TERMINATING, "Terminating"),
    one(MESH, "Mesh"),
)

CONNECT = block(
    "connect",
    boolean("native", "Native"),
    one(GATEWAY, "Gateway"),
    one(SIDECAR_SERVICE, "SidecarService"),
    one(SIDECAR_TASK, "SidecarTask"),
)
