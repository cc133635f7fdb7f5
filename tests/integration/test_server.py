"""A server from registration to running allocations, with nodes that only answer."""

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job, make_node, make_task, make_update
from tests.integration.server_cluster import Cluster, FakeNode, cluster, completes, fails

from lepa.kit.durations import SECOND
from lepa.kit.sources import SystemClock
from lepa.model.constraint import Constraint
from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, JobDependency
from lepa.model.node import DrainSpec
from lepa.model.operator import SchedulerConfiguration
from lepa.model.policies import ParameterizedJobConfig, PeriodicConfig, ReschedulePolicy, ScalingPolicy
from lepa.model.service import ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.settings import HeartbeatSettings, ServerSettings
from lepa.state import keys
from lepa.store.memory import MemoryStore
from lepa.store.protocol import Txn
from lepa.store.sqlite import SqliteStore

ENDED = {"complete", "canceled"}
QUICK = HeartbeatSettings(min_ttl_s=0.3, grace_s=0.2)


def rolling(count: int = 1, *, image: str = "1", **update: object) -> Job:
    """A service that is rolled out; another image is another version that has to be started anew."""
    group = make_group(count=count, update=make_update(**update))
    task = replace(group.tasks[0], env={"IMAGE": image})
    return make_job(groups=(replace(group, tasks=(task,)),))


async def test_a_service_job_comes_to_run() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        answer = await c.register(make_job(count=3))
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 3, "three running allocations")
        await c.until(lambda: evaluation(c, answer.eval_id).status == "complete", "a complete evaluation")
        assert evaluation(c, answer.eval_id).triggered_by == "job-register"
        assert c.job_status("web") == "running"


def evaluation(c: Cluster, eval_id: str) -> Evaluation:
    found = c.server.replica.snapshot.evaluation(eval_id)
    assert found is not None
    return found


async def test_a_batch_job_runs_to_completion_and_is_dead() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), completes):
        await c.register(make_job("sums", count=2, type="batch"))
        await c.until(lambda: c.statuses("sums") == [("run", "complete")] * 2, "two complete allocations")
        await c.until(lambda: c.job_status("sums") == "dead", "a dead job")


async def test_a_stopped_job_stops_and_a_purged_one_is_gone() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(count=2))
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 2, "running")
        await c.stop("web")
        await c.until(lambda: c.statuses("web") == [("stop", "complete")] * 2, "stopped")
        assert c.job_status("web") == "dead"
        await c.stop("web", purge=True)
        assert c.job_status("web") == "absent"
        again = await c.stop("web")
        assert (again.eval_id, again.job_modify_index) == ("", 0)


async def test_what_ran_on_a_lost_node_is_placed_on_another() -> None:
    settings = ServerSettings(heartbeat=QUICK)
    async with cluster(settings=settings) as c, FakeNode(c.caller, make_node("node-1")) as lost:
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        async with FakeNode(c.caller, make_node("node-2")) as other:
            beating = other.tasks.start("beat", beat(other))
            await c.until(lambda: ("stop", "lost") in c.statuses("web"), "a lost allocation")
            await c.until(lambda: ("run", "running") in c.statuses("web"), "a replacement")
            assert {alloc.node_id for alloc in c.allocations("web") if alloc.client_status == "running"} == {"node-2"}
            node = c.server.replica.snapshot.node("node-1")
            assert node is not None
            assert (node.status, node.events[-1].message) == ("down", "Node heartbeat missed")
            await lost.beat()
            assert c.server.replica.snapshot.node("node-1").status == "ready"  # type: ignore[union-attr]
            beating.cancel()


async def beat(node: FakeNode) -> None:
    while True:
        await node.beat()
        await asyncio.sleep(0.1)


