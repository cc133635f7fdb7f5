"""Pure: whether one task of a group makes sense."""

import posixpath
import re
from collections.abc import Iterator
from itertools import chain

from lepa.model.identity import WorkloadIdentity
from lepa.model.job import TaskGroup
from lepa.model.placement_checks import placement_problems
from lepa.model.policy_checks import restart_problems
from lepa.model.resources import Resources
from lepa.model.ship_checks import job_receiver_problems
from lepa.model.task import Action, LogConfig, Task, TaskArtifact, Template

CPU_MIN_MHZ = 1
MEMORY_MIN_MB = 10

_HOOKS = ("prestart", "poststart", "poststop")
_CHANGE_MODES = ("noop", "signal", "script", "restart")
_PROPAGATION_MODES = ("private", "host-to-task", "bidirectional")
_GETTER_MODES = ("any", "file", "dir")
_DIGEST_LENGTHS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}
_IDENTITY_NAME = re.compile(r"[a-zA-Z0-9-_]{1,128}")
_SECRET_NAME = re.compile(r"[a-zA-Z0-9_]{1,128}")
_ACTION_NAME = re.compile(r"[^\s\0]{1,128}")


def task_problems(task: Task, group: TaskGroup, job_type: str) -> Iterator[str]:
    """Everything that is wrong with the task, without its name."""
    yield from _names(task)
    yield from _times(task)
    yield from resource_problems(task.resources)
    yield from _lifecycle(task)
    yield from placement_problems(
        task.constraints, task.affinities, of_task=True, of_system_job=job_type in ("system", "sysbatch")
    )
    if task.restart_policy is not None:
        yield from restart_problems(task.restart_policy)
    yield from _logs(task.log_config, group.ephemeral_disk.size_mb)
    yield from _templates(task.templates)
    for number, artifact in enumerate(task.artifacts, 1):
        yield from (f"Artifact {number} validation failed: {problem}" for problem in _artifact(artifact))
    yield from _volume_mounts(task, group)
    yield from _payload(task)
    yield from _identities(task)
    yield from _actions(task.actions)
    yield from _secrets(task)


def _names(task: Task) -> Iterator[str]:
    """The name becomes a folder beside the shared one, `alloc`."""
    if not task.name:
        yield "Missing task name"
    if task.name == "alloc":
        yield 'Task cannot be named "alloc"'
    if "/" in task.name or "\\" in task.name:
        yield "Task name cannot include slashes"
    if task.name in (".", ".."):
        yield f'Task cannot be named "{task.name}"'
    if "\0" in task.name:
        yield "Task name cannot include null characters"
    if not task.driver:
        yield "Missing task driver"


def _times(task: Task) -> Iterator[str]:
    if task.kill_timeout < 0:
        yield "KillTimeout must be a positive value"
    if task.shutdown_delay < 0:
        yield "ShutdownDelay must be a positive value"


def resource_problems(resources: Resources) -> Iterator[str]:
    """What a task may ask for."""
    if resources.cores > 0 and resources.cpu > 0:
        yield "Task can only ask for 'cpu' or 'cores' resource, not both."
    elif resources.cores < 0:
        yield f"cores can't be negative; got {resources.cores}"
    elif not resources.cores and resources.cpu < CPU_MIN_MHZ:
        yield f"minimum CPU value is {CPU_MIN_MHZ}; got {resources.cpu}"
    if resources.memory_mb < MEMORY_MIN_MB:
        yield f"minimum MemoryMB value is {MEMORY_MIN_MB}; got {resources.memory_mb}"
    if resources.memory_max_mb not in (-1, 0) and resources.memory_max_mb < resources.memory_mb:
        yield (
            f"MemoryMaxMB value ({resources.memory_max_mb}) should be larger than "
            f"MemoryMB value ({resources.memory_mb})"
        )
    if not 0 <= resources.secrets_mb <= max(resources.memory_mb, 0):
        yield f"SecretsMB value ({resources.secrets_mb}) must be between 0 and MemoryMB ({resources.memory_mb})"
    for number, device in enumerate(resources.devices, 1):
        problems = [f"device {number} must have a name"] if not device.name else []
        if device.count < 1:
            problems.append("device count must be positive")
        yield from chain(problems, placement_problems(device.constraints, device.affinities, of_task=True))


