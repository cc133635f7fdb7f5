"""Whatever nodes come, go and fail to become healthy, a system job rolls out as it promised.

Never are there two of a group on a node, never more unproven allocations of a new version than may change at once,
never a canary too many; what is healthy everywhere has succeeded, and then nothing changes any more.
"""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import make_eval, make_node, make_update
from tests.fake_view import FakeView
from tests.unit.scheduler.test_system import system

STEPS = 40

happenings = st.lists(
    st.tuples(st.sampled_from(("join", "down", "drain", "promote", "well", "nothing")), st.integers(0, 7)), max_size=12
)


def evaluate(view: FakeView) -> None:
    view.evaluate(make_eval(job=view.job("default", "web")))


def check(view: FakeView, max_parallel: int, replaced: set[str]) -> None:
    """The promises. replaced: nodes that had an older version when the new one came."""
    wanted = view.wanted()
    assert max(Counter(alloc.node_id for alloc in wanted).values(), default=0) <= 1
    deployment = view.latest_deployment("default", "web")
    if deployment is None or deployment.job_version != 1:
        return
    ours = [a for a in wanted if a.deployment_id == deployment.id and a.node_id in replaced]
    unproven = [a for a in ours if a.deployment_status is None or a.deployment_status.healthy is None]
    assert len(unproven) <= max_parallel
    state = deployment.task_groups["web"]
    if state.desired_canaries and not state.promoted:
        assert sum(alloc.job_version == 1 for alloc in ours) <= state.desired_canaries


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes=st.integers(1, 5), max_parallel=st.integers(1, 3), canary=st.sampled_from((0, 30, 100)), story=happenings)
def test_a_system_job_rolls_out_as_promised(
    nodes: int, max_parallel: int, canary: int, story: list[tuple[str, int]]
) -> None:
    update = make_update(max_parallel=max_parallel, canary=canary)
    view = FakeView(*(make_node(f"n{number}") for number in range(nodes)), job=system(update=update))
    for _ in range(2):
        evaluate(view)
        view.run_clients()
    view.put_job(system(env="new", update=update))
    replaced = {alloc.node_id for alloc in view.wanted()}
    for what, number in story:
        name = f"n{number}"
        if what == "join" and view.node(name) is None:
            view.put_node(make_node(name))
        elif what == "down" and view.node(name) is not None:
            view.change_node(name, status="down")
        elif what == "drain" and view.node(name) is not None:
            view.change_node(name, scheduling_eligibility="ineligible")
        elif what == "promote":
            _promote_when_healthy(view)
        elif what == "well":
            view.run_clients()
        evaluate(view)
        check(view, max_parallel, replaced)
    for _ in range(STEPS):
        view.run_clients()
        _promote_when_healthy(view)
        evaluate(view)
        check(view, max_parallel, replaced)
    ready = {node.id for node in view.nodes() if node.status == "ready" and node.scheduling_eligibility == "eligible"}
    assert {alloc.node_id for alloc in view.wanted() if alloc.job_version == 1} >= ready
    latest = view.latest_deployment("default", "web")
    if ready:
        assert latest is not None
        assert (latest.job_version, latest.status) == (1, "successful")
    assert view.evaluate(make_eval(job=view.job("default", "web"))).plan.empty


def _promote_when_healthy(view: FakeView) -> None:
    latest = view.latest_deployment("default", "web")
    state = latest.task_groups["web"] if latest is not None else None
    if latest is None or state is None or latest.status != "running" or state.promoted or not state.desired_canaries:
        return
    healthy = [
        alloc
        for alloc in view.wanted()
        if alloc.deployment_id == latest.id and alloc.deployment_status is not None and alloc.deployment_status.healthy
    ]
    if len([alloc for alloc in healthy if alloc.deployment_status and alloc.deployment_status.canary]) >= min(
        state.desired_canaries, state.desired_total
    ):
        view.promote()
