"""Pure: variables: check-and-set, locks that run out, and what may be called a path.

Items come encrypted: whoever may not read them need not. A lock belongs to whoever knows its id; while a variable is
locked only they may change it. A lock that is not renewed within its TTL is taken away, and then nobody gets it for its
delay, so that the former holder has time to notice.
"""

import re
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from lepa.kit.durations import HOUR, SECOND, format_duration
from lepa.model.acl import Variable, VariableLease, VariableLock
from lepa.model.errors import LepaError, conflict, invalid, not_found
from lepa.state import keys
from lepa.state.commands.draft import Draft

PATH: Final = re.compile(r"[a-zA-Z0-9\-_~/]{1,128}")
RESERVED: Final = "nomad/"
SHARED: Final = re.compile(r"nomad/jobs(/[^/]+){0,3}|nomad/job-templates/.+")
"""What of the reserved paths users may write."""

ITEMS_BYTES_MAX: Final = 64 * 1024
TTL_MIN: Final = 10 * SECOND
TTL_MAX: Final = 24 * HOUR
TTL_DEFAULT: Final = 15 * SECOND
DELAY_DEFAULT: Final = 15 * SECOND

Operation = Literal["set", "cas", "delete", "delete-cas", "lock-acquire", "lock-release"]
LOCKED: Final = "attempting to modify locked variable"
NOT_LOCKED: Final = "variable doesn't hold a lock"


class Applied(NamedTuple):
    """What became of an operation: the variable as written (None: deleted, or nothing was there), or what stood in the
    way. changed: whether anything is written."""

    variable: Variable | None = None
    conflict: Variable | None = None
    changed: bool = False


def check_path(path: str) -> None:
    """Raise LepaError(invalid) for a path that no variable can have."""
    if not path:
        raise invalid("missing path")
    if not PATH.fullmatch(path) or path.startswith("/") or path.endswith("/") or "//" in path:
        raise invalid(
            f'invalid path "{path}": it has 1 to 128 letters, digits, "-", "_", "~" and "/", '
            "and neither begins nor ends with a slash"
        )
    if path == "nomad" or (path.startswith(RESERVED) and not SHARED.fullmatch(path)):
        raise invalid(
            'only paths at "nomad/jobs" or "nomad/job-templates" and below are valid paths under the "nomad" path'
        )


def check_items(items: dict[str, str]) -> None:
    """Raise LepaError(invalid) when there are none or too much of them."""
    if not items:
        raise invalid("empty variables are invalid")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in items.items())
    if size > ITEMS_BYTES_MAX:
        raise invalid("variables are limited to 64KiB in total size")


def checked_lock(lock: VariableLock) -> VariableLock:
    """The lock with its defaults. Raises LepaError(invalid)."""
    ttl, delay = lock.ttl or TTL_DEFAULT, lock.lock_delay or DELAY_DEFAULT
    for name, value in (("TTL", ttl), ("LockDelay", delay)):
        if not TTL_MIN <= value <= TTL_MAX:
            raise invalid(
                f"invalid {name} {format_duration(value)}: it has to be between "
                f"{format_duration(TTL_MIN)} and {format_duration(TTL_MAX)}"
            )
    return replace(lock, ttl=ttl, lock_delay=delay)


def apply_variable(
    draft: Draft, operation: Operation, wanted: Variable, *, same: bool = False, cas: int = 0
) -> Applied:
    """Carry out one operation. wanted: with its items encrypted, or without any. same: its items are those there now.

    cas: for the operations that check: the modify index that the variable has to have; 0: it must not be there.
    """
    if draft.snapshot.namespace(wanted.namespace) is None:
        raise invalid(f'variable "{wanted.path}" is in nonexistent namespace "{wanted.namespace}"')
    present = draft.snapshot.variable(wanted.namespace, wanted.path)
    if operation in ("cas", "delete-cas") and (present.modify_index if present else 0) != cas:
        nothing = Variable(namespace=wanted.namespace, path=wanted.path)
        return Applied(conflict=present or nothing)
    if operation == "lock-acquire":
        return _acquire(draft, wanted, present)
    if operation == "lock-release":
        return _release(draft, wanted, present)
    _check_holder(wanted, present)
    if operation in ("delete", "delete-cas"):
        return _delete(draft, present)
    return _set(draft, wanted, present, same=same)


def _check_holder(wanted: Variable, present: Variable | None) -> None:
    held = present.lock if present is not None else None
    asked = wanted.lock.id if wanted.lock is not None else ""
    if held is not None and held.id != asked:
        raise conflict(LOCKED)
    if held is None and asked:
        raise conflict(NOT_LOCKED)


