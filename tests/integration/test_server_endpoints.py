"""Answers of a whole server: nodes, namespaces, deployments, services, operators.

Covers lepa.server.endpoints.nodes, lepa.server.endpoints.jobs, lepa.server.endpoints.allocations,
lepa.server.endpoints.deployments, lepa.server.endpoints.services, lepa.server.endpoints.operator,
lepa.server.endpoints.context, lepa.server.server and lepa.server.event_stream.
"""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job, make_node, make_update
from tests.integration.server_cluster import FakeNode, cluster

from lepa.kit.durations import SECOND
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.job_views import JobSubmission
from lepa.model.node import DrainSpec, NodeEvent
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.policies import PeriodicConfig
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.methods import METHODS
from lepa.server.settings import ServerSettings
from lepa.store.memory import MemoryStore


async def test_every_method_has_an_answer() -> None:
    refusals: dict[str, str] = {}
    async with cluster() as c:
        for method in METHODS.values():
            request = method.request()
            try:
                if method.kind == "stream":
                    stream = c.caller.stream(method, request)
                    await stream.aclose()  # type: ignore[attr-defined]
                else:
                    await c.caller.call(method, request)
            except LepaError as error:
                refusals[method.name] = error.code
    assert set(refusals.values()) == {"invalid", "not_found", "conflict"}


async def test_nodes_are_listed_paged_and_filtered() -> None:
    async with cluster() as c:
        for name in ("a1", "a2", "b1"):
            await c.caller.call(
                m.NODE_REGISTER, r.NodeRegisterRequest(node=make_node(name, attributes={"os.name": "d"}))
            )
        page = await c.caller.call(m.NODE_LIST, r.NodeListRequest(per_page=2, os=True, resources=True))
        assert ([node.id for node in page.value], page.next_token) == (["a1", "a2"], "b1")
        assert (page.value[0].attributes, page.value[0].node_resources is not None) == ({"os.name": "d"}, True)
        found = await c.caller.call(m.NODE_LIST, r.NodeListRequest(prefix="a", filter='Name != "a1"'))
        assert [(node.id, node.address, node.drain) for node in found.value] == [("a2", "127.0.0.1", False)]
        assert (await c.caller.call(m.NODE_LIST, r.NodeListRequest(node_pool="gpu"))).value == ()


async def test_a_nodes_secret_is_never_read() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        found = (await c.caller.call(m.NODE_GET, r.ReadRequest(id="node-1"))).value
        assert found is not None
        assert found.secret_id == ""
        wrong = r.NodeAllocationsRequest(node_id="node-1", secret_id="guess")
        with pytest.raises(LepaError, match="secret ID does not match"):
            await c.caller.call(m.NODE_FOLLOW, wrong)
        with pytest.raises(LepaError, match="node not found"):
            await c.caller.call(m.NODE_FOLLOW, replace(wrong, node_id="ghost"))
        events = r.NodeEventsRequest(
            node_id="node-1", secret_id=node.node.secret_id, events=(NodeEvent(message="hot", subsystem="Driver"),)
        )
        await c.caller.call(m.NODE_EVENTS, events)
        found = (await c.caller.call(m.NODE_GET, r.ReadRequest(id="node-1"))).value
        assert found is not None
        assert found.events[-1].message == "hot"


async def test_a_heartbeat_says_when_the_next_is_due_and_writes_nothing() -> None:
    settings = ServerSettings(rpc_address="10.0.0.1:4647")
    async with cluster(settings=settings) as c, FakeNode(c.caller, make_node("node-1")) as node:
        index = c.server.replica.snapshot.index
        answer = await node.beat()
        assert 10 * SECOND <= answer.heartbeat_ttl <= 11 * SECOND
        assert (answer.servers, answer.leader_rpc_addr, answer.num_nodes) == (("10.0.0.1:4647",), "10.0.0.1:4647", 1)
        assert c.server.replica.snapshot.index == index


