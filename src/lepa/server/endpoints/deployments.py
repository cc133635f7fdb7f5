"""Deployments."""

from collections.abc import Callable

from lepa.model.allocation import AllocListStub
from lepa.model.errors import invalid
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, group, row, table
from lepa.server.endpoints.stubs import alloc_stub
from lepa.server.pages import Page, created_start, created_token, in_namespace, page_of, since
from lepa.state.commands import deployments as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot


def list_deployments(snapshot: Snapshot, request: r.ReadRequest) -> Page:
    """Deployments in the order of creation, or by id when a prefix is asked for."""
    where = in_namespace(request)
    if request.prefix:
        rows = since(
            snapshot.deployments_by_prefix(request.prefix),
            request,
            lambda deployment: deployment.id,
            reverse=request.reverse,
        )
        return page_of(rows, request, token=lambda deployment: deployment.id, where=where)
    rows = snapshot.deployments(created_start(request), reverse=request.reverse)
    return page_of(rows, request, token=created_token, where=where)


def deployment_allocations(snapshot: Snapshot, request: r.ReadRequest) -> tuple[AllocListStub, ...]:
    """Allocations of a deployment."""
    return tuple(alloc_stub(snapshot, alloc) for alloc in snapshot.deployment_allocations(request.id))


QUERIES: Answerable = {
    m.DEPLOYMENT_LIST: Query(table("deployments"), list_deployments),
    m.DEPLOYMENT_GET: Query(row("deployments"), lambda snapshot, request: snapshot.deployment(request.id)),
    m.DEPLOYMENT_ALLOCATIONS: Query(group("allocs", "deployment"), deployment_allocations),
}


class DeploymentEndpoints:
    """Writes about deployments."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def fail(self, request: r.DeploymentUpdateRequest) -> Reply[r.DeploymentUpdateResponse]:
        """End it as failed."""
        return await self._write(lambda draft: commands.fail_deployment(draft, request.id, commands.FAILED_BY_USER))

    async def pause(self, request: r.DeploymentUpdateRequest) -> Reply[r.DeploymentUpdateResponse]:
        """Hold it, or go on."""
        return await self._write(lambda draft: commands.pause_deployment(draft, request.id, pause=request.pause))

    async def promote(self, request: r.DeploymentUpdateRequest) -> Reply[r.DeploymentUpdateResponse]:
        """Let canaries take over."""
        groups = None if request.all else request.groups
        return await self._write(lambda draft: commands.promote_deployment(draft, request.id, groups))

    async def unblock(self, request: r.DeploymentUpdateRequest) -> Reply[r.DeploymentUpdateResponse]:
        """Let a deployment succeed that waits for other regions."""
        return await self._write(lambda draft: commands.unblock_deployment(draft, request.id))

    async def step(self, request: r.DeploymentStepRequest) -> Reply[r.DeploymentUpdateResponse]:
        """What the other regions of its job mean for it."""
        return await self._write(lambda draft: commands.step_deployment(draft, request.id, request.act))

    async def set_health(self, request: r.DeploymentUpdateRequest) -> Reply[r.DeploymentUpdateResponse]:
        """Say which allocations work."""
        if not request.healthy_allocation_ids and not request.unhealthy_allocation_ids:
            raise invalid("must specify at least one healthy/unhealthy allocation ID")
        return await self._write(
            lambda draft: commands.set_health(
                draft,
                request.id,
                healthy=request.healthy_allocation_ids,
                unhealthy=request.unhealthy_allocation_ids,
            )
        )

    async def _write(self, command: Callable[[Draft], commands.DeploymentWritten]) -> Reply[r.DeploymentUpdateResponse]:
        written = await self._context.write(command)
        _, evaluation, reverted_to = written.value
        answer = r.DeploymentUpdateResponse(
            eval_id=evaluation.id if evaluation is not None else "",
            eval_create_index=written.revision if evaluation is not None else 0,
            deployment_modify_index=written.revision,
            reverted_job_version=reverted_to,
            index=written.revision,
        )
        return Reply(value=answer, index=written.revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {
            m.DEPLOYMENT_FAIL: self.fail,
            m.DEPLOYMENT_PAUSE: self.pause,
            m.DEPLOYMENT_PROMOTE: self.promote,
            m.DEPLOYMENT_UNBLOCK: self.unblock,
            m.DEPLOYMENT_STEP: self.step,
            m.DEPLOYMENT_SET_HEALTH: self.set_health,
        }
        return {**queries.answers(QUERIES), **writes}
