"""Pure: a deployment as people see it."""

from lepa.cli.output import Json, pairs, short, table
from lepa.kit.durations import ZERO_TIME


def describe(deployment: Json, verbose: bool = False) -> str:
    """The head, and how far each group is."""
    head = pairs(
        [
            ("ID", short(deployment["ID"], verbose)),
            ("Job ID", deployment["JobID"]),
            ("Job Version", deployment["JobVersion"]),
            ("Status", deployment["Status"]),
            ("Description", deployment["StatusDescription"]),
        ]
    )
    return f"{head}\n\nDeployed\n{groups(deployment)}"


def groups(deployment: Json) -> str:
    """A line for each group; columns for promotion only where there are canaries, for reverting where it is on."""
    states: dict[str, Json] = deployment.get("TaskGroups") or {}
    canaries = any(state.get("DesiredCanaries") for state in states.values())
    reverting = any(state.get("AutoRevert") for state in states.values())
    header = ["Task Group", *(["Auto Revert"] if reverting else []), *(["Promoted"] if canaries else []), "Desired"]
    header += [*(["Canaries"] if canaries else []), "Placed", "Healthy", "Unhealthy", "Progress Deadline"]
    rows = [_row(name, state, canaries, reverting) for name, state in sorted(states.items())]
    return table(header, rows)


def _row(name: str, state: Json, canaries: bool, reverting: bool) -> list[object]:
    deadline = state.get("RequireProgressBy") or ZERO_TIME
    promoted = state.get("Promoted", False) if state.get("DesiredCanaries") else "N/A"
    return [
        name,
        *([state.get("AutoRevert", False)] if reverting else []),
        *([promoted] if canaries else []),
        state["DesiredTotal"],
        *([state.get("DesiredCanaries", 0)] if canaries else []),
        state["PlacedAllocs"],
        state["HealthyAllocs"],
        state["UnhealthyAllocs"],
        "N/A" if deadline == ZERO_TIME else deadline[:19] + "Z",
    ]