async def test_operators_change_nodes() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job())
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        same = (
            await c.caller.call(m.NODE_ELIGIBILITY, r.NodeEligibilityRequest(id="node-1", eligibility="eligible"))
        ).value
        assert (same.node_modify_index, same.index) == (0, 0)
        off = r.NodeEligibilityRequest(id="node-1", eligibility="ineligible")
        assert (await c.caller.call(m.NODE_ELIGIBILITY, off)).value.scheduling_eligibility == "ineligible"
        looked = (await c.caller.call(m.NODE_EVALUATE, r.NodeWriteRequest(id="node-1"))).value
        assert len(looked.eval_ids) == 1
        forced = r.NodeDrainRequest(id="node-1", drain_spec=DrainSpec(deadline=-1))
        await c.caller.call(m.NODE_DRAIN, forced)
        await c.until(lambda: ("stop", "complete") in c.statuses("web"), "drained")
        purged = (await c.caller.call(m.NODE_PURGE, r.NodeWriteRequest(id="node-1"))).value
        assert purged.node_modify_index > 0
        with pytest.raises(LepaError, match="node not found"):
            await c.caller.call(m.NODE_EVALUATE, r.NodeWriteRequest(id="node-1"))


async def test_namespaces_and_pools_come_and_go() -> None:
    async with cluster() as c:
        await c.caller.call(m.NAMESPACE_UPSERT, r.NamespaceWriteRequest(value=Namespace(name="blue")))
        names = (await c.caller.call(m.NAMESPACE_LIST, r.ReadRequest())).value
        assert [one.name for one in names] == ["blue", "default"]
        assert (await c.caller.call(m.NAMESPACE_GET, r.ReadRequest(id="blue"))).value is not None
        await c.register(make_job(namespace="blue"))
        with pytest.raises(LepaError, match="has non-terminal jobs"):
            await c.caller.call(m.NAMESPACE_DELETE, r.NamespaceWriteRequest(name="blue"))
        with pytest.raises(LepaError, match="nonexistent namespace"):
            await c.register(make_job(namespace="red"))
        await c.caller.call(m.NODE_POOL_UPSERT, r.NodePoolWriteRequest(value=NodePool(name="gpu")))
        pools = (await c.caller.call(m.NODE_POOL_LIST, r.ReadRequest())).value
        assert [pool.name for pool in pools] == ["all", "default", "gpu"]
        await c.caller.call(m.NODE_POOL_DELETE, r.NodePoolWriteRequest(name="gpu"))
        assert (await c.caller.call(m.NODE_POOL_GET, r.ReadRequest(id="gpu"))).value is None


async def test_a_deployment_is_paused_resumed_and_failed_by_hand() -> None:
    group = make_group(count=2, update=make_update(health_check="manual"))
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        node.act = lambda alloc: replace(original(alloc), deployment_status=None)  # type: ignore[method-assign,type-var,assignment]
        original = FakeNode.act.__get__(node)
        await c.register(make_job(groups=(group,)))
        await c.until(lambda: len(c.allocations("web")) >= 1, "placed")
        latest = (await c.caller.call(m.JOB_LATEST_DEPLOYMENT, r.JobReadRequest(id="web"))).value
        assert latest is not None
        update = r.DeploymentUpdateRequest(id=latest.id)
        await c.caller.call(m.DEPLOYMENT_PAUSE, replace(update, pause=True))
        assert (await c.caller.call(m.DEPLOYMENT_GET, r.ReadRequest(id=latest.id))).value.status == "paused"  # type: ignore[union-attr]
        resumed = (await c.caller.call(m.DEPLOYMENT_PAUSE, update)).value
        assert resumed.eval_id != ""
        await c.until(lambda: len(c.allocations("web")) == 2, "both placed")
        ids = tuple(alloc.id for alloc in c.allocations("web"))
        with pytest.raises(LepaError, match="at least one"):
            await c.caller.call(m.DEPLOYMENT_SET_HEALTH, update)
        await c.caller.call(m.DEPLOYMENT_SET_HEALTH, replace(update, healthy_allocation_ids=ids[:1]))
        failed = (await c.caller.call(m.DEPLOYMENT_FAIL, update)).value
        assert failed.deployment_modify_index > 0
        listed = (await c.caller.call(m.DEPLOYMENT_LIST, r.ReadRequest(prefix=latest.id[:4]))).value
        assert [(one.status, one.status_description) for one in listed] == [("failed", "Deployment marked as failed")]
        allocs = (await c.caller.call(m.DEPLOYMENT_ALLOCATIONS, r.ReadRequest(id=latest.id))).value
        assert len(allocs) == 2


