"""Pure: fills in what a job leaves unsaid and what depends on its surroundings.

Works on builtins with Nomad's exact keys (`wire.normalise` makes them so), before they become Structs, because only
there can "not given" be told from "given as zero". Defaults that depend on nothing are the defaults of the Structs;
here are only those that depend on the job's type, on an enclosing block or on another field.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any

from lepa.kit.durations import HOUR, MINUTE, SECOND

Block = dict[str, Any]

SERVICE, BATCH, SYSTEM, SYSBATCH = "service", "batch", "system", "sysbatch"

_RESTART_LONG = {"Attempts": 2, "Interval": 30 * MINUTE, "Delay": 15 * SECOND, "Mode": "fail"}
_RESTART_FINITE = {"Attempts": 3, "Interval": 24 * HOUR, "Delay": 15 * SECOND, "Mode": "fail"}
RESTART = {SERVICE: _RESTART_LONG, SYSTEM: _RESTART_LONG, BATCH: _RESTART_FINITE, SYSBATCH: _RESTART_FINITE}

RESCHEDULE: dict[str, Block] = {
    SERVICE: {
        "Attempts": 0,
        "Interval": 0,
        "Delay": 30 * SECOND,
        "DelayFunction": "exponential",
        "MaxDelay": HOUR,
        "Unlimited": True,
    },
    BATCH: {
        "Attempts": 1,
        "Interval": 24 * HOUR,
        "Delay": 5 * SECOND,
        "DelayFunction": "constant",
        "MaxDelay": 0,
        "Unlimited": False,
    },
}

UPDATED_TYPES = (SERVICE, SYSTEM)
MIGRATED_TYPES = (SERVICE,)

NO_UPDATE: Block = {
    "Stagger": 0,
    "MaxParallel": 0,
    "HealthCheck": "",
    "MinHealthyTime": 0,
    "HealthyDeadline": 0,
    "ProgressDeadline": 0,
    "Canary": 0,
    "AutoRevert": False,
    "AutoPromote": False,
}

DEFAULT_IDENTITY: Block = {"Name": "default", "Audience": ["nomadproject.io"]}
UNSPECIFIED_MAX = -1
"""ScalingPolicy.Max of a block that does not give one; validation refuses it."""

_SERVICE_VARIABLE = re.compile(r"\$\{(JOB|TASKGROUP|TASK|BASE)\}")


def fill_job(job: Block, inherited: Block, *, region: str, namespace: str, node_pool: str, priority: int) -> Block:
    """The job with every contextual default. inherited: job-level Reschedule, Migrate and Restart for its groups.

    A region of "global" is what clients write when nobody chose one, so it gives way to the server's.
    """
    job = _without_empty(job, "Type", "Name", "Region", "Namespace", "NodePool", "Datacenters", "Priority")
    if job.get("Region", "global") == "global":
        job["Region"] = region
    job.setdefault("Namespace", namespace)
    job.setdefault("NodePool", node_pool)
    job.setdefault("Priority", priority)
    job.setdefault("Name", job.get("ID", ""))
    job_type = job.setdefault("Type", SERVICE)
    update = _job_update(job.pop("Update", {}), job_type)
    job["TaskGroups"] = [
        _fill_group(group, job, {**inherited, "Update": update}) for group in _blocks(job, "TaskGroups")
    ]
    job["Update"] = {**NO_UPDATE, **_only(update, "Stagger", "MaxParallel")}
    if "Periodic" in job:
        job["Periodic"] = _without_empty(job["Periodic"], "SpecType", "TimeZone")
    if "ParameterizedJob" in job:
        job["ParameterizedJob"] = _without_empty(job["ParameterizedJob"], "Payload")
    return job


def _job_update(given: Block, job_type: str) -> Block:
    """What groups inherit: only what the user wrote, not the shortened form that a stored job shows."""
    if given.get("HealthCheck") == "":
        given = _only(given, "Stagger", "MaxParallel") if given.get("Stagger") else {}
    if given or job_type in UPDATED_TYPES:
        return {"Stagger": 30 * SECOND, "MaxParallel": 1, **given}
    return {}


def _fill_group(group: Block, job: Block, inherited: Block) -> Block:
    job_type, name = job["Type"], group.get("Name", "")
    group = dict(group)
    _merge(group, "RestartPolicy", RESTART.get(job_type), inherited.get("Restart"))
    _merge(group, "ReschedulePolicy", RESCHEDULE.get(job_type), inherited.get("Reschedule"))
    _merge(group, "Migrate", {} if job_type in MIGRATED_TYPES else None, inherited.get("Migrate"))
    _merge(group, "Update", {} if job_type in UPDATED_TYPES else None, inherited["Update"])
    _fill_count(group, job)
    if "Disconnect" in group:
        group["Disconnect"] = _without_empty(group["Disconnect"], "Reconcile")
    if "Consul" in group:
        group["Consul"] = _without_empty(group["Consul"], "Cluster")
    _each(group, "Networks", _fill_network)
    group["Volumes"] = {label: {"Name": label, **volume} for label, volume in group.get("Volumes", {}).items()}
    scope = {"JOB": job["Name"], "TASKGROUP": name, "TASK": "", "BASE": f"{job['Name']}-{name}"}
    _each(group, "Services", lambda service: _fill_service(service, scope))
    _each(group, "Tasks", lambda task: _fill_task(task, group, scope))
    return group


def _fill_count(group: Block, job: Block) -> None:
    scaling = group.get("Scaling")
    group.setdefault("Count", (scaling or {}).get("Min", 1))
    if scaling is not None:
        target = {"Namespace": job["Namespace"], "Job": job.get("ID", ""), "Group": group.get("Name", "")}
        group["Scaling"] = {
            "Min": group["Count"],
            "Max": UNSPECIFIED_MAX,
            **_without_empty(scaling, "Type"),
            "Target": target,
        }


def _fill_network(network: Block) -> Block:
    """Ports with a host port number are reserved, the others dynamic, wherever they were written."""
    dynamic = [_fill_port(port) for port in _blocks(network, "DynamicPorts")]
    reserved = [_fill_port(port) for port in _blocks(network, "ReservedPorts")]
    return {
        **network,
        "ReservedPorts": reserved + [port for port in dynamic if port.get("Value")],
        "DynamicPorts": [port for port in dynamic if not port.get("Value")],
    }


def _fill_port(port: Block) -> Block:
    return {**port, "HostNetwork": port.get("HostNetwork") or "default"}


def _fill_task(task: Block, group: Block, group_scope: dict[str, str]) -> Block:
    name = task.get("Name", "")
    task = dict(task)
    _merge(task, "RestartPolicy", group.get("RestartPolicy"))
    scope = {**group_scope, "TASK": name, "BASE": f"{group_scope['BASE']}-{name}"}
    _each(
        task,
        "Services",
        lambda service: _fill_service({"TaskName": name, **_without_empty(service, "TaskName")}, scope),
    )
    task["Resources"] = _fill_resources(task.get("Resources", {}))
    _each(task, "Templates", _fill_template)
    _each(task, "Artifacts", _fill_artifact)
    if "Vault" in task:
        task["Vault"] = {
            "ChangeSignal": "SIGHUP",
            **_without_empty(task["Vault"], "Cluster", "ChangeMode", "ChangeSignal"),
        }
    if "Consul" in task:
        task["Consul"] = _without_empty(task["Consul"], "Cluster")
    if "CSIPluginConfig" in task:
        plugin = _without_empty(task["CSIPluginConfig"], "MountDir", "StagePublishBaseDir", "HealthTimeout")
        task["CSIPluginConfig"] = {"StagePublishBaseDir": "/local/csi", "HealthTimeout": 30 * SECOND, **plugin}
    if not any(task.get("Lifecycle", {}).values()):
        task.pop("Lifecycle", None)
    return _fill_identities(task)


def _fill_identities(task: Block) -> Block:
    """The identity called "default" is the task's own; the others are extra."""
    extra = [_without_empty(identity, "Name") for identity in _blocks(task, "Identities")]
    own = [identity for identity in extra if identity.get("Name", "default") == "default"]
    chosen = _without_empty(own[-1] if own else task.get("Identity", {}), "Name", "Audience")
    task["Identity"] = {**DEFAULT_IDENTITY, **chosen}
    task["Identities"] = [identity for identity in extra if identity not in own]
    return task