async def test_a_failed_allocation_is_replaced_as_its_policy_says() -> None:
    policy = ReschedulePolicy(attempts=2, interval=3_600 * SECOND, delay=0, delay_function="constant", unlimited=False)
    job = make_job("flaky", type="batch", groups=(make_group(reschedule_policy=policy),))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), fails):
        await c.caller.call(m.JOB_VALIDATE, r.JobPlanRequest(job=job))
        policy_ok = replace(policy, delay=5 * SECOND)
        await c.register(replace(job, task_groups=(replace(job.task_groups[0], reschedule_policy=policy_ok),)))
        await c.until(lambda: c.statuses("flaky") == [("run", "failed")], "a failure")
        later = [e for e in c.server.replica.snapshot.job_evaluations("default", "flaky") if e.wait_until[0] != "0"]
        await c.until(lambda: any(alloc.followup_eval_id for alloc in c.allocations("flaky")), "a follow-up")
        assert len(later) <= 1


async def test_work_without_room_waits_and_is_placed_when_a_node_joins() -> None:
    async with cluster() as c:
        answer = await c.register(make_job(count=2))
        await c.until(lambda: evaluation(c, answer.eval_id).status == "complete", "a complete evaluation")
        done = evaluation(c, answer.eval_id)
        assert done.failed_tg_allocs["web"].coalesced_failures == 1
        assert evaluation(c, done.blocked_eval).status == "blocked"
        async with FakeNode(c.caller, make_node("node-1")):
            await c.until(lambda: c.statuses("web") == [("run", "running")] * 2, "placed")
            await c.until(lambda: evaluation(c, done.blocked_eval).status == "complete", "nothing blocked")


async def test_a_later_version_that_fits_cancels_the_blocked_evaluation() -> None:
    """B012: and no other waits instead, which `job status` would take for a failure to place."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1", memory_mb=300)):
        answer = await c.register(make_job(count=5))
        await c.until(lambda: evaluation(c, answer.eval_id).blocked_eval, "a blocked evaluation")
        blocked = evaluation(c, answer.eval_id).blocked_eval
        await c.register(make_job(count=2))
        await c.until(lambda: evaluation(c, blocked).status == "canceled", "a canceled evaluation")
        await c.until(
            lambda: {e.status for e in c.server.replica.snapshot.evaluations()} == ENDED, "nothing that waits"
        )
        assert [alloc.desired_status for alloc in c.allocations("web")].count("run") == 2


async def test_a_deployment_succeeds_when_everything_is_healthy() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(rolling(3, max_parallel=1))
        await c.until(lambda: deployment_status(c) == "successful", "a successful deployment")
        await c.register(rolling(3, image="2", max_parallel=1))
        await c.until(lambda: [v.version for v in versions(c) if v.stable] == [1, 0], "a second one")
        running = [alloc for alloc in c.allocations("web") if alloc.client_status == "running"]
        assert [alloc.job_version for alloc in running] == [1, 1, 1]


def deployment_status(c: Cluster) -> str:
    latest = c.server.replica.snapshot.latest_deployment("default", "web")
    return latest.status if latest is not None else ""


def versions(c: Cluster) -> tuple[Job, ...]:
    return c.server.replica.snapshot.job_versions("default", "web")


async def test_a_version_that_fails_goes_back_to_the_stable_one() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        await c.register(rolling(2, auto_revert=True, progress_deadline=0))
        await c.until(lambda: deployment_status(c) == "successful", "a stable version")
        node.report = lambda alloc: "failed" if alloc.job_version == 1 else "running"
        await c.register(rolling(2, image="bad", auto_revert=True, progress_deadline=0))
        await c.until(lambda: len(versions(c)) == 3, "a third version")
        failed = c.server.replica.snapshot.job_deployments("default", "web")[1]
        assert (failed.status, failed.status_description) == (
            "failed",
            "Failed due to unhealthy allocations - rolling back to job version 0",
        )
        assert versions(c)[0].task_groups[0].tasks[0].env == {"IMAGE": "1"}
        await c.until(lambda: deployment_status(c) == "successful", "the stable version again")


async def test_canaries_wait_for_promotion() -> None:
    """B285: whoever promotes after so many seconds is refused until the canaries are healthy, then all are promoted."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(rolling(2, canary=1))
        await c.until(lambda: deployment_status(c) == "successful", "the first version")
        await c.register(rolling(2, image="2", canary=1))
        await c.until(lambda: running_versions(c) == [0, 0, 1], "one canary beside the old ones")
        latest = c.server.replica.snapshot.latest_deployment("default", "web")
        assert latest is not None
        with pytest.raises(LepaError, match="must specify groups"):
            await c.caller.call(m.DEPLOYMENT_PROMOTE, r.DeploymentUpdateRequest(id=latest.id))
        await c.until(lambda: healthy(c) == 1, "a healthy canary")
        await c.caller.call(m.DEPLOYMENT_PROMOTE, r.DeploymentUpdateRequest(id=latest.id, all=True))
        await c.until(lambda: running_versions(c) == [1, 1], "only the new version")
        await c.until(lambda: deployment_status(c) == "successful", "success")


