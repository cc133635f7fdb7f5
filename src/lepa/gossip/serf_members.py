"""Pure: what the Serf layer knows of members: why they are gone, and since when by Lamport's clock.

                  leave intent                the layer below: gone
        alive ------------------> leaving --------------------------> left
          |  ^                       |                                  ^
          |  +---- join intent ------+                                  | leave intent (sent away)
          |                                                             |
          +--- the layer below: gone ------------> failed --------------+

An intent counts when it is later than the last one about the member. Intents about members that are not known yet wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from lepa.gossip.messages import NodeState
from lepa.gossip.serf_messages import JoinIntent, LeaveIntent
from lepa.gossip.tags import decode_tags

Status = Literal["alive", "leaving", "left", "failed"]
INTENTS_MAX: Final = 4096
INTENT_S: Final = 300.0


class Member(NamedTuple):
    """A member as it is shown. since: when it took its status, monotonic seconds."""

    name: str
    addr: bytes
    port: int
    tags: Mapping[str, str]
    status: Status
    versions: bytes
    since: float


class MemberEvent(NamedTuple):
    """Something happened to a member."""

    kind: Literal["join", "leave", "failed", "update", "reap"]
    member: Member


@dataclass
class _Known:
    node: NodeState
    status: Status
    ltime: int
    since: float


class SerfMembers:
    """All members by name. own_name: of the one that never forgets itself."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._known: dict[str, _Known] = {}
        self._intents: dict[str, tuple[JoinIntent | LeaveIntent, float]] = {}
        self.events: list[MemberEvent] = []

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> list[Member]:
        """Every member, gone ones too."""
        return [self._shown(known) for known in self._known.values()]

    def get(self, name: str) -> Member | None:
        """One member."""
        known = self._known.get(name)
        return self._shown(known) if known else None

    def ltimes(self) -> dict[str, int]:
        """When each member's status was last set, by Lamport's clock."""
        return {name: known.ltime for name, known in self._known.items()}

    def joined(self, node: NodeState, now: float) -> None:
        """The layer below sees it."""
        known = self._known.get(node.name)
        if known is None:
            intent, _ = self._intents.pop(node.name, (None, 0.0))
            leaving = isinstance(intent, LeaveIntent)
            known = _Known(node, "leaving" if leaving else "alive", intent.ltime if intent else 0, now)
            self._known[node.name] = known
        else:
            known.node, known.status, known.since = node, "alive", now
        self._tell("join", known)

    def changed(self, node: NodeState) -> None:
        """It says something else of itself."""
        if known := self._known.get(node.name):
            known.node = node
            self._tell("update", known)

    def gone(self, node: NodeState, now: float) -> None:
        """The layer below no longer sees it."""
        known = self._known.get(node.name)
        if known is None or known.status not in ("alive", "leaving"):
            return
        known.status = "left" if known.status == "leaving" else "failed"
        known.since = now
        self._tell("leave" if known.status == "left" else "failed", known)

    def join_intended(self, intent: JoinIntent, now: float) -> bool:
        """Whether a join intent is news."""
        known = self._known.get(intent.node)
        if known is None:
            return self._keep(intent, now)
        if intent.ltime <= known.ltime:
            return False
        known.ltime = intent.ltime
        if known.status == "leaving":
            known.status = "alive"
        return True

    def leave_intended(self, intent: LeaveIntent, now: float) -> bool:
        """Whether a leave intent is news."""
        known = self._known.get(intent.node)
        if known is None:
            return self._keep(intent, now)
        if intent.ltime <= known.ltime:
            return False
        known.ltime = intent.ltime
        if known.status == "alive":
            known.status = "leaving"
        elif known.status == "failed":
            known.status, known.since = "left", now
            self._tell("leave", known)
        if intent.prune and intent.node != self._own_name and known.status == "left":
            self._erase(known)
        return True

    def _keep(self, intent: JoinIntent | LeaveIntent, now: float) -> bool:
        before = self._intents.get(intent.node)
        if before is not None and intent.ltime <= before[0].ltime:
            return False
        self._intents.pop(intent.node, None)
        if len(self._intents) >= INTENTS_MAX:
            del self._intents[next(iter(self._intents))]
        self._intents[intent.node] = intent, now
        return True

    def reap(self, now: float, failed_s: float, left_s: float) -> None:
        """Forget who is gone for long."""
        for known in list(self._known.values()):
            age = now - known.since
            kept_s = {"failed": failed_s, "left": left_s}.get(known.status, age)
            if age > kept_s and known.node.name != self._own_name:
                self._erase(known)
        self._intents = {name: kept for name, kept in self._intents.items() if now - kept[1] <= INTENT_S}

    def _erase(self, known: _Known) -> None:
        del self._known[known.node.name]
        self._tell("reap", known)

    def _tell(self, kind: Literal["join", "leave", "failed", "update", "reap"], known: _Known) -> None:
        self.events.append(MemberEvent(kind, self._shown(known)))

    @staticmethod
    def _shown(known: _Known) -> Member:
        node = known.node
        tags = decode_tags(node.meta)
        return Member(node.name, node.addr, node.port, tags, known.status, node.versions, known.since)
