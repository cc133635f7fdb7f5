"""Pure: the difference between two versions of a job, as a tree with `+`, `-` and `+/-`.

Markers of a tree stand in a column as wide as the widest of them. What is the same is left out, except beside a change
within a block. An added or removed job is shown without the fields of its groups and tasks: everything in it is new or
gone. Verbose shows all.
"""

from collections.abc import Iterator, Sequence

from lepa.cli.output import Json, paint

INDENT = "  "
MARKS = {"Added": "+", "Deleted": "-", "Edited": "+/-", "None": ""}
COLOURS = {"Added": "green", "Deleted": "red", "Edited": "yellow"}
CHANGING = ("Stop", "Place", "Migrate", "DestructiveUpdate", "Canary")
_ANNOTATION_COLOURS = {
    "create": "green",
    "destroy": "red",
    "migrate": "yellow",
    "in-place update": "cyan",
    "create/destroy update": "yellow",
    "canary": "yellow",
    "ignore": "dim",
    "preemptions": "red",
}


def changes_allocations(answer: Json) -> bool:
    """Whether a plan would create or destroy an allocation."""
    updates = (answer.get("Annotations") or {}).get("DesiredTGUpdates") or {}
    return any(group.get(key) for group in updates.values() for key in CHANGING)


def diff_lines(job: Json, verbose: bool = False) -> list[str]:
    """A JobDiff as lines."""
    return list(_job(job, verbose))


def _job(job: Json, verbose: bool) -> Iterator[str]:
    width = _marker_width(job)
    fields = verbose or job["Type"] == "Edited"
    yield _line(job["Type"], f'Job: "{job["ID"]}"', 0, width, bold=True)
    if fields:
        yield from _contents(job, 0, width, everything=verbose)
    for group in job.get("TaskGroups") or ():
        yield from _group(group, width, fields, verbose)


def _group(group: Json, width: int, fields: bool, verbose: bool) -> Iterator[str]:
    counts = [
        paint(f"{count} {what}", _ANNOTATION_COLOURS.get(what, "bold"))
        for what, count in sorted((group.get("Updates") or {}).items())
        if count
    ]
    text = f'Task Group: "{group["Name"]}"' + (f" ({', '.join(counts)})" if counts else "")
    yield _line(group["Type"], text, 0, width, bold=True)
    if fields:
        yield from _contents(group, 1, width, everything=verbose)
    for task in group.get("Tasks") or ():
        yield _line(task["Type"], f'Task: "{task["Name"]}"{_annotated(task)}', 1, width, bold=True)
        if fields:
            yield from _contents(task, 2, width, everything=verbose)


def _contents(holder: Json, depth: int, width: int, *, everything: bool, context: bool = False) -> Iterator[str]:
    """Fields, then blocks, of whatever has them. context: fields that are the same, too."""
    fields = _changed(holder.get("Fields"), everything or context)
    name_width = max((len(field["Name"]) for field in fields), default=0)
    for field in fields:
        padding = " " * (name_width - len(field["Name"]))
        yield _line(field["Type"], f"{field['Name']}: {padding}{_values(field)}{_annotated(field)}", depth, width)
    for block in _changed(holder.get("Objects"), everything):
        yield _line(block["Type"], f"{block['Name']} {{", depth, width)
        yield from _contents(block, depth + 1, width, everything=everything, context=True)
        yield _line("None", "}", depth, width)


def _changed(things: Sequence[Json] | None, everything: bool) -> list[Json]:
    return [each for each in things or () if everything or each["Type"] != "None"]


def _values(field: Json) -> str:
    if field["Type"] == "Added":
        return f'"{field["New"]}"'
    if field["Type"] in ("Deleted", "None"):
        return f'"{field["Old"]}"'
    return f'"{field["Old"]}" => "{field["New"]}"'


def _annotated(thing: Json) -> str:
    notes = thing.get("Annotations") or ()
    return f" ({', '.join(_note(note) for note in notes)})" if notes else ""


def _note(note: str) -> str:
    return paint(note, _ANNOTATION_COLOURS.get(note.removeprefix("forces "), "bold"))


def _line(kind: str, text: str, depth: int, width: int, *, bold: bool = False) -> str:
    mark = MARKS[kind]
    looks = [*(["bold"] if bold else []), *([COLOURS[kind]] if kind in COLOURS else [])]
    column = (paint(mark, *looks) if mark else "") + " " * (width - len(mark) + 1) if width else ""
    return f"{INDENT * depth}{column}{paint(text, 'bold') if bold else text}"


def _marker_width(diff: Json) -> int:
    kinds = set(_kinds(diff))
    return max(len(MARKS[kind]) for kind in kinds)


def _kinds(diff: Json) -> Iterator[str]:
    yield diff["Type"]
    for key in ("Fields", "Objects", "TaskGroups", "Tasks"):
        for below in diff.get(key) or ():
            yield from _kinds(below)