def running_versions(c: Cluster) -> list[int]:
    return sorted(
        alloc.job_version
        for alloc in c.allocations("web")
        if alloc.client_status == "running" and alloc.desired_status == "run"
    )


def healthy(c: Cluster) -> int:
    latest = c.server.replica.snapshot.latest_deployment("default", "web")
    return latest.task_groups["web"].healthy_allocs if latest is not None else 0


async def test_a_deployment_tells_of_the_groups_that_did_not_change_too() -> None:
    """B292: who watches a deployment until every group has what it desires comes to an end."""
    groups = tuple(make_group(name, count=2, update=make_update()) for name in ("a", "b", "c"))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(groups=groups))
        await c.until(lambda: deployment_status(c) == "successful", "the first version")
        task = replace(groups[1].tasks[0], env={"IMAGE": "2"})
        await c.register(make_job(groups=(groups[0], replace(groups[1], tasks=(task,)), groups[2])))
        await c.until(lambda: len(c.server.replica.snapshot.job_deployments("default", "web")) == 2, "another one")
        await c.until(lambda: deployment_status(c) == "successful", "the second version")
        latest = c.server.replica.snapshot.latest_deployment("default", "web")
        assert latest is not None
        assert latest.job_version == 1
        assert {
            name: (group.desired_total, group.placed_allocs, group.healthy_allocs)
            for name, group in latest.task_groups.items()
        } == dict.fromkeys("abc", (2, 2, 2))


async def test_a_canary_promotes_itself_where_the_job_says_so() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(rolling(2, canary=1, auto_promote=True))
        await c.until(lambda: deployment_status(c) == "successful", "the first version")
        await c.register(rolling(2, image="2", canary=1, auto_promote=True))
        await c.until(lambda: running_versions(c) == [1, 1], "the new version")