async def test_services_are_found_by_name_and_chosen_by_key() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")) as node:
        await c.register(make_job(count=3))
        await c.until(lambda: c.statuses("web") == [("run", "running")] * 3, "running")
        instances = tuple(
            ServiceRegistration(
                id=f"s{number}", service_name="red", namespace="default", alloc_id=alloc.id, tags=(f"t{number}",)
            )
            for number, alloc in enumerate(c.allocations("web"))
        )
        secret = node.node.secret_id
        await c.caller.call(
            m.SERVICE_UPSERT, r.ServiceUpsertRequest(services=instances, node_id="node-1", secret_id=secret)
        )
        (listed,) = (await c.caller.call(m.SERVICE_LIST, r.ReadRequest())).value
        assert [(one.service_name, one.tags) for one in listed.services] == [("red", ("t0", "t1", "t2"))]
        chosen = [
            [
                one.id
                for one in (await c.caller.call(m.SERVICE_GET, r.ServiceReadRequest(id="red", choose=f"1|{key}"))).value
            ]
            for key in ("k", "k", "a", "b", "c", "d", "e", "f")
        ]
        assert chosen[0] == chosen[1]
        assert len({tuple(one) for one in chosen}) > 1
        with pytest.raises(LepaError, match="choose"):
            await c.caller.call(m.SERVICE_GET, r.ServiceReadRequest(id="red", choose="many"))
        of_alloc = (await c.caller.call(m.ALLOCATION_SERVICES, r.ReadRequest(id=instances[0].alloc_id))).value
        assert [one.id for one in of_alloc] == ["s0"]
        await c.caller.call(m.SERVICE_DELETE, r.ServiceDeleteRequest(service_name="red", id="s0"))
        await c.caller.call(
            m.SERVICE_DELETE, r.ServiceDeleteRequest(node_id="node-1", secret_id=secret, ids=("s1", "s2"))
        )
        assert (await c.caller.call(m.SERVICE_GET, r.ServiceReadRequest(id="red"))).value == ()


async def test_a_job_is_evaluated_marked_and_reverted() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(count=1), submission=JobSubmission(source="job {}", format="hcl2"))
        await c.register(make_job(count=2))
        assert (
            await c.caller.call(m.JOB_EVALUATE, r.JobEvaluateRequest(id="web", force_reschedule=True))
        ).value.eval_id
        await c.caller.call(m.JOB_STABLE, r.JobStabilityRequest(id="web", job_version=0, stable=True))
        await c.caller.call(m.JOB_REVERT, r.JobRevertRequest(id="web", job_version=0))
        versions = (await c.caller.call(m.JOB_VERSIONS, r.JobReadRequest(id="web"))).value.versions
        assert [(job.version, job.task_groups[0].count, job.stable) for job in versions] == [
            (2, 1, False),
            (1, 2, False),
            (0, 1, True),
        ]
        text = (await c.caller.call(m.JOB_SUBMISSION, r.JobReadRequest(id="web", version=0))).value
        assert text is not None
        assert text.source == "job {}"
        await c.register(make_job("nightly", type="batch", periodic=PeriodicConfig(spec="@yearly")))
        with pytest.raises(LepaError, match="can't evaluate periodic job"):
            await c.caller.call(m.JOB_EVALUATE, r.JobEvaluateRequest(id="nightly"))
        forced = (await c.caller.call(m.JOB_PERIODIC_FORCE, r.JobEvaluateRequest(id="nightly"))).value
        assert forced.eval_id != ""
        checked = (await c.caller.call(m.JOB_VALIDATE, r.JobPlanRequest(job=make_job("a b")))).value
        assert checked.validation_errors == ("Job ID contains a space",)


