"""Pure: something that servers ask a node to do, and what became of it.

Servers do not call nodes: a node follows what it is asked like everything else that concerns it, so it may be behind
any firewall. A piece of work is asked once and may be done twice, when an agent ends in the middle of it; so whatever
nodes are asked must be harmless to repeat.
"""

from lepa.model.wire import Wire


class NodeWork(Wire, frozen=True):
    """kind: what to do; body: with what, as JSON. done: answered, with an error or with an answer (JSON)."""

    id: str = ""
    node_id: str = ""
    kind: str = ""
    body: bytes = b""
    asked_at: int = 0
    done: bool = False
    error: str = ""
    answer: bytes = b""
    create_index: int = 0
    modify_index: int = 0
