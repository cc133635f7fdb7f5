"""Pure: the blocks about placement, resources and mounts that tasks, groups and sidecars share, as tables."""

from lepa.jobspec import shorthand
from lepa.jobspec.schema import (
    block,
    boolean,
    duration,
    free,
    integer,
    many,
    one,
    string,
    string_map,
    strings,
)

_COMPARISON_ROWS = (
    string("attribute", "LTarget"),
    string("value", "RTarget"),
    string("operator", "Operand"),
    string("version", "version"),
    string("semver", "semver"),
    string("regexp", "regexp"),
    string("set_contains", "set_contains"),
)

CONSTRAINT = block(
    "constraint",
    *_COMPARISON_ROWS,
    string("set_contains_any", "set_contains_any"),
    string("set_contains_all", "set_contains_all"),
    boolean("distinct_hosts", "distinct_hosts"),
    string("distinct_property", "distinct_property"),
    finish=shorthand.comparison,
)

AFFINITY = block(
    "affinity",
    *_COMPARISON_ROWS,
    string("set_contains_any", "set_contains_any"),
    string("set_contains_all", "set_contains_all"),
    integer("weight", "Weight"),
    finish=shorthand.comparison,
)

SPREAD_TARGET = block("target", integer("percent", "Percent"), label="Value")

SPREAD = block(
    "spread",
    string("attribute", "Attribute"),
    integer("weight", "Weight"),
    many(SPREAD_TARGET, "SpreadTarget"),
)

PORT = block(
    "port",
    integer("static", "Value"),
    integer("to", "To"),
    string("host_network", "HostNetwork"),
    boolean("ignore_collision", "IgnoreCollision"),
    label="Label",
)

DNS = block("dns", strings("servers", "Servers"), strings("searches", "Searches"), strings("options", "Options"))

CNI = block("cni", string_map("args", "Args"))

NETWORK = block(
    "network",
    string("mode", "Mode"),
    string("device", "Device"),
    string("cidr", "CIDR"),
    string("ip", "IP"),
    string("hostname", "Hostname"),
    integer("mbits", "MBits"),
    one(DNS, "DNS"),
    one(CNI, "CNI"),
    many(PORT, "port"),
    finish=shorthand.network,
)

DEVICE = block(
    "device",
    integer("count", "Count"),
    many(CONSTRAINT, "Constraints"),
    many(AFFINITY, "Affinities"),
    label="Name",
)

NUMA = block("numa", string("affinity", "Affinity"), strings("devices", "Devices"))

RESOURCES = block(
    "resources",
    integer("cpu", "CPU"),
    integer("cores", "Cores"),
    integer("memory", "MemoryMB"),
    integer("memory_max", "MemoryMaxMB"),
    integer("disk", "DiskMB"),
    integer("secrets", "SecretsMB"),
    integer("iops", "IOPS"),
    many(NETWORK, "Networks"),
    many(DEVICE, "Devices"),
    one(NUMA, "NUMA"),
)

LOG_SHIP = block(
    "ship",
    string("type", "Type"),
    string("address", "Address"),
    strings("streams", "Streams"),
    string_map("labels", "Labels"),
    string("facility", "Facility"),
    string("tag", "Tag"),
    string_map("headers", "Headers"),
    duration("timeout", "Timeout"),
    label="Name",
)

LOGS = block(
    "logs",
    integer("max_files", "MaxFiles"),
    integer("max_file_size", "MaxFileSizeMB"),
    boolean("enabled", "Enabled"),
    boolean("disabled", "Disabled"),
    many(LOG_SHIP, "Ship"),
)

VOLUME_MOUNT = block(
    "volume_mount",
    string("volume", "Volume"),
    string("destination", "Destination"),
    boolean("read_only", "ReadOnly"),
    string("propagation_mode", "PropagationMode"),
    string("selinux_label", "SELinuxLabel"),
)

IDENTITY = block(
    "identity",
    string("name", "Name"),
    strings("aud", "Audience"),
    string("change_mode", "ChangeMode"),
    string("change_signal", "ChangeSignal"),
    boolean("env", "Env"),
    boolean("file", "File"),
    string("filepath", "Filepath"),
    string("service_name", "ServiceName"),
    duration("ttl", "TTL"),
    strings("extra_claims", "ExtraClaims"),
)

RESTART = block(
    "restart",
    duration("interval", "Interval"),
    integer("attempts", "Attempts"),
    duration("delay", "Delay"),
    string("mode", "Mode"),
    boolean("render_templates", "RenderTemplates"),
)

VAULT = block(
    "vault",
    strings("policies", "Policies"),
    string("role", "Role"),
    string("namespace", "Namespace"),
    string("cluster", "Cluster"),
    boolean("env", "Env"),
    boolean("disable_file", "DisableFile"),
    string("change_mode", "ChangeMode"),
    string("change_signal", "ChangeSignal"),
    boolean("allow_token_expiration", "AllowTokenExpiration"),
)

CONSUL = block(
    "consul",
    string("namespace", "Namespace"),
    string("cluster", "Cluster"),
    string("partition", "Partition"),
)

SECRET = block(
    "secret",
    string("provider", "Provider"),
    string("path", "Path"),
    free("config", "Config"),
    string_map("env", "Env"),
    label="Name",
)

_SCALING_ROWS = (
    integer("min", "Min"),
    free("policy", "Policy"),
    boolean("enabled", "Enabled"),
    string("type", "Type"),
)

GROUP_SCALING = block(
    "scaling",
    integer("max", "Max", required=True),
    *_SCALING_ROWS,
    finish=shorthand.group_scaling,
)

TASK_SCALING = block(
    "scaling",
    integer("max", "Max"),
    *_SCALING_ROWS,
    label="label",
    finish=shorthand.task_scaling,
)
