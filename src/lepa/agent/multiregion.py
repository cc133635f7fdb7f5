"""Jobs of several regions: registered in each, and rolled out in turn.

`MultiregionCaller` makes one call about such a job into a call in each of its regions. `MultiregionWatcher` runs on
every server and works where that leads its region: it looks at the deployments of the others and takes the next step of
its own (`lepa.model.multiregion` decides). So no region commands another, and each goes on alone when the way is cut:
what cannot be asked is unknown, and for what is unknown one waits.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeVar, cast

from msgspec.structs import replace

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.model.deployment import Deployment
from lepa.model.errors import LepaError, invalid
from lepa.model.job import Job
from lepa.model.multiregion import GOING_ON, NONE, UNKNOWN, copies, next_act, region_names, same_roll_out
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.methods import Caller, Method
from lepa.server.server import Server
from lepa.state.tables import Watch

Q = TypeVar("Q", bound=r.Request)
A = TypeVar("A")

LOOK_S: Final = 1.0
"""How often other regions are asked while something is rolled out."""
SETTLED_NS: Final = 2 * SECOND
"""How old a deployment is before others matter: they may not have got this version yet, and show an older one."""
DEPLOYMENTS: Final = Watch("deployments")

log = logging.getLogger(__name__)


class Regions(Protocol):
    """The regions that are known (`lepa.agent.gossip_part.GossipPart`)."""

    def regions(self) -> tuple[str, ...]:
        """Regions with a server that lives."""


class MultiregionCaller:
    """A `Caller` for jobs of several regions. regional: the way to the servers of each."""

    def __init__(self, regional: Caller, region: str, known: Regions) -> None:
        self._regional = regional
        self._region = region
        self._known = known

    async def call(self, method: Method[Q, A], request: Q) -> r.Reply[A]:
        if isinstance(request, r.JobRegisterRequest) and _is_whole(request):
            return cast(r.Reply[A], await self._register(request))
        if isinstance(request, r.JobPlanRequest) and method.name == m.JOB_PLAN.name and request.job is not None:
            planned: Any = self._planned(request)
            return await self._regional.call(method, planned)
        if isinstance(request, r.JobDeregisterRequest) and request.everywhere:
            return cast(r.Reply[A], await self._deregister(request))
        return await self._regional.call(method, request)

    def stream(self, method: Method[Q, A], request: Q) -> AsyncIterator[A]:
        return self._regional.stream(method, request)

    async def _register(self, request: r.JobRegisterRequest) -> r.Reply[r.JobRegisterResponse]:
        """In every region; nothing in any when one of them is not known."""
        job = request.job
        assert job is not None
        if job.multiregion is None or not job.multiregion.regions:
            return await self._regional.call(m.JOB_REGISTER, request)  # is told what is wrong
        unknown = [name for name in region_names(job) if name not in self._known.regions()]
        if unknown:
            raise invalid(
                f'multiregion: no path to region "{unknown[0]}"; known are {", ".join(self._known.regions())}. '
                "The job was registered in no region"
            )
        replies: dict[str, r.Reply[r.JobRegisterResponse]] = {}
        for name, copy in copies(job).items():
            here = name == self._region
            part = replace(request, job=copy, region=name, regional=True, enforce_index=request.enforce_index and here)
            try:
                replies[name] = await self._regional.call(m.JOB_REGISTER, part)
            except LepaError as error:
                done = f"; it waits in {', '.join(replies)}: register it again, or stop it there" if replies else ""
                raise LepaError(error.code, f'region "{name}": {error.message}{done}', **error.facts) from error
        if self._region in replies:
            return replies[self._region]
        first = next(iter(replies.values()))
        return replace(first, value=replace(first.value, eval_id="", eval_create_index=0))

    def _planned(self, request: r.JobPlanRequest) -> r.JobPlanRequest:
        """A plan is of one region: the one that is asked, when the job has a copy there."""
        assert request.job is not None
        mine = copies(request.job).get(request.region or self._region)
        return replace(request, job=mine) if mine is not None else request

    async def _deregister(self, request: r.JobDeregisterRequest) -> r.Reply[r.JobRegisterResponse]:
        query = r.JobReadRequest(
            id=request.id, namespace=request.namespace, region=request.region, auth_token=request.auth_token
        )
        job = (await self._regional.call(m.JOB_GET, query)).value
        here = request.region or self._region
        others = [name for name in (region_names(job) if job is not None else ()) if name != here]
        for name in others:
            await self._regional.call(m.JOB_DEREGISTER, replace(request, region=name, everywhere=False))
        return await self._regional.call(m.JOB_DEREGISTER, replace(request, everywhere=False))


def _is_whole(request: r.JobRegisterRequest) -> bool:
    return request.job is not None and request.job.multiregion is not None and not request.regional


class MultiregionWatcher:
    """Takes the next step of this region's deployments. server: the one of this process, None before it runs."""

    def __init__(self, regional: Caller, region: str, server: Callable[[], Server | None], clock: Clock) -> None:
        self._regional = regional
        self._region = region
        self._server = server
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        looked_at, waiting = -1, False
        while True:
            server = self._server()
            if server is not None and server.leads:
                index = server.replica.snapshot.index_of(DEPLOYMENTS)
                if waiting or index != looked_at:
                    waiting, looked_at = await self._look(server), index
            await self._clock.sleep(LOOK_S)

    async def _look(self, server: Server) -> bool:
        """Whether any deployment here waits for others, or will."""
        snapshot = server.replica.snapshot
        going_on = [one for one in snapshot.deployments() if one.is_multiregion and one.status in GOING_ON]
        for deployment in going_on:
            job = snapshot.job_version(deployment.namespace, deployment.job_id, deployment.job_version)
            settled = self._clock.now_ns() - deployment.create_time >= SETTLED_NS
            if job is not None and settled:
                await self._step(server, deployment, job)
        return bool(going_on)

    async def _step(self, server: Server, deployment: Deployment, job: Job) -> None:
        names = [name for name in region_names(job) if name != self._region]
        others = {name: await self._status_in(name, job, server.guest_token) for name in names}
        act = next_act(job, self._region, deployment.status, others)
        if not act:
            return
        log.info("deployment steps deployment_id=%s job_id=%s act=%s others=%s", deployment.id, job.id, act, others)
        try:
            step = r.DeploymentStepRequest(id=deployment.id, act=act, auth_token=server.server_token)
            await self._regional.call(m.DEPLOYMENT_STEP, step)
        except LepaError as error:
            log.warning("deployment cannot step deployment_id=%s act=%s: %s", deployment.id, act, error.message)

    async def _status_in(self, region: str, job: Job, token: str) -> str:
        """The status of the same version's deployment in another region."""
        query = r.JobReadRequest(id=job.id, namespace=job.namespace, region=region, all=True, auth_token=token)
        try:
            versions = (await self._regional.call(m.JOB_VERSIONS, query)).value.versions
            deployments = (await self._regional.call(m.JOB_DEPLOYMENTS, query)).value
        except LepaError as error:
            log.debug("other region not asked region=%s error=%s", region, error.message)
            return UNKNOWN
        return status_of(job, versions, deployments)


def status_of(job: Job, versions: tuple[Job, ...], deployments: tuple[Deployment, ...]) -> str:
    """How far another region is with this version of a job, from its versions and deployments there.

    A version that was accepted a moment ago has no deployment yet: it is pending.
    """
    same = [version for version in versions if same_roll_out(version, job)]
    if not same:
        return UNKNOWN
    accepted = max(same, key=lambda version: version.version)
    found = [one for one in deployments if one.job_version == accepted.version]
    if found:
        return max(found, key=lambda one: one.create_index).status
    return "pending" if _gets_deployment(accepted) else NONE


def _gets_deployment(job: Job) -> bool:
    """Whether a new version is rolled out: services that allow for it, which run somewhere."""
    return (
        job.type == "service"
        and not job.stop
        and any(
            group.count and (strategy := group.update or job.update) is not None and strategy.max_parallel > 0
            for group in job.task_groups
        )
    )
