"""Pure: root keys come, take over and go."""

from collections.abc import Iterable

from msgspec.structs import replace

from lepa.model.acl import RootKey
from lepa.model.errors import invalid, not_found
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot


def active_key(snapshot: Snapshot) -> RootKey | None:
    """The key in use."""
    return next((key for key in snapshot.root_keys() if key.state == "active"), None)


def add_key(draft: Draft, key: RootKey) -> None:
    """Store a key; one that is active takes over from the one before."""
    draft.put(keys.root_key(key.key_id), key, None)
    if key.state == "active":
        _retire(draft, draft.snapshot.root_keys())


def activate(draft: Draft, key_id: str) -> None:
    """The time of a prepublished key has come."""
    key = draft.snapshot.root_key(key_id)
    if key is not None and key.state == "prepublished":
        _retire(draft, draft.snapshot.root_keys())
        draft.put(keys.root_key(key_id), replace(key, state="active"), key)


def _retire(draft: Draft, present: Iterable[RootKey]) -> None:
    for key in present:
        if key.state == "active":
            draft.put(keys.root_key(key.key_id), replace(key, state="inactive"), key)


def mark_rekeying(draft: Draft, key_id: str) -> None:
    """Everything that this key encrypted is to be encrypted anew."""
    key = draft.snapshot.root_key(key_id)
    if key is not None and key.state == "inactive":
        draft.put(keys.root_key(key_id), replace(key, state="rekeying"), key)


def mark_rekeyed(draft: Draft, key_id: str) -> None:
    """Nothing is encrypted with this key any more."""
    key = draft.snapshot.root_key(key_id)
    if key is not None and key.state == "rekeying":
        draft.put(keys.root_key(key_id), replace(key, state="inactive"), key)


def in_use(snapshot: Snapshot, key_id: str) -> bool:
    """Whether a variable was encrypted with a key."""
    return any(variable.key_id == key_id for variable in snapshot.variables())


def delete_key(draft: Draft, key_id: str, *, force: bool) -> None:
    """Remove a key. Raises LepaError when it is the active one, or (without force) still needed."""
    key = draft.snapshot.root_key(key_id)
    if key is None:
        raise not_found(f"root key {key_id} not found", http_status=400)
    if key.state == "active":
        raise invalid("active root key cannot be deleted - call rotate first")
    if not force and in_use(draft.snapshot, key_id):
        raise invalid("root key in use, cannot delete: variables were encrypted with it")
    draft.delete(keys.root_key(key_id), key)
