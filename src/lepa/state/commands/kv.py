"""Pure: transactions on keys.

All operations of a transaction see what those before them did, and are written together or not at all. Every key that
was looked at has to be unchanged when the transaction is committed, so of two that race for a key one runs again on
what the other wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from lepa.model.errors import LepaError, invalid
from lepa.model.kv import KvEntry, KvError, KvOperation, KvVerb
from lepa.state import keys
from lepa.state.commands.draft import Draft

KEY_MAX: Final = 1_024
"""Characters of a key."""

VALUE_MAX: Final = 512 * 1024
"""Octets of a value, and of all values of a transaction together."""

OPERATIONS_MAX: Final = 64
FLAGS_MAX: Final = (1 << 64) - 1


class Applied(NamedTuple):
    """What became of a transaction. entries: of each operation that reads or writes one, in order; those of `written`
    get the revision of the commit as their index."""

    entries: tuple[KvEntry, ...]
    errors: tuple[KvError, ...] = ()
    written: frozenset[str] = frozenset()

    def entries_at(self, revision: int) -> tuple[KvEntry, ...]:
        """The entries after a commit at `revision`."""
        return tuple(
            replace(entry, modify_index=revision, create_index=entry.create_index or revision)
            if entry.key in self.written
            else entry
            for entry in self.entries
        )


def apply_operations(draft: Draft, operations: Sequence[KvOperation]) -> Applied:
    """Carry out a transaction; nothing is written when one operation cannot be done."""
    check_operations(operations)
    work = _Work(draft)
    found: list[KvEntry] = []
    errors = []
    for number, operation in enumerate(operations):
        try:
            found += _VERBS[operation.verb](work, operation)
        except _Refused as refused:
            errors.append(KvError(op_index=number, what=str(refused)))
    if errors:
        return Applied((), tuple(errors))
    return Applied(tuple(found), written=frozenset(work.write()))


def check_operations(operations: Sequence[KvOperation]) -> None:
    """Raises LepaError(invalid) for what could never be done."""
    if len(operations) > OPERATIONS_MAX:
        raise invalid(f"Transaction contains too many operations ({len(operations)} > {OPERATIONS_MAX})")
    if sum(len(operation.value) for operation in operations) > VALUE_MAX:
        raise invalid(f"Value exceeds {VALUE_MAX} byte limit", http_status=413)
    for operation in operations:
        if operation.verb in _PREFIXED:
            continue
        _check_key(operation.key, writes=operation.verb in _WRITES)
        if not 0 <= operation.flags <= FLAGS_MAX:
            raise invalid("Flags must be a number of 64 bits without a sign")


def _check_key(key: str, *, writes: bool) -> None:
    if not key:
        raise invalid("Must provide key")
    if len(key) > KEY_MAX:
        raise invalid(f"key is longer than {KEY_MAX} characters")
    if writes and (key != key.strip() or any(part in (".", "..") for part in key.split("/"))):
        raise invalid(f'key "{key}" begins or ends with a blank, or has "." or ".." between slashes')


class _Refused(Exception):
    """An operation cannot be done."""


class _Work:
    """Keys as the transaction has made them so far."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._made: dict[str, KvEntry | None] = {}

    def get(self, key: str) -> KvEntry | None:
        """A key as it is now; it has to be so when all is written."""
        if key not in self._made:
            self.draft.require(keys.kv_key(key), self.draft.snapshot.kv_entry(key))
            self._made[key] = self.draft.snapshot.kv_entry(key)
        return self._made[key]

    def under(self, prefix: str) -> list[KvEntry]:
        """Keys that begin with a prefix, in order."""
        stored = {entry.key for entry in self.draft.snapshot.kv_entries(prefix)}
        made = {key for key in self._made if key.startswith(prefix)}
        return [entry for key in sorted(stored | made) if (entry := self.get(key)) is not None]

    def put(self, entry: KvEntry) -> KvEntry:
        self._made[entry.key] = entry
        return entry

    def delete(self, key: str) -> None:
        self._made[key] = None

    def write(self) -> list[str]:
        """Put what differs from the state into the draft; returns its keys."""
        written = []
        for key, entry in self._made.items():
            present = self.draft.snapshot.kv_entry(key)
            if entry is present or entry == present:
                continue
            written.append(key)
            if entry is None:
                self.draft.delete(keys.kv_key(key), present)
            else:
                self.draft.put(keys.kv_key(key), entry, present)
        return written

    def lock_is_delayed(self, key: str) -> bool:
        """Whether a session that held the key ended a short while ago."""
        delay = self.draft.snapshot.kv_delay(key)
        return delay is not None and delay.until > self.draft.now_ns

    def require_session(self, session_id: str) -> None:
        """The session must be there, and still be there when all is written."""
        session = self.draft.snapshot.session(session_id)
        if session is None:
            raise LepaError("invalid", f'invalid session "{session_id}"', http_status=500)
        self.draft.require(keys.session_key(session_id), session)