def _lifecycle(task: Task) -> Iterator[str]:
    if task.lifecycle is None:
        return
    if not task.lifecycle.hook:
        yield "no lifecycle hook provided"
    elif task.lifecycle.hook not in _HOOKS:
        yield f"invalid hook: {task.lifecycle.hook}"


def _logs(logs: LogConfig, disk_mb: int) -> Iterator[str]:
    if logs.max_files < 1:
        yield f"minimum number of files is 1; got {logs.max_files}"
    if logs.max_file_size_mb < 1:
        yield f"minimum file size is 1MB; got {logs.max_file_size_mb}"
    needed = logs.max_files * logs.max_file_size_mb
    if not logs.disabled and disk_mb <= needed:
        yield f"log storage ({needed} MB) must be less than requested disk capacity ({disk_mb} MB)"
    yield from job_receiver_problems(logs.receivers)


def _templates(templates: tuple[Template, ...]) -> Iterator[str]:
    places: dict[str, int] = {}
    for number, template in enumerate(templates, 1):
        yield from (f"Template {number} validation failed: {problem}" for problem in _template(template))
        if template.dest_path and template.dest_path in places:
            yield f"Template {number} has same destination as {places[template.dest_path]}"
        places.setdefault(template.dest_path, number)


def _template(template: Template) -> Iterator[str]:
    if not template.source_path and not template.embedded_tmpl:
        yield "Must specify a source path or have an embedded template"
    if not template.dest_path:
        yield "Must specify a destination for the template"
    elif escapes_alloc_dir(template.dest_path):
        yield "destination escapes allocation directory"
    yield from _template_change(template)
    if template.splay < 0:
        yield "Must specify positive splay value"
    if not re.fullmatch(r"[0-7]{1,4}", template.perms):
        yield f'Failed to parse "{template.perms}" as octal'
    if template.wait is not None and template.wait.max is not None and (template.wait.min or 0) > template.wait.max:
        yield "wait min must be less than or equal to wait max"


def _template_change(template: Template) -> Iterator[str]:
    mode, script = template.change_mode, template.change_script
    if mode not in _CHANGE_MODES:
        yield f'Invalid change mode "{mode}". Must be one of the following: {", ".join(_CHANGE_MODES)}'
    if mode == "signal" and not template.change_signal:
        yield "Must specify signal value when change mode is signal"
    if mode == "signal" and template.envvars:
        yield "cannot use signals with env var templates"
    if mode == "script" and script is None:
        yield "must specify change script configuration value when change mode is script"
    elif mode == "script" and script is not None and not script.command:
        yield "must specify change script command value when change mode is script"


def _artifact(artifact: TaskArtifact) -> Iterator[str]:
    if not artifact.getter_source:
        yield "source must be specified"
    if artifact.getter_mode not in _GETTER_MODES:
        yield f'invalid artifact mode "{artifact.getter_mode}"; must be one of: {", ".join(_GETTER_MODES)}'
    if escapes_alloc_dir(artifact.relative_dest):
        yield "destination escapes allocation directory"
    checksum = artifact.getter_options.get("checksum", "")
    if checksum and "${" not in checksum and not checksum.startswith("file:"):
        kind, _, digest = checksum.partition(":")
        if kind not in _DIGEST_LENGTHS:
            yield f'unsupported checksum type: "{checksum}", expected one of {", ".join(_DIGEST_LENGTHS)}, file'
        elif not re.fullmatch(f"[0-9a-fA-F]{{{_DIGEST_LENGTHS[kind]}}}", digest):
            yield f'invalid checksum: "{checksum}", expected {_DIGEST_LENGTHS[kind]} hex digits after "{kind}:"'