async def test_allocations_and_evaluations_are_read_with_what_belongs_to_them() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        answer = await c.register(make_job(count=99))
        await c.until(lambda: c.server.replica.snapshot.evaluation(answer.eval_id).blocked_eval, "blocked")  # type: ignore[union-attr]
        alloc_id = c.allocations("web")[0].id
        alloc = (await c.caller.call(m.ALLOCATION_GET, r.ReadRequest(id=alloc_id))).value
        assert alloc is not None
        assert alloc.job is not None
        assert alloc.job.id == "web"
        by_prefix = await c.caller.call(m.ALLOCATION_LIST, r.AllocationListRequest(prefix=alloc_id[:7], resources=True))
        assert [one.id for one in by_prefix.value] == [alloc_id]
        assert by_prefix.value[0].allocated_resources is not None
        newest_first = (await c.caller.call(m.ALLOCATION_LIST, r.AllocationListRequest(reverse=True))).value
        oldest_first = (await c.caller.call(m.ALLOCATION_LIST, r.AllocationListRequest())).value
        assert newest_first == oldest_first[::-1]
        related = r.EvaluationListRequest(id=answer.eval_id, related=True)
        evaluation = (await c.caller.call(m.EVALUATION_GET, related)).value
        assert evaluation is not None
        assert [one.status for one in evaluation.related_evals] == ["blocked"]
        count = r.EvaluationListRequest(status="blocked", job="web")
        assert (await c.caller.call(m.EVALUATION_COUNT, count)).value == 1
        placed = (await c.caller.call(m.EVALUATION_ALLOCATIONS, r.ReadRequest(id=answer.eval_id))).value
        assert len(placed) == len(c.allocations("web"))
        with pytest.raises(LepaError, match="cannot be used with other filter parameters"):
            await c.caller.call(m.EVALUATION_LIST, replace(count, filter='Status == "blocked"'))
        with pytest.raises(LepaError, match="alloc not found"):
            await c.caller.call(m.ALLOCATION_STOP, r.AllocationStopRequest(id="ghost"))


async def test_operators_read_and_set_how_placements_are_scored() -> None:
    async with cluster() as c:
        spread = SchedulerConfiguration(scheduler_algorithm="spread")
        wanted = r.SchedulerConfigurationRequest(configuration=spread, check_index=True, cas=0)
        first = (await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, wanted)).value
        again = (await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, wanted)).value
        assert (first.updated, again.updated) == (True, False)
        found = await c.caller.call(m.SCHEDULER_CONFIGURATION_GET, r.ReadRequest())
        assert (found.value.scheduler_algorithm, found.value.modify_index) == ("spread", found.index)


async def test_operators_read_and_set_how_servers_look_after_each_other() -> None:
    async with cluster() as c:
        wanted = r.AutopilotRequest(configuration=AutopilotConfiguration(min_quorum=3), check_index=True, cas=0)
        answers = [(await c.caller.call(m.AUTOPILOT_SET, wanted)).value for _ in range(2)]
        assert answers == [True, False]
        found = await c.caller.call(m.AUTOPILOT_GET, r.ReadRequest())
        assert (found.value.min_quorum, found.value.modify_index) == (3, found.index)


async def test_a_leader_stores_what_its_file_says_unless_something_is_stored() -> None:
    mine = AutopilotConfiguration(cleanup_dead_servers=True, min_quorum=3)
    async with cluster(settings=ServerSettings(autopilot_defaults=mine)) as c:
        await c.until(lambda: c.server.replica.snapshot.autopilot().min_quorum == 3, "the settings of the file")


async def test_a_server_says_who_it_is() -> None:
    settings = ServerSettings(name="s1.north", region="north", rpc_address="10.0.0.1:4647")
    async with cluster(settings=settings) as c:
        assert (await c.caller.call(m.STATUS_LEADER, r.ReadRequest())).value == "10.0.0.1:4647"
        assert (await c.caller.call(m.STATUS_PEERS, r.ReadRequest())).value == ("10.0.0.1:4647",)
        assert (await c.caller.call(m.STATUS_REGIONS, r.ReadRequest())).value == ("north",)
        (member,) = (await c.caller.call(m.STATUS_MEMBERS, r.ReadRequest())).value.members
        assert (member.name, member.addr, member.tags["port"]) == ("s1.north", "10.0.0.1", "4647")


async def test_many_changes_at_once_lose_nothing() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1", cpu=100_000, memory_mb=100_000)):
        await asyncio.gather(*(c.register(make_job(f"job-{number}")) for number in range(50)))
        await c.until(
            lambda: all(c.statuses(f"job-{number}") == [("run", "running")] for number in range(50)), "all running"
        )
        await asyncio.gather(*(c.stop(f"job-{number}") for number in range(50)))
        await c.until(lambda: all(c.job_status(f"job-{n}") == "dead" for n in range(50)), "all dead")
        await c.until(
            lambda: all(c.statuses(f"job-{number}") == [("stop", "complete")] for number in range(50)), "all stopped"
        )


async def test_the_same_new_job_from_many_at_once_is_one_version() -> None:
    async with cluster() as c:
        answers = await asyncio.gather(*(c.register(make_job()) for _ in range(20)))
        assert len({answer.job_modify_index for answer in answers}) == 1
        assert len({answer.eval_id for answer in answers}) == 20
        assert len(c.server.replica.snapshot.job_versions("default", "web")) == 1


