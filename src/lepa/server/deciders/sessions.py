"""Pure: which sessions are over, and which lock delays have passed."""

from typing import NamedTuple

from lepa.kit.durations import SECOND
from lepa.model.kv import Session
from lepa.state import keys
from lepa.state.commands.draft import Draft
from lepa.state.commands.sessions import broken, end_session, ends_at_ns
from lepa.state.snapshot import Snapshot


class EndSession(NamedTuple):
    """A session is over. renewed_at: when it was renewed last, as far as was known."""

    session_id: str
    renewed_at: int
    reason: str

    def apply(self, draft: Draft) -> None:
        """End it, unless it has been renewed meanwhile."""
        present = draft.snapshot.session(self.session_id)
        if present is not None and present.renewed_at == self.renewed_at:
            end_session(draft, self.session_id)


class ForgetDelay(NamedTuple):
    """The key may be locked again."""

    key: str
    reason: str = "the lock delay has passed"

    def apply(self, draft: Draft) -> None:
        """Forget the delay, unless there is a new one."""
        delay = draft.snapshot.kv_delay(self.key)
        if delay is not None and delay.until <= draft.now_ns:
            draft.delete(keys.kv_delay_key(self.key), delay)


class Decision(NamedTuple):
    """What is over, and when the next thing will be (Unix nanoseconds)."""

    orders: tuple[EndSession | ForgetDelay, ...]
    wake_at_ns: int | None


def decide(snapshot: Snapshot, now_ns: int) -> Decision:
    """Everything that is over now."""
    orders: list[EndSession | ForgetDelay] = []
    times = []
    for session in snapshot.sessions():
        if reason := _over(snapshot, session, now_ns):
            orders.append(EndSession(session.id, session.renewed_at, reason))
        elif (ends_at := ends_at_ns(session)) is not None:
            times.append(ends_at)
    for delay in snapshot.kv_delays():
        if delay.until <= now_ns:
            orders.append(ForgetDelay(delay.key))
        else:
            times.append(delay.until)
    return Decision(tuple(orders), min(times, default=None))


def _over(snapshot: Snapshot, session: Session, now_ns: int) -> str:
    ends_at = ends_at_ns(session)
    if ends_at is not None and ends_at <= now_ns:
        return f"not renewed for {(now_ns - session.renewed_at) / SECOND:.0f} s"
    return broken(snapshot, session)
