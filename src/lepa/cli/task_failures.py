"""Pure: why tasks failed, in a line each, picked out of the events of their allocations."""

from collections.abc import Iterable, Iterator

from lepa.cli.output import Json, short

SHOWN_MAX = 3
"""Reasons; a job of a hundred instances fails for the same one a hundred times."""

HOUSEKEEPING = frozenset(
    {
        "Alloc Unhealthy",
        "Downloading Artifacts",
        "Killed",
        "Killing",
        "Not Restarting",
        "Received",
        "Restart Signaled",
        "Restarting",
        "Started",
        "Task Setup",
    }
)
"""Events that tell what was done about a failure, or before it, and never what failed."""


def failure_lines(allocations: Iterable[Json], verbose: bool = False) -> list[str]:
    """What failed in these allocations, the newest first; the same reason of the same task once."""
    seen: set[tuple[str, str, str]] = set()
    lines = []
    for alloc in sorted(allocations, key=lambda alloc: (-alloc.get("CreateIndex", 0), alloc["ID"])):
        for task, reason in _reasons(alloc):
            key = (alloc["TaskGroup"], task, reason)
            if key not in seen and len(seen) < SHOWN_MAX:
                seen.add(key)
                lines.append(f'Allocation "{short(alloc["ID"], verbose)}", task "{task}": {reason}')
    return lines


def _reasons(alloc: Json) -> Iterator[tuple[str, str]]:
    states: dict[str, Json] = alloc.get("TaskStates") or {}
    failed = {name: state for name, state in states.items() if state.get("Failed")}
    for name, state in sorted((failed or states).items()):
        if reason := why(state, failed=bool(failed)):
            yield name, reason


def why(state: Json, *, failed: bool) -> str:
    """The last thing of a task that went wrong. Of a task that only was not healthy in time, that."""
    events = list(reversed(state.get("Events") or []))
    telling = [event for event in events if event["Type"] not in HOUSEKEEPING] if failed else []
    late = [event for event in events if event["Type"] == "Alloc Unhealthy"]
    for event in [*telling, *late][:1]:
        return str(event.get("DisplayMessage") or event["Type"])
    return ""
