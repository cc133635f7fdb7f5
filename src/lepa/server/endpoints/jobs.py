"""Jobs: registering, planning, stopping, scaling, dispatching. What can be read of them is in `job_reads`."""

import asyncio
from typing import Any

from msgspec.structs import replace

from lepa.kit.durations import SECOND, ZERO_TIME, rfc3339
from lepa.model.errors import invalid
from lepa.model.evaluation import Evaluation
from lepa.model.explanation import JobExplanation
from lepa.model.job import Job, JobVersionTag
from lepa.model.job_diff import annotate, diff_jobs
from lepa.model.wire import to_builtins
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.scheduler.columns import NodeColumns
from lepa.scheduler.outcome import Outcome
from lepa.scheduler.process import process
from lepa.server.admission import admit, bounded_submission, check_registration_allowed, examine
from lepa.server.deciders.periodic import next_launch
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.explanations import explain_job
from lepa.server.endpoints.job_reads import QUERIES
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.stubs import alloc_stub
from lepa.server.writer import Written
from lepa.state.commands import allocations as allocation_commands
from lepa.state.commands import children, tags
from lepa.state.commands import jobs as commands
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import evaluate_job
from lepa.state.gates import held
from lepa.state.reducer import reduce
from lepa.state.snapshot import Snapshot

DISPATCHES_AT_ONCE = 1
"""Two dispatches with one idempotency token must not both find that there is no child yet."""


