"""Allocations and evaluations."""

import asyncio
from functools import partial

from msgspec.structs import replace

from lepa.model.allocation import Allocation, AllocListStub
from lepa.model.errors import invalid, not_found
from lepa.model.evaluation import Evaluation, EvaluationStub
from lepa.model.service import ServiceRegistration
from lepa.model.wire import shortened
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.deciders.garbage import may_be_deleted
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.nodes import with_job
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, group, row, table
from lepa.server.endpoints.stubs import alloc_stub
from lepa.server.pages import Page, created_start, created_token, in_namespace, page_of, since
from lepa.state.commands.allocations import stop_allocation
from lepa.state.commands.garbage import Garbage, collect
from lepa.state.snapshot import Snapshot

RELATED_MAX = 100
DELETED_MAX = 7281
"""Evaluations that one request may name."""


def list_allocations(snapshot: Snapshot, request: r.AllocationListRequest) -> Page:
    """Allocations in the order of creation, or by id when a prefix is asked for."""

    def stub(alloc: Allocation) -> AllocListStub:
        return alloc_stub(snapshot, alloc, resources=request.resources, task_states=request.task_states)

    where = in_namespace(request)
    if request.prefix:
        rows = since(
            snapshot.allocations_by_prefix(request.prefix), request, lambda alloc: alloc.id, reverse=request.reverse
        )
        return page_of(rows, request, token=lambda alloc: alloc.id, stub=stub, where=where)
    rows = snapshot.allocations(created_start(request), reverse=request.reverse)
    return page_of(rows, request, token=created_token, stub=stub, where=where)


def get_allocation(snapshot: Snapshot, request: r.ReadRequest) -> Allocation | None:
    """One allocation with its job."""
    alloc = snapshot.allocation(request.id)
    return with_job(snapshot, alloc) if alloc is not None else None


def allocation_services(snapshot: Snapshot, request: r.ReadRequest) -> tuple[ServiceRegistration, ...]:
    """Instances of services that an allocation registered."""
    if snapshot.allocation(request.id) is None:
        raise not_found("allocation not found")
    return snapshot.allocation_services(request.id)


def list_evaluations(snapshot: Snapshot, request: r.EvaluationListRequest) -> Page:
    """Evaluations in the order of creation, or by id when a prefix is asked for."""
    if request.filter and (request.status or request.job):
        raise invalid("Filter expression cannot be used with other filter parameters")
    mine = in_namespace(request)

    def where(evaluation: Evaluation) -> bool:
        return mine(evaluation) and request.status in ("", evaluation.status) and request.job in ("", evaluation.job_id)

    if request.prefix:
        rows = since(
            snapshot.evaluations_by_prefix(request.prefix),
            request,
            lambda evaluation: evaluation.id,
            reverse=request.reverse,
        )
        return page_of(rows, request, token=lambda evaluation: evaluation.id, where=where)
    rows = snapshot.evaluations(created_start(request), reverse=request.reverse)
    return page_of(rows, request, token=created_token, where=where)


def count_evaluations(snapshot: Snapshot, request: r.EvaluationListRequest) -> int:
    """How many evaluations a list would have."""
    return len(list_evaluations(snapshot, replace(request, per_page=0, next_token="")).items)


def get_evaluation(snapshot: Snapshot, request: r.EvaluationListRequest) -> Evaluation | None:
    """One evaluation; related: with those that it led to or came from."""
    evaluation = snapshot.evaluation(request.id)
    if evaluation is None or not request.related:
        return evaluation
    return replace(evaluation, related_evals=tuple(map(_stub, _related(snapshot, evaluation))))


def _related(snapshot: Snapshot, evaluation: Evaluation) -> list[Evaluation]:
    found: dict[str, Evaluation] = {}
    ahead = [evaluation]
    while ahead and len(found) < RELATED_MAX:
        one = ahead.pop()
        for eval_id in (one.next_eval, one.previous_eval, one.blocked_eval):
            related = snapshot.evaluation(eval_id) if eval_id else None
            if related is not None and related.id not in found and related.id != evaluation.id:
                found[related.id] = related
                ahead.append(related)
    return sorted(found.values(), key=lambda related: related.create_index)