def _set(draft: Draft, wanted: Variable, present: Variable | None, *, same: bool) -> Applied:
    if present is not None and same:
        return Applied(present)
    stored = replace(
        wanted,
        lock=present.lock if present is not None else None,
        locked_until=present.locked_until if present is not None else 0,
        create_time=present.create_time if present is not None else draft.now_ns,
        create_index=present.create_index if present is not None else 0,
        modify_time=draft.now_ns,
    )
    return _put(draft, stored, present)


def _put(draft: Draft, stored: Variable, present: Variable | None) -> Applied:
    draft.put(keys.variable_key(stored.namespace, stored.path), stored, present)
    return Applied(stored, changed=True)


def _delete(draft: Draft, present: Variable | None) -> Applied:
    if present is None:
        return Applied()
    draft.delete(keys.variable_key(present.namespace, present.path), present)
    if present.lock is not None:
        draft.erase(keys.variable_lease_key(present.namespace, present.path))
    return Applied(changed=True)


def _acquire(draft: Draft, wanted: Variable, present: Variable | None) -> Applied:
    if wanted.lock is None:
        raise invalid("acquire/release requires a lock")
    lock = checked_lock(wanted.lock)
    if present is not None and present.lock is not None and present.lock.id != lock.id:
        return Applied(conflict=present)
    if present is not None and present.lock is None and present.locked_until > draft.now_ns:
        return Applied(conflict=present)
    if present is not None and present.lock is not None:
        lock = replace(lock, id=present.lock.id)
    else:
        lock = replace(lock, id=draft.new_id())
    base = present if present is not None and not wanted.data else wanted
    stored = replace(
        base,
        lock=lock,
        locked_until=0,
        create_time=present.create_time if present is not None else draft.now_ns,
        create_index=present.create_index if present is not None else 0,
        modify_time=draft.now_ns,
    )
    _note_renewal(draft, stored, lock)
    return _put(draft, stored, present)


def _release(draft: Draft, wanted: Variable, present: Variable | None) -> Applied:
    if wanted.lock is None or not wanted.lock.id:
        raise invalid("acquire/release requires a lock")
    if present is None:
        raise not_found("variable doesn't exist")
    if present.lock is None:
        raise conflict(NOT_LOCKED)
    if present.lock.id != wanted.lock.id:
        return Applied(conflict=present)
    draft.erase(keys.variable_lease_key(present.namespace, present.path))
    return _put(draft, replace(present, lock=None, locked_until=0, modify_time=draft.now_ns), present)


def renew_lock(draft: Draft, namespace: str, path: str, lock_id: str) -> Variable:
    """The holder is alive. Raises LepaError when there is no such lock."""
    if not lock_id:
        raise invalid("missing lock information: renewing needs the lock's ID")
    present = draft.snapshot.variable(namespace, path)
    if present is None:
        raise not_found("variable doesn't exist")
    if present.lock is None or present.lock.id != lock_id:
        raise conflict(NOT_LOCKED)
    _note_renewal(draft, present, present.lock)
    draft.require(keys.variable_key(namespace, path), present)
    return present


def _note_renewal(draft: Draft, variable: Variable, lock: VariableLock) -> None:
    lease = VariableLease(namespace=variable.namespace, path=variable.path, lock_id=lock.id, renewed_at=draft.now_ns)
    draft.overwrite(keys.variable_lease_key(variable.namespace, variable.path), lease)


def expire_lock(draft: Draft, namespace: str, path: str, renewed_at: int) -> None:
    """Take a lock away that was not renewed, unless it has been meanwhile."""
    present = draft.snapshot.variable(namespace, path)
    lease = draft.snapshot.variable_lease(namespace, path)
    if lease is None or lease.renewed_at != renewed_at:
        return
    draft.delete(keys.variable_lease_key(namespace, path), lease)
    if present is not None and present.lock is not None and present.lock.id == lease.lock_id:
        until = draft.now_ns + present.lock.lock_delay
        _put(draft, replace(present, lock=None, locked_until=until, modify_time=draft.now_ns), present)


def reencrypt(draft: Draft, before: Variable, key_id: str, data: bytes) -> None:
    """Store the same items under another root key, unless the variable has changed meanwhile."""
    present = draft.snapshot.variable(before.namespace, before.path)
    if present is None or present.modify_index != before.modify_index:
        raise LepaError("conflict", "the variable has changed")
    _put(draft, replace(present, key_id=key_id, data=data), present)
