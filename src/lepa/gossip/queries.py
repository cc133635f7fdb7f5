"""Pure: questions to all members and their answers.

One's own questions wait here for answers until their time is over. Whether a question of another one is meant for this
member, its filters say.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from lepa.gossip.errors import Malformed
from lepa.gossip.profile import Profile
from lepa.gossip.serf_messages import ACK_FLAG, Query, QueryResponse, decode_filter
from lepa.kit.regexp import RegexpError, compile_regexp

INTERNAL: Final = "_serf_"
"""Names that begin so are answered by Serf itself and shown to nobody."""
PENDING_MAX: Final = 256
ANSWERS_MAX: Final = 16_384
EXPRESSION_MAX: Final = 256


@dataclass
class Pending:
    """A question of one's own. answers, acks: by name of member; the first of each counts."""

    query: Query
    ends_at: float
    answers: dict[str, bytes] = field(default_factory=dict)
    acks: set[str] = field(default_factory=set)


def default_timeout_s(profile: Profile, members: int) -> float:
    """How long a question waits for answers unless its asker says so."""
    return profile.gossip_interval_s * 16 * math.ceil(math.log10(members + 1))


class Questions:
    """One's own questions, by Lamport time and id."""

    def __init__(self) -> None:
        self._pending: dict[tuple[int, int], Pending] = {}

    def ask(self, query: Query, now: float) -> Pending:
        """Wait for answers to a question. Raises ValueError when too many wait."""
        if len(self._pending) >= PENDING_MAX:
            raise ValueError(f"{PENDING_MAX} questions wait for answers already")
        pending = Pending(query, now + query.timeout_ns / 1e9)
        self._pending[query.ltime, query.id] = pending
        return pending

    def answered(self, response: QueryResponse) -> bool:
        """Whether anybody asked this, and the answer is its member's first."""
        pending = self._pending.get((response.ltime, response.id))
        if pending is None or len(pending.answers) + len(pending.acks) >= ANSWERS_MAX:
            return False
        if response.flags & ACK_FLAG:
            known = response.source in pending.acks
            pending.acks.add(response.source)
            return not known
        known = response.source in pending.answers
        pending.answers.setdefault(response.source, response.payload)
        return not known

    def end(self, now: float) -> list[Pending]:
        """Questions whose time is over."""
        ended = [key for key, pending in self._pending.items() if now >= pending.ends_at]
        return [self._pending.pop(key) for key in ended]

    def wake_at(self) -> float:
        """When the next one's time is over."""
        return min((pending.ends_at for pending in self._pending.values()), default=math.inf)


def is_meant(query: Query, name: str, tags: dict[str, str]) -> bool:
    """Whether all filters match a member. Raises Malformed."""
    return all(_matches(decode_filter(each), name, tags) for each in query.filters)


def _matches(wanted: tuple[str, ...] | tuple[bytes, bytes], name: str, tags: dict[str, str]) -> bool:
    if not wanted or isinstance(wanted[0], str):
        return name in wanted
    tag, expression = (str(part, "utf-8", "replace") for part in wanted if isinstance(part, bytes))
    if len(expression) > EXPRESSION_MAX:
        raise Malformed("filter", f"an expression of more than {EXPRESSION_MAX} characters")
    try:
        return compile_regexp(expression).search(tags.get(tag, ""))
    except RegexpError as error:
        raise Malformed("filter", str(error)) from error