async def test_versions_are_tagged_and_evaluations_deleted_while_the_broker_is_paused() -> None:
    async with cluster() as c:
        first = await c.register(make_job())
        tagged = (await c.caller.call(m.JOB_TAG, r.JobTagRequest(id="web", name="good"))).value
        assert (tagged.name, tagged.index > 0) == ("good", True)
        await c.caller.call(m.JOB_TAG, r.JobTagRequest(id="web", name="good", remove=True))
        await c.until(lambda: c.server.replica.snapshot.evaluation(first.eval_id).status == "complete", "scheduled")  # type: ignore[union-attr]
        delete = r.EvaluationDeleteRequest(eval_ids=(first.eval_id,))
        with pytest.raises(LepaError, match="eval broker must be paused to delete evals"):
            await c.caller.call(m.EVALUATION_DELETE, delete)
        paused = r.SchedulerConfigurationRequest(configuration=SchedulerConfiguration(pause_eval_broker=True))
        await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, paused)
        waiting = await c.register(make_job("other"))
        for refused in (
            r.EvaluationDeleteRequest(),
            r.EvaluationDeleteRequest(eval_ids=("a",), filter="b"),
            r.EvaluationDeleteRequest(eval_ids=("ghost",)),
        ):
            with pytest.raises(LepaError):
                await c.caller.call(m.EVALUATION_DELETE, refused)
        assert (await c.caller.call(m.EVALUATION_DELETE, delete)).value.count == 1
        by_filter = r.EvaluationDeleteRequest(filter='Status == "pending"')
        assert (await c.caller.call(m.EVALUATION_DELETE, by_filter)).value.count == 1
        snapshot = c.server.replica.snapshot
        assert snapshot.evaluation(first.eval_id) is snapshot.evaluation(waiting.eval_id) is None


async def test_no_deployment_waits_for_other_regions() -> None:
    async with cluster() as c, FakeNode(c.caller, make_node("node-1")):
        await c.register(make_job(groups=(make_group(update=make_update(health_check="manual")),)))
        await c.until(lambda: c.statuses("web") == [("run", "running")], "running")
        found = c.server.replica.snapshot.latest_deployment("default", "web")
        assert found is not None
        with pytest.raises(LepaError, match="can't unblock"):
            await c.caller.call(m.DEPLOYMENT_UNBLOCK, r.DeploymentUpdateRequest(id=found.id))


async def test_subscribers_who_ask_for_the_same_share_what_is_made_and_get_it_whole() -> None:
    async with cluster() as c:
        streams = [
            c.caller.stream(m.EVENT_STREAM, r.EventStreamRequest(topics={"Job": ("*",)}, index=1)) for _ in range(40)
        ]
        for number in range(5):
            await c.register(make_job(f"job-{number}", type="batch"))

        async def first_five(stream: Any) -> list[Any]:
            found: list[Any] = []
            async for batch in stream:
                found.append(batch)
                if sum(len(each.events) for each in found) >= 5:
                    return found
            return found

        async with asyncio.timeout(20):
            told = await asyncio.gather(*map(first_five, streams))
        keys = [[event.key for batch in batches for event in batch.events] for batches in told]
        assert all(each == [f"job-{number}" for number in range(5)] for each in keys)
        assert all(batch is told[0][at] for batches in told for at, batch in enumerate(batches))


async def test_configured_scheduler_settings_are_stored_once_and_what_an_operator_sets_stays() -> None:
    store = MemoryStore(SystemClock())
    settings = ServerSettings(scheduler_defaults=SchedulerConfiguration(scheduler_algorithm="spread"))
    try:
        async with cluster(store, settings) as c:

            def algorithm() -> str:
                return c.server.replica.snapshot.scheduler_configuration().scheduler_algorithm

            await c.until(lambda: algorithm() == "spread", "the configured one")
            other = r.SchedulerConfigurationRequest(configuration=SchedulerConfiguration())
            await c.caller.call(m.SCHEDULER_CONFIGURATION_SET, other)
        async with cluster(store, settings) as c:
            await c.register(make_job())
            assert c.server.replica.snapshot.scheduler_configuration().scheduler_algorithm == "binpack"
    finally:
        await store.close()
