"""Why each node would be chosen for a group, or would not."""

from typing import Any

from msgspec.structs import replace
from tests.builders import make_alloc, make_eval, make_group, make_job, make_node, make_task
from tests.fake_view import FakeView, Ids

from lepa.kit.durations import HOUR
from lepa.model.constraint import Affinity, Constraint
from lepa.model.explanation import GroupExplanation, NodeVerdict
from lepa.model.job import Job
from lepa.model.node import DrainStrategy, DriverInfo
from lepa.model.resources import NetworkResource, Port
from lepa.scheduler.context import Context
from lepa.scheduler.explain import ORDER, explain_group


def explained(view: FakeView, job: Job, **options: Any) -> GroupExplanation:
    view.columns.refresh(view)
    context = Context(make_eval(job=job), view, view.columns, 100 * HOUR, 1, Ids())
    return explain_group(context, job, job.task_groups[0], **options)


def verdict_of(found: GroupExplanation, node_id: str) -> NodeVerdict:
    return next(node for node in found.nodes if node.node_id == node_id)


def test_the_best_nodes_are_chosen_and_the_others_fit() -> None:
    job = make_job(count=1, affinities=(Affinity(ltarget="${node.unique.name}", rtarget="b", operand="=", weight=100),))
    view = FakeView(make_node("a"), make_node("b"), job=job)
    found = explained(view, job)
    assert found.summary == "0 of 1 run; 2 of 2 nodes have room for it"
    assert [(node.node_id, node.verdict, node.rank) for node in found.nodes] == [("b", "chosen", 1), ("a", "fits", 2)]
    assert verdict_of(found, "b").score > verdict_of(found, "a").score
    assert "affinities: +1.00" in verdict_of(found, "b").reasons
    assert found.verdicts == {"chosen": 1, "fits": 1}


def test_what_runs_now_is_taken_away_in_thought() -> None:
    job = make_job(count=2)
    view = FakeView(make_node("a", cpu=200), job=job)
    for number in range(2):
        view.put_alloc(make_alloc(f"x{number}", job=job, index=number, node_id="a"))
    found = explained(view, job)
    node = verdict_of(found, "a")
    assert (node.verdict, node.running, node.placed) == ("chosen", 2, 2)
    assert found.summary == "2 of 2 run; 1 of 1 node has room for it"


def test_each_way_of_not_being_chosen_has_its_sentence() -> None:
    job = make_job(
        groups=(
            make_group(
                tasks=(make_task(cpu=500),),
                constraints=(Constraint(ltarget="${meta.rack}", operand="=", rtarget="r1"),),
                networks=(NetworkResource(reserved_ports=(Port(label="http", value=80),)),),
            ),
        ),
        datacenters=("dc1",),
    )
    rack = {"meta": {"rack": "r1"}}
    draining = DrainStrategy()
    view = FakeView(
        make_node("fits", **rack),
        make_node("far", datacenter="dc2", node_pool="gpu", **rack),
        make_node("down", status="down", **rack),
        make_node("drains", drain_strategy=draining, **rack),
        make_node("ineligible", scheduling_eligibility="ineligible", **rack),
        make_node("small", cpu=400, **rack),
        make_node("rackless"),
        make_node("taken", **rack),
        make_node("driverless", drivers={"mock_driver": DriverInfo(detected=True)}, attributes={}, **rack),
        job=job,
    )
    other = make_job("other", groups=(make_group(networks=job.task_groups[0].networks),))
    view.put_alloc(
        replace(
            made := make_alloc("holder", job=other, node_id="taken"),
            allocated_resources=replace(
                made.allocated_resources,
                shared=replace(
                    made.allocated_resources.shared,
                    networks=(NetworkResource(reserved_ports=(Port(label="http", value=80),), ip="127.0.0.1"),),
                ),
            ),
        )
    )
    found = explained(view, job)
    told = {node.node_id: (node.verdict, node.reasons[0] if node.reasons else "") for node in found.nodes}
    assert told["fits"][0] == "chosen"
    assert told["far"] == ("elsewhere", 'it is in node pool "gpu", the job asks for "default"')
    assert told["down"] == ("not ready", "it is down")
    assert told["drains"] == ("not ready", "it is being drained")
    assert told["ineligible"] == ("not ready", "it is marked as ineligible for new work")
    assert told["small"] == ("exhausted", "the group asks for 500 MHz of CPU; 400 of 400 are free")
    assert told["rackless"] == (
        "filtered",
        "constraint ${meta.rack} = r1 does not hold: the node has no such value",
    )
    assert told["taken"] == ("exhausted", 'port 80 ("http") is taken on it')
    assert told["driverless"] == ("filtered", 'driver "mock_driver" is not healthy on it')
    order = [ORDER.index(node.verdict) for node in found.nodes]
    assert order == sorted(order)


def test_distinct_hosts_closes_nodes_where_another_group_runs() -> None:
    groups = (make_group("web"), make_group("db"))
    job = make_job(groups=groups, constraints=(Constraint(operand="distinct_hosts"),))
    view = FakeView(make_node("a"), make_node("b"), job=job)
    view.put_alloc(make_alloc("x", job=job, node_id="a", task_group="db", name="web.db[0]"))
    node = verdict_of(explained(view, job), "a")
    assert (node.verdict, node.reasons) == ("closed", ("distinct_hosts keeps more of the job away from it",))


def test_a_system_job_is_wanted_on_every_open_node() -> None:
    job = make_job(type="system", constraints=(Constraint(ltarget="${node.unique.name}", operand="!=", rtarget="c"),))
    view = FakeView(make_node("a"), make_node("b", cpu=10), make_node("c"), job=job)
    found = explained(view, job)
    assert (found.wanted, found.verdicts) == (2, {"chosen": 1, "exhausted": 1, "filtered": 1})
    assert found.summary == "0 of 2 run; there is room for 1 on 3 nodes"


def test_a_stopped_job_says_so_and_nodes_are_bounded() -> None:
    job = make_job(count=1, stop=True)
    view = FakeView(*(make_node(f"n{number}") for number in range(5)), job=job)
    found = explained(view, job, nodes_max=2)
    assert found.summary == "0 of 1 run; the job is stopped"
    assert (len(found.nodes), found.nodes_omitted) == (2, 3)


def test_the_explanation_and_the_scheduler_choose_the_same_nodes() -> None:
    job = make_job(count=3)
    view = FakeView(*(make_node(f"n{number}", cpu=200 + number) for number in range(6)), job=job)
    found = explained(view, job)
    outcome = view.evaluate(make_eval(job=job), seed=1, apply=False)
    chosen = sorted(node.node_id for node in found.nodes for _ in range(node.placed))
    assert chosen == sorted(alloc.node_id for alloc in outcome.plan.updates)