async def test_a_canary_that_fails_leaves_what_runs_alone() -> None:
    """B286."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        canary = {"canary": 1, "auto_promote": True, "progress_deadline": 0}
        await c.register(rolling(2, **canary))
        await c.until(lambda: deployment_status(c) == "successful", "the first version")
        before = [(alloc.id, node.seen[alloc.id]) for alloc in c.allocations("web")]
        node.report = lambda alloc: "failed" if alloc.job_version == 1 else "running"
        await c.register(rolling(2, image="bad", **canary))
        await c.until(lambda: deployment_status(c) == "failed", "the end of the deployment")
        await c.until(lambda: not open_evaluations(c), "no open evaluations")
        latest = c.server.replica.snapshot.latest_deployment("default", "web")
        assert latest is not None
        assert latest.status_description == "Failed due to unhealthy allocations"
        assert running_versions(c) == [0, 0]
        assert [(one, node.seen[one]) for one, _ in before] == before
        assert [version.version for version in versions(c)] == [1, 0]


async def test_every_node_learns_of_many_stops_soon() -> None:
    """B184: twenty nodes with ten jobs each, all stopped: nobody waits five seconds for the order."""
    async with cluster() as c, AsyncExitStack() as nodes:
        for number in range(20):
            await nodes.enter_async_context(FakeNode(c.caller, make_node(f"node-{number}")))
        names = [f"job-{number}" for number in range(200)]
        for number, name in enumerate(names):
            here = Constraint(ltarget="${node.unique.id}", operand="=", rtarget=f"node-{number % 20}")
            await c.register(make_job(name, constraints=(here,)))
        await c.until(lambda: all(c.statuses(name) == [("run", "running")] for name in names), "all running")
        await asyncio.gather(*(c.stop(name) for name in names))
        asked = time.monotonic()
        await c.until(lambda: all(c.statuses(name) == [("stop", "complete")] for name in names), "all stopped")
        assert time.monotonic() - asked < 5.0


async def test_allocations_leave_a_draining_node_one_by_one() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(count=3))
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 3, "running")
        async with FakeNode(c.caller, make_node("node-2")):
            drain = r.NodeDrainRequest(id="node-1", drain_spec=DrainSpec(deadline=3_600 * SECOND))
            await c.caller.call(m.NODE_DRAIN, drain)
            await c.until(lambda: c.server.replica.snapshot.node("node-1").drain_strategy is None, "a complete drain")  # type: ignore[union-attr]
            node = c.server.replica.snapshot.node("node-1")
            assert node is not None
            assert node.scheduling_eligibility == "ineligible"
            assert node.last_drain is not None
            assert node.last_drain.status == "complete"
            left = [alloc.node_id for alloc in c.allocations("web") if alloc.desired_status == "run"]
            assert left == ["node-2"] * 3


async def test_a_stopped_allocation_is_replaced() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        stop = r.AllocationStopRequest(id=c.allocations("web")[0].id)
        assert (await c.caller.call(m.ALLOCATION_STOP, stop)).value.eval_id
        await c.until(lambda: c.statuses("web") == [("run", "running"), ("stop", "complete")], "a replacement")


async def test_a_system_job_runs_on_every_node_and_on_those_that_join_later() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job("probe", type="system"))
        await c.until(lambda: c.statuses("probe") == [("run", "running")], "one")
        async with FakeNode(c.caller, make_node("node-2")):
            await c.until(lambda: c.statuses("probe") == [("run", "running")] * 2, "two")


async def test_a_system_job_goes_to_a_share_of_its_nodes_and_back_when_that_fails() -> None:
    def version(image: str) -> Job:
        update = make_update(max_parallel=3, canary=50, auto_revert=True, auto_promote=True, progress_deadline=0)
        group = make_group(update=update)
        task = replace(group.tasks[0], env={"IMAGE": image})
        return make_job(type="system", groups=(replace(group, tasks=(task,)),))

    async with cluster() as c, AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(FakeNode(c.caller, make_node(f"node-{n}"))) for n in range(3)]
        await c.register(version("1"))
        await c.until(lambda: deployment_status(c) == "successful", "the first version")
        await c.register(version("2"))
        await c.until(lambda: running_versions(c) == [1, 1, 1], "the second version")
        await c.until(lambda: deployment_status(c) == "successful", "success")
        for node in nodes:
            node.report = lambda alloc: "failed" if alloc.job_version == 2 else "running"
        await c.register(version("bad"))
        await c.until(lambda: len(versions(c)) == 4, "a fourth version")
        made = c.server.replica.snapshot.job_deployments("default", "web")
        failed = next(deployment for deployment in made if deployment.job_version == 2)
        assert failed.status_description == "Failed due to unhealthy allocations - rolling back to job version 1"
        assert failed.task_groups["web"].desired_canaries == 2
        await c.until(lambda: running_versions(c) == [3, 3, 3], "the stable version again")
        await c.until(lambda: deployment_status(c) == "successful", "success again")


async def test_a_periodic_job_launches_children() -> None:
    every_second = PeriodicConfig(specs=("* * * * * * *",))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), completes):
        answer = await c.register(make_job("nightly", type="batch", periodic=every_second))
        assert answer.eval_id == ""
        await c.until(lambda: len(c.server.replica.snapshot.children("default", "nightly")) >= 2, "two children")
        assert c.job_status("nightly") == "running"
        child = c.server.replica.snapshot.children("default", "nightly")[0]
        assert child.id.startswith("nightly/periodic-")
        await c.stop("nightly")


async def test_dispatching_makes_children_once_a_token() -> None:
    """B086, B087: twenty at once are one child, and that one cannot be edited."""
    template = make_job("resize", type="batch", parameterized_job=ParameterizedJobConfig(meta_required=("size",)))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), completes):
        await c.register(template)
        with pytest.raises(LepaError, match=r"required meta keys: \[size\]"):
            await c.caller.call(m.JOB_DISPATCH, r.JobDispatchRequest(id="resize"))
        call = r.JobDispatchRequest(id="resize", meta={"size": "9"}, idempotency_token="t", payload=b"x")
        answers = await asyncio.gather(*(c.caller.call(m.JOB_DISPATCH, call) for _ in range(20)))
        (child_id,) = {answer.value.dispatched_job_id for answer in answers}
        assert child_id.startswith("resize/dispatch-")
        assert [job.id for job in c.server.replica.snapshot.children("default", "resize")] == [child_id]
        await c.until(lambda: c.job_status(child_id) == "dead", "a child that is done")
        before = child(c, child_id)
        with pytest.raises(LepaError, match="job can't be submitted with 'Dispatched' set"):
            await c.register(replace(before, meta={"size": "10"}, payload=b""))
        with pytest.raises(LepaError, match="field 'Dispatched' is read-only"):
            await c.register(replace(before, meta={"size": "10"}, payload=b"", dispatched=False))
        assert child(c, child_id) == before


async def test_a_submitter_makes_nobody_a_parent() -> None:
    """B010: the job is one like others, and the job that it names knows nothing of it."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job("other"))
        await c.until(lambda: c.statuses("other") == [("run", "running")], "running")
        before = c.server.replica.snapshot.job_summary("default", "other")
        await c.register(make_job("web", parent_id="other"))
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running, too")
        assert child(c, "web").parent_id == ""
        assert c.server.replica.snapshot.job_summary("default", "other") == before
        assert c.server.replica.snapshot.children("default", "other") == ()


