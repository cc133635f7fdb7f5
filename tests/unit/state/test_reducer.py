"""(snapshot, changes) -> the next snapshot: indexes, statuses, counts, touched nodes."""

from typing import Any

from tests.builders import make_alloc, make_deployment, make_eval, make_job, make_node

from lepa.model.allocation import AllocDeploymentStatus
from lepa.model.node import NodeEvent
from lepa.model.policies import PeriodicConfig
from lepa.model.wire import Wire
from lepa.state import keys
from lepa.state.keys import THIS_REVISION
from lepa.state.reducer import Reduction, reduce
from lepa.state.snapshot import JOB_SUMMARY, TOUCHES_MAX, Snapshot, empty_snapshot
from lepa.state.tables import Watch
from lepa.store.protocol import Change


def change(key: str, row: Wire | None, revision: int, created: int = 0) -> Change:
    return Change(key, None if row is None else keys.put(key, row).value, created or revision, revision)


def job_put(job: Any, revision: int, created: int = 0) -> Change:
    return change(keys.job_key(job.namespace, job.id), job, revision, created)


def alloc_put(alloc: Any, revision: int, created: int = 0) -> Change:
    return change(keys.alloc_key(alloc.id), alloc, revision, created)


def eval_put(evaluation: Any, revision: int, created: int = 0) -> Change:
    return change(keys.eval_key(evaluation.id), evaluation, revision, created)


def reduced(*changes: Change, before: Snapshot | None = None) -> Reduction:
    return reduce(before or empty_snapshot(), changes)


def test_indexes_come_from_the_revisions_of_the_store() -> None:
    snapshot = reduced(job_put(make_job(create_index=77, modify_index=78), 5, created=3)).snapshot
    job = snapshot.job("default", "web")
    assert job is not None
    assert (job.create_index, job.modify_index, job.job_modify_index) == (3, 5, 5)
    assert snapshot.index == 5


def test_a_job_modify_index_that_is_written_stays() -> None:
    job = reduced(job_put(make_job(job_modify_index=3), 5)).snapshot.job("default", "web")
    assert job is not None
    assert job.job_modify_index == 3


def test_a_client_report_does_not_move_the_alloc_modify_index() -> None:
    snapshot = reduced(alloc_put(make_alloc(client_status="pending"), 4)).snapshot
    placed = snapshot.allocation("alloc-1")
    assert placed is not None
    assert placed.alloc_modify_index == 4
    report = make_alloc(client_status="running", alloc_modify_index=placed.alloc_modify_index)
    reported = reduced(alloc_put(report, 9, created=4), before=snapshot).snapshot.allocation("alloc-1")
    assert reported is not None
    assert (reported.modify_index, reported.alloc_modify_index, reported.create_index) == (9, 4, 4)


def test_this_revision_is_replaced_wherever_it_may_stand() -> None:
    status = AllocDeploymentStatus(healthy=True, modify_index=THIS_REVISION)
    snapshot = reduced(
        eval_put(make_eval(job_modify_index=THIS_REVISION), 6),
        change(
            keys.deployment_key("d"),
            make_deployment("d", job_create_index=THIS_REVISION, job_modify_index=2, job_spec_modify_index=0),
            6,
        ),
        alloc_put(make_alloc(deployment_status=status), 6),
        change(keys.node_key("n"), make_node("n", events=(NodeEvent(create_index=THIS_REVISION),)), 6),
    ).snapshot
    evaluation, deployment = snapshot.evaluation("eval-1"), snapshot.deployment("d")
    alloc, node = snapshot.allocation("alloc-1"), snapshot.node("n")
    assert evaluation is not None
    assert deployment is not None
    assert alloc is not None
    assert alloc.deployment_status is not None
    assert node is not None
    assert evaluation.job_modify_index == 6
    assert (deployment.job_create_index, deployment.job_modify_index, deployment.job_spec_modify_index) == (6, 2, 0)
    assert alloc.deployment_status.modify_index == 6
    assert node.events[0].create_index == 6


