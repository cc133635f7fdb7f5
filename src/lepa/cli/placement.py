"""Pure: why allocations could not be placed, in words."""

import shlex
from collections.abc import Iterator

from lepa.cli.output import Json


def reasons(metrics: Json) -> list[str]:
    """What an AllocMetric says, one reason a line."""
    return list(_reasons(metrics))


def _reasons(metrics: Json) -> Iterator[str]:
    if not metrics.get("NodesEvaluated"):
        yield "No nodes were eligible for evaluation"
    available = metrics.get("NodesAvailable") or {}
    if metrics.get("NodesInPool") == 0 and metrics.get("NodePool"):
        yield f'No nodes are available in node pool "{metrics["NodePool"]}"'
    elif available and not any(available.values()):
        for datacenter in sorted(available):
            yield f'No nodes are available in datacenter "{datacenter}"'
    for name, count in _counted(metrics, "ClassFiltered"):
        yield f'Class "{name}": {count} nodes excluded by filter'
    for name, count in _counted(metrics, "ConstraintFiltered"):
        yield f'Constraint "{name}": {count} nodes excluded by filter'
    if exhausted := metrics.get("NodesExhausted"):
        yield f"Resources exhausted on {exhausted} nodes"
    for name, count in _counted(metrics, "ClassExhausted"):
        yield f'Class "{name}" exhausted on {count} nodes'
    for name, count in _counted(metrics, "DimensionExhausted"):
        yield f'Dimension "{name}" exhausted on {count} nodes'
    for dimension in metrics.get("QuotaExhausted") or ():
        yield f'Quota limit hit "{dimension}"'


def _counted(metrics: Json, key: str) -> list[tuple[str, int]]:
    return sorted((metrics.get(key) or {}).items())


def failures(groups: dict[str, Json]) -> list[str]:
    """A block for each group of which something could not be placed."""
    lines = []
    for name, metrics in sorted(groups.items()):
        count = metrics.get("CoalescedFailures", 0) + 1
        lines.append(f'Task Group "{name}" (failed to place {count} allocation{"s" if count > 1 else ""}):')
        lines += [f"  * {reason}" for reason in reasons(metrics)]
    return lines


def where_to_look(job: str) -> str:
    """What tells more than counts."""
    return f"What each node lacks: lepa job explain {shlex.quote(job)}"


def scores(metrics: Json) -> tuple[list[str], list[list[object]]]:
    """The header and rows of a table of nodes and what they scored."""
    nodes = metrics.get("ScoreMetaData") or []
    names = sorted({name for node in nodes for name in node.get("Scores") or {}})
    rows: list[list[object]] = []
    for node in nodes:
        found = node.get("Scores") or {}
        rows.append([node["NodeID"][:8], *(_score(found.get(name, 0)) for name in names), _score(node["NormScore"])])
    return ["Node", *names, "Final score"], rows


def _score(value: float) -> str:
    return f"{value:.3g}"