def _fill_resources(resources: Block) -> Block:
    resources = dict(resources)
    if resources.get("Cores"):
        resources.setdefault("CPU", 0)
    _each(resources, "Networks", _fill_network)
    if "NUMA" in resources:
        resources["NUMA"] = {"Affinity": "none", **_without_empty(resources["NUMA"], "Affinity")}
    return resources


def _fill_template(template: Block) -> Block:
    template = _without_empty(template, "ChangeMode", "Perms", "LeftDelim", "RightDelim")
    if template.get("ChangeMode") == "signal":
        template["ChangeSignal"] = template.get("ChangeSignal") or "SIGHUP"
    if template.get("ChangeSignal"):
        template["ChangeSignal"] = template["ChangeSignal"].upper()
    return template


def _fill_artifact(artifact: Block) -> Block:
    artifact = _without_empty(artifact, "GetterMode", "RelativeDest")
    if artifact.get("GetterMode") == "file":
        path = artifact.get("GetterSource", "").partition("?")[0]
        artifact.setdefault("RelativeDest", posixpath.join("local", posixpath.basename(path.rstrip("/"))))
    return artifact


def _fill_service(service: Block, scope: dict[str, str]) -> Block:
    """scope: values of ${JOB}, ${TASKGROUP}, ${TASK} and ${BASE}. Other references wait for the node."""
    service = _without_empty(service, "Name", "AddressMode", "OnUpdate", "Provider", "Cluster", "CheckRestart")
    service["Name"] = _SERVICE_VARIABLE.sub(lambda found: scope[found[1]], service.get("Name", scope["BASE"]))
    _each(service, "Checks", lambda check: _fill_check(check, service))
    return service


def _fill_check(check: Block, service: Block) -> Block:
    check = _without_empty(check, "Name", "OnUpdate")
    check.setdefault("Name", f'service: "{service["Name"]}" check')
    check.setdefault("OnUpdate", service.get("OnUpdate", "require_healthy"))
    _merge(check, "CheckRestart", service.get("CheckRestart"))
    return check


def _merge(block: Block, key: str, *bases: Block | None) -> None:
    """Lay `block[key]` field by field over the bases, the later over the earlier; absent when all are."""
    layers = [layer for layer in (*bases, block.get(key)) if layer is not None]
    if any(layers) or (layers and key in block) or (bases and bases[0] is not None):
        block[key] = {name: value for layer in layers for name, value in layer.items()}


def _each(block: Block, key: str, fill: Callable[[Block], Block]) -> None:
    if block.get(key):
        block[key] = [fill(item) for item in block[key]]


def _blocks(block: Block, key: str) -> Iterable[Block]:
    return block.get(key) or ()


def _only(block: Block, *keys: str) -> Block:
    return {key: block[key] for key in keys if key in block}


def _without_empty(block: Block, *keys: str) -> Block:
    """A copy where these fields, if empty, count as not given (Go clients send zero values)."""
    return {key: value for key, value in block.items() if value or key not in keys}
