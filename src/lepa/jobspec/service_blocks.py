"""Pure: the service block and what is in it, as tables."""

from lepa.jobspec import shorthand
from lepa.jobspec.connect_blocks import CONNECT
from lepa.jobspec.resource_blocks import IDENTITY
from lepa.jobspec.schema import (
    block,
    boolean,
    duration,
    integer,
    list_map,
    many,
    one,
    string,
    string_map,
    strings,
)

CHECK_RESTART = block(
    "check_restart",
    integer("limit", "Limit"),
    duration("grace", "Grace"),
    boolean("ignore_warnings", "IgnoreWarnings"),
)

CHECK = block(
    "check",
    string("name", "Name"),
    string("type", "Type"),
    string("command", "Command"),
    strings("args", "Args"),
    string("path", "Path"),
    string("protocol", "Protocol"),
    string("port", "PortLabel"),
    boolean("expose", "Expose"),
    string("address_mode", "AddressMode"),
    string("advertise", "Advertise"),
    duration("interval", "Interval"),
    duration("timeout", "Timeout"),
    string("initial_status", "InitialStatus"),
    string("notes", "Notes"),
    string("tls_server_name", "TLSServerName"),
    boolean("tls_skip_verify", "TLSSkipVerify"),
    list_map("header", "Header"),
    string("method", "Method"),
    one(CHECK_RESTART, "CheckRestart"),
    string("grpc_service", "GRPCService"),
    boolean("grpc_use_tls", "GRPCUseTLS"),
    string("task", "TaskName"),
    integer("success_before_passing", "SuccessBeforePassing"),
    integer("failures_before_critical", "FailuresBeforeCritical"),
    integer("failures_before_warning", "FailuresBeforeWarning"),
    string("body", "Body"),
    string("on_update", "OnUpdate"),
)

WEIGHTS = block("weights", integer("passing", "Passing"), integer("warning", "Warning"))

SERVICE = block(
    "service",
    string("name", "Name"),
    strings("tags", "Tags"),
    strings("canary_tags", "CanaryTags"),
    boolean("enable_tag_override", "EnableTagOverride"),
    string("port", "PortLabel"),
    string("address_mode", "AddressMode"),
    string("address", "Address"),
    many(CHECK, "Checks"),
    one(CHECK_RESTART, "CheckRestart"),
    one(CONNECT, "Connect"),
    string_map("meta", "Meta"),
    string_map("canary_meta", "CanaryMeta"),
    string_map("tagged_addresses", "TaggedAddresses"),
    string("task", "TaskName"),
    string("on_update", "OnUpdate"),
    one(IDENTITY, "Identity"),
    one(WEIGHTS, "Weights"),
    string("provider", "Provider"),
    string("cluster", "Cluster"),
    string("kind", "Kind"),
    finish=shorthand.service,
)