async def test_more_at_once_than_there_are_is_accepted_with_a_warning() -> None:
    """B031."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        answer = await c.register(rolling(1, max_parallel=2))
        assert "Update max parallel count is greater than task group count (2 > 1)" in answer.warnings
        await c.until(lambda: deployment_status(c) == "successful", "a successful deployment")


def child(c: Cluster, child_id: str) -> Job:
    job = c.server.replica.snapshot.job("default", child_id)
    assert job is not None
    return job


async def test_scaling_changes_the_count_and_keeps_an_event() -> None:
    group = make_group(count=1, scaling=ScalingPolicy(min=1, max=3))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(groups=(group,)))
        await c.caller.call(m.JOB_SCALE, r.JobScaleRequest(id="web", group="web", count=3, message="more"))
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 3, "three")
        status = (await c.caller.call(m.JOB_SCALE_STATUS, r.JobReadRequest(id="web"))).value
        assert status is not None
        assert [(event.message, event.previous_count, event.count) for event in status.task_groups["web"].events] == [
            ("more", 1, 3)
        ]
        with pytest.raises(LepaError, match="greater than scaling policy maximum: 4 > 3"):
            await c.caller.call(m.JOB_SCALE, r.JobScaleRequest(id="web", group="web", count=4))
        policies = (await c.caller.call(m.SCALING_POLICY_LIST, r.ScalingPolicyListRequest())).value
        assert [policy.target for policy in policies] == [{"Namespace": "default", "Job": "web", "Group": "web"}]


async def test_scaling_during_a_deployment_is_refused_and_changes_nothing() -> None:
    """B114, B120: nor does a second call a moment later, so there are never more allocations than the count."""
    group = make_group(count=2, update=make_update(health_check="manual"), scaling=ScalingPolicy(min=1, max=5))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), lambda alloc: "pending"):
        answer = await c.register(make_job(groups=(group,)))
        await c.until(lambda: deployment_status(c) == "running", "a deployment")
        await c.until(lambda: evaluation(c, answer.eval_id).status == "complete", "a complete evaluation")
        before = ([(alloc.id, alloc.job_version) for alloc in c.allocations("web")], versions(c))
        for count in (4, 5):
            with pytest.raises(LepaError, match="job scaling blocked due to active deployment") as refused:
                await c.caller.call(m.JOB_SCALE, r.JobScaleRequest(id="web", group="web", count=count))
            assert refused.value.code == "invalid"
        assert ([(alloc.id, alloc.job_version) for alloc in c.allocations("web")], versions(c)) == before
        assert [(job.version, job.task_groups[0].count) for job in versions(c)] == [(0, 2)]
        assert not open_evaluations(c)


async def test_planning_shows_what_would_change_and_writes_nothing() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1", memory_mb=600)):
        await c.register(make_job(count=1))
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        index = c.server.replica.snapshot.index
        wanted = make_job(count=9)
        plan = (await c.caller.call(m.JOB_PLAN, r.JobPlanRequest(job=wanted, diff=True))).value
        assert plan.annotations.desired_tg_updates["web"].place == 8
        assert plan.failed_tg_allocs["web"].dimension_exhausted == {"memory": 1}
        assert plan.job_modify_index > 0
        assert plan.diff is not None
        assert plan.diff["Type"] == "Edited"
        assert c.server.replica.snapshot.index == index
        fresh = (await c.caller.call(m.JOB_PLAN, r.JobPlanRequest(job=make_job("new"), diff=True))).value
        assert (fresh.job_modify_index, fresh.diff and fresh.diff["Type"]) == (0, "Added")


async def test_garbage_collection_forgets_a_stopped_job() -> None:
    """B226."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(rolling(1))
        await c.until(lambda: deployment_status(c) == "successful", "running")
        await c.stop("web")
        await c.until(lambda: c.statuses("web") == [("stop", "complete")], "stopped")
        await c.until(lambda: not open_evaluations(c), "no open evaluations")
        await c.caller.call(m.SYSTEM_GC, r.Request())
        snapshot = c.server.replica.snapshot
        assert c.job_status("web") == "absent"
        assert [len(snapshot.tables[name]) for name in ("allocs", "evals", "deployments", "job_versions")] == [0] * 4


