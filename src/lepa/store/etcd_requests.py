"""A commit as one transaction of etcd.

It compares what is in force, its own slot, the fence's leader key and what the caller compares; then it applies all
operations and puts the slot. When a compare does not hold it reads instead what tells why.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lepa.store import etcd_messages as m
from lepa.store.etcd_layout import Layout, after, closed
from lepa.store.etcd_session import Slot
from lepa.store.protocol import Compare, Delete, Fence, Put, Txn


def modified(key: bytes, revision: int) -> Any:
    """The condition that a key was last modified at etcd's revision; 0: it is not there."""
    return m.Compare(key=key, target=m.MODIFIED, mod_revision=revision)


def created(key: bytes, revision: int) -> Any:
    """The condition that a key was created at etcd's revision; 0: it is not there."""
    return m.Compare(key=key, target=m.CREATED, create_revision=revision)


def commit_request(layout: Layout, slot: Slot, txn: Txn, fence: Fence | None, born: Mapping[str, int]) -> Any:
    """The transaction of a commit; its failure reads why: root, slot, newest commit, leader key."""
    slot_key, commits = layout.slot(slot.session, slot.number), layout.commits
    compares = [modified(layout.root_key, layout.written), modified(slot_key, slot.last)]
    newest = m.RangeRequest(
        key=commits, range_end=after(commits), limit=1, sort_order=m.DESCENDING, sort_target=m.BY_MODIFIED
    )
    looks = [m.RangeRequest(key=layout.root_key), m.RangeRequest(key=slot_key), newest]
    if fence is not None:
        compares.append(created(layout.object(fence.key), layout.etcds(fence.created)))
        looks.append(m.RangeRequest(key=layout.object(fence.key)))
    compares += _compares(layout, txn.compares)
    operations = [_operation(layout, operation, born) for operation in txn.operations]
    operations.append(_mark(layout, slot_key, slot, txn))
    failure = [m.RequestOp(request_range=look) for look in looks]
    return m.TxnRequest(compare=compares, success=operations, failure=failure)


def _mark(layout: Layout, slot_key: bytes, slot: Slot, txn: Txn) -> Any:
    """Put the slot; when there are only deletions, not unless one of them finds something: else nothing changes."""
    put = m.RequestOp(request_put=m.PutRequest(key=slot_key, lease=slot.session))
    if any(isinstance(operation, Put) for operation in txn.operations):
        return put
    absent = [m.Compare(key=layout.object(op.key), target=m.VERSION, version=0) for op in txn.operations]
    return m.RequestOp(request_txn=m.TxnRequest(compare=absent, failure=[put]))


def _operation(layout: Layout, operation: Put | Delete, born: Mapping[str, int]) -> Any:
    key = layout.object(operation.key)
    if isinstance(operation, Delete):
        return m.RequestOp(request_delete_range=m.DeleteRangeRequest(key=key))
    value = closed(operation.value, born.get(operation.key, 0))
    return m.RequestOp(request_put=m.PutRequest(key=key, value=value, lease=operation.lease))


def _compares(layout: Layout, compares: Iterable[Compare]) -> list[Any]:
    found = []
    for compare in compares:
        key = layout.object(compare.key)
        if compare.modified is not None:
            found.append(modified(key, layout.etcds(compare.modified)))
        if compare.created is not None:
            found.append(created(key, layout.etcds(compare.created)))
    return found


def changed(response: Any) -> bool:
    """Whether an operation changed something, by its answer."""
    kind = response.WhichOneof("one")
    if kind == "response_delete_range":
        return bool(response.response_delete_range.deleted)
    return kind == "response_put" or (kind == "response_txn" and not response.response_txn.succeeded)