class JobEndpoints:
    """Writes about jobs, and plans."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts
        self._dispatching = asyncio.Semaphore(DISPATCHES_AT_ONCE)

    @property
    def _snapshot(self) -> Snapshot:
        return self._parts.replica.snapshot

    async def register(self, request: r.JobRegisterRequest) -> Reply[r.JobRegisterResponse]:
        """Store a job and ask for a look at it."""
        check_registration_allowed(self._snapshot)
        settings = self._parts.settings
        admitted = admit(self._snapshot, request.job, settings)
        submission, discarded = bounded_submission(request.submission, settings.source_bytes_max)
        written = await self._context.write(
            lambda draft: commands.register_job(
                draft,
                admitted.job,
                submission=submission,
                enforce_index=request.job_modify_index if request.enforce_index else None,
                preserve_counts=request.preserve_counts,
                preserve_resources=request.preserve_resources,
                eval_priority=request.eval_priority,
                versions_kept=settings.versions_kept,
            )
        )
        waiting = held(self._snapshot, written.value.job) if written.value.job is not None else ""
        told = f"the job begins later: {waiting}" if waiting else ""
        warnings = "\n\n".join(filter(None, (admitted.problems.warning_text, discarded, told)))
        return _registered(written, warnings)

    async def deregister(self, request: r.JobDeregisterRequest) -> Reply[r.JobRegisterResponse]:
        """Stop a job, or forget it."""
        if not request.id:
            raise invalid("missing job ID for deregistering")
        written = await self._context.write(
            lambda draft: commands.deregister_job(
                draft,
                _namespace(request),
                request.id,
                purge=request.purge,
                eval_priority=request.eval_priority,
                no_shutdown_delay=request.no_shutdown_delay,
            )
        )
        return _registered(written)

    async def evaluate(self, request: r.JobEvaluateRequest) -> Reply[r.JobRegisterResponse]:
        """Look at a job again."""

        def command(draft: Draft) -> commands.JobWritten:
            job = commands.existing_job(draft, _namespace(request), request.id)
            if job.periodic is not None:
                raise invalid("can't evaluate periodic job")
            if job.parameterized_job is not None and not job.dispatched:
                raise invalid("can't evaluate parameterized job")
            if request.force_reschedule:
                allocation_commands.force_reschedule(draft, job.namespace, job.id)
            return commands.JobWritten(job, evaluate_job(draft, job, "job-register"), False)

        return _registered(await self._context.write(command))

    async def revert(self, request: r.JobRevertRequest) -> Reply[r.JobRegisterResponse]:
        """Register an earlier version again."""
        check_registration_allowed(self._snapshot)
        written = await self._context.write(
            lambda draft: commands.revert_job(
                draft,
                _namespace(request),
                request.id,
                request.job_version,
                enforce_prior_version=request.enforce_prior_version,
            )
        )
        return _registered(written)

    async def stable(self, request: r.JobStabilityRequest) -> Reply[None]:
        """Mark a version as stable or not."""
        written = await self._context.write(
            lambda draft: commands.mark_stable(
                draft, _namespace(request), request.id, request.job_version, stable=request.stable
            )
        )
        return Reply(value=None, index=written.revision)

    async def scale(self, request: r.JobScaleRequest) -> Reply[r.JobRegisterResponse]:
        """Set a group's count, or note an event."""
        check_registration_allowed(self._snapshot)
        written = await self._context.write(
            lambda draft: commands.scale_job(
                draft,
                _namespace(request),
                request.id,
                request.group,
                request.count,
                message=request.message,
                error=request.error,
                meta=request.meta,
                enforce_index=request.job_modify_index if request.enforce_index or request.job_modify_index else None,
            )
        )
        return _registered(written)

    async def explain(self, request: r.JobExplainRequest) -> Reply[JobExplanation | None]:
        """Why the job's allocations are where they are. Every node is looked at, in a thread."""
        snapshot = self._snapshot
        found = await asyncio.to_thread(explain_job, snapshot, request, self._parts.clock.now_ns())
        return Reply(value=found, index=max(1, snapshot.index))

    async def tag(self, request: r.JobTagRequest) -> Reply[r.JobTagResponse]:
        """Name a version, or take its name away."""
        namespace = _namespace(request)

        def command(draft: Draft) -> JobVersionTag:
            if request.remove:
                return tags.remove_tag(draft, namespace, request.id, request.name)
            return tags.tag_version(
                draft, namespace, request.id, request.name, version=request.version, description=request.description
            )

        written = await self._context.write(command)
        kept = written.value
        answer = r.JobTagResponse(
            name=kept.name, description=kept.description, tagged_time=kept.tagged_time, index=written.revision
        )
        return Reply(value=answer, index=written.revision)

    async def dispatch(self, request: r.JobDispatchRequest) -> Reply[r.JobDispatchResponse]:
        """Make a child of a parameterized job."""
        check_registration_allowed(self._snapshot)
        async with self._dispatching:
            written = await self._context.write(
                lambda draft: children.dispatch_job(
                    draft,
                    _namespace(request),
                    request.id,
                    payload=request.payload,
                    meta=request.meta,
                    template=request.id_prefix_template,
                    idempotency_token=request.idempotency_token,
                    priority=request.priority,
                    max_priority=self._parts.settings.job_max_priority,
                )
            )
        job, evaluation, changed = written.value
        answer = r.JobDispatchResponse(
            dispatched_job_id=job.id if job is not None else "",
            eval_id=evaluation.id if evaluation is not None else "",
            eval_create_index=written.revision if evaluation is not None else 0,
            job_create_index=written.revision if changed or job is None else job.create_index,
            index=written.revision,
        )
        return Reply(value=answer, index=written.revision)

    async def force_periodic(self, request: r.JobEvaluateRequest) -> Reply[r.JobRegisterResponse]:
        """Launch a periodic job now."""
        launch_s = self._parts.clock.now_ns() // SECOND
        written = await self._context.write(
            lambda draft: children.launch_periodic(draft, _namespace(request), request.id, launch_s)
        )
        return _registered(written)

    async def validate(self, request: r.JobPlanRequest) -> Reply[r.JobValidateResponse]:
        """Everything that is wrong with a job."""
        if request.job is None:
            raise invalid("Job must be specified")
        problems = examine(self._snapshot, request.job, self._parts.settings).problems
        answer = r.JobValidateResponse(
            validation_errors=problems.errors, error=problems.error_text, warnings=problems.warning_text
        )
        return Reply(value=answer, index=max(1, self._snapshot.index))

    async def plan(self, request: r.JobPlanRequest) -> Reply[r.JobPlanResponse]:
        """What registering a job would change: the scheduler runs on the state as it would be, nothing is written."""
        snapshot = self._snapshot
        admitted = admit(snapshot, request.job, self._parts.settings)
        existing = snapshot.job(admitted.job.namespace, admitted.job.id)
        draft = self._parts.writer.draft_on(snapshot)
        registered = commands.register_job(draft, admitted.job)
        outcome = None
        if registered.evaluation is not None:
            after = reduce(snapshot, draft.changes(snapshot.index + 1)).snapshot
            outcome = await self._dry_run(replace(registered.evaluation, annotate_plan=True), after)
        annotations = outcome.plan.annotations if outcome is not None else {}
        diff: dict[str, Any] | None = None
        if request.diff:
            diff = to_builtins(annotate(diff_jobs(existing, admitted.job, contextual=True), annotations))
        answer = r.JobPlanResponse(
            annotations=_annotations(snapshot, outcome),
            failed_tg_allocs=outcome.evaluation.failed_tg_allocs if outcome is not None else {},
            job_modify_index=existing.job_modify_index if existing is not None else 0,
            created_evals=outcome.new_evaluations if outcome is not None else (),
            diff=diff,
            next_periodic_launch=self._next_launch(admitted.job),
            warnings=admitted.problems.warning_text,
            index=snapshot.index,
        )
        return Reply(value=answer, index=max(1, snapshot.index))

    async def _dry_run(self, evaluation: Evaluation, snapshot: Snapshot) -> Outcome:
        random = self._parts.random
        return await asyncio.to_thread(
            process,
            evaluation,
            snapshot,
            now_ns=self._parts.clock.now_ns(),
            seed=random.seed(),
            new_id=random.uuid,
            columns=NodeColumns(),
        )

    def _next_launch(self, job: Job) -> str:
        launch_s = next_launch(job.periodic, self._parts.clock.now_ns() // SECOND)
        return rfc3339(launch_s * SECOND) if launch_s is not None else ZERO_TIME

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {
            m.JOB_PLAN: self.plan,
            m.JOB_VALIDATE: self.validate,
            m.JOB_REGISTER: self.register,
            m.JOB_DEREGISTER: self.deregister,
            m.JOB_EVALUATE: self.evaluate,
            m.JOB_REVERT: self.revert,
            m.JOB_STABLE: self.stable,
            m.JOB_SCALE: self.scale,
            m.JOB_TAG: self.tag,
            m.JOB_EXPLAIN: self.explain,
            m.JOB_DISPATCH: self.dispatch,
            m.JOB_PERIODIC_FORCE: self.force_periodic,
        }
        return {**queries.answers(QUERIES), **writes}


def _namespace(request: r.Request) -> str:
    return request.namespace or "default"


def _annotations(snapshot: Snapshot, outcome: Outcome | None) -> r.PlanAnnotations:
    if outcome is None:
        return r.PlanAnnotations()
    evicted = [snapshot.allocation(stop.alloc_id) for stop in outcome.plan.stops if stop.preempted_by]
    return r.PlanAnnotations(
        desired_tg_updates=outcome.plan.annotations,
        preempted_allocs=tuple(alloc_stub(snapshot, alloc) for alloc in evicted if alloc is not None),
    )


def _registered(written: Written[commands.JobWritten], warnings: str = "") -> Reply[r.JobRegisterResponse]:
    job, evaluation, changed = written.value
    if job is None:
        return Reply(value=r.JobRegisterResponse(index=written.revision), index=written.revision)
    answer = r.JobRegisterResponse(
        eval_id=evaluation.id if evaluation is not None else "",
        eval_create_index=written.revision if evaluation is not None else 0,
        job_modify_index=written.revision if changed else job.job_modify_index,
        warnings=warnings,
        index=written.revision,
        known_leader=True,
    )
    return Reply(value=answer, index=written.revision)
