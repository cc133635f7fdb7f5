"""Pure: what can be asked about jobs."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final

from msgspec.structs import replace

from lepa.model.allocation import AllocListStub
from lepa.model.deployment import Deployment
from lepa.model.errors import not_found
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job, TaskGroup
from lepa.model.job_diff import diff_jobs
from lepa.model.job_views import (
    JobListStub,
    JobScaleStatus,
    JobStatusesAlloc,
    JobStatusesJob,
    JobStatusesLatestDeployment,
    JobSubmission,
    JobSummary,
    ScalingPolicyListStub,
    TaskGroupScaleStatus,
)
from lepa.model.policies import ScalingPolicy
from lepa.model.service import ServiceRegistration
from lepa.model.wire import to_builtins
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.endpoints.query import Answerable, Query, job_group, job_key, job_row, namespace_of, table
from lepa.server.endpoints.stubs import alloc_stub
from lepa.server.pages import Page, in_namespace, namespaced_start, namespaced_token, page_of, visible
from lepa.state.commands.deployments import ACTIVE
from lepa.state.job_tally import lives
from lepa.state.snapshot import JOB_SUMMARY, Snapshot
from lepa.state.tables import Watch

LAST: Final = "\U0010ffff"
"""Sorts behind whatever may follow a prefix."""


def list_jobs(snapshot: Snapshot, request: r.JobListRequest) -> Page:
    """Jobs by namespace and id."""
    mine = in_namespace(request)
    return page_of(
        _jobs_of(snapshot, request),
        request,
        token=namespaced_token,
        stub=lambda job: job_stub(snapshot, job, meta=request.meta),
        where=lambda job: mine(job) and job.id.startswith(request.prefix),
    )


def _jobs_of(snapshot: Snapshot, request: r.JobListRequest) -> Iterator[Job]:
    """Jobs from the request's token on; of one namespace only those with the prefix, which stand together."""
    start, namespace, prefix = namespaced_start(request), namespace_of(request), request.prefix
    if namespace == "*":
        return snapshot.jobs(start, reverse=request.reverse)
    first, last = (namespace, prefix), (namespace, prefix + LAST)
    begin = min(start or last, last) if request.reverse else max(start or first, first)
    return takewhile(
        lambda job: job.namespace == namespace and job.id.startswith(prefix),
        snapshot.jobs(begin, reverse=request.reverse),
    )


def job_stub(snapshot: Snapshot, job: Job, *, meta: bool = False) -> JobListStub:
    """A job in a list."""
    return JobListStub(
        id=job.id,
        parent_id=job.parent_id,
        name=job.name,
        namespace=job.namespace,
        datacenters=job.datacenters,
        node_pool=job.node_pool,
        multiregion=job.multiregion,
        type=job.type,
        priority=job.priority,
        periodic=job.periodic is not None,
        parameterized_job=job.parameterized_job is not None and not job.dispatched,
        stop=job.stop,
        status=job.status,
        status_description=job.status_description,
        job_summary=snapshot.job_summary(job.namespace, job.id),
        create_index=job.create_index,
        modify_index=job.modify_index,
        job_modify_index=job.job_modify_index,
        submit_time=job.submit_time,
        meta=job.meta if meta else {},
    )


def list_statuses(snapshot: Snapshot, request: r.JobStatusesRequest) -> Page:
    """Jobs with their allocations, the job that was changed last first."""
    mine, seen = in_namespace(request), visible(request)
    if request.jobs:
        named = (snapshot.job(*key) for key in set(request.jobs) if seen(key[0]))
        jobs = [job for job in named if job is not None]
    else:
        jobs = [job for job in snapshot.jobs() if mine(job) and (request.include_children or not job.parent_id)]
    jobs.sort(key=_job_changed)
    return page_of(
        _from_token(jobs, request),
        request,
        token=lambda job: ".".join(map(str, _job_changed(job))),
        stub=lambda job: job_status(snapshot, job),
    )


def _job_changed(job: Job) -> tuple[int, str, str]:
    return job.modify_index, job.namespace, job.id


def _from_token(jobs: list[Job], request: r.JobStatusesRequest) -> list[Job]:
    """The jobs of the request's page and those after it. Its token is `INDEX.NAMESPACE.ID`, or an index alone."""
    index, _, name = request.next_token.partition(".")
    if not index.isdigit():
        return jobs if request.reverse else jobs[::-1]
    names = tuple(name.split(".", 1)) if name else ()
    if request.reverse:
        return jobs[bisect_left(jobs, (int(index), *names), key=_job_changed) :]
    end = bisect_right(jobs, (int(index), *names) if names else (int(index) + 1,), key=_job_changed)
    return jobs[:end][::-1]


def _status_index(snapshot: Snapshot, job: Job) -> int:
    """When the job, its allocations or its deployments changed last."""
    key = (job.namespace, job.id)
    changed = [job.modify_index]
    changed += [alloc.modify_index for alloc in snapshot.job_allocations(*key)]
    changed += [deployment.modify_index for deployment in snapshot.job_deployments(*key)]
    return max(changed)


