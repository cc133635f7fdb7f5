"""Pure: what changed between two versions of a job, as `job plan` shows it.

Built from the fields of the Structs, whichever they are: scalars and text maps become fields, nested Structs and
opaque maps become objects. The tables below hold what differs from that: names, identities, fields not shown.
Lists of Structs are compared as sets of identities, so putting constraints in another order is no difference.
"""

import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from lepa.model.constraint import Spread, SpreadTarget
from lepa.model.identity import WorkloadIdentity
from lepa.model.job import Job, TaskGroup
from lepa.model.job_rules import SERVER_FIELDS
from lepa.model.plan import DesiredUpdates
from lepa.model.policies import MultiregionRegion, ScalingPolicy
from lepa.model.resources import NetworkResource, Port, RequestedDevice
from lepa.model.service import Service, ServiceCheck
from lepa.model.task import Action, LogShip, Secret, Task, TaskArtifact, Template
from lepa.model.wire import Wire

DiffType = Literal["None", "Added", "Deleted", "Edited"]


class FieldDiff(Wire, frozen=True):
    """One value; old or new is empty where it was or is absent."""

    type: DiffType = "None"
    name: str = ""
    old: str = ""
    new: str = ""
    annotations: tuple[str, ...] = ()


class ObjectDiff(Wire, frozen=True):
    """A block."""

    type: DiffType = "None"
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple["ObjectDiff", ...] = ()


class TaskDiff(Wire, frozen=True):
    """A task; annotations say what the change does to its allocations."""

    type: DiffType = "None"
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    annotations: tuple[str, ...] = ()


class TaskGroupDiff(Wire, frozen=True):
    """A group; updates counts its allocations by what will be done to them."""

    type: DiffType = "None"
    name: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    tasks: tuple[TaskDiff, ...] = ()
    updates: dict[str, int] = {}


class JobDiff(Wire, frozen=True):
    """The whole job."""

    type: DiffType = "None"
    id: str = ""
    fields: tuple[FieldDiff, ...] = ()
    objects: tuple[ObjectDiff, ...] = ()
    task_groups: tuple[TaskGroupDiff, ...] = ()


_NOT_SHOWN: Mapping[type, frozenset[str]] = {
    Job: frozenset({"id", "task_groups", "payload", *SERVER_FIELDS}),
    TaskGroup: frozenset({"name", "tasks"}),
    Task: frozenset({"name"}),
    ScalingPolicy: frozenset({"id", "namespace", "create_index", "modify_index"}),
}

_IDENTITY: Mapping[type, str] = {
    Action: "name",
    LogShip: "name",
    MultiregionRegion: "name",
    Port: "label",
    RequestedDevice: "name",
    Secret: "name",
    Service: "name",
    ServiceCheck: "name",
    Spread: "attribute",
    SpreadTarget: "value",
    TaskArtifact: "getter_source",
    Template: "dest_path",
    WorkloadIdentity: "name",
}
"""The attribute by which elements of a list are the same thing in two versions; others are what they hold."""

_BY_POSITION: frozenset[type] = frozenset({NetworkResource})

_OBJECT_NAMES: Mapping[str, str] = {
    "Constraints": "Constraint",
    "Affinities": "Affinity",
    "Spreads": "Spread",
    "Networks": "Network",
    "ReservedPorts": "Static Port",
    "DynamicPorts": "Dynamic Port",
    "Services": "Service",
    "Checks": "Check",
    "Connect": "ConsulConnect",
    "Templates": "Template",
    "Artifacts": "Artifact",
    "Devices": "Device",
    "Volumes": "Volume",
    "VolumeMounts": "VolumeMount",
    "Identities": "Identity",
    "Actions": "Action",
    "Secrets": "Secret",
    "Regions": "Region",
    "Links": "Link",
    "ScalingPolicies": "Scaling",
}

_FORCES_IN_PLACE = "forces in-place update"
_FORCES_REPLACEMENT = "forces create/destroy update"
_FORCES_CREATE = "forces create"
_FORCES_DESTROY = "forces destroy"
_IN_PLACE_FIELDS = frozenset({"KillTimeout"})
_IN_PLACE_OBJECTS = frozenset({"LogConfig", "Service", "Constraint", "Affinity"})

_UPDATE_NAMES: Mapping[str, str] = {
    "ignore": "ignore",
    "place": "create",
    "stop": "destroy",
    "migrate": "migrate",
    "canary": "canary",
    "in_place_update": "in-place update",
    "destructive_update": "create/destroy update",
    "preemptions": "preemptions",
}


def diff_jobs(old: Job | None, new: Job | None, contextual: bool) -> JobDiff:
    """What becomes of `old`: None for one that does not exist. contextual: show what stays the same as well."""
    if old is not None and new is not None and old.id != new.id:
        raise ValueError(f"jobs with different ids cannot be compared: {old.id!r} and {new.id!r}")
    fields, objects = _contents(old, new, contextual)
    before = {group.name: group for group in old.task_groups} if old else {}
    after = {group.name: group for group in new.task_groups} if new else {}
    names = sorted(before.keys() | after.keys())
    diffs = [_diff_group(before.get(name), after.get(name), name, contextual) for name in names]
    groups = tuple(diff for diff in diffs if contextual or diff.type != "None")
    kind = _type(old, new, (*fields, *objects, *groups))
    return JobDiff(type=kind, id=(new or old or Job()).id, fields=fields, objects=objects, task_groups=groups)


