"""Pure: the job and group blocks and what is only in them, as tables."""

from lepa.jobspec import shorthand
from lepa.jobspec.resource_blocks import (
    AFFINITY,
    CONSTRAINT,
    CONSUL,
    GROUP_SCALING,
    NETWORK,
    RESTART,
    SECRET,
    SPREAD,
    VAULT,
)
from lepa.jobspec.schema import (
    block,
    boolean,
    duration,
    integer,
    labelled,
    many,
    one,
    string,
    string_map,
    strings,
)
from lepa.jobspec.service_blocks import SERVICE
from lepa.jobspec.task_blocks import TASK

UPDATE = block(
    "update",
    duration("stagger", "Stagger"),
    integer("max_parallel", "MaxParallel"),
    string("health_check", "HealthCheck"),
    duration("min_healthy_time", "MinHealthyTime"),
    duration("healthy_deadline", "HealthyDeadline"),
    duration("progress_deadline", "ProgressDeadline"),
    integer("canary", "Canary"),
    boolean("auto_revert", "AutoRevert"),
    boolean("auto_promote", "AutoPromote"),
)

RESCHEDULE = block(
    "reschedule",
    integer("attempts", "Attempts"),
    duration("interval", "Interval"),
    duration("delay", "Delay"),
    string("delay_function", "DelayFunction"),
    duration("max_delay", "MaxDelay"),
    boolean("unlimited", "Unlimited"),
)

MIGRATE = block(
    "migrate",
    integer("max_parallel", "MaxParallel"),
    string("health_check", "HealthCheck"),
    duration("min_healthy_time", "MinHealthyTime"),
    duration("healthy_deadline", "HealthyDeadline"),
)

DISCONNECT = block(
    "disconnect",
    duration("lost_after", "LostAfter"),
    duration("stop_on_client_after", "StopOnClientAfter"),
    boolean("replace", "Replace"),
    string("reconcile", "Reconcile"),
)

EPHEMERAL_DISK = block(
    "ephemeral_disk",
    boolean("sticky", "Sticky"),
    boolean("migrate", "Migrate"),
    integer("size", "SizeMB"),
)

MOUNT_OPTIONS = block("mount_options", string("fs_type", "FSType"), strings("mount_flags", "MountFlags"))

VOLUME = block(
    "volume",
    string("type", "Type"),
    string("source", "Source"),
    boolean("read_only", "ReadOnly"),
    boolean("sticky", "Sticky"),
    string("access_mode", "AccessMode"),
    string("attachment_mode", "AttachmentMode"),
    one(MOUNT_OPTIONS, "MountOptions"),
    boolean("per_alloc", "PerAlloc"),
    label="Name",
)

GROUP = block(
    "group",
    integer("count", "Count"),
    many(CONSTRAINT, "Constraints"),
    many(AFFINITY, "Affinities"),
    many(TASK, "Tasks"),
    many(SPREAD, "Spreads"),
    labelled(VOLUME, "Volumes"),
    one(RESTART, "RestartPolicy"),
    one(DISCONNECT, "Disconnect"),
    one(RESCHEDULE, "ReschedulePolicy"),
    one(EPHEMERAL_DISK, "EphemeralDisk"),
    one(UPDATE, "Update"),
    one(MIGRATE, "Migrate"),
    many(NETWORK, "Networks"),
    string_map("meta", "Meta"),
    many(SERVICE, "Services"),
    duration("shutdown_delay", "ShutdownDelay"),
    duration("max_run_duration", "MaxRunDuration"),
    duration("stop_after_client_disconnect", "StopAfterClientDisconnect"),
    duration("max_client_disconnect", "MaxClientDisconnect"),
    boolean("prevent_reschedule_on_lost", "PreventRescheduleOnLost"),
    one(GROUP_SCALING, "Scaling"),
    one(CONSUL, "Consul"),
    one(VAULT, "Vault"),
    many(SECRET, "Secrets"),
    label="Name",
    finish=shorthand.group,
)

PERIODIC = block(
    "periodic",
    boolean("enabled", "Enabled"),
    string("cron", "Spec"),
    strings("crons", "Specs"),
    boolean("prohibit_overlap", "ProhibitOverlap"),
    integer("max_running", "MaxRunning"),
    string("time_zone", "TimeZone"),
    finish=shorthand.periodic,
)

PARAMETERIZED = block(
    "parameterized",
    string("payload", "Payload"),
    strings("meta_required", "MetaRequired"),
    strings("meta_optional", "MetaOptional"),
    integer("max_running", "MaxRunning"),
)

AFTER = block("after", string("job", "Job"), string("namespace", "Namespace"), string("status", "Status"))

STRATEGY = block("strategy", integer("max_parallel", "MaxParallel"), string("on_failure", "OnFailure"))

REGION = block(
    "region",
    integer("count", "Count"),
    strings("datacenters", "Datacenters"),
    string("node_pool", "NodePool"),
    string_map("meta", "Meta"),
    label="Name",
)

MULTIREGION = block("multiregion", one(STRATEGY, "Strategy"), many(REGION, "Regions"))

LINK = block("link", string("label", "Label"), string("url", "URL"))

UI = block("ui", string("description", "Description"), many(LINK, "Links"))

JOB = block(
    "job",
    string("region", "Region"),
    string("namespace", "Namespace"),
    string("id", "ID"),
    string("name", "Name"),
    string("type", "Type"),
    integer("priority", "Priority"),
    boolean("all_at_once", "AllAtOnce"),
    strings("datacenters", "Datacenters"),
    string("node_pool", "NodePool"),
    many(CONSTRAINT, "Constraints"),
    many(AFFINITY, "Affinities"),
    many(GROUP, "TaskGroups"),
    one(UPDATE, "Update"),
    one(MULTIREGION, "Multiregion"),
    many(SPREAD, "Spreads"),
    one(PERIODIC, "Periodic"),
    many(AFTER, "After"),
    one(PARAMETERIZED, "ParameterizedJob"),
    one(RESCHEDULE, "Reschedule"),
    one(MIGRATE, "Migrate"),
    string_map("meta", "Meta"),
    one(UI, "UI"),
    one(VAULT, "Vault"),
    many(SECRET, "Secrets"),
    many(TASK, "task"),
    string("consul_token", "consul_token"),
    string("vault_token", "vault_token"),
    label="label",
    finish=shorthand.job,
)
