"""Pure: a transaction in the making, on the ground of one snapshot.

A command reads through the draft, so that it sees what earlier commands put into it, and every object that it replaces
is compared when the draft is committed: if somebody else was faster, nothing is written and the command runs again on
a newer snapshot. Commands never wait, never ask for the time and make no ids of their own.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.wire import Wire
from lepa.state import keys
from lepa.state.snapshot import Snapshot
from lepa.store.protocol import Change, Compare, Delete, Limits, Put, Txn

W = TypeVar("W", bound=Wire)


class Draft:
    """What one transaction will write. now_ns: wall time of the write. new_id: a fresh UUID at each call."""

    def __init__(self, snapshot: Snapshot, now_ns: int, new_id: Callable[[], str]) -> None:
        self.snapshot = snapshot
        self.now_ns = now_ns
        self.new_id = new_id
        self._operations: dict[str, Put | Delete] = {}
        self._compares: dict[str, Compare] = {}
        self._created: dict[str, int] = {}
        self._values: dict[str, Any] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._operations

    def txn(self) -> Txn:
        """The transaction."""
        return Txn(tuple(self._operations.values()), tuple(self._compares.values()))

    def txns(self, limits: Limits) -> list[Txn]:
        """The same in as many transactions as a store needs, in the order of the commands.

        Commands put first what the rest follows from; evaluations that follow from a change come after it.
        """
        txn = self.txn()
        if txn.fits(limits):
            return [txn]
        parts: list[list[Put | Delete]] = [[]]
        size = 0
        for operation in txn.operations:
            bytes_more = len(operation.key) + (len(operation.value) if isinstance(operation, Put) else 0)
            if parts[-1] and (len(parts[-1]) >= limits.operations_max or size + bytes_more > limits.bytes_max):
                parts.append([])
                size = 0
            parts[-1].append(operation)
            size += bytes_more
        others = tuple(compare for key, compare in self._compares.items() if key not in self._operations)
        return [
            Txn(tuple(part), tuple(self._compares[op.key] for op in part if op.key in self._compares) + others)
            for part in parts
        ]

    def changes(self, revision: int) -> list[Change]:
        """What a watch will say when the transaction is committed at `revision`."""
        return [
            Change(
                key,
                operation.value if isinstance(operation, Put) else None,
                self._created.get(key, revision),
                revision,
            )
            for key, operation in self._operations.items()
        ]

    def put(self, key: str, value: Wire, base: Any) -> None:
        """Store `value`. base: what the snapshot holds there, None for nothing; it must still be so."""
        if base is not None:
            self._created[key] = base.create_index
        self._values[key] = value
        self._operations[key] = keys.put(key, value)
        self.require(key, base)

    def delete(self, key: str, base: Any) -> None:
        """Remove what the snapshot holds there."""
        self._values[key] = None
        self._operations[key] = Delete(key)
        self.require(key, base)

    def overwrite(self, key: str, value: Wire) -> None:
        """Store `value` whatever is there."""
        self._values[key] = value
        self._operations[key] = keys.put(key, value)

    def erase(self, key: str) -> None:
        """Remove whatever is there."""
        self._values[key] = None
        self._operations[key] = Delete(key)

    def require(self, key: str, base: Any) -> None:
        """What the snapshot holds there must still be so when this is written."""
        self._compares.setdefault(key, Compare(key, modified=base.modify_index if base is not None else 0))

    def drafted(self, key: str, present: W | None) -> W | None:
        """What this draft makes of the object `present` of the snapshot."""
        return self._values.get(key, present)

    # The objects that several commands touch

    def job(self, namespace: str, job_id: str) -> Job | None:
        """The newest version of a job."""
        return self.drafted(keys.job_key(namespace, job_id), self.snapshot.job(namespace, job_id))

    def allocation(self, alloc_id: str) -> Allocation | None:
        """One allocation."""
        return self.drafted(keys.alloc_key(alloc_id), self.snapshot.allocation(alloc_id))

    def put_allocation(self, alloc: Allocation) -> None:
        """Store an allocation."""
        self.put(keys.alloc_key(alloc.id), alloc, self.snapshot.allocation(alloc.id))

    def evaluation(self, eval_id: str) -> Evaluation | None:
        """One evaluation."""
        return self.drafted(keys.eval_key(eval_id), self.snapshot.evaluation(eval_id))

    def put_evaluation(self, evaluation: Evaluation) -> None:
        """Store an evaluation."""
        self.put(keys.eval_key(evaluation.id), evaluation, self.snapshot.evaluation(evaluation.id))

    def deployment(self, deployment_id: str) -> Deployment | None:
        """One deployment."""
        return self.drafted(keys.deployment_key(deployment_id), self.snapshot.deployment(deployment_id))

    def put_deployment(self, deployment: Deployment) -> None:
        """Store a deployment."""
        self.put(keys.deployment_key(deployment.id), deployment, self.snapshot.deployment(deployment.id))

    def node(self, node_id: str) -> Node | None:
        """One node."""
        return self.drafted(keys.node_key(node_id), self.snapshot.node(node_id))

    def put_node(self, node: Node) -> None:
        """Store a node."""
        self.put(keys.node_key(node.id), node, self.snapshot.node(node.id))