def _diff_group(old: TaskGroup | None, new: TaskGroup | None, name: str, contextual: bool) -> TaskGroupDiff:
    fields, objects = _contents(old, new, contextual)
    before = {task.name: task for task in old.tasks} if old else {}
    after = {task.name: task for task in new.tasks} if new else {}
    names = sorted(before.keys() | after.keys())
    diffs = [_diff_task(before.get(task), after.get(task), task, contextual) for task in names]
    tasks = tuple(diff for diff in diffs if contextual or diff.type != "None")
    kind = _type(old, new, (*fields, *objects, *tasks))
    return TaskGroupDiff(type=kind, name=name, fields=fields, objects=objects, tasks=tasks)


def _diff_task(old: Task | None, new: Task | None, name: str, contextual: bool) -> TaskDiff:
    fields, objects = _contents(old, new, contextual)
    return TaskDiff(type=_type(old, new, (*fields, *objects)), name=name, fields=fields, objects=objects)


def annotate(diff: JobDiff, updates: Mapping[str, DesiredUpdates]) -> JobDiff:
    """The diff with what it does to allocations: counts by group (from a plan's annotations), forced changes."""
    groups = (_annotate_group(group, updates.get(group.name)) for group in diff.task_groups)
    return replace(diff, task_groups=tuple(groups))


def _annotate_group(group: TaskGroupDiff, updates: DesiredUpdates | None) -> TaskGroupDiff:
    counts = {shown: getattr(updates, name) for name, shown in _UPDATE_NAMES.items()} if updates else {}
    return replace(
        group,
        fields=tuple(_annotate_count(field) if field.name == "Count" else field for field in group.fields),
        tasks=tuple(replace(task, annotations=_task_annotations(task, group.type)) for task in group.tasks),
        updates={name: count for name, count in counts.items() if count},
    )


def _annotate_count(field: FieldDiff) -> FieldDiff:
    if field.type == "None":
        return field
    grows = int(field.new or 0) > int(field.old or 0)
    return replace(field, annotations=(_FORCES_CREATE if grows else _FORCES_DESTROY,))


def _task_annotations(task: TaskDiff, group_type: DiffType) -> tuple[str, ...]:
    if task.type == "None":
        return ()
    if group_type == "Added":
        return (_FORCES_CREATE,)
    if group_type == "Deleted":
        return (_FORCES_DESTROY,)
    changed_fields = {field.name for field in task.fields if field.type != "None"}
    changed_objects = {part.name for part in task.objects if part.type != "None"}
    in_place = changed_fields <= _IN_PLACE_FIELDS and changed_objects <= _IN_PLACE_OBJECTS
    return (_FORCES_IN_PLACE if in_place and task.type == "Edited" else _FORCES_REPLACEMENT,)


# Any two Structs of one type


_Contents = tuple[tuple[FieldDiff, ...], tuple[ObjectDiff, ...]]


def _contents(old: Any, new: Any, contextual: bool) -> _Contents:
    """Fields and objects, in the order of their names. old, new: Structs of one type, or None for one of them."""
    kind: type[msgspec.Struct] = type(old if old is not None else new)
    contextual = contextual and old is not None and new is not None
    fields: list[FieldDiff] = []
    objects: list[ObjectDiff] = []
    for member in _members(kind):
        before = None if old is None else getattr(old, member.attribute)
        after = None if new is None else getattr(new, member.attribute)
        if member.shape == "scalar":
            fields.append(_field(member.name, _text(before), _text(after)))
        elif member.shape == "texts":
            fields.extend(_map_fields(member.name, before or {}, after or {}))
        else:
            objects.extend(_objects(member, before, after, contextual))
    return _shown(fields, contextual), _shown_objects(objects, contextual)


class _Member(NamedTuple):
    """One field of a Struct and how it is compared."""

    attribute: str
    name: str
    shape: Literal["scalar", "texts", "struct", "structs", "named structs", "values", "opaque"]


@cache
def _members(kind: type[msgspec.Struct]) -> tuple[_Member, ...]:
    hidden = _NOT_SHOWN.get(kind, frozenset())
    return tuple(
        _Member(field.name, field.encode_name, _shape(field.type))
        for field in msgspec.structs.fields(kind)
        if field.name not in hidden
    )


def _shape(declared: Any) -> Any:
    options = [option for option in typing.get_args(declared) if option not in (type(None), msgspec.UnsetType)]
    if 1 == len(options) < len(typing.get_args(declared)):
        return _shape(options[0])
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is dict:
        return "texts" if arguments[1] is str else "named structs" if _is_struct(arguments[1]) else "opaque"
    if origin is tuple:
        return "structs" if _is_struct(arguments[0]) else "values"
    return "struct" if _is_struct(declared) else "scalar"