def open_evaluations(c: Cluster) -> list[Evaluation]:
    return [e for e in c.server.replica.snapshot.evaluations() if e.status == "pending"]


def statuses_of_evaluations(c: Cluster) -> set[str]:
    return {e.status for e in c.server.replica.snapshot.evaluations()}


async def test_a_blocking_query_wakes_on_its_change_and_not_on_others() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job("a"))
        await c.until(lambda: c.statuses("a") == [("run", "running")] and not open_evaluations(c), "running")
        before = await c.caller.call(m.JOB_ALLOCATIONS, r.JobReadRequest(id="a"))
        parked = asyncio.ensure_future(
            c.caller.call(m.JOB_ALLOCATIONS, r.JobReadRequest(id="a", index=before.index, wait_ns=60 * SECOND))
        )
        await c.register(make_job("b"))
        await c.until(lambda: c.statuses("b") == [("run", "running")], "another job")
        assert not parked.done()
        await c.stop("a")
        after = await asyncio.wait_for(parked, 5)
        assert after.index > before.index


async def test_a_nodes_allocations_are_heard_of_while_other_nodes_change() -> None:
    """B143."""
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job("mine"))
        await c.until(lambda: c.statuses("mine") == [("run", "running")] and not open_evaluations(c), "running")
        await c.caller.call(m.NODE_ELIGIBILITY, r.NodeEligibilityRequest(id="node-1", eligibility="ineligible"))

        async def follow() -> None:
            index = 1
            while True:
                request = r.ReadRequest(id="node-1", index=index, wait_ns=60 * SECOND)
                reply = await c.caller.call(m.NODE_ALLOCATIONS, request)
                assert reply.index > index
                index = reply.index
                if [alloc.desired_status for alloc in reply.value] == ["stop"]:
                    return

        following = asyncio.ensure_future(follow())
        async with FakeNode(c.caller, make_node("node-2")):
            for number in range(10):
                await c.register(make_job(f"other-{number}"))
            await c.until(lambda: c.statuses("other-9") == [("run", "running")], "another node's")
            assert not following.done()
            await c.stop("mine")
            for number in range(10):
                await c.stop(f"other-{number}")
            await asyncio.wait_for(following, 10)


