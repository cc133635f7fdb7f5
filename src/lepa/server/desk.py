"""Where a worker gets its evaluations and hands in its plans: at this server while it leads, else at the leader."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol

from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.plan import Plan, PlanResult
from lepa.scheduler.outcome import Outcome
from lepa.server.eval_broker import Delivery, kept
from lepa.server.eval_feed import EvalFeed
from lepa.server.plan_applier import PlanApplier
from lepa.server.writer import Writer
from lepa.state.commands.draft import Draft
from lepa.state.commands.evaluations import create_evaluation, end_evaluation


class Desk(Protocol):
    """What a worker needs besides a copy of the state."""

    async def dequeue(self, types: Sequence[str]) -> Delivery:
        """The next evaluation; waits for one."""

    def ack(self, delivery: Delivery, index: int) -> None:
        """The delivery is done; `index` is its last write."""

    def nack(self, delivery: Delivery) -> None:
        """The delivery could not be done."""

    def under_way(self) -> list[Allocation]:
        """Placements of submitted plans that are not in the replica's snapshot yet, as far as is known here."""

    def alone(self, delivery: Delivery) -> AbstractAsyncContextManager[None]:
        """While inside no server's plan comes between: for another try when the plans of others came first.

        Raises LepaError(unsupported) where that cannot be; then the delivery, given back, goes to a desk where it can.
        """

    async def submit(self, plan: Plan, outcome: Outcome) -> PlanResult:
        """Apply a plan as far as it fits, and close its evaluation with its last part. Raises LepaError."""

    async def close(self, delivery: Delivery, outcome: Outcome) -> int:
        """Close an evaluation that needs no plan; the revision. Raises LepaError."""


class LocalDesk:
    """The leader's own."""

    def __init__(self, feed: EvalFeed, applier: PlanApplier, writer: Writer) -> None:
        self._feed = feed
        self._applier = applier
        self._writer = writer
        self._alone = asyncio.Lock()

    async def dequeue(self, types: Sequence[str]) -> Delivery:
        return await self._feed.dequeue((*types, *map(kept, types)))

    def ack(self, delivery: Delivery, index: int) -> None:
        self._feed.ack(delivery, index)

    def nack(self, delivery: Delivery) -> None:
        self._feed.nack(delivery)

    def under_way(self) -> list[Allocation]:
        return self._applier.under_way()

    def alone(self, delivery: Delivery) -> AbstractAsyncContextManager[None]:
        return self._alone

    async def let_pass(self) -> None:
        """Return when nobody is alone: before another server's plan is submitted."""
        async with self._alone:
            return

    async def submit(self, plan: Plan, outcome: Outcome) -> PlanResult:
        return await self._applier.submit(
            plan,
            opening=partial(create, evaluations=followups(outcome.new_evaluations)),
            closing=partial(close, evaluation=outcome.evaluation, new_evaluations=outcome.new_evaluations),
        )

    async def close(self, delivery: Delivery, outcome: Outcome) -> int:
        closing = partial(close, evaluation=outcome.evaluation, new_evaluations=outcome.new_evaluations)
        return (await self._writer.write(closing)).revision


def close(draft: Draft, evaluation: Evaluation, new_evaluations: Sequence[Evaluation]) -> None:
    """The evaluation is done, and others follow it."""
    end_evaluation(draft, evaluation)
    create(draft, new_evaluations)


def create(draft: Draft, evaluations: Sequence[Evaluation]) -> None:
    """Write evaluations that are new."""
    for evaluation in evaluations:
        create_evaluation(draft, evaluation)


def followups(new_evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Evaluations that allocations of the plan may wait for: an allocation never waits for one that does not exist."""
    return [evaluation for evaluation in new_evaluations if evaluation.status != "blocked"]