def job_status(snapshot: Snapshot, job: Job) -> JobStatusesJob:
    """A job as status pages show it."""
    latest = snapshot.latest_deployment(job.namespace, job.id)
    return JobStatusesJob(
        id=job.id,
        namespace=job.namespace,
        name=job.name,
        type=job.type,
        node_pool=job.node_pool,
        datacenters=job.datacenters,
        priority=job.priority,
        version=job.version,
        submit_time=job.submit_time,
        modify_index=_status_index(snapshot, job),
        allocs=tuple(
            JobStatusesAlloc(
                id=alloc.id,
                group=alloc.task_group,
                client_status=alloc.client_status,
                node_id=alloc.node_id,
                deployment_status=_health(alloc.deployment_status),
                job_version=alloc.job_version,
                followup_eval_id=alloc.followup_eval_id,
                has_paused_task=any(state.paused for state in alloc.task_states.values()),
            )
            for alloc in snapshot.job_allocations(job.namespace, job.id)
        ),
        group_count_sum=sum(group.count for group in job.task_groups),
        child_statuses=tuple(child.status for child in snapshot.children(job.namespace, job.id)),
        parent_id=job.parent_id,
        latest_deployment=_latest(latest) if latest is not None else None,
        stop=job.stop,
        is_pack="pack.name" in job.meta,
        status=job.status,
    )


def _health(status: Any) -> dict[str, Any]:
    return {"Canary": status.canary, "Healthy": status.healthy} if status is not None else {}


def _latest(deployment: Deployment) -> JobStatusesLatestDeployment:
    canaries = [state for state in deployment.task_groups.values() if state.desired_canaries]
    return JobStatusesLatestDeployment(
        id=deployment.id,
        is_active=deployment.status in ACTIVE,
        job_version=deployment.job_version,
        status=deployment.status,
        status_description=deployment.status_description,
        all_auto_promote=bool(canaries) and all(state.auto_promote for state in canaries),
        requires_promotion=any(not state.promoted for state in canaries),
    )


def get_job(snapshot: Snapshot, request: r.JobReadRequest) -> Job | None:
    """One job."""
    return snapshot.job(*job_key(request))


def list_versions(snapshot: Snapshot, request: r.JobReadRequest) -> r.JobVersions:
    """Versions, newest first, and how each differs from the one before or from a chosen one."""
    versions = tuple(replace(job, status="") for job in snapshot.job_versions(*job_key(request)))
    if not request.diffs or not versions:
        return r.JobVersions(versions=versions)
    base = _base(versions, request)
    pairs = (
        [(base, job) for job in versions if job is not base]
        if base
        else list(zip(versions[1:], versions, strict=False))
    )
    return r.JobVersions(
        versions=versions, diffs=tuple(to_builtins(diff_jobs(old, new, contextual=True)) for old, new in pairs)
    )


def _base(versions: tuple[Job, ...], request: r.JobReadRequest) -> Job | None:
    """The version that all others are compared with, when the request names one."""
    if request.diff_version is not None:
        found = next((job for job in versions if job.version == request.diff_version), None)
        if found is None:
            raise not_found(f"version {request.diff_version} not found")
        return found
    if request.diff_tag:
        tagged = (job for job in versions if job.version_tag is not None and job.version_tag.name == request.diff_tag)
        found = next(tagged, None)
        if found is None:
            raise not_found(f'tag "{request.diff_tag}" not found')
        return found
    return None


def get_submission(snapshot: Snapshot, request: r.JobReadRequest) -> JobSubmission | None:
    """The text that a version was submitted as."""
    return snapshot.job_submission(*job_key(request), request.version)


def get_summary(snapshot: Snapshot, request: r.JobReadRequest) -> JobSummary | None:
    """Counts of a job's allocations."""
    return snapshot.job_summary(*job_key(request))


def list_allocations(snapshot: Snapshot, request: r.JobReadRequest) -> tuple[AllocListStub, ...]:
    """Allocations of a job; `all` also those of an earlier job that had its id."""
    job = snapshot.job(*job_key(request))
    since = job.create_index if job is not None and not request.all else 0
    allocs = snapshot.job_allocations(*job_key(request))
    return tuple(alloc_stub(snapshot, alloc) for alloc in allocs if alloc.create_index >= since)


def list_evaluations(snapshot: Snapshot, request: r.JobReadRequest) -> tuple[Evaluation, ...]:
    """Evaluations of a job, newest first."""
    return snapshot.job_evaluations(*job_key(request))[::-1]


def list_deployments(snapshot: Snapshot, request: r.JobReadRequest) -> tuple[Deployment, ...]:
    """Deployments of a job, newest first; `all` also those of an earlier job that had its id."""
    job = snapshot.job(*job_key(request))
    found = snapshot.job_deployments(*job_key(request))[::-1]
    if job is None or request.all:
        return found
    return tuple(deployment for deployment in found if deployment.create_index >= job.create_index)


def latest_deployment(snapshot: Snapshot, request: r.JobReadRequest) -> Deployment | None:
    """The newest deployment of a job."""
    return snapshot.latest_deployment(*job_key(request))


