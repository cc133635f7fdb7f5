"""What the monitor tells."""

from tests.unit.cli.objects import ALLOC, DEPLOYMENT, NODE, OTHER, alloc_stub, evaluation, unplaced

from lepa.cli.evaluation_progress import EvaluationProgress, ending


def test_each_change_is_told_once() -> None:
    progress = EvaluationProgress()
    assert progress.update(evaluation("pending"), []) == ['Evaluation triggered by job "web"']
    assert progress.update(evaluation("pending"), []) == []
    stub = alloc_stub(ClientStatus="pending")
    assert progress.update(evaluation("complete", DeploymentID=DEPLOYMENT), [stub]) == [
        'Evaluation within deployment: "44444444"',
        'Allocation "11111111" created: node "22222222", group "page"',
        'Evaluation status changed: "pending" -> "complete"',
    ]
    running = alloc_stub(ClientDescription="Tasks are running")
    assert progress.update(evaluation("complete", DeploymentID=DEPLOYMENT), [running]) == [
        'Allocation "11111111" status changed: "pending" -> "running" (Tasks are running)'
    ]


def test_allocations_from_before_are_modified_and_unwanted_ones_stopped() -> None:
    older, stopped = alloc_stub(CreateIndex=2), alloc_stub(OTHER, DesiredStatus="stop")
    lines = EvaluationProgress().update(evaluation(), [stopped, older])
    assert lines[1:] == [
        'Allocation "11111111" modified: node "22222222", group "page"',
        'Allocation "11112222" stopped: node "22222222", group "page"',
    ]


def test_verbose_tells_whole_ids_and_nodes_trigger_too() -> None:
    lines = EvaluationProgress(verbose=True).update(evaluation(TriggeredBy="node-update", NodeID=NODE), [alloc_stub()])
    assert lines == [
        f'Evaluation triggered by node "{NODE}"',
        f'Allocation "{ALLOC}" created: node "{NODE}", group "page"',
    ]


def test_the_end_says_what_is_missing() -> None:
    assert ending(evaluation()) == 'Evaluation "33333333" finished with status "complete"'
    failed = evaluation(FailedTGAllocs={"page": unplaced()})
    assert ending(failed).endswith("but failed to place all allocations:")
    assert ending(evaluation("failed", StatusDescription="too many tries")).endswith('"failed" (too many tries)')
