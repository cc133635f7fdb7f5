"""Whatever happens to a cluster, the scheduler keeps its promises.

A story is a job, a few nodes and a list of things that happen; after each the job is evaluated. Never are there more
allocations than wanted, never is a node over its resources or a port given twice; every plan passes the check it will
meet, and is safe wherever it is broken off; and when things calm down, so does the scheduler.
"""

from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import make_eval, make_group, make_job, make_node, make_task, make_task_state, make_update
from tests.fake_view import FakeView

from lepa.kit.durations import HOUR, MINUTE, SECOND, rfc3339
from lepa.model.allocation import Allocation, DesiredTransition
from lepa.model.constraint import Constraint, Spread
from lepa.model.job import Job
from lepa.model.node import DrainStrategy
from lepa.model.plan import Plan
from lepa.model.policies import DisconnectStrategy, ReschedulePolicy
from lepa.model.resources import NetworkResource, Port
from lepa.model.usage import Usage, allocation_usage, node_capacity, occupies
from lepa.scheduler.plan_check import check_plan, plan_parts
from lepa.scheduler.ports import held_ports

NODES = 3
STEPS_TO_CALM = 60

updates = st.none() | st.builds(make_update, max_parallel=st.integers(0, 3), canary=st.integers(0, 2))
disconnects = st.none() | st.builds(
    DisconnectStrategy,
    lost_after=st.sampled_from((0, 10 * MINUTE)),
    replace=st.booleans(),
    reconcile=st.sampled_from(("best_score", "keep_original", "keep_replacement", "longest_running")),
)
policies = st.sampled_from(
    (None, ReschedulePolicy(), ReschedulePolicy(attempts=1, interval=HOUR, delay=5 * SECOND, unlimited=False))
)
networks = st.sampled_from(
    (
        (),
        (NetworkResource(dynamic_ports=(Port(label="http"),)),),
        (NetworkResource(reserved_ports=(Port(label="http", value=8080),)),),
    )
)
constraints = st.sampled_from(
    ((), (Constraint(operand="distinct_hosts"),), (Constraint(ltarget="${meta.rack}", operand="=", rtarget="r0"),))
)
spreads = st.sampled_from(((), (Spread(attribute="${meta.rack}", weight=100),)))
groups = st.fixed_dictionaries(
    {
        "count": st.integers(0, 8),
        "update": updates,
        "disconnect": disconnects,
        "reschedule_policy": policies,
        "networks": networks,
        "constraints": constraints,
        "spreads": spreads,
    }
)
NODES_DO = ("down", "up", "disconnect", "drain", "remove")
ALLOCATIONS_DO = ("fail", "complete", "move", "clients", "sick-clients")
PEOPLE_DO = ("env", "count", "stop", "promote", "fail-deployment", "wait")
happenings = st.lists(st.tuples(st.sampled_from(NODES_DO + ALLOCATIONS_DO + PEOPLE_DO), st.integers(0, 5)), max_size=12)
types = st.sampled_from(("service", "service", "service", "batch", "system", "sysbatch"))