def _set(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key) or KvEntry(key=operation.key)
    return [work.put(replace(present, value=operation.value, flags=operation.flags))]


def _cas(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if operation.index == 0 and present is not None:
        raise _Refused(f'failed to set key "{operation.key}", index is stale')
    if operation.index and (present is None or present.modify_index != operation.index):
        raise _Refused(f'failed to set key "{operation.key}", index is stale')
    return _set(work, operation)


def _lock(work: _Work, operation: KvOperation) -> list[KvEntry]:
    if not operation.session:
        raise _Refused("missing session")
    work.require_session(operation.session)
    present = work.get(operation.key) or KvEntry(key=operation.key)
    locked = present.session == operation.session
    if present.session and not locked:
        raise _Refused(f'failed to lock key "{operation.key}", lock is already held')
    if not locked and work.lock_is_delayed(operation.key):
        raise _Refused(f'failed to lock key "{operation.key}", a lock delay is in force')
    entry = replace(
        present,
        value=operation.value,
        flags=operation.flags,
        session=operation.session,
        lock_index=present.lock_index + (not locked),
    )
    return [work.put(entry)]


def _unlock(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if present is None or not operation.session or present.session != operation.session:
        raise _Refused(f'failed to unlock key "{operation.key}", lock isn\'t held, or is held by another session')
    return [work.put(replace(present, value=operation.value, flags=operation.flags, session=""))]


def _get(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if present is None:
        raise _Refused(f'key "{operation.key}" doesn\'t exist')
    return [present]


def _get_or_empty(work: _Work, operation: KvOperation) -> list[KvEntry]:
    return [work.get(operation.key) or KvEntry(key=operation.key)]


def _get_tree(work: _Work, operation: KvOperation) -> list[KvEntry]:
    return work.under(operation.key)


def _check_index(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if present is None or present.modify_index != operation.index:
        raise _Refused(f'failed to check index of key "{operation.key}", it is another')
    return [present]


def _check_session(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if present is None or present.session != operation.session:
        raise _Refused(f'failed session check for key "{operation.key}"')
    return [present]


def _check_not_exists(work: _Work, operation: KvOperation) -> list[KvEntry]:
    if work.get(operation.key) is not None:
        raise _Refused(f'key "{operation.key}" exists')
    return []


def _delete(work: _Work, operation: KvOperation) -> list[KvEntry]:
    if work.get(operation.key) is not None:
        work.delete(operation.key)
    return []


def _delete_tree(work: _Work, operation: KvOperation) -> list[KvEntry]:
    for entry in work.under(operation.key):
        work.delete(entry.key)
    return []


def _delete_cas(work: _Work, operation: KvOperation) -> list[KvEntry]:
    present = work.get(operation.key)
    if present is not None and present.modify_index != operation.index:
        raise _Refused(f'failed to delete key "{operation.key}", index is stale')
    return _delete(work, operation)


_VERBS: Final[Mapping[KvVerb, Callable[[_Work, KvOperation], list[KvEntry]]]] = {
    "set": _set,
    "cas": _cas,
    "lock": _lock,
    "unlock": _unlock,
    "get": _get,
    "get-tree": _get_tree,
    "get-or-empty": _get_or_empty,
    "check-index": _check_index,
    "check-session": _check_session,
    "check-not-exists": _check_not_exists,
    "delete": _delete,
    "delete-tree": _delete_tree,
    "delete-cas": _delete_cas,
}
_PREFIXED: Final = frozenset({"get-tree", "delete-tree"})
_WRITES: Final = frozenset({"set", "cas", "lock"})
