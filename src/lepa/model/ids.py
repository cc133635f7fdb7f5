"""Pure: names and ids that people and tools read: allocation names, shortened ids, ids of child jobs."""

import re

SHORT_ID_LENGTH = 8

_ALLOC_NAME = re.compile(r"(?s)(.*)\.(.*)\[([0-9]{1,9})\]")


def alloc_name(job_id: str, group: str, index: int) -> str:
    """`job.group[index]`, the same for an allocation and its replacements."""
    return f"{job_id}.{group}[{index}]"


def alloc_index(name: str) -> int:
    """The number in the brackets of an allocation's name; -1 when the name has none."""
    found = _ALLOC_NAME.fullmatch(name)
    return int(found[3]) if found else -1


def short_id(identifier: str) -> str:
    """The first eight characters, as lists show ids."""
    return identifier[:SHORT_ID_LENGTH]


def periodic_child_id(parent_id: str, launch_s: int) -> str:
    """The id of a periodic job's child that is due at `launch_s` Unix seconds."""
    return f"{parent_id}/periodic-{launch_s}"


def dispatched_child_id(parent_id: str, now_s: int, suffix: str, template: str = "") -> str:
    """The id of a dispatched child: `parent/dispatch-[template-]seconds-suffix`. suffix: eight random hex digits."""
    prefix = f"{template}-" if template else ""
    return f"{parent_id}/dispatch-{prefix}{now_s}-{suffix}"
