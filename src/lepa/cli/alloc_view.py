"""Pure: allocations in tables."""

from collections.abc import Sequence

from lepa.cli.output import Json, ago, moment, short, table


def allocation_table(stubs: Sequence[Json], now_ns: int, *, verbose: bool = False, with_job: bool = False) -> str:
    """Allocations, the newest first. with_job: with the job's name instead of the group only."""
    if not stubs:
        return "No allocations placed"
    ordered = sorted(stubs, key=lambda stub: (-stub.get("CreateIndex", 0), stub["ID"]))
    if verbose:
        header = ["ID", "Eval ID", "Node ID", "Node Name", "Task Group", "Version", "Desired", "Status"]
    else:
        header = ["ID", "Node ID", "Task Group", "Version", "Desired", "Status"]
    header += ["Created", "Modified"]
    if with_job:
        header.insert(header.index("Task Group"), "Job ID")
    return table(header, [_row(stub, now_ns, verbose, with_job) for stub in ordered])


def _row(stub: Json, now_ns: int, verbose: bool, with_job: bool) -> list[object]:
    placed = [short(stub["NodeID"], verbose), *([stub.get("NodeName", "")] if verbose else [])]
    return [
        short(stub["ID"], verbose),
        *([stub.get("EvalID", "")] if verbose else []),
        *placed,
        *([stub["JobID"]] if with_job else []),
        stub["TaskGroup"],
        stub.get("JobVersion", 0),
        stub.get("DesiredStatus", ""),
        stub.get("ClientStatus", ""),
        _when(stub.get("CreateTime", 0), now_ns, verbose),
        _when(stub.get("ModifyTime", 0), now_ns, verbose),
    ]


def _when(value: int, now_ns: int, verbose: bool) -> str:
    from lepa.kit.durations import SECOND, rfc3339

    return rfc3339(value // SECOND * SECOND) if verbose else ago(moment(value), now_ns)
