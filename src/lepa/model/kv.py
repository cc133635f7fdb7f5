"""Pure: keys with values, and the sessions that lock them.

A session is somebody's promise to be alive: it ends when its owner stops renewing it, when its node dies or a check
that it names fails, or when it is destroyed. While it lives it may hold keys; when it ends they are released or
deleted, and nobody gets them for its lock delay, so that a former owner has time to notice.
"""

from typing import Literal

from lepa.model.wire import Wire

SessionBehavior = Literal["release", "delete"]

NODE_CHECK = "serfHealth"
"""The check that stands for a node itself: whether the cluster hears of it."""


class KvEntry(Wire, frozen=True):
    """One key. lock_index: how often it was locked. session: who holds it, or "". flags: the user's own."""

    key: str = ""
    value: bytes = b""
    flags: int = 0
    lock_index: int = 0
    session: str = ""
    create_index: int = 0
    modify_index: int = 0


class KvDelay(Wire, frozen=True):
    """Nobody may lock `key` before `until` (Unix nanoseconds), because the session that held it ended."""

    key: str = ""
    until: int = 0
    create_index: int = 0
    modify_index: int = 0


class Session(Wire, frozen=True):
    """One session. ttl and lock_delay: nanoseconds; a ttl of 0 never ends it. renewed_at: Unix nanoseconds.

    node_id: the node that it lives and dies with; "" where it belongs to no node of the cluster. checks: ids of checks
    on its node; NODE_CHECK among them means the node itself.
    """

    id: str = ""
    name: str = ""
    node: str = ""
    node_id: str = ""
    behavior: SessionBehavior = "release"
    ttl: int = 0
    lock_delay: int = 0
    checks: tuple[str, ...] = ()
    service_checks: tuple[str, ...] = ()
    renewed_at: int = 0
    create_index: int = 0
    modify_index: int = 0


KvVerb = Literal[
    "set",
    "cas",
    "lock",
    "unlock",
    "get",
    "get-tree",
    "get-or-empty",
    "check-index",
    "check-session",
    "check-not-exists",
    "delete",
    "delete-tree",
    "delete-cas",
]


class KvOperation(Wire, frozen=True):
    """One step of a transaction on keys. index: what `cas`, `delete-cas` and `check-index` compare with."""

    verb: KvVerb = "get"
    key: str = ""
    value: bytes = b""
    flags: int = 0
    index: int = 0
    session: str = ""


class KvError(Wire, frozen=True):
    """Why one operation could not be done; op_index is its place in the transaction."""

    op_index: int = 0
    what: str = ""