def _volume_mounts(task: Task, group: TaskGroup) -> Iterator[str]:
    for number, mount in enumerate(task.volume_mounts):
        if mount.volume not in group.volumes:
            yield f"Volume Mount ({number}) references undefined volume {mount.volume}"
        if not mount.destination:
            yield f"Volume Mount ({number}) has no destination"
        if mount.propagation_mode not in _PROPAGATION_MODES:
            yield f'Volume Mount ({number}) has an invalid propagation mode: "{mount.propagation_mode}"'
        if mount.selinux_label not in ("", "z", "Z"):
            yield f'Volume Mount ({number}) has an invalid SELinux label: "{mount.selinux_label}"'


def _payload(task: Task) -> Iterator[str]:
    if task.dispatch_payload is None:
        return
    if not task.dispatch_payload.file:
        yield "Dispatch Payload needs a file"
    elif _escapes("local", task.dispatch_payload.file):
        yield "Dispatch Payload validation failed: destination escapes allocation directory"


def _identities(task: Task) -> Iterator[str]:
    own = (task.identity,) if task.identity is not None else ()
    names: set[str] = set()
    for identity in (*own, *task.identities):
        if identity.name in names:
            yield f"Identity {identity.name} is defined twice"
        names.add(identity.name)
        yield from (f"Identity {identity.name} is invalid: {problem}" for problem in _identity(identity))


def _identity(identity: WorkloadIdentity) -> Iterator[str]:
    if not _IDENTITY_NAME.fullmatch(identity.name):
        yield f'invalid name "{identity.name}", must match {_IDENTITY_NAME.pattern}'
    if identity.change_mode not in ("", "noop", "restart", "signal"):
        yield f'invalid change_mode "{identity.change_mode}"'
    if identity.change_mode == "signal" and not identity.change_signal:
        yield "change_signal must be specified when using change_mode=signal"
    if identity.ttl < 0:
        yield "ttl must be >= 0"
    elif identity.ttl and identity.name == "default":
        yield "ttl for default identity not yet supported"
    if identity.filepath and escapes_alloc_dir(identity.filepath):
        yield "filepath escapes allocation directory"


def _actions(actions: tuple[Action, ...]) -> Iterator[str]:
    names: set[str] = set()
    for action in actions:
        if not _ACTION_NAME.fullmatch(action.name):
            yield f'Action name "{action.name}" must be 1 to 128 characters without white space'
        if not action.command:
            yield f'Action "{action.name}" has no command'
        if action.name in names:
            yield f'Action "{action.name}" is defined twice'
        names.add(action.name)


def _secrets(task: Task) -> Iterator[str]:
    names: set[str] = set()
    for secret in task.secrets:
        if not _SECRET_NAME.fullmatch(secret.name):
            yield f'Secret name "{secret.name}" must match {_SECRET_NAME.pattern}'
        if secret.name in names:
            yield f'Secret "{secret.name}" is defined twice'
        names.add(secret.name)
        if not secret.provider:
            yield f'Secret "{secret.name}" has no provider'
        if not secret.path:
            yield f'Secret "{secret.name}" has no path'


def escapes_alloc_dir(path: str) -> bool:
    """Whether a path, relative to the task's folder, leads out of the allocation's."""
    return _escapes("task", path)


def _escapes(folder: str, path: str) -> bool:
    return posixpath.normpath(f"{folder}/{path}").startswith("..")


def task_warnings(task: Task, memory_oversubscription: bool) -> Iterator[str]:
    """What still works but should be written otherwise."""
    if task.resources.disk_mb:
        yield "Task can't ask for disk resources, they have to be specified at the task group level."
    if task.resources.networks:
        yield "task network resources have been deprecated in favor of the group network block"
    if task.resources.iops:
        yield "iops is deprecated and has no effect"
    if task.resources.memory_max_mb and not memory_oversubscription:
        yield "memory_max is ignored: memory oversubscription is not enabled"
    if any(template.vault_grace for template in task.templates):
        yield "vault_grace is deprecated and has no effect"
    for identity in task.identities:
        if not identity.audience:
            yield f'identity "{identity.name}" has no audience, which is insecure'
