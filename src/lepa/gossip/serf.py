"""Pure: one member of a Serf cluster, whole: packets in, packets out, with Lamport clocks over the membership below.

    (packet | state | tick) and now and chance  ->  orders to carry out, and events for whoever uses the cluster

`Membership` says who is there; this layer says who left by will, carries user events and questions to everybody once,
answers questions about keys, reaps who is gone for long and tries to reach who failed. Malformed bytes are counted in
`counts` and change nothing.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lepa.gossip import internal_queries as internal
from lepa.gossip import messages as w
from lepa.gossip import serf_messages as s
from lepa.gossip.broadcasts import Broadcasts
from lepa.gossip.chance import Chance, choose
from lepa.gossip.coordinates import Place, decode_ping, encode_ping
from lepa.gossip.errors import Malformed
from lepa.gossip.lamport import Heard, LamportClock
from lepa.gossip.membership import DMAX, Membership
from lepa.gossip.messages import NodeState
from lepa.gossip.orders import AckPayload, Changed, Conflict, Endpoint, ExchangeStates, Gone, Joined, Order, UserData
from lepa.gossip.packets import PART_SIZE, Framing
from lepa.gossip.profile import LAN, Profile
from lepa.gossip.queries import INTERNAL, Pending, Questions, default_timeout_s, is_meant
from lepa.gossip.serf_members import MemberEvent, SerfMembers
from lepa.gossip.tags import decode_tags, encode_tags

VERSIONS: Final = bytes([1, 5, 2, 2, 5, 5])
"""Protocols of the layer below and of this one: least, newest, spoken."""
RELAY_DMAX: Final = 5
RELAYS_MAX: Final = 8
REAP_S: Final = 15.0
RECONNECT_S: Final = 30.0
LEAVE_KEY: Final = "leave"


class Settings(NamedTuple):
    """name: of this member. addr, port: where others reach it. admit: a sentence when a node may not join, else "".

    Times are seconds: how long failed and left members are remembered.
    """

    name: str
    addr: bytes
    port: int
    tags: Mapping[str, str] = {}
    profile: Profile = LAN
    reconnect_s: float = 24 * 3600.0
    tombstone_s: float = 24 * 3600.0
    admit: Callable[[NodeState], str] = lambda node: ""


class EventHeard(NamedTuple):
    """A user event."""

    event: s.UserEvent


class QueryHeard(NamedTuple):
    """A question to this member; `answer` sends what one says."""

    query: s.Query


class QueryEnded(NamedTuple):
    """The time of a question of one's own is over."""

    pending: Pending


class KeysChanged(NamedTuple):
    """The keyring is no longer what it was."""


Event = MemberEvent | EventHeard | QueryHeard | QueryEnded | KeysChanged | Conflict


