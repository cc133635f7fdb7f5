"""What past schedulings wrote down, in words."""

from tests.builders import make_alloc, make_eval, make_job

from lepa.model.evaluation import AllocMetric, NodeScoreMeta
from lepa.scheduler.recorded import DECISIONS_SHOWN, recorded_decisions

METRIC = AllocMetric(
    nodes_evaluated=3,
    constraint_filtered={"${meta.rack} = r1": 1},
    dimension_exhausted={"memory": 1},
    score_meta_data=(
        NodeScoreMeta(node_id="n1", scores={"binpack": 0.5, "node-affinity": 1.0}, norm_score=0.75),
        NodeScoreMeta(node_id="n2-and-more", scores={"binpack": 0.5}, norm_score=0.5),
    ),
)


def test_a_placement_tells_its_score_and_that_of_the_next() -> None:
    alloc = make_alloc("a", job=make_job(), node_id="n1", node_name="one", metrics=METRIC)
    (decision,) = recorded_decisions([alloc], [])
    assert (decision.allocation_id, decision.node_name, decision.eval_id) == ("a", "one", "eval-1")
    assert decision.reasons == (
        "3 nodes looked at",
        "1 node excluded by ${meta.rack} = r1",
        "1 node had no room left (memory)",
        "its node scored 0.75 (binpack 0.5, node-affinity 1)",
        "the best of the others, n2-and-m, scored 0.5",
    )


def test_only_the_newest_scheduling_tells_what_could_not_be_placed() -> None:
    failed = make_eval("old", failed_tg_allocs={"web": AllocMetric(nodes_evaluated=1)}, modify_index=5)
    newer = make_eval(
        "new", failed_tg_allocs={"db": AllocMetric(node_pool="gpu", coalesced_failures=2)}, modify_index=7
    )
    (decision,) = recorded_decisions([], [newer, failed])
    assert (decision.group, decision.eval_id, decision.allocation_id) == ("db", "new", "")
    assert decision.reasons == (
        "3 allocations could not be placed",
        'no node in node pool "gpu" was ready in the job\'s datacenters',
    )


def test_a_canceled_evaluation_does_not_tell_although_it_changed_last() -> None:
    before = make_eval(
        "old", status="canceled", failed_tg_allocs={"web": AllocMetric(nodes_evaluated=1)}, modify_index=9
    )
    newer = make_eval("new", failed_tg_allocs={"web": AllocMetric(nodes_evaluated=2)}, modify_index=7)
    (decision,) = recorded_decisions([], [before, newer])
    assert decision.eval_id == "new"
    assert recorded_decisions([], [before]) == []


def test_what_was_stopped_is_not_told_and_the_list_is_bounded() -> None:
    job = make_job()
    stopped = make_alloc("s", job=job, desired_status="stop", metrics=METRIC)
    many = [make_alloc(f"a{n}", job=job, metrics=METRIC, create_index=n) for n in range(DECISIONS_SHOWN + 5)]
    found = recorded_decisions([stopped, *many], [])
    assert [decision.allocation_id for decision in found[:2]] == [f"a{DECISIONS_SHOWN + 4}", f"a{DECISIONS_SHOWN + 3}"]
    assert len(found) == DECISIONS_SHOWN
