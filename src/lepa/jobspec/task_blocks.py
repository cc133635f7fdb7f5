"""Pure: the task block and what is only in it, as tables."""

from lepa.jobspec import shorthand
from lepa.jobspec.resource_blocks import (
    AFFINITY,
    CONSTRAINT,
    CONSUL,
    IDENTITY,
    LOGS,
    RESOURCES,
    RESTART,
    SECRET,
    TASK_SCALING,
    VAULT,
    VOLUME_MOUNT,
)
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
from lepa.jobspec.service_blocks import SERVICE

LIFECYCLE = block("lifecycle", string("hook", "Hook"), boolean("sidecar", "Sidecar"))

ARTIFACT = block(
    "artifact",
    string("source", "GetterSource"),
    string_map("options", "GetterOptions"),
    string_map("headers", "GetterHeaders"),
    string("mode", "GetterMode"),
    boolean("insecure", "GetterInsecure"),
    string("destination", "RelativeDest"),
    boolean("chown", "Chown"),
)

CHANGE_SCRIPT = block(
    "change_script",
    string("command", "Command"),
    strings("args", "Args"),
    duration("timeout", "Timeout"),
    boolean("fail_on_error", "FailOnError"),
    boolean("run_on_first_render", "RunOnFirstRender"),
)

WAIT = block("wait", duration("min", "Min"), duration("max", "Max"))

TEMPLATE = block(
    "template",
    string("source", "SourcePath"),
    string("destination", "DestPath"),
    string("data", "EmbeddedTmpl"),
    string("change_mode", "ChangeMode"),
    one(CHANGE_SCRIPT, "ChangeScript"),
    string("change_signal", "ChangeSignal"),
    boolean("once", "Once"),
    duration("splay", "Splay"),
    string("perms", "Perms"),
    integer("uid", "Uid"),
    integer("gid", "Gid"),
    string("left_delimiter", "LeftDelim"),
    string("right_delimiter", "RightDelim"),
    boolean("env", "Envvars"),
    duration("vault_grace", "VaultGrace"),
    one(WAIT, "Wait"),
    boolean("error_on_missing_key", "ErrMissingKey"),
)

DISPATCH_PAYLOAD = block("dispatch_payload", string("file", "File"))

CSI_PLUGIN = block(
    "csi_plugin",
    string("id", "ID"),
    string("type", "Type"),
    string("mount_dir", "MountDir"),
    string("stage_publish_base_dir", "StagePublishBaseDir"),
    duration("health_timeout", "HealthTimeout"),
)

ACTION = block("action", string("command", "Command"), strings("args", "Args"), label="Name")

CRON = block("cron", string("start", "Start"), string("end", "End"), string("timezone", "Timezone"))

SCHEDULE = block("schedule", one(CRON, "Cron"))

TASK = block(
    "task",
    string("driver", "Driver"),
    string("user", "User"),
    one(LIFECYCLE, "Lifecycle"),
    free("config", "Config"),
    many(CONSTRAINT, "Constraints"),
    many(AFFINITY, "Affinities"),
    string_map("env", "Env"),
    many(SERVICE, "Services"),
    one(RESOURCES, "Resources"),
    one(RESTART, "RestartPolicy"),
    string_map("meta", "Meta"),
    duration("kill_timeout", "KillTimeout"),
    one(LOGS, "LogConfig"),
    many(ARTIFACT, "Artifacts"),
    one(VAULT, "Vault"),
    one(CONSUL, "Consul"),
    many(TEMPLATE, "Templates"),
    one(DISPATCH_PAYLOAD, "DispatchPayload"),
    many(VOLUME_MOUNT, "VolumeMounts"),
    one(CSI_PLUGIN, "CSIPluginConfig"),
    boolean("leader", "Leader"),
    duration("shutdown_delay", "ShutdownDelay"),
    string("kill_signal", "KillSignal"),
    string("kind", "Kind"),
    many(TASK_SCALING, "ScalingPolicies"),
    many(SECRET, "Secrets"),
    many(IDENTITY, "Identities"),
    many(ACTION, "Actions"),
    one(SCHEDULE, "Schedule"),
    label="Name",
    finish=shorthand.task,
)
