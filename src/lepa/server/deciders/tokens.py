"""Pure: which tokens expired long enough ago to be forgotten."""

from typing import Final, NamedTuple

from lepa.kit.durations import HOUR, parse_rfc3339
from lepa.model.acl import digest
from lepa.model.errors import LepaError
from lepa.state import keys
from lepa.state.commands.acl import delete_token
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

KEPT_NS: Final = HOUR
"""How long an expired token stays, so that whoever shows it learns why it does not work."""
AT_ONCE_MAX: Final = 256


class ForgetToken(NamedTuple):
    """A token expired."""

    accessor_id: str
    reason: str = "it expired"

    def apply(self, draft: Draft) -> None:
        """Remove it."""
        try:
            delete_token(draft, self.accessor_id)
        except LepaError:
            return


class ForgetOneTime(NamedTuple):
    """Nobody exchanged a one-time secret in time."""

    secret_digest: str
    reason: str = "it expired"

    def apply(self, draft: Draft) -> None:
        """Remove it."""
        draft.erase(keys.acl_key("one_time", self.secret_digest))


class Decision(NamedTuple):
    """What to forget, and when to look again (Unix nanoseconds)."""

    orders: tuple[ForgetToken | ForgetOneTime, ...]
    wake_at_ns: int | None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """Every token that is over for KEPT_NS, some at a time."""
    orders: list[ForgetToken | ForgetOneTime] = []
    times = []
    for token in snapshot.tokens():
        if token.expiration_time is not None:
            over = parse_rfc3339(token.expiration_time) + KEPT_NS
            if over <= now_ns:
                orders.append(ForgetToken(token.accessor_id))
            else:
                times.append(over)
    for one_time in snapshot.one_time_tokens():
        over = parse_rfc3339(one_time.expires_at)
        if over <= now_ns:
            orders.append(ForgetOneTime(digest(one_time.one_time_secret_id)))
        else:
            times.append(over)
    return Decision(tuple(orders[:AT_ONCE_MAX]), min(times, default=None))