class Serf:
    """One member. Times are monotonic seconds."""

    def __init__(self, settings: Settings, framing: Framing, chance: Chance, now: float) -> None:
        self.settings = settings
        self.framing = framing
        self.counts: Counter[str] = Counter()
        self.clock, self.event_clock, self.query_clock = LamportClock(), LamportClock(), LamportClock()
        self.members = SerfMembers(settings.name)
        self.questions = Questions()
        self.place = Place(chance)
        self._chance = chance
        self._events: list[Event] = []
        self._events_heard, self._queries_heard = Heard(self.event_clock), Heard(self.query_clock)
        self._recent: list[s.UserEvent] = []
        self._intents, self._questions, self._user_events = Broadcasts(), Broadcasts(), Broadcasts()
        me = NodeState(
            settings.name, settings.addr, settings.port, encode_tags(settings.tags), 1, w.ALIVE_STATE, VERSIONS
        )
        self.membership = Membership(
            me,
            settings.profile,
            chance,
            now,
            room=framing.room,
            more=self._news,
            payload=lambda: encode_ping(self.place.here),
            admit=settings.admit,
        )
        self.members.joined(me, now)
        self.members.join_intended(s.JoinIntent(self.clock.time, settings.name), now)
        self._reap_at = now + REAP_S
        self._reconnect_at = now + RECONNECT_S

    @property
    def name(self) -> str:
        """This member's name."""
        return self.settings.name

    def poll(self) -> list[Order]:
        """What to do now."""
        return self.membership.poll()

    def events(self) -> list[Event]:
        """What happened since this was asked last."""
        events, self._events = self._events + list(self.members.events), []
        self.members.events.clear()
        return events

    # Packets and states

    def packet(self, data: bytes, source: Endpoint, now: float) -> None:
        """A packet that arrived."""
        self.counts["packets"] += 1
        try:
            found = self.framing.open_packet(data)
        except Malformed as error:
            self.counts[f"dropped_{error.kind}"] += 1
            return
        for message in found:
            try:
                self.membership.received(message, source, now)
                self._take_in(now)
            except Malformed as error:
                self.counts[f"dropped_{error.kind}"] += 1

    def stream_ping(self, ping: w.Ping) -> bytes:
        """The answer to a ping over a stream. Raises Malformed when another one is meant."""
        if ping.node not in ("", self.name):
            raise Malformed("ping", "a ping for another node")
        return w.encode(w.Ack(ping.seq))

    def stream_user(self, data: bytes, now: float) -> None:
        """A user message of a stream. Raises Malformed."""
        self._user(data, now)

    def stream_acked(self, seq: int, now: float) -> None:
        """A ping over a stream was answered."""
        self.membership.stream_acked(seq, now)

    def state(self, *, join: bool) -> bytes:
        """Everything that is known, as it is written to a stream."""
        members = self.members.all()
        user = s.SerfState(
            ltime=self.clock.time,
            status_ltimes=self.members.ltimes(),
            left_members=tuple(member.name for member in members if member.status == "left"),
            event_ltime=self.event_clock.time,
            events=tuple(
                s.EventsAt(event.ltime, (s.NamedPayload(event.name, event.payload),)) for event in self._recent
            ),
            query_ltime=self.query_clock.time,
        )
        return w.encode_push_pull(self.membership.state(join=join, user_state=s.encode(user)))

    def merge(self, state: w.PushPull, now: float, *, joining: bool = False) -> str:
        """Take in another one's state; a sentence when it is refused. joining: it answers this member's own join."""
        if why := self.membership.refusal(state):
            self.counts["states_refused"] += 1
            return why
        self.membership.merge(state, now)
        self._take_in(now)
        if state.user_state:
            try:
                user = s.decode(state.user_state)
                if not isinstance(user, s.SerfState):
                    raise Malformed("field", "a Serf state was expected")
                self._merge_user_state(user, now, joining)
            except Malformed as error:
                self.counts[f"dropped_{error.kind}"] += 1
        return ""

    def _merge_user_state(self, state: s.SerfState, now: float, joining: bool) -> None:
        for clock, time in (
            (self.clock, state.ltime),
            (self.event_clock, state.event_ltime),
            (self.query_clock, state.query_ltime),
        ):
            if time > 0:
                clock.witness(time - 1)
        left = set(state.left_members)
        for name in state.left_members:
            self._leave_intended(s.LeaveIntent(state.status_ltimes.get(name, 0) + 1, name), now)
        for name, ltime in state.status_ltimes.items():
            if name not in left:
                self._join_intended(s.JoinIntent(ltime, name), now)
        if joining:
            self._events_heard.least = max(self._events_heard.least, min(state.event_ltime, self.event_clock.time))
        for slot in state.events:
            for event in slot.events:
                self._event_heard(s.UserEvent(slot.ltime, event.name, event.payload), now)

    def joined(self, now: float) -> None:
        """This member has just joined others: tell everybody."""
        intent = s.JoinIntent(self.clock.increment(), self.name)
        self.members.join_intended(intent, now)
        self._pass_on(self._intents, f"join {self.name}", intent)

    def _take_in(self, now: float) -> None:
        """What the layer below told."""
        for event in self.membership.events():
            match event:
                case Joined(node):
                    self.members.joined(node, now)
                case Changed(node):
                    self.members.changed(node)
                case Gone(node):
                    self.place.forget(node.name)
                    self.members.gone(node, now)
                case Conflict():
                    self._events.append(event)
                case AckPayload(name, rtt_s, payload):
                    self._acked(name, rtt_s, payload)
                case UserData(data):
                    self._user(data, now)

    def _acked(self, name: str, rtt_s: float, payload: bytes) -> None:
        try:
            self.place.measured(name, decode_ping(payload), rtt_s)
        except Malformed as error:
            self.counts[f"dropped_{error.kind}"] += 1

    def _user(self, data: bytes, now: float) -> None:
        if data[:1] == bytes([s.RELAY]):
            to, inner = s.decode_relay(data)
            if not to.addr or not to.port or not inner or inner[0] == s.RELAY:
                raise Malformed("relay")
            self.membership.send_user((to.addr, to.port), inner)
            return
        message = s.decode(data)
        match message:
            case s.JoinIntent():
                self._join_intended(message, now)
            case s.LeaveIntent():
                self._leave_intended(message, now)
            case s.UserEvent():
                self._event_heard(message, now)
            case s.Query():
                self._query_heard(message, now)
            case s.QueryResponse():
                self.questions.answered(message)
            case _:
                raise Malformed("serf_type", "this message belongs in answers only")

    # Intents

    def _join_intended(self, intent: s.JoinIntent, now: float) -> None:
        self.clock.witness(intent.ltime)
        if self.members.join_intended(intent, now):
            self._pass_on(self._intents, f"join {intent.node}", intent)

    def _leave_intended(self, intent: s.LeaveIntent, now: float) -> None:
        self.clock.witness(intent.ltime)
        if intent.node == self.name and not self.membership.leaving:
            known = self.members.ltimes().get(self.name, 0)
            if intent.ltime > known:
                self.counts["refuted_leave"] += 1
                self.joined(now)
            return
        if self.members.leave_intended(intent, now):
            self._pass_on(self._intents, f"leave {intent.node}", intent)

    def send_away(self, name: str, now: float, *, prune: bool = False) -> bool:
        """Declare a failed member left; with `prune` forget it. Whether there is such a member."""
        member = self.members.get(name)
        if member is None or name == self.name:
            return False
        self._leave_intended(s.LeaveIntent(self.clock.increment(), name, prune), now)
        return True

    def intend_to_leave(self, now: float) -> None:
        """Tell the others that this member is about to leave; `leave` follows once `is_telling_intent` is false."""
        self.membership.leaving = True
        intent = s.LeaveIntent(self.clock.increment(), self.name)
        self.members.leave_intended(intent, now)
        if self.membership.size() > 1:
            self._pass_on(self._intents, LEAVE_KEY, intent)

    @property
    def is_telling_intent(self) -> bool:
        """Whether some may not have heard that this member is about to leave."""
        return LEAVE_KEY in self._intents

    def leave(self, now: float) -> None:
        """Be gone; others hear it while `membership.is_telling_farewell`."""
        self.membership.leave(now)
        self._take_in(now)

    def set_tags(self, tags: Mapping[str, str], now: float) -> None:
        """Say something else of oneself. Raises ValueError when it is too long."""
        meta = encode_tags(tags)
        if meta != self.membership.me.meta:
            self.membership.say(meta)
            self.members.changed(self.membership.me.snapshot())

    # Events

    def tell(self, name: str, payload: bytes, now: float) -> None:
        """Tell everybody something. Raises ValueError when it is too long."""
        event = s.UserEvent(self.event_clock.increment(), name, payload, coalesce=False)
        if len(name.encode()) + len(payload) > s.EVENT_SENT_MAX:
            raise ValueError(f"a user event has at most {s.EVENT_SENT_MAX} bytes")
        self._event_heard(event, now)

    def _event_heard(self, event: s.UserEvent, now: float) -> None:
        if len(event.name) + len(event.payload) > s.EVENT_MAX:
            raise Malformed("size", "a user event that is too long")
        self.event_clock.witness(event.ltime)
        if not self._events_heard.is_news(event.ltime, (event.name, event.payload)):
            return
        self._recent = [*self._recent[1 - s.BUFFER :], event]
        self._events.append(EventHeard(event))
        self._pass_on(self._user_events, "", event)

    # Queries

    def ask(
        self,
        name: str,
        payload: bytes,
        now: float,
        *,
        filters: tuple[bytes, ...] = (),
        timeout_s: float = 0.0,
        want_acks: bool = False,
        relay_factor: int = 0,
    ) -> Pending:
        """Ask everybody; answers gather in what is returned until `QueryEnded`. Raises ValueError."""
        timeout_s = timeout_s or default_timeout_s(self.settings.profile, self.membership.size())
        query = s.Query(
            ltime=self.query_clock.increment(),
            id=int(self._chance.uniform(0, (1 << 32) - 1)),
            addr=self.settings.addr,
            port=self.settings.port,
            source_node=self.name,
            filters=filters,
            flags=s.ACK_FLAG if want_acks else 0,
            relay_factor=relay_factor,
            timeout_ns=int(timeout_s * 1e9),
            name=name,
            payload=payload,
        )
        if len(s.encode(query)) > s.QUERY_MAX:
            raise ValueError(f"a question has at most {s.QUERY_MAX} bytes")
        pending = self.questions.ask(query, now)
        self._query_heard(query, now)
        return pending

    def _query_heard(self, query: s.Query, now: float) -> None:
        self.query_clock.witness(query.ltime)
        if not self._queries_heard.is_news(query.ltime, query.id):
            return
        if not query.flags & s.NO_BROADCAST_FLAG:
            self._pass_on(self._questions, "", query)
        if not is_meant(query, self.name, decode_tags(self.membership.me.meta)):
            return
        if query.flags & s.ACK_FLAG:
            self._respond(query, s.QueryResponse(query.ltime, query.id, self.name, s.ACK_FLAG))
        if not query.name.startswith(INTERNAL):
            self._events.append(QueryHeard(query))
        elif (answer := self._internal_answer(query)) is not None and len(answer) <= s.QUERY_MAX:
            self.answer(query, answer)

    def _internal_answer(self, query: s.Query) -> bytes | None:
        if query.name == internal.CONFLICT:
            asked = query.payload.decode("utf-8", "surrogateescape")
            member = self.members.get(asked)
            return internal.conflict_answer(member) if member and asked != self.name else None
        if internal.changes_keys(query.name) or query.name == internal.LIST_KEYS:
            before = self.framing.keyring.keys if self.framing.keyring else ()
            answer = internal.answer_about_keys(query.name, query.payload, self.framing.keyring)
            if self.framing.keyring and self.framing.keyring.keys != before:
                self._events.append(KeysChanged())
            return answer
        return None

    def answer(self, query: s.Query, payload: bytes) -> None:
        """Answer a question. Raises ValueError when the answer is too long."""
        if len(payload) > s.QUERY_MAX:
            raise ValueError(f"an answer has at most {s.QUERY_MAX} bytes")
        self._respond(query, s.QueryResponse(query.ltime, query.id, self.name, 0, payload))

    def _respond(self, query: s.Query, response: s.QueryResponse) -> None:
        if query.source_node == self.name or (query.addr, query.port) == self.membership.me.endpoint:
            self.questions.answered(response)
            return
        if not query.addr or not query.port:
            raise Malformed("field", "a question without an address for answers")
        data = s.encode(response)
        self.membership.send_user((query.addr, query.port), data)
        if query.relay_factor:
            self._relay(query, data)

    def _relay(self, query: s.Query, data: bytes) -> None:
        """Send an answer a second way, through others: networks lose packets."""
        others = [
            node
            for node in self.membership.nodes.values()
            if node.is_there and node.name not in (self.name, query.source_node) and node.versions[DMAX:][:1] >= b"\x05"
        ]
        wrapped = s.encode_relay(s.Destination(query.addr, query.port, query.source_node), data)
        for node in choose(self._chance, others, min(query.relay_factor, RELAYS_MAX)):
            self.membership.send_user(node.endpoint, wrapped)

    # News

    def _pass_on(self, queue: Broadcasts, key: str, message: s.Message) -> None:
        queue.add(key, bytes([w.USER]) + s.encode(message))

    def _news(self, room: int, count: int) -> list[bytes]:
        found: list[bytes] = []
        transmits = self.settings.profile.transmits(self.membership.size())
        for queue in (self._intents, self._questions, self._user_events):
            taken = queue.take(room, transmits, count - len(found))
            room -= sum(len(part) + PART_SIZE for part in taken)
            found += taken
        return found

    # Time

    def wake_at(self) -> float:
        """When `tick` has something to do."""
        return min(self.membership.wake_at(), self.questions.wake_at(), self._reap_at, self._reconnect_at)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self.membership.wake_at():
            self.membership.tick(now)
        self._take_in(now)
        self._events += [QueryEnded(pending) for pending in self.questions.end(now)]
        if now >= self._reap_at:
            self._reap_at = now + REAP_S
            self.members.reap(now, self.settings.reconnect_s, self.settings.tombstone_s)
        if now >= self._reconnect_at:
            self._reconnect_at = now + RECONNECT_S
            self._reconnect()

    def _reconnect(self) -> None:
        """Try to reach one who failed: less eagerly the fewer of all they are."""
        if self.membership.leaving:
            return
        failed = [member for member in self.members.all() if member.status == "failed"]
        if not failed:
            return
        there = max(1, len(self.members) - len(failed))
        if self._chance.uniform(0, 1) <= len(failed) / there:
            (member,) = choose(self._chance, failed, 1)
            self.membership.order(ExchangeStates((member.addr, member.port), member.name))