def _stub(evaluation: Evaluation) -> EvaluationStub:
    return shortened(evaluation, EvaluationStub)


def evaluation_allocations(snapshot: Snapshot, request: r.ReadRequest) -> tuple[AllocListStub, ...]:
    """Allocations that an evaluation placed."""
    return tuple(alloc_stub(snapshot, alloc) for alloc in snapshot.evaluation_allocations(request.id))


def evaluations_to_delete(snapshot: Snapshot, request: r.EvaluationDeleteRequest) -> tuple[str, ...]:
    """Ids of the evaluations that a request deletes. Raises LepaError when one that it names may not go."""
    if not snapshot.scheduler_configuration().pause_eval_broker:
        raise invalid("eval broker is enabled; eval broker must be paused to delete evals")
    if bool(request.eval_ids) == bool(request.filter):
        raise invalid("evals to delete are given either by ids or by a filter: give one of them")
    if len(request.eval_ids) > DELETED_MAX:
        raise invalid(f"request includes {len(request.eval_ids)} evaluation IDs, must be {DELETED_MAX} or fewer")
    if request.filter:
        everywhere = r.EvaluationListRequest(filter=request.filter, namespace=request.namespace or "*")
        page: Page = list_evaluations(snapshot, everywhere)
        return tuple(evaluation.id for evaluation in page.items if may_be_deleted(snapshot, evaluation))
    for eval_id in request.eval_ids:
        evaluation = snapshot.evaluation(eval_id)
        if evaluation is None:
            raise not_found(f"eval not found: {eval_id}")
        if not may_be_deleted(snapshot, evaluation):
            raise invalid(f"evaluation {eval_id} may not be deleted: an allocation of it runs, or is to be replaced")
    return request.eval_ids


QUERIES: Answerable = {
    m.ALLOCATION_LIST: Query(table("allocs"), list_allocations),
    m.ALLOCATION_GET: Query(row("allocs"), get_allocation),
    m.ALLOCATION_SERVICES: Query(group("services", "alloc"), allocation_services),
    m.EVALUATION_LIST: Query(table("evals"), list_evaluations),
    m.EVALUATION_COUNT: Query(table("evals"), count_evaluations),
    m.EVALUATION_GET: Query(row("evals"), get_evaluation),
    m.EVALUATION_ALLOCATIONS: Query(group("allocs", "eval"), evaluation_allocations),
}


class AllocationEndpoints:
    """Writes about allocations."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def stop(self, request: r.AllocationStopRequest) -> Reply[r.AllocationStopResponse]:
        """Stop an allocation and let its job replace it."""
        if not request.id:
            raise invalid("Missing allocation ID")
        written = await self._context.write(
            lambda draft: stop_allocation(
                draft, request.id, no_shutdown_delay=request.no_shutdown_delay, reschedule=request.reschedule
            )
        )
        eval_id = written.value.id if written.value is not None else ""
        answer = r.AllocationStopResponse(eval_id=eval_id, index=written.revision)
        return Reply(value=answer, index=written.revision)

    async def delete_evaluations(self, request: r.EvaluationDeleteRequest) -> Reply[r.EvaluationDeleteResponse]:
        """Delete evaluations while the broker is paused: by id (all or none), or all that a filter names and may go."""
        snapshot = self._context.parts.replica.snapshot
        found = await asyncio.to_thread(evaluations_to_delete, snapshot, request)
        revision = max(1, snapshot.index)
        for part in Garbage(evaluations=found).parts(self._context.parts.store.limits):
            revision = (await self._context.write(partial(collect, garbage=part))).revision
        return Reply(value=r.EvaluationDeleteResponse(count=len(found), index=revision), index=revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {m.ALLOCATION_STOP: self.stop, m.EVALUATION_DELETE: self.delete_evaluations}
        return {**queries.answers(QUERIES), **writes}
