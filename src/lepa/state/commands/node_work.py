"""Pure: what servers ask nodes to do."""

from typing import Final

from msgspec.structs import replace

from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError
from lepa.model.node_work import NodeWork
from lepa.state import keys
from lepa.state.commands.draft import Draft

WORK_MAX: Final = 200
"""Pieces of work that one node may have waiting."""
KEPT_NS: Final = 600 * SECOND
"""Work that nobody has come back for since is forgotten: the server that asked is gone."""
ERROR_MAX: Final = 2_000


def ask_node(draft: Draft, node_id: str, kind: str, body: bytes) -> str:
    """Ask a node to do something; the id of the work. Raises LepaError(conflict) when it has too much to do."""
    for old in draft.snapshot.all_work():
        if old.asked_at + KEPT_NS < draft.now_ns:
            draft.erase(keys.node_work_key(old.node_id, old.id))
    if len(draft.snapshot.node_work(node_id)) >= WORK_MAX:
        raise LepaError("conflict", f"node {node_id} has {WORK_MAX} requests waiting; try again when it has caught up")
    work = NodeWork(id=draft.new_id(), node_id=node_id, kind=kind, body=body, asked_at=draft.now_ns)
    draft.put(keys.node_work_key(node_id, work.id), work, None)
    return work.id


def answer_work(draft: Draft, node_id: str, work_id: str, *, error: str, answer: bytes) -> None:
    """A node has done it, or says why not; nothing happens when nobody waits for it any more."""
    work = draft.snapshot.work(node_id, work_id)
    if work is not None and not work.done:
        done = replace(work, done=True, error=error[:ERROR_MAX], answer=answer, body=b"")
        draft.put(keys.node_work_key(node_id, work_id), done, work)


def forget_work(draft: Draft, node_id: str, work_id: str) -> None:
    """Whoever asked has the answer, or has given up."""
    draft.erase(keys.node_work_key(node_id, work_id))