def _is_struct(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, msgspec.Struct)


def _objects(member: _Member, old: Any, new: Any, contextual: bool) -> Iterator[ObjectDiff]:
    name = _OBJECT_NAMES.get(member.name, member.name)
    if member.shape == "struct":
        yield from _pair(name, old, new, contextual)
    elif member.shape == "named structs":
        before, after = old or {}, new or {}
        for key in sorted(before.keys() | after.keys()):
            yield from _pair(name, before.get(key), after.get(key), contextual)
    elif member.shape == "structs":
        for before, after in _matched(old or (), new or ()):
            yield from _pair(name, before, after, contextual)
    elif member.shape == "values":
        yield from _value_list(name, old or (), new or (), contextual)
    else:
        yield from _opaque(name, old, new, contextual)


def _pair(name: str, old: Any, new: Any, contextual: bool) -> Iterator[ObjectDiff]:
    if old is not None or new is not None:
        fields, objects = _contents(old, new, contextual)
        kind = _type(old, new, (*fields, *objects))
        yield ObjectDiff(type=kind, name=name, fields=fields, objects=objects)


def _matched(old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    """The elements of both lists, those that are the same thing together."""
    before, after = _by_identity(old), _by_identity(new)
    for key in [*before, *(key for key in after if key not in before)]:
        yield before.get(key), after.get(key)


def _by_identity(items: tuple[Any, ...]) -> dict[Any, Any]:
    """Elements by identity and how many of that identity came before."""
    seen: Counter[Any] = Counter()
    found: dict[Any, Any] = {}
    for item in items:
        key = _identity(item)
        found[key, seen[key]] = item
        seen[key] += 1
    return found


def _identity(item: Any) -> Any:
    kind = type(item)
    if kind in _BY_POSITION:
        return kind
    return getattr(item, _IDENTITY[kind]) if kind in _IDENTITY else msgspec.json.encode(item)


def _value_list(name: str, old: tuple[Any, ...], new: tuple[Any, ...], contextual: bool) -> Iterator[ObjectDiff]:
    """Texts and numbers, compared as sets; by position only when nothing but their order changed."""
    before, after = Counter(map(_text, old)), Counter(map(_text, new))
    if before == after and old != new:
        fields = [
            _field(f"{name}[{index}]", _text(a), _text(b)) for index, (a, b) in enumerate(zip(old, new, strict=True))
        ]
    else:
        kept = before & after
        fields = [_field(name, text, text) for text in kept.elements()]
        fields += [_field(name, text, None) for text in (before - after).elements()]
        fields += [_field(name, None, text) for text in (after - before).elements()]
    if fields:
        shown = _shown(fields, contextual)
        yield ObjectDiff(type=_type(old or None, new or None, tuple(fields)), name=name, fields=shown)


def _opaque(name: str, old: Any, new: Any, contextual: bool) -> Iterator[ObjectDiff]:
    """A map of anything, such as a driver's configuration: one field for each leaf."""
    before, after = dict(_leaves(old or {}, "")), dict(_leaves(new or {}, ""))
    fields = [_field(key, before.get(key), after.get(key)) for key in before.keys() | after.keys()]
    if fields:
        kind = _type(before or None, after or None, tuple(fields))
        yield ObjectDiff(type=kind, name=name, fields=_shown(fields, contextual))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """`args[0]`, `auth[username]` and the like, with their values as texts."""
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key}]" if path else str(key))
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, "null" if value is None else _text(value)


def _map_fields(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[FieldDiff]:
    for key in old.keys() | new.keys():
        yield _field(f"{name}[{key}]", old.get(key), new.get(key))


def _field(name: str, old: str | None, new: str | None) -> FieldDiff:
    """None: there is no such entry; an empty text counts as none beside one that is not empty."""
    kind: DiffType = "Edited"
    if old == new:
        kind = "None"
    elif old is None or (old == "" and new):
        kind = "Added"
    elif not new:
        kind = "Deleted"
    return FieldDiff(type=kind, name=name, old=old or "", new=new or "")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _shown(fields: list[FieldDiff], contextual: bool) -> tuple[FieldDiff, ...]:
    return tuple(sorted((field for field in fields if contextual or field.type != "None"), key=_order))


def _shown_objects(objects: list[ObjectDiff], contextual: bool) -> tuple[ObjectDiff, ...]:
    return tuple(sorted((part for part in objects if contextual or part.type != "None"), key=lambda part: part.name))


def _order(field: FieldDiff) -> tuple[str, str, str]:
    return field.name, field.old, field.new


def _type(old: Any, new: Any, parts: tuple[Any, ...]) -> DiffType:
    if old is None and new is None:
        return "None"
    if old is None:
        return "Added"
    if new is None:
        return "Deleted"
    return "Edited" if any(part.type != "None" for part in parts) else "None"
