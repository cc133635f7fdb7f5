"""Pure: the questions that Serf answers by itself: keys, who owns a name, are you there."""

from collections.abc import Callable
from typing import Final

from lepa.gossip import raw_msgpack
from lepa.gossip import serf_messages as s
from lepa.gossip.errors import Malformed
from lepa.gossip.keyring import Keyring, key_text
from lepa.gossip.queries import INTERNAL
from lepa.gossip.serf_members import Member, Status

PING: Final = INTERNAL + "ping"
CONFLICT: Final = INTERNAL + "conflict"
INSTALL_KEY: Final = INTERNAL + "install-key"
USE_KEY: Final = INTERNAL + "use-key"
REMOVE_KEY: Final = INTERNAL + "remove-key"
LIST_KEYS: Final = INTERNAL + "list-keys"
NO_KEYRING: Final = "No keyring to modify (encryption not enabled)"

_CHANGES: Final[dict[str, Callable[[Keyring, bytes], None]]] = {
    INSTALL_KEY: Keyring.install,
    USE_KEY: Keyring.use,
    REMOVE_KEY: Keyring.remove,
}
_STATUS: Final[dict[Status, int]] = {"alive": 1, "leaving": 2, "left": 3, "failed": 4}


def changes_keys(name: str) -> bool:
    """Whether a question changes keys."""
    return name in _CHANGES


def answer_about_keys(name: str, payload: bytes, keyring: Keyring | None) -> bytes:
    """The answer to a question about keys, which are changed by it. Raises Malformed for a payload that is none."""
    if keyring is None:
        return s.encode(s.KeyResponse(False, NO_KEYRING))
    if name == LIST_KEYS:
        keys = tuple(key_text(key) for key in keyring.keys)
        return s.encode(s.KeyResponse(True, "", keys, key_text(keyring.primary)))
    request = s.decode(payload)
    if not isinstance(request, s.KeyRequest):
        raise Malformed("field", "a key request was expected")
    try:
        _CHANGES[name](keyring, request.key)
    except ValueError as error:
        return s.encode(s.KeyResponse(False, str(error)))
    return s.encode(s.KeyResponse(True))


def conflict_answer(member: Member) -> bytes:
    """Who owns a name, as this member sees it."""
    low, high, spoken, dlow, dhigh, dspoken = member.versions or bytes(6)
    body = {
        "Addr": member.addr,
        "DelegateCur": dspoken,
        "DelegateMax": dhigh,
        "DelegateMin": dlow,
        "Name": member.name,
        "Port": member.port,
        "ProtocolCur": spoken,
        "ProtocolMax": high,
        "ProtocolMin": low,
        "Status": _STATUS[member.status],
        "Tags": dict(sorted(member.tags.items())),
    }
    return bytes([s.CONFLICT_RESPONSE]) + raw_msgpack.encode(body)