async def test_a_blocking_query_ends_with_its_wait() -> None:
    async with cluster() as c:
        reply = await c.caller.call(m.JOB_LIST, r.JobListRequest(index=10_000, wait_ns=SECOND // 20))
        assert (reply.value, reply.index >= 1) == ((), True)


async def test_events_tell_what_happened_in_order() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        seen: list[tuple[str, str]] = []
        last = 0
        async for batch in c.caller.stream(m.EVENT_STREAM, r.EventStreamRequest(topics={"*": ("*",)})):
            assert batch.index > last
            last = batch.index
            seen += [(event.topic, event.type) for event in batch.events]
            if ("Allocation", "AllocationUpdated") in seen:
                break
        assert seen[0] == ("Node", "NodeRegistration")
        assert ("Job", "JobRegistered") in seen
        assert seen.index(("Evaluation", "EvaluationUpdated")) < seen.index(("Allocation", "PlanResult"))


async def test_services_live_as_long_as_their_allocation() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        instance = ServiceRegistration(
            id="_nomad-task-1", service_name="web", namespace="default", alloc_id=c.allocations("web")[0].id, port=80
        )
        upsert = r.ServiceUpsertRequest(node_id="node-1", secret_id=node.node.secret_id, services=(instance,))
        await c.caller.call(m.SERVICE_UPSERT, upsert)
        index = c.server.replica.snapshot.index
        await c.caller.call(m.SERVICE_UPSERT, upsert)
        assert c.server.replica.snapshot.index == index
        found = (await c.caller.call(m.SERVICE_GET, r.ServiceReadRequest(id="web"))).value
        assert [service.port for service in found] == [80]
        await c.stop("web")
        await c.until(lambda: not list(c.server.replica.snapshot.services()), "no services")


async def test_a_node_with_another_secret_is_refused() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        with pytest.raises(LepaError, match="secret ID does not match") as refused:
            await c.caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=make_node("node-1", secret_id="another")))
        assert refused.value.code == "denied"


async def test_an_unchanged_job_is_not_a_new_version() -> None:
    async with cluster() as c:
        first = await c.register(make_job())
        second = await c.register(make_job())
        assert second.eval_id not in ("", first.eval_id)
        assert second.job_modify_index == first.job_modify_index
        with pytest.raises(LepaError, match="job already exists"):
            await c.register(make_job(), enforce_index=True)
        with pytest.raises(LepaError, match="conflicting job modify index"):
            await c.register(make_job(), enforce_index=True, job_modify_index=1)


async def test_registration_can_be_closed() -> None:
    async with cluster() as c:
        closed = SchedulerConfiguration(reject_job_registration=True)
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, r.SchedulerConfigurationRequest(configuration=closed))
        with pytest.raises(LepaError, match="disabled by the scheduler configuration") as refused:
            await c.register(make_job())
        assert refused.value.code == "denied"


async def test_a_paused_broker_goes_on_when_it_is_told_to() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        paused = r.SchedulerConfigurationRequest(configuration=SchedulerConfiguration(pause_eval_broker=True))
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, paused)
        answer = await c.register(make_job())
        await asyncio.sleep(0.05)
        assert evaluation(c, answer.eval_id).status == "pending"
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, r.SchedulerConfigurationRequest())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")


async def test_a_new_server_on_the_same_file_finishes_what_the_old_one_began(tmp_path: Path) -> None:
    clock = SystemClock()
    store = await SqliteStore.open(tmp_path / "state.db", clock)
    async with cluster(store) as c:
        paused = r.SchedulerConfigurationRequest(configuration=SchedulerConfiguration(pause_eval_broker=True))
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, paused)
        answer = await c.register(make_job(count=2))
    await store.close()
    store = await SqliteStore.open(tmp_path / "state.db", clock)
    async with cluster(store) as c, FakeNode(c.caller, make_node("node-1")):
        assert evaluation(c, answer.eval_id).status == "pending"
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, r.SchedulerConfigurationRequest())
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 2, "running")
    await store.close()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from lepa.kit.sources import SystemClock
from lepa.rpc import methods as m, requests as r
from lepa.store.sqlite import SqliteStore
from tests.builders import make_job
from tests.integration.server_cluster import cluster