def test_the_status_of_a_job_follows_its_allocations_and_evaluations() -> None:
    statuses = []
    snapshot = empty_snapshot()
    for changes in (
        [job_put(make_job(), 1), eval_put(make_eval(), 1)],
        [alloc_put(make_alloc(client_status="pending"), 2), eval_put(make_eval(status="complete"), 2, 1)],
        [alloc_put(make_alloc(client_status="complete"), 3, 2)],
        [job_put(make_job(stop=True), 4, 1)],
    ):
        snapshot = reduced(*changes, before=snapshot).snapshot
        job = snapshot.job("default", "web")
        assert job is not None
        statuses.append((job.status, job.modify_index))
    assert statuses == [("pending", 1), ("running", 1), ("dead", 1), ("dead", 4)]


def test_a_stored_status_is_not_believed() -> None:
    job = reduced(job_put(make_job(status="dead"), 1)).snapshot.job("default", "web")
    assert job is not None
    assert job.status == "pending"


def test_a_new_status_wakes_the_summary_and_not_the_job() -> None:
    snapshot = reduced(job_put(make_job(), 1)).snapshot
    reduction = reduced(alloc_put(make_alloc(), 2), before=snapshot)
    key = ("default", "web")
    assert Watch(JOB_SUMMARY, "id", key) in reduction.touched
    assert Watch("jobs", "id", key) not in reduction.touched
    assert reduction.snapshot.index_of(Watch(JOB_SUMMARY, "id", key)) == 2
    assert reduction.snapshot.table_index("jobs") == 1


def test_a_report_that_counts_nothing_new_leaves_the_summary_alone() -> None:
    snapshot = reduced(job_put(make_job(), 1), alloc_put(make_alloc(), 1)).snapshot
    reduction = reduced(alloc_put(make_alloc(client_description="Tasks are running"), 2, 1), before=snapshot)
    assert Watch(JOB_SUMMARY) not in reduction.touched
    assert Watch("allocs", "job", ("default", "web")) in reduction.touched


def test_what_is_queued_is_told_by_the_evaluation_that_saw_the_newest_state() -> None:
    job = make_job()

    def evaluation(name: str, queued: int, status: str, seen: int) -> Any:
        return make_eval(name, job=job, queued_allocations={"web": queued}, status=status, snapshot_index=seen)

    snapshot = reduced(
        job_put(job, 2),
        eval_put(evaluation("blocked", 1, "blocked", seen=3), 4),
        eval_put(evaluation("later", 0, "complete", seen=6), 7),
        eval_put(evaluation("blocked", 1, "canceled", seen=3), 8, created=4),
    ).snapshot
    summary = snapshot.job_summary("default", "web")
    assert summary is not None
    assert summary.summary["web"].queued == 0


def test_the_summary_counts_allocations_queued_ones_and_children() -> None:
    parent = make_job("cron", periodic=PeriodicConfig())
    child = make_job("cron/periodic-1", parent_id="cron")
    snapshot = reduced(
        job_put(parent, 1),
        job_put(child, 2),
        alloc_put(make_alloc("a", job=child), 3),
        eval_put(make_eval("e", job=child, queued_allocations={"web": 2}, status="blocked"), 3),
    ).snapshot
    summary, above = snapshot.job_summary("default", "cron/periodic-1"), snapshot.job_summary("default", "cron")
    assert summary is not None
    assert above is not None
    assert above.children is not None
    assert (summary.summary["web"].running, summary.summary["web"].queued) == (1, 2)
    assert (above.children.pending, above.children.running, above.children.dead) == (0, 1, 0)
    gone = reduced(change(keys.job_key("default", child.id), None, 4, 2), before=snapshot).snapshot
    above = gone.job_summary("default", "cron")
    assert above is not None
    assert above.children is not None
    assert above.children.running == 0
    assert gone.job_summary("default", child.id) is None


