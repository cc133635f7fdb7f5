"""Applies plans: one at a time, each checked against the newest state, the next one checked while one is committed.

Workers plan at the same time from snapshots that grow old. Here their plans come one after the other: what of a plan
still fits is committed, the rest is refused, and the worker looks again. A commit waits for the disk; meanwhile the
next plan is checked against the state as it will be if the commit succeeds. When it does not, or when somebody else
has changed what the plan is about, the plan is checked again on the newest snapshot.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError, conflict
from lepa.model.plan import Plan, PlanResult
from lepa.scheduler.plan_check import check_plan, plan_parts
from lepa.server.writer import REPLICA_WAIT_S, Writer
from lepa.state.commands.draft import Draft
from lepa.state.commands.plans import apply_plan, items_max
from lepa.state.reducer import reduce
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot
from lepa.store.protocol import Store

PLANS_MAX: Final = 1_024
ATTEMPTS_MAX: Final = 20
THREAD_ITEMS: Final = 200
"""Plans with more allocations are checked, and their outcome foreseen, in a thread."""

log = logging.getLogger(__name__)


Command = Callable[[Draft], None]


class _Pending(NamedTuple):
    """A submitted plan and where its result goes. Urgent plans go first, then as they came."""

    urgency: int
    number: int
    plan: Plan
    opening: Command
    closing: Command
    result: "asyncio.Future[PlanResult]"


class _Checked(NamedTuple):
    """What of a plan may be committed, and what the worker will be told."""

    accepted: Plan
    result: PlanResult


class _Overtaken(Exception):
    """Somebody else has changed what the plan is about, at this revision or before."""

    def __init__(self, revision: int) -> None:
        super().__init__(revision)
        self.revision = revision


def _nothing(draft: Draft) -> None:
    """Write nothing more."""


class PlanApplier:
    """The plan queue of a leading server, as an async context manager."""

    def __init__(
        self,
        store: Store,
        replica: Replica,
        writer: Writer,
        clock: Clock,
        metrics: Metrics,
        holds: Callable[[str, str], bool],
    ) -> None:
        """holds: whether the worker that made a plan still has its evaluation, by its id and token."""
        self._store = store
        self._replica = replica
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._holds = holds
        self._queue: asyncio.PriorityQueue[_Pending] = asyncio.PriorityQueue(PLANS_MAX)
        self._tasks = Tasks("plan_applier")
        self._submitted = 0

    async def __aenter__(self) -> "PlanApplier":
        self._tasks.start("run", self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        while not self._queue.empty():
            self._queue.get_nowait().result.cancel()

    async def submit(self, plan: Plan, *, opening: Command = _nothing, closing: Command = _nothing) -> PlanResult:
        """Apply a plan as far as it fits.

        opening: written before anything of the plan or with its first part. closing: written with its last part, when
        nothing of the plan was refused. Raises LepaError(conflict) when another worker has its evaluation now.
        """
        self._submitted += 1
        result: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Pending(-plan.priority, self._submitted, plan, opening, closing, result))
        self._metrics.gauge("nomad.plan.queue_depth", self._queue.qsize())
        return await result

    async def _run(self) -> None:
        commit: asyncio.Task[Snapshot | None] | None = None
        expected: Snapshot | None = None
        while True:
            pending = await self._queue.get()
            on = self._replica.snapshot if commit is None or commit.done() or expected is None else expected
            try:
                checked = await self._check(pending.plan, on)
                if commit is not None:
                    committed = await commit
                    if committed is not None and on is expected:
                        on = committed
                    elif (newest := self._newest(committed)) is not on:
                        on = newest
                        checked = await self._check(pending.plan, on)
                expected = await self._expect(pending, checked, on)
            except Exception as error:
                log.exception("plan not checked eval_id=%s", pending.plan.eval_id)
                _refuse(pending, error)
                continue
            commit = self._tasks.start("commit", self._commit(pending, checked, on))

    def _newest(self, committed: Snapshot | None) -> Snapshot:
        """The replica's snapshot, unless it has not heard of the last commit yet."""
        newest = self._replica.snapshot
        return committed if committed is not None and committed.index > newest.index else newest

    async def _check(self, plan: Plan, snapshot: Snapshot) -> _Checked:
        started = self._clock.now()
        if len(plan.updates) + len(plan.stops) > THREAD_ITEMS:
            result = await asyncio.to_thread(check_plan, plan, snapshot)
        else:
            result = check_plan(plan, snapshot)
        self._metrics.sample("nomad.plan.evaluate", 1e3 * (self._clock.now() - started))
        for node_id in result.rejected_nodes:
            self._metrics.count("nomad.plan.node_rejected", node_id=node_id)
        taken = bool(result.updates or result.stops or not result.rejected_nodes)
        accepted = replace(
            plan,
            updates=result.updates,
            stops=result.stops,
            deployment=plan.deployment if taken else None,
            deployment_updates=plan.deployment_updates if taken else (),
        )
        return _Checked(accepted, result)

    async def _expect(self, pending: _Pending, checked: _Checked, snapshot: Snapshot) -> Snapshot:
        """The state as it will be if the plan is committed."""
        plan = checked.accepted
        if len(plan.updates) + len(plan.stops) > THREAD_ITEMS:
            return await asyncio.to_thread(self._expected, pending, checked, snapshot)
        return self._expected(pending, checked, snapshot)

    def _expected(self, pending: _Pending, checked: _Checked, snapshot: Snapshot) -> Snapshot:
        for add in self._parts(pending, checked):
            snapshot = _after(snapshot, self._draft(add, snapshot), snapshot.index + 1)
        return snapshot

    async def _commit(self, pending: _Pending, checked: _Checked, on: Snapshot) -> Snapshot | None:
        """Commit what was accepted and tell the worker. Returns the state after it, None when that was not foreseen."""
        foreseen = True
        try:
            for _ in range(ATTEMPTS_MAX):
                if not self._holds(pending.plan.eval_id, pending.plan.eval_token):
                    raise conflict("evaluation token does not match; the plan was not applied")
                try:
                    after = await self._write(pending, checked, on)
                    pending.result.set_result(replace(checked.result, applied_index=after.index))
                    return after if foreseen else None
                except _Overtaken as overtaken:
                    foreseen = False
                    on = await self._replica.wait_for(overtaken.revision, REPLICA_WAIT_S)
                    checked = await self._check(pending.plan, on)
            raise LepaError("timeout", f"plan was overtaken by other writes {ATTEMPTS_MAX} times")
        except Exception as error:
            _refuse(pending, error)
            return None

    async def _write(self, pending: _Pending, checked: _Checked, snapshot: Snapshot) -> Snapshot:
        started = self._clock.now()
        for add in self._parts(pending, checked):
            draft = self._draft(add, snapshot)
            committed = await self._writer.commit(draft.txn())
            if not committed.ok:
                raise _Overtaken(committed.revision)
            snapshot = _after(snapshot, draft, committed.revision)
        self._metrics.sample("nomad.plan.apply", 1e3 * (self._clock.now() - started))
        return snapshot

    def _parts(self, pending: _Pending, checked: _Checked) -> Iterator[list[Command]]:
        """What each transaction writes, in order."""
        if checked.accepted.empty:
            return
        parts: list[list[Command]] = [
            [partial(_apply, plan=part)] for part in plan_parts(checked.accepted, items_max(self._store.limits))
        ]
        parts[0].insert(0, pending.opening)
        if not checked.result.refresh_index:
            parts[-1].append(pending.closing)
        yield from parts

    def _draft(self, commands: list[Command], snapshot: Snapshot) -> Draft:
        draft = self._writer.draft_on(snapshot)
        for command in commands:
            command(draft)
        return draft


def _apply(draft: Draft, plan: Plan) -> None:
    apply_plan(draft, plan)


def _refuse(pending: _Pending, error: Exception) -> None:
    if not pending.result.done():
        pending.result.set_exception(error)


def _after(snapshot: Snapshot, draft: Draft, revision: int) -> Snapshot:
    """The snapshot after a draft on it, as if nothing else had been written before it."""
    return reduce(snapshot, draft.changes(revision)).snapshot
