"""What can be asked about jobs."""

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_group, make_job, make_service
from tests.world import World

from lepa.model.allocation import AllocDeploymentStatus
from lepa.model.errors import LepaError
from lepa.model.job import JobVersionTag
from lepa.model.policies import PeriodicConfig, ScalingPolicy
from lepa.rpc import requests as r
from lepa.server.endpoints import job_reads as reads
from lepa.state import keys
from lepa.state.commands.jobs import deregister_job, launch_child

WEB = r.JobReadRequest(id="web")


def test_jobs_are_listed_by_namespace_and_id() -> None:
    world = World()
    for name, namespace in (("b", "default"), ("a", "default"), ("c", "blue")):
        world.job(make_job(name, namespace=namespace, meta={"k": "v"}))
    mine = reads.list_jobs(world.snapshot, r.JobListRequest()).items
    assert [(job.id, job.namespace, job.meta) for job in mine] == [("a", "default", {}), ("b", "default", {})]
    everything = reads.list_jobs(world.snapshot, r.JobListRequest(namespace="*", meta=True, reverse=True)).items
    assert [(job.id, job.meta) for job in everything] == [("b", {"k": "v"}), ("a", {"k": "v"}), ("c", {"k": "v"})]
    assert [job.id for job in reads.list_jobs(world.snapshot, r.JobListRequest(prefix="b")).items] == ["b"]
    page = reads.list_jobs(world.snapshot, r.JobListRequest(namespace="*", per_page=2))
    assert ([job.id for job in page.items], page.next_token) == (["c", "a"], "default.b")
    rest = reads.list_jobs(world.snapshot, r.JobListRequest(namespace="*", next_token=page.next_token))
    assert [job.id for job in rest.items] == ["b"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_list_with_a_prefix_is_what_a_look_at_all_jobs_finds(reverse: bool) -> None:
    world = World()
    names = [(namespace, name) for namespace in ("blue", "default", "green") for name in ("a", "ab", "abc", "b", "é")]
    for namespace, name in names:
        world.job(make_job(name, namespace=namespace))
    in_order = sorted(names, reverse=reverse)
    for wanted in ("", "blue", "default", "green", "none", "*"):
        for prefix in ("", "a", "ab", "b", "c", "é"):
            for token in ("", *(f"{namespace}.{name}" for namespace, name in names)):
                start = tuple(token.split(".")) if token else ()
                asked = r.JobListRequest(namespace=wanted, prefix=prefix, next_token=token, reverse=reverse)
                assert [(job.namespace, job.id) for job in reads.list_jobs(world.snapshot, asked).items] == [
                    (namespace, name)
                    for namespace, name in in_order
                    if wanted in ("*", namespace) or (not wanted and namespace == "default")
                    if name.startswith(prefix)
                    if not start or ((namespace, name) <= start if reverse else (namespace, name) >= start)
                ], asked


def test_statuses_show_the_job_that_was_changed_last_first() -> None:
    world = World()
    world.job(make_job("a"))
    b = world.job(make_job("b", meta={"pack.name": "x"}))
    world.job(make_job("child", parent_id=""))
    world.put_alloc(make_alloc(job=b, deployment_status=AllocDeploymentStatus(healthy=True, canary=True)))
    world.put_deployment(make_deployment(job=b))
    found = reads.list_statuses(world.snapshot, r.JobStatusesRequest()).items
    assert [job.id for job in found] == ["child", "b", "a"]
    assert found[1].allocs[0].deployment_status == {"Canary": True, "Healthy": True}
    assert (found[1].is_pack, found[1].latest_deployment.is_active, found[1].group_count_sum) == (True, True, 1)
    assert found[1].modify_index == world.snapshot.index > found[0].modify_index
    only = reads.list_statuses(world.snapshot, r.JobStatusesRequest(jobs=(("default", "a"),))).items
    assert [job.id for job in only] == ["a"]
    page = reads.list_statuses(world.snapshot, r.JobStatusesRequest(per_page=1))
    rest = reads.list_statuses(world.snapshot, r.JobStatusesRequest(next_token=page.next_token))
    assert [job.id for job in (*page.items, *rest.items)] == ["child", "b", "a"]
    old_first = reads.list_statuses(world.snapshot, r.JobStatusesRequest(reverse=True)).items
    assert [job.id for job in old_first] == ["a", "b", "child"]


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_of_statuses_go_on_among_jobs_of_one_index(reverse: bool) -> None:
    world = World()
    jobs = [make_job(name) for name in ("a.b", "c", "d", "e")]
    world.do(lambda draft: [draft.overwrite(keys.job_key("default", job.id), job) for job in jobs])
    names: list[str] = []
    token = ""
    while not names or token:
        asked = r.JobStatusesRequest(per_page=1, next_token=token, reverse=reverse)
        page = reads.list_statuses(world.snapshot, asked)
        names += [job.id for job in page.items]
        token = page.next_token
    assert names == (["a.b", "c", "d", "e"] if reverse else ["e", "d", "c", "a.b"])
    index = world.snapshot.job("default", "c").modify_index
    whole = reads.list_statuses(world.snapshot, r.JobStatusesRequest(next_token=str(index), reverse=reverse))
    assert len(whole.items) == 4


def test_children_are_shown_when_they_are_asked_for() -> None:
    world = World()
    parent = world.job(make_job(type="batch", periodic=PeriodicConfig(spec="@daily")))
    world.do(launch_child, replace(parent, id="web/periodic-1", parent_id="web", periodic=None), "periodic-job")
    assert len(reads.list_statuses(world.snapshot, r.JobStatusesRequest()).items) == 1
    assert len(reads.list_statuses(world.snapshot, r.JobStatusesRequest(include_children=True)).items) == 2


def test_versions_come_newest_first_with_their_differences() -> None:
    world = World()
    for count in (1, 2, 3):
        world.job(make_job(count=count))
    plain = reads.list_versions(world.snapshot, WEB)
    assert ([job.version for job in plain.versions], plain.diffs) == ([2, 1, 0], ())
    found = reads.list_versions(world.snapshot, replace(WEB, diffs=True))
    assert [_count_change(diff) for diff in found.diffs] == [("2", "3"), ("1", "2")]
    against = reads.list_versions(world.snapshot, replace(WEB, diffs=True, diff_version=0))
    assert [_count_change(diff) for diff in against.diffs] == [("1", "3"), ("1", "2")]
    with pytest.raises(LepaError, match="version 9 not found"):
        reads.list_versions(world.snapshot, replace(WEB, diffs=True, diff_version=9))
    with pytest.raises(LepaError, match='tag "golden" not found'):
        reads.list_versions(world.snapshot, replace(WEB, diffs=True, diff_tag="golden"))
    tagged = replace(plain.versions[2], version_tag=JobVersionTag(name="golden"))
    world.do(lambda draft: draft.overwrite(keys.job_version_key("default", "web", 0), tagged))
    assert len(reads.list_versions(world.snapshot, replace(WEB, diffs=True, diff_tag="golden")).diffs) == 2


def _count_change(diff: dict) -> tuple[str, str]:  # type: ignore[type-arg]
    (field,) = [field for field in diff["TaskGroups"][0]["Fields"] if field["Name"] == "Count"]
    return field["Old"], field["New"]


def test_what_belongs_to_an_earlier_job_of_the_same_id_is_left_out() -> None:
    world = World()
    old = world.job(make_job())
    world.put_alloc(make_alloc("old", job=old))
    world.put_deployment(make_deployment("old", job=old))
    world.do(deregister_job, "default", "web", purge=True)
    new = world.job(make_job())
    world.put_alloc(make_alloc("new", job=new))
    world.put_deployment(make_deployment("new", job=new))
    assert [alloc.id for alloc in reads.list_allocations(world.snapshot, WEB)] == ["new"]
    assert [one.id for one in reads.list_deployments(world.snapshot, WEB)] == ["new"]
    everything = replace(WEB, all=True)
    assert [alloc.id for alloc in reads.list_allocations(world.snapshot, everything)] == ["old", "new"]
    assert [one.id for one in reads.list_deployments(world.snapshot, everything)] == ["new", "old"]
    latest = reads.latest_deployment(world.snapshot, WEB)
    assert latest is not None
    assert latest.id == "new"


def test_evaluations_come_newest_first() -> None:
    world = World()
    world.job(make_job())
    world.do(deregister_job, "default", "web", purge=False)
    found = reads.list_evaluations(world.snapshot, WEB)
    assert [evaluation.triggered_by for evaluation in found] == ["job-deregister", "job-register"]


def test_what_is_not_there_is_none_or_not_found() -> None:
    snapshot = World().snapshot
    assert reads.get_job(snapshot, WEB) is None
    assert reads.get_summary(snapshot, WEB) is None
    assert reads.get_submission(snapshot, WEB) is None
    assert reads.scale_status(snapshot, WEB) is None
    with pytest.raises(LepaError, match="job not found"):
        reads.list_services(snapshot, WEB)


def test_services_of_a_job_are_those_of_its_allocations() -> None:
    world = World()
    world.job(make_job())
    world.do(lambda draft: draft.overwrite("services/default/web/service-1", make_service()))
    assert [service.id for service in reads.list_services(world.snapshot, WEB)] == ["service-1"]


def test_scale_status_counts_what_lives() -> None:
    world = World()
    job = world.job(make_job(count=3))
    deployment = world.put_deployment(make_deployment(job=job))
    for name, status in (("a", "running"), ("b", "pending"), ("c", "failed")):
        healthy = AllocDeploymentStatus(healthy=True) if name == "a" else None
        fields = {"client_status": status, "deployment_id": deployment.id, "deployment_status": healthy}
        world.put_alloc(make_alloc(name, job=job, **fields))
    status = reads.scale_status(world.snapshot, WEB)
    assert status is not None
    group = status.task_groups["web"]
    assert (group.desired, group.placed, group.running, group.healthy, group.unhealthy) == (3, 2, 1, 1, 0)


def test_scaling_policies_are_those_of_jobs_that_run() -> None:
    world = World()
    job = make_job(groups=(make_group(scaling=ScalingPolicy(min=1, max=3)),))
    world.job(job)
    (stub,) = reads.list_scaling_policies(world.snapshot, r.ScalingPolicyListRequest())
    policy = reads.get_scaling_policy(world.snapshot, r.ReadRequest(id=stub.id))
    assert policy is not None
    assert (policy.max, policy.create_index > 0) == (3, True)
    assert reads.list_scaling_policies(world.snapshot, r.ScalingPolicyListRequest(namespace="blue")) == ()
    for chosen, count in (({"job": "web", "type": "horizontal"}, 1), ({"job": "other"}, 0), ({"type": "x"}, 0)):
        assert len(reads.list_scaling_policies(world.snapshot, r.ScalingPolicyListRequest(**chosen))) == count
    world.job(replace(job, stop=True))
    assert reads.list_scaling_policies(world.snapshot, r.ScalingPolicyListRequest()) == ()