async def main(path):
    async with cluster(await SqliteStore.open(path, SystemClock())) as c:
        for number in range(5):
            await c.register(make_job(f"job-{number}"))
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_killed_server_is_followed_by_one_that_knows_all_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(path), cwd=Path(__file__).parents[2]
    )
    assert await process.wait() == -signal.SIGKILL
    store = await SqliteStore.open(path, SystemClock())
    async with cluster(store) as c, FakeNode(c.caller, make_node("node-1")):
        for number in range(5):
            job_id = f"job-{number}"
            await c.until(lambda job_id=job_id: c.statuses(job_id) == [("run", "running")], job_id)  # type: ignore[misc]
    await store.close()


async def test_many_jobs_at_once_fill_the_cluster_to_the_last_place() -> None:
    async with cluster() as c:
        for number in range(20):
            node = make_node(f"node-{number}", cpu=1_000, secret_id="s")
            await c.caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=node))
        half = make_group(tasks=(make_task(cpu=500),))
        jobs = [make_job(f"job-{number}", type="batch", groups=(half,)) for number in range(40)]
        await asyncio.gather(*(c.register(job) for job in jobs))
        await c.until(lambda: all(c.allocations(job.id) for job in jobs), "an allocation of each job")
        assert all(e.triggered_by == "job-register" for e in c.server.replica.snapshot.evaluations())


async def test_a_new_server_finds_the_jobs_whose_evaluations_died_with_the_old_one() -> None:
    store = MemoryStore(SystemClock())
    async with cluster(store) as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "a running allocation")
        await c.until(lambda: not c.server.replica.snapshot.tallies["default", "web"].open_evaluations, "a rest")
        lost = c.server.replica.snapshot.node("node-1")
    assert lost is not None
    await store.commit(Txn((keys.put(keys.node_key("node-1"), replace(lost, status="down")),)))
    async with cluster(store) as c, FakeNode(c.caller, make_node("node-2")):
        await c.until(lambda: [a.node_id for a in c.allocations("web")] == ["node-1", "node-2"], "a replacement")
        await c.until(lambda: c.statuses("web") == [("run", "running"), ("stop", "lost")], "it runs")
    await store.close()


async def test_pages_put_together_are_the_whole_list() -> None:
    async with cluster() as c:
        for number in range(7):
            await c.register(make_job(f"job-{number}"))
        found: list[str] = []
        token = ""
        while True:
            reply = await c.caller.call(m.EVALUATION_LIST, r.EvaluationListRequest(per_page=2, next_token=token))
            found += [one.id for one in reply.value]
            token = reply.next_token
            if not token:
                break
        whole = (await c.caller.call(m.EVALUATION_LIST, r.EvaluationListRequest())).value
        assert found == [one.id for one in whole]
        jobs = await c.caller.call(m.JOB_LIST, r.JobListRequest(filter='ID matches "[135]$"', per_page=2))
        assert ([job.id for job in jobs.value], jobs.next_token) == (["job-1", "job-3"], "default.job-5")


async def test_a_job_begins_after_another_is_complete_and_children_take_turns() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1"), completes):
        report = make_job("report", type="batch", after=(JobDependency(job="etl"),))
        answer = await c.register(report)
        assert (answer.eval_id, answer.warnings) == ("", 'the job begins later: job "etl" is not there')
        assert c.job_status("report") == "pending"
        await c.register(make_job("etl", type="batch"))
        await c.until(lambda: c.statuses("report") == [("run", "complete")], "report ran after etl")
        config = ParameterizedJobConfig(max_running=1)
        await c.register(make_job("work", type="batch", parameterized_job=config))
        request = r.JobDispatchRequest(id="work")
        children = [(await c.caller.call(m.JOB_DISPATCH, request)).value for _ in range(4)]
        assert children[0].eval_id
        assert not children[3].eval_id
        names = [child.dispatched_job_id for child in children]
        await c.until(lambda: all(c.job_status(name) == "dead" for name in names), "all children ran")
        assert all(c.statuses(name) == [("run", "complete")] for name in names)
