"""Pure: sessions begin, are renewed and end; what ends with them is released or deleted."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from lepa.kit.durations import HOUR, SECOND
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.kv import NODE_CHECK, KvDelay, KvEntry, Session
from lepa.model.service import ServiceRegistration
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

TTL_MIN: Final = 10 * SECOND
TTL_MAX: Final = 24 * HOUR
LOCK_DELAY_MAX: Final = 60 * SECOND
TTL_FACTOR: Final = 2
"""A session ends this many times its TTL after it was renewed last: a renewal may be late."""


def create_session(draft: Draft, wanted: Session) -> str:
    """Begin a session; returns its id. Raises LepaError when it asks for too much or would be over at once."""
    if wanted.ttl and not TTL_MIN <= wanted.ttl <= TTL_MAX:
        asked_s = wanted.ttl / SECOND
        raise invalid(f"Invalid Session TTL '{asked_s:g}s', must be between [10s=24h0m0s]")
    if not 0 <= wanted.lock_delay <= LOCK_DELAY_MAX:
        raise invalid("Invalid LockDelay: must be between 0s and 60s")
    session = replace(wanted, id=draft.new_id(), renewed_at=draft.now_ns)
    reason = broken(draft.snapshot, session)
    if reason:
        raise LepaError("internal", reason)
    draft.put(keys.session_key(session.id), session, None)
    return session.id


def renew_session(draft: Draft, session_id: str) -> Session:
    """Its owner is alive. Raises LepaError(not_found) when it is over."""
    present = draft.snapshot.session(session_id)
    if present is None:
        raise not_found(f"Session id '{session_id}' not found")
    renewed = replace(present, renewed_at=draft.now_ns)
    if present.ttl:
        draft.put(keys.session_key(session_id), renewed, present)
    return renewed


def end_session(draft: Draft, session_id: str) -> None:
    """End a session and give up its keys; nothing happens when it is over already."""
    present = draft.snapshot.session(session_id)
    if present is None:
        return
    draft.delete(keys.session_key(session_id), present)
    for entry in draft.snapshot.session_entries(session_id):
        _give_up(draft, entry, present)


def _give_up(draft: Draft, entry: KvEntry, session: Session) -> None:
    if session.behavior == "delete":
        draft.delete(keys.kv_key(entry.key), entry)
    else:
        draft.put(keys.kv_key(entry.key), replace(entry, session=""), entry)
    if session.lock_delay:
        delay = KvDelay(key=entry.key, until=draft.now_ns + session.lock_delay)
        draft.overwrite(keys.kv_delay_key(entry.key), delay)


def ends_at_ns(session: Session) -> int | None:
    """When a session ends unless it is renewed; None: never."""
    return session.renewed_at + TTL_FACTOR * session.ttl if session.ttl else None


def broken(snapshot: Snapshot, session: Session) -> str:
    """Why a session cannot live on, apart from its time; "" when it can."""
    node = snapshot.node(session.node_id) if session.node_id else None
    if NODE_CHECK in session.checks and session.node_id and (node is None or node.status == "down"):
        return f"Check '{NODE_CHECK}' is in critical state"
    wanted = [*(check for check in session.checks if check != NODE_CHECK), *session.service_checks]
    statuses = dict(_statuses(snapshot, session)) if wanted else {}
    return next(filter(None, (_complaint(check_id, statuses) for check_id in wanted)), "")


def _complaint(check_id: str, statuses: Mapping[str, str]) -> str:
    if check_id not in statuses:
        return f"Missing check '{check_id}' registration"
    return f"Check '{check_id}' is in critical state" if statuses[check_id] == "critical" else ""


def _statuses(snapshot: Snapshot, session: Session) -> Iterator[tuple[str, str]]:
    """Ids and statuses of the checks on a session's node."""
    for service in _services(snapshot, session):
        yield f"service:{service.id}", service.status
        yield from ((check.id, check.status) for check in service.checks)


def _services(snapshot: Snapshot, session: Session) -> Iterator[ServiceRegistration]:
    if session.node_id:
        yield from snapshot.node_services(session.node_id)
    else:
        yield from (each for each in snapshot.services() if session.node in (each.agent, each.node_name))
