"""Applies plans in order, each checked against the newest state, the next ones checked while some are committed.

Workers plan at the same time from snapshots that grow old. Here their plans come one after the other: what of a plan
still fits is committed, the rest is refused, and the worker looks again. A commit waits for the disk; meanwhile the
next plan is checked as if what is being committed were there already, and small plans that wait are committed together
in one transaction. When a commit does not go through as foreseen, or when somebody else has changed what a plan rests
on, the plan is checked again on the newest snapshot.
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
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, conflict
from lepa.model.plan import Plan, PlanResult
from lepa.scheduler.ahead import Ahead
from lepa.scheduler.plan_check import check_plan, check_stands, plan_parts
from lepa.scheduler.view import View
from lepa.server.writer import REPLICA_WAIT_S, Writer
from lepa.state.commands.draft import Draft
from lepa.state.commands.plans import apply_plan, items_max
from lepa.state.job_tally import TERMINAL_EVALUATION_STATUSES
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
    """What of a plan may be committed, and what the worker will be told. on: the state of which that is true."""

    pending: _Pending
    on: View
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
        self._under_way: dict[int, Plan] = {}
        self._held: _Pending | None = None

    async def __aenter__(self) -> "PlanApplier":
        self._tasks.start("run", self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()
        while (pending := self._waiting()) is not None:
            pending.result.cancel()

    def under_way(self) -> list[Allocation]:
        """Placements of small plans that were submitted and are not in the replica's snapshot yet.

        Large plans appear there part by part; counting them ahead would cost more than the conflicts it saves.
        """
        return [alloc for plan in self._under_way.values() for alloc in plan.updates]

    async def submit(self, plan: Plan, *, opening: Command = _nothing, closing: Command = _nothing) -> PlanResult:
        """Apply a plan as far as it fits.

        opening: written before anything of the plan or with its first part. closing: written with its last part, when
        nothing of the plan was refused. Raises LepaError(conflict) when another worker has its evaluation now.
        """
        self._submitted += 1
        asked = self._clock.now()
        result: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        number = self._submitted
        if _items(plan) <= THREAD_ITEMS:
            self._under_way[number] = plan
        try:
            await self._queue.put(_Pending(-plan.priority, number, plan, opening, closing, result))
            self._metrics.gauge("nomad.nomad.plan.queue_depth", self._queue.qsize())
            return await result
        finally:
            self._metrics.sample("nomad.nomad.plan.submit", 1e3 * (self._clock.now() - asked))
            self._metrics.gauge("nomad.nomad.plan.outstanding_apply", len(self._under_way))
            self._under_way.pop(number, None)

    async def _run(self) -> None:
        commit: asyncio.Task[bool] | None = None
        ahead = Ahead(self._replica.snapshot)
        while True:
            pending = self._held or await self._queue.get()
            self._held = None
            if commit is None or commit.done():
                ahead = Ahead(self._replica.snapshot)
            group = await self._checked([pending], ahead)
            foreseen = commit is None or await commit
            newest = self._replica.snapshot
            ahead = Ahead(newest)
            if foreseen and all(check_stands(pending.plan, checked.on, newest) for checked in group):
                await self._count(group, ahead)
            else:
                group = await self._checked([pending], ahead)
            group += await self._checked(self._joining(pending), ahead)
            commit = self._tasks.start("commit", self._commit(group, newest))

    def _joining(self, first: _Pending) -> list[_Pending]:
        """Plans that wait and can be written together with the first, as far as a transaction takes them."""
        room = items_max(self._store.limits) - _weight(first.plan)
        joining: list[_Pending] = []
        while not _evicts(first.plan) and (pending := self._waiting()) is not None:
            room -= _weight(pending.plan)
            if room < 0 or _evicts(pending.plan):
                self._held = pending
                break
            joining.append(pending)
        return joining

    def _waiting(self) -> _Pending | None:
        """The next plan, if one waits."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        return None if self._queue.empty() else self._queue.get_nowait()

    async def _checked(self, plans: list[_Pending], ahead: Ahead) -> list[_Checked]:
        """What of each plan may be committed after those before it. `ahead` grows by it."""
        checked = []
        for pending in plans:
            try:
                found = await self._check(pending, ahead)
                await self._count([found], ahead)
                checked.append(found)
            except Exception as error:
                log.exception("plan not checked eval_id=%s", pending.plan.eval_id)
                _refuse(pending, error)
        return checked

    async def _count(self, group: list[_Checked], ahead: Ahead) -> None:
        """Let `ahead` have what the group will place."""
        for checked in group:
            if _items(checked.accepted) > THREAD_ITEMS:
                await asyncio.to_thread(ahead.add, checked.accepted.updates)
            else:
                ahead.add(checked.accepted.updates)

    async def _check(self, pending: _Pending, on: View) -> _Checked:
        started = self._clock.now()
        plan = pending.plan
        if _items(plan) > THREAD_ITEMS:
            result = await asyncio.to_thread(check_plan, plan, on)
        else:
            result = check_plan(plan, on)
        self._metrics.sample("nomad.nomad.plan.evaluate", 1e3 * (self._clock.now() - started))
        for node_id in result.rejected_nodes:
            self._metrics.count("nomad.nomad.plan.node_rejected", node_id=node_id)
        taken = bool(result.updates or result.stops or not result.rejected_nodes)
        accepted = replace(
            plan,
            updates=result.updates,
            stops=result.stops,
            deployment=plan.deployment if taken else None,
            deployment_updates=plan.deployment_updates if taken else (),
        )
        return _Checked(pending, on.view if isinstance(on, Ahead) else on, accepted, result)

    async def _commit(self, group: list[_Checked], on: Snapshot) -> bool:
        """Commit what was accepted and tell the workers, when the replica has it. Whether it went as foreseen."""
        group = [checked for checked in group if self._still_held(checked)]
        if len(group) == 1:
            return await self._commit_alone(group[0], on)
        try:
            if await self._write_together(group, on):
                return True
        except Exception as error:
            for checked in group:
                _refuse(checked.pending, error)
            return False
        for checked in group:
            await self._commit_anew(checked.pending)
        return False

    def _still_held(self, checked: _Checked) -> bool:
        """Whether the plan's evaluation is its worker's, and has not ended: what it asked for is there already then."""
        plan = checked.pending.plan
        evaluation = self._replica.snapshot.evaluation(plan.eval_id)
        ended = evaluation is not None and evaluation.status in TERMINAL_EVALUATION_STATUSES
        if self._holds(plan.eval_id, plan.eval_token) and not ended:
            return True
        reason = "the evaluation has ended" if ended else "evaluation token does not match"
        _refuse(checked.pending, conflict(f"{reason}; the plan was not applied"))
        return False

    async def _write_together(self, group: list[_Checked], on: Snapshot) -> bool:
        """One transaction for small plans. False when it was overtaken or is too large: nothing was written then."""
        started = self._clock.now()
        draft = self._draft([command for checked in group for part in self._parts(checked) for command in part], on)
        index = on.index
        if not draft.empty:
            txn = draft.txn()
            if not txn.fits(self._store.limits):
                return False
            committed = await self._writer.commit(txn)
            if not committed.ok:
                return False
            index = committed.revision
        await self._replica.wait_for(index, REPLICA_WAIT_S)
        for checked in group:
            _tell(checked, index)
        self._metrics.sample("nomad.nomad.plan.apply", 1e3 * (self._clock.now() - started))
        return True

    async def _commit_alone(self, checked: _Checked, on: Snapshot) -> bool:
        """Commit one plan, checked again as often as somebody is faster. Whether the first check was enough."""
        pending, foreseen = checked.pending, True
        try:
            for _ in range(ATTEMPTS_MAX):
                if not self._still_held(checked):
                    return False
                try:
                    _tell(checked, await self._write(checked, on))
                    return foreseen
                except _Overtaken as overtaken:
                    foreseen = False
                    on = await self._replica.wait_for(overtaken.revision, REPLICA_WAIT_S)
                    checked = await self._check(pending, on)
            raise LepaError("timeout", f"plan was overtaken by other writes {ATTEMPTS_MAX} times")
        except Exception as error:
            _refuse(pending, error)
            return False

    async def _commit_anew(self, pending: _Pending) -> None:
        """Check one plan on the newest snapshot and commit it."""
        newest = self._replica.snapshot
        for checked in await self._checked([pending], Ahead(newest)):
            await self._commit_alone(checked, newest)

    async def _write(self, checked: _Checked, on: Snapshot) -> int:
        """Write a plan, in parts when it is large, each on the state that the one before led to; the last revision."""
        started = self._clock.now()
        for at, add in enumerate(self._parts(checked)):
            if at and not check_stands(checked.accepted, checked.on, on):
                raise _Overtaken(on.index)
            committed = await self._writer.commit(self._draft(add, on).txn())
            if not committed.ok:
                raise _Overtaken(committed.revision)
            on = await self._replica.wait_for(committed.revision, REPLICA_WAIT_S)
        self._metrics.sample("nomad.nomad.plan.apply", 1e3 * (self._clock.now() - started))
        return on.index

    def _parts(self, checked: _Checked) -> Iterator[list[Command]]:
        """What each transaction writes, in order."""
        if checked.accepted.empty:
            return
        parts: list[list[Command]] = [
            [partial(_apply, plan=part)] for part in plan_parts(checked.accepted, items_max(self._store.limits))
        ]
        parts[0].insert(0, checked.pending.opening)
        if not checked.result.refresh_index:
            parts[-1].append(checked.pending.closing)
        yield from parts

    def _draft(self, commands: list[Command], snapshot: Snapshot) -> Draft:
        draft = self._writer.draft_on(snapshot)
        for command in commands:
            command(draft)
        return draft


def _items(plan: Plan) -> int:
    return len(plan.updates) + len(plan.stops)


def _weight(plan: Plan) -> int:
    """Of a plan among those that one transaction takes: its allocations, its evaluation and its deployment."""
    return _items(plan) + 2


def _evicts(plan: Plan) -> bool:
    """Whether it touches allocations of other jobs, which may have plans of their own under way."""
    return any(stop.preempted_by for stop in plan.stops)


def _apply(draft: Draft, plan: Plan) -> None:
    apply_plan(draft, plan)


def _tell(checked: _Checked, index: int) -> None:
    if not checked.pending.result.done():
        checked.pending.result.set_result(replace(checked.result, applied_index=index))


def _refuse(pending: _Pending, error: Exception) -> None:
    if not pending.result.done():
        pending.result.set_exception(error)