def list_services(snapshot: Snapshot, request: r.JobReadRequest) -> tuple[ServiceRegistration, ...]:
    """Instances of services that a job registered."""
    if snapshot.job(*job_key(request)) is None:
        raise not_found("job not found")
    found: tuple[ServiceRegistration, ...] = snapshot.tables["services"].group("job", job_key(request))
    return found


def scale_status(snapshot: Snapshot, request: r.JobReadRequest) -> JobScaleStatus | None:
    """Counts of a job's groups, wanted and real."""
    job = snapshot.job(*job_key(request))
    if job is None:
        return None
    return JobScaleStatus(
        job_id=job.id,
        namespace=job.namespace,
        job_create_index=job.create_index,
        job_modify_index=job.job_modify_index,
        job_stopped=job.stop,
        task_groups={group.name: _group_scale(snapshot, job, group) for group in job.task_groups},
    )


def _group_scale(snapshot: Snapshot, job: Job, group: TaskGroup) -> TaskGroupScaleStatus:
    allocs = [
        alloc
        for alloc in snapshot.job_allocations(job.namespace, job.id)
        if alloc.task_group == group.name and lives(alloc)
    ]
    latest = snapshot.latest_deployment(job.namespace, job.id)
    told = [
        alloc.deployment_status.healthy
        for alloc in allocs
        if alloc.deployment_status is not None and latest is not None and alloc.deployment_id == latest.id
    ]
    return TaskGroupScaleStatus(
        desired=group.count,
        placed=len(allocs),
        running=sum(alloc.client_status == "running" for alloc in allocs),
        healthy=sum(healthy is True for healthy in told),
        unhealthy=sum(healthy is False for healthy in told),
        events=snapshot.scaling_events(job.namespace, job.id, group.name)[::-1],
    )


def scaling_policies(snapshot: Snapshot, namespace: str) -> Iterator[ScalingPolicy]:
    """Scaling policies of jobs that run, by job."""
    for job in snapshot.jobs() if namespace == "*" else snapshot.jobs_in(namespace):
        if not job.stop:
            for group in job.task_groups:
                if group.scaling is not None:
                    yield replace(group.scaling, create_index=job.create_index, modify_index=job.job_modify_index)


def list_scaling_policies(snapshot: Snapshot, request: r.ScalingPolicyListRequest) -> tuple[ScalingPolicyListStub, ...]:
    """Scaling policies, shortened."""
    seen = visible(request)
    return tuple(
        ScalingPolicyListStub(
            id=policy.id,
            enabled=policy.enabled,
            type=policy.type,
            target=policy.target,
            create_index=policy.create_index,
            modify_index=policy.modify_index,
        )
        for policy in scaling_policies(snapshot, namespace_of(request))
        if policy.id.startswith(request.prefix)
        and request.job in ("", policy.target.get("Job"))
        and request.type in ("", policy.type)
        and seen(policy.target.get("Namespace", "default"))
    )


def get_scaling_policy(snapshot: Snapshot, request: r.ReadRequest) -> ScalingPolicy | None:
    """One scaling policy, of any namespace."""
    return next((policy for policy in scaling_policies(snapshot, "*") if policy.id == request.id), None)


def _listed(request: r.ReadRequest) -> tuple[Watch, ...]:
    return (Watch("jobs"), Watch(JOB_SUMMARY))


def _one(request: r.ReadRequest) -> tuple[Watch, ...]:
    """A job's status is part of it, and follows from its summary."""
    return (Watch("jobs", "id", job_key(request)), Watch(JOB_SUMMARY, "id", job_key(request)))


def _scaled(request: r.ReadRequest) -> tuple[Watch, ...]:
    return (*_one(request), Watch("scaling_events"), Watch("deployments", "job", job_key(request)))


def _newest(page: Page) -> int:
    return max((item.modify_index for item in page.items), default=1)


QUERIES: Answerable = {
    m.JOB_LIST: Query(_listed, list_jobs),
    m.JOB_STATUSES: Query(table("jobs", "allocs", "deployments"), list_statuses, index_of=_newest),
    m.JOB_GET: Query(_one, get_job),
    m.JOB_VERSIONS: Query(table("job_versions"), list_versions),
    m.JOB_SUBMISSION: Query(table("job_submissions"), get_submission),
    m.JOB_SUMMARY: Query(job_row(JOB_SUMMARY), get_summary),
    m.JOB_ALLOCATIONS: Query(job_group("allocs"), list_allocations),
    m.JOB_EVALUATIONS: Query(job_group("evals"), list_evaluations),
    m.JOB_DEPLOYMENTS: Query(job_group("deployments"), list_deployments),
    m.JOB_LATEST_DEPLOYMENT: Query(job_group("deployments"), latest_deployment),
    m.JOB_SERVICES: Query(job_group("services"), list_services),
    m.JOB_SCALE_STATUS: Query(_scaled, scale_status),
    m.SCALING_POLICY_LIST: Query(table("jobs"), list_scaling_policies),
    m.SCALING_POLICY_GET: Query(table("jobs"), get_scaling_policy),
}