class Story:
    """A cluster with one job, and what may happen to it."""

    def __init__(self, job_type: str, group: dict[str, Any]) -> None:
        self.job_type, self.group = job_type, group
        nodes = [make_node(f"n{i}", cpu=250, meta={"rack": f"r{i % 2}"}) for i in range(NODES)]
        self.view = FakeView(*nodes, job=self.job())

    def job(self, env: int = 0, **changes: Any) -> Job:
        made = make_group(tasks=(make_task(env={"v": str(env)}),), **(self.group | changes))
        return make_job(type=self.job_type, groups=(made,))

    def happen(self, what: str, number: int) -> None:
        """Let one thing happen."""
        view, node_id = self.view, f"n{number % NODES}"
        alive = [alloc for alloc in view.wanted() if alloc.client_status == "running"]
        chosen = alive[number % len(alive)] if alive else None
        if what in ("down", "up", "disconnect") and view.node(node_id) is not None:
            status = {"down": "down", "up": "ready", "disconnect": "disconnected"}[what]
            view.change_node(node_id, status=status, status_updated_at=view.now_ns // SECOND)
        elif what == "up":
            view.put_node(make_node(node_id, cpu=250))
        elif what == "drain" and view.node(node_id) is not None:
            view.change_node(node_id, drain_strategy=DrainStrategy())
            for alloc in view.node_allocations(node_id):
                view.put_alloc(alloc, desired_transition=DesiredTransition(migrate=True))
        elif what == "remove" and view.node(node_id) is not None:
            view.remove_node(node_id)
        elif what == "fail" and chosen is not None:
            state = make_task_state(state="dead", failed=True, finished_at=rfc3339(view.now_ns))
            view.put_alloc(chosen, client_status="failed", task_states={"web": state})
        elif what == "complete" and chosen is not None:
            view.put_alloc(chosen, client_status="complete")
        elif what == "move" and chosen is not None:
            view.put_alloc(chosen, desired_transition=DesiredTransition(migrate=True))
        elif what == "env":
            view.put_job(self.job(env=number))
        elif what == "count":
            self.group["count"] = number
            view.put_job(msgspec.structs.replace(self.job(), meta={}))
        elif what == "wait":
            view.now_ns += number * 5 * MINUTE
        elif what in ("clients", "sick-clients"):
            view.run_clients(healthy=what == "clients")
        elif what == "promote" and view.deployments:
            view.promote()
        elif what == "fail-deployment" and view.deployments and view.deployments[-1].status == "running":
            view.set_deployment(view.deployments[-1].id, status="failed")
        elif what == "stop":
            view.put_job(msgspec.structs.replace(self.job(), stop=True))

    def evaluate(self) -> Plan:
        """One evaluation, with the promises checked on the way."""
        job = self.view.job("default", "web")
        outcome = self.view.evaluate(make_eval(job=job), apply=False)
        result = check_plan(outcome.plan, self.view)
        assert not result.rejected_nodes, "a plan on an unchanged state has to fit"
        self.break_off(outcome.plan)
        self.view.commit(outcome.plan)
        self.check(self.view)
        if self.job_type in ("service", "batch") and not came_back(self.view):
            assert len(self.counted(self.view)) <= self.count_wanted()
        return outcome.plan

    def break_off(self, plan: Plan) -> None:
        """Commit a plan one allocation at a time: at no time more than there were, or more than are wanted."""
        view = fork(self.view)
        bound = max(len(self.counted(view)), self.count_wanted())
        for part in plan_parts(msgspec.structs.replace(plan, all_at_once=False), 1):
            view.commit(part)
            self.check(view)
            if self.job_type in ("service", "batch") and not came_back(view):
                assert len(self.counted(view)) <= bound

    def check(self, view: FakeView) -> None:
        """On each node one of a system job, no more than it has room for, and no port twice."""
        if self.job_type in ("system", "sysbatch"):
            nodes = Counter(alloc.node_id for alloc in self.counted(view))
            assert max(nodes.values(), default=0) <= 1
        for node in view.nodes():
            occupying = [alloc for alloc in view.node_allocations(node.id) if occupies(alloc)]
            total = Usage()
            for alloc in occupying:
                total = total.plus(allocation_usage(alloc))
            assert total.fits(node_capacity(node))
            ports = Counter(port for alloc in occupying for port in held_ports(alloc))
            assert not ports or max(ports.values()) == 1

    def counted(self, view: FakeView) -> list[Allocation]:
        """What counts: canaries and those whose node is away do not."""
        return [alloc for alloc in view.wanted() if alloc.client_status != "unknown" and not is_canary(alloc)]

    def count_wanted(self) -> int:
        job = self.view.job("default", "web")
        return job.task_groups[0].count if job is not None and not job.stop else 0


def is_canary(alloc: Allocation) -> bool:
    return alloc.deployment_status is not None and alloc.deployment_status.canary


def came_back(view: FakeView) -> bool:
    """Whether an allocation was unknown at any time: then there may be two of a name until the next evaluation."""
    return any(alloc.alloc_states for alloc in view.all_allocs())


def fork(view: FakeView) -> FakeView:
    """A copy that may change by itself."""
    other = copy(view)
    for name, value in vars(view).items():
        if isinstance(value, dict | list | set):
            setattr(other, name, copy(value))
    return other


def calm_down(story: Story) -> None:
    """All nodes and clients do as they should, until nothing changes any more."""
    for number in range(NODES):
        story.happen("up", number)
    for _ in range(STEPS_TO_CALM):
        story.view.now_ns += HOUR
        story.view.run_clients()
        if story.view.deployments and story.view.deployments[-1].status == "running":
            story.view.promote()
        if story.evaluate().empty:
            return
    raise AssertionError("the scheduler does not come to rest")


calm: Callable[[Any], Any] = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@calm
@given(types, groups, happenings)
def test_promises_hold_whatever_happens(job_type: str, group: dict[str, Any], story: list[tuple[str, int]]) -> None:
    told = Story(job_type, dict(group))
    told.evaluate()
    for what, number in story:
        told.happen(what, number)
        told.evaluate()
    calm_down(told)


@calm
@given(st.integers(0, 8), st.sampled_from(("service", "batch")), st.integers(0, 2**32), spreads)
def test_an_undisturbed_job_gets_exactly_its_count(
    count: int, job_type: str, seed: int, spread: tuple[Spread, ...]
) -> None:
    job = make_job(type=job_type, groups=(make_group(count=count, spreads=spread),))
    view = FakeView(*(make_node(f"n{i}", meta={"rack": f"r{i % 2}"}) for i in range(NODES)), job=job)
    view.evaluate(make_eval(job=job), seed=seed)
    assert sorted(alloc.name for alloc in view.wanted()) == sorted(f"web.web[{i}]" for i in range(count))
    assert view.evaluate(make_eval(job=job), seed=seed + 1).plan.empty
