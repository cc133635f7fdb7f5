"""Why allocations could not be placed, in words."""

from tests.unit.cli.objects import NODE, unplaced

from lepa.cli.placement import failures, reasons, scores


def test_each_reason_is_a_line() -> None:
    assert failures({"page": unplaced()}) == [
        'Task Group "page" (failed to place 2 allocations):',
        '  * Constraint "${attr.kernel.name} = windows": 2 nodes excluded by filter',
        "  * Resources exhausted on 1 nodes",
        '  * Dimension "memory" exhausted on 1 nodes',
    ]


def test_missing_nodes_are_named_by_datacenter_or_pool() -> None:
    nowhere = unplaced(NodesEvaluated=0, NodesAvailable={"dc1": 0}, ConstraintFiltered={}, NodesExhausted=0)
    assert reasons({**nowhere, "DimensionExhausted": {}}) == [
        "No nodes were eligible for evaluation",
        'No nodes are available in datacenter "dc1"',
    ]
    assert 'No nodes are available in node pool "gpu"' in reasons({**nowhere, "NodesInPool": 0, "NodePool": "gpu"})


def test_classes_and_quotas_are_named() -> None:
    found = reasons(unplaced(ClassFiltered={"small": 1}, ClassExhausted={"big": 2}, QuotaExhausted=["cpu"]))
    assert 'Class "small": 1 nodes excluded by filter' in found
    assert 'Class "big" exhausted on 2 nodes' in found
    assert found[-1] == 'Quota limit hit "cpu"'


def test_scores_are_a_table_of_nodes() -> None:
    meta = [{"NodeID": NODE, "Scores": {"binpack": 0.51234}, "NormScore": 0.5}]
    assert scores({"ScoreMetaData": meta}) == (["Node", "binpack", "Final score"], [["22222222", "0.512", "0.5"]])
