"""Pure: evaluations whose job found no room, until capacity appears that could help.

A scheduler that could not place everything leaves a blocked evaluation which says, for each class of nodes that it saw,
whether the job may run there at all. Room on a node of a class that is no use to the job does not wake it. A job has at
most one blocked evaluation (system jobs: one a node); a later one replaces the earlier, which is cancelled.

Capacity that appeared after the scheduler's snapshot but before the evaluation got here would be missed: the index of
the last unblock of each class is kept, and an evaluation that saw an older state is let go at once.
"""

from collections.abc import Iterable

from lepa.model.evaluation import Evaluation

CLASSES_MAX = 4096
SYSTEM_TYPES = ("system", "sysbatch")

BlockKey = tuple[str, str, str]


class BlockedEvals:
    """Blocked evaluations by job. Methods that let some go return them, to be enqueued again."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as a server does that leads no more."""
        self._blocked: dict[BlockKey, Evaluation] = {}
        self._class_unblocked: dict[str, int] = {}
        self._node_unblocked: dict[str, int] = {}
        self._floor = 0
        self._duplicates: list[Evaluation] = []

    def block(self, evaluation: Evaluation) -> list[Evaluation]:
        """Keep it until capacity appears; returns it at once when capacity has appeared that it did not see."""
        if self._missed(evaluation):
            return [evaluation]
        key = _key(evaluation)
        present = self._blocked.get(key)
        if present is not None and present.id != evaluation.id:
            older, evaluation = sorted((present, evaluation), key=lambda kept: kept.create_index)
            self._duplicates.append(older)
        self._blocked[key] = evaluation
        return []

    def unblock(self, computed_class: str, node_id: str, index: int) -> list[Evaluation]:
        """There is room on a node of this class since `index`."""
        self._remember(computed_class, node_id, index)
        return self._let_go(
            evaluation for evaluation in self._blocked.values() if _could_use(evaluation, computed_class, node_id)
        )

    def unblock_failed(self) -> list[Evaluation]:
        """Try again those that were blocked because their plans were refused too often."""
        return self._let_go(kept for kept in self._blocked.values() if kept.triggered_by == "max-plan-attempts")

    def drop(self, eval_id: str) -> None:
        """The evaluation is over by other means."""
        for key in [key for key, kept in self._blocked.items() if kept.id == eval_id]:
            del self._blocked[key]

    def take_duplicates(self) -> list[Evaluation]:
        """Evaluations replaced by a later one of their job since the last call, to be cancelled."""
        duplicates, self._duplicates = self._duplicates, []
        return duplicates

    def __len__(self) -> int:
        return len(self._blocked)

    @property
    def escaped(self) -> int:
        """How many depend on single nodes, not on classes."""
        return sum(kept.escaped_computed_class for kept in self._blocked.values())

    def _let_go(self, evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        gone = list(evaluations)
        for evaluation in gone:
            del self._blocked[_key(evaluation)]
        return gone

    def _remember(self, computed_class: str, node_id: str, index: int) -> None:
        for table, name in ((self._class_unblocked, computed_class), (self._node_unblocked, node_id)):
            table[name] = index
            if len(table) > CLASSES_MAX:
                self._floor = max(self._floor, table.pop(next(iter(table))))

    def _missed(self, evaluation: Evaluation) -> bool:
        seen = evaluation.snapshot_index
        if self._floor > seen:
            return True
        if _one_node(evaluation):
            return self._node_unblocked.get(evaluation.node_id, 0) > seen
        return any(
            index > seen and _could_use(evaluation, computed_class, "")
            for computed_class, index in self._class_unblocked.items()
        )


def _could_use(evaluation: Evaluation, computed_class: str, node_id: str) -> bool:
    """Whether room on such a node could help; a class that the scheduler has not seen could."""
    if _one_node(evaluation):
        return evaluation.node_id == node_id
    return evaluation.escaped_computed_class or evaluation.class_eligibility.get(computed_class, True)


def _one_node(evaluation: Evaluation) -> bool:
    return evaluation.type in SYSTEM_TYPES and evaluation.node_id != ""


def _key(evaluation: Evaluation) -> BlockKey:
    return evaluation.namespace, evaluation.job_id, evaluation.node_id if _one_node(evaluation) else ""