def test_a_child_that_moves_leaves_the_counts_of_its_parent_alone() -> None:
    parent, child = make_job("cron"), make_job("cron/1", parent_id="cron")
    snapshot = reduced(job_put(parent, 1), alloc_put(make_alloc("a", job=parent), 1), job_put(child, 1)).snapshot
    before = snapshot.tallies["default", "cron"]
    after = reduced(alloc_put(make_alloc("b", job=child), 2), before=snapshot).snapshot.tallies["default", "cron"]
    assert before.allocations == 1
    assert after == before._replace(changed=2)


def test_a_change_of_another_table_is_ignored_but_moves_the_index() -> None:
    reduction = reduced(Change("leader", b"me", 7, 7))
    assert reduction.snapshot.index == 7
    assert reduction.touched == frozenset()
    assert reduction.changes == ()


def test_changes_are_told_in_order_with_before_and_after() -> None:
    reduction = reduced(job_put(make_job(), 1), alloc_put(make_alloc(), 2), job_put(make_job(priority=60), 3, 1))
    assert [(row.table, row.revision, row.before is None) for row in reduction.changes] == [
        ("jobs", 1, True),
        ("allocs", 2, True),
        ("jobs", 2, False),
        ("jobs", 3, False),
    ]
    jobs = [(row.after.status, row.after.priority) for row in reduction.changes if row.table == "jobs"]
    assert jobs == [("pending", 50), ("running", 50), ("running", 60)]


def test_a_new_status_is_told_with_the_revision_that_brought_it() -> None:
    changes = [
        [job_put(make_job(), 1), eval_put(make_eval(), 1)],
        [alloc_put(make_alloc(client_status="pending"), 2), eval_put(make_eval(status="complete"), 2, 1)],
        [alloc_put(make_alloc(client_status="running"), 3, 2)],
        [alloc_put(make_alloc(client_status="failed"), 4, 2)],
        [job_put(make_job(stop=True), 5, 1)],
        [change(keys.job_key("default", "web"), None, 6, 1)],
    ]
    told = reduced(*(one for revision in changes for one in revision)).changes
    jobs = [row for row in told if row.table == "jobs"]
    assert [(row.before and row.before.status, row.after and row.after.status, row.revision) for row in jobs] == [
        (None, "pending", 1),
        ("pending", "running", 2),
        ("running", "dead", 4),
        ("dead", "dead", 5),
        ("dead", None, 6),
    ]
    assert [row.after.modify_index for row in jobs if row.after] == [1, 2, 4, 5]


def test_touched_nodes_are_those_whose_allocations_or_selves_changed() -> None:
    snapshot = reduced(change(keys.node_key("n1"), make_node("n1"), 1)).snapshot
    snapshot = reduced(alloc_put(make_alloc("a", node_id="n2"), 2), before=snapshot).snapshot
    snapshot = reduced(change(keys.alloc_key("a"), None, 3, 2), before=snapshot).snapshot
    assert snapshot.touched_nodes(0) == {"n1", "n2"}
    assert snapshot.touched_nodes(1) == snapshot.touched_nodes(2) == {"n2"}
    assert snapshot.touched_nodes(3) == frozenset()


def test_touches_long_ago_are_forgotten() -> None:
    snapshot = empty_snapshot()
    for revision in range(1, TOUCHES_MAX + 10):
        snapshot = reduced(change(keys.node_key("n"), make_node("n"), revision, 1), before=snapshot).snapshot
    assert len(snapshot.touches) <= TOUCHES_MAX
    assert snapshot.touched_nodes(0) is None
    assert snapshot.touched_nodes(snapshot.forgotten) == {"n"}


def test_no_changes_give_the_same_snapshot() -> None:
    snapshot = empty_snapshot()
    assert reduced(before=snapshot).snapshot is snapshot
