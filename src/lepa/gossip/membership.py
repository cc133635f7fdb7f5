"""Pure: who is there: SWIM with Lifeguard's refinements, as memberlist does it.

    (message | tick) and now and chance  ->  orders (send, exchange states) and events (joined, changed, gone)

                     alive, newer                      accused, or a probe failed
        unknown ------------------> alive ----------------------------------> suspect
                                    ^  ^                                        |  |
                                    |  +------ alive, a newer incarnation ------+  | time is up, or `dead`
                     alive, newer   |                                              v
        left (its own `dead`) ------+------------------------------------------- dead

Every probe interval one member is pinged; when it does not answer, some others are asked to ping it, and it is pinged
over a stream. Only the accused may raise its incarnation, so its own word wins over what is said of it. A member that
notices that it is slow itself (a tick that comes late, missing answers of those who should help) trusts its own probes
less. Which member is probed next: the one not heard of for longest, so a silent one is found within two intervals in a
cluster of three; but each at least once in twice as many intervals as there are members.

Times are monotonic seconds. Feed it, carry out what `poll` orders, come back at `wake_at`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lepa.gossip import messages as w
from lepa.gossip.broadcasts import Broadcasts
from lepa.gossip.chance import Chance, choose
from lepa.gossip.errors import Malformed
from lepa.gossip.messages import ALIVE_STATE, DEAD_STATE, LEFT_STATE, SUSPECT_STATE, NodeState
from lepa.gossip.orders import (
    AckPayload,
    Changed,
    Conflict,
    Endpoint,
    Event,
    ExchangeStates,
    Gone,
    Joined,
    Order,
    PingByStream,
    SendPacket,
    UserData,
)
from lepa.gossip.packets import COMPOUND_SIZE, PART_SIZE, PARTS_MAX
from lepa.gossip.profile import HEALTH_MAX, Profile
from lepa.gossip.suspicion import Suspicion

PMAX, DMAX = 1, 4
"""Places in the six numbers of versions: the newest protocol understood, of this layer and of the one above."""
PMAX_STREAM_PING, PMAX_NACK, PMAX_CRC = 3, 4, 5
NODES_MAX: Final = 16_384
RELAYS_MAX: Final = 1024
LATE_S: Final = 0.5
"""A tick this much too late: what others were silent meanwhile is no sign of anything."""
SEQ_END: Final = 1 << 32


@dataclass
class Node:
    """A member as this side knows it. heard_at: it answered or asked; probed_at: it was asked."""

    name: str
    addr: bytes
    port: int
    meta: bytes
    versions: bytes
    incarnation: int
    state: int
    changed_at: float
    heard_at: float
    probed_at: float

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return self.addr, self.port

    def understands(self, version: int) -> bool:
        """Whether its newest protocol is at least this one."""
        return len(self.versions) > PMAX and self.versions[PMAX] >= version

    @property
    def is_there(self) -> bool:
        """Alive, as far as one knows."""
        return self.state in (ALIVE_STATE, SUSPECT_STATE)

    def snapshot(self) -> NodeState:
        """As it is told to others."""
        return NodeState(self.name, self.addr, self.port, self.meta, self.incarnation, self.state, self.versions)


@dataclass
class _Probe:
    name: str
    seq: int
    sent_at: float
    ask_others_at: float
    ends_at: float
    asked_others: bool = False
    nacks_wanted: int = 0
    nacks: int = 0


@dataclass
class _Relay:
    to: Endpoint
    seq: int
    nack_at: float | None
    ends_at: float


class Membership:
    """One member's view of all.

    room: bytes of a packet for messages. more: the layer above gives (room, count) -> messages to pass on as well.
    payload: what an ack carries. admit: a sentence when a node may not be a member, else "".
    """

    def __init__(
        self,
        me: NodeState,
        profile: Profile,
        chance: Chance,
        now: float,
        *,
        room: int,
        more: Callable[[int, int], list[bytes]] = lambda room, count: [],
        payload: Callable[[], bytes] = lambda: b"",
        admit: Callable[[NodeState], str] = lambda node: "",
    ) -> None:
        self.profile = profile
        self.counts: Counter[str] = Counter()
        self.broadcasts = Broadcasts()
        self.health = 0
        self.leaving = False
        self.name = me.name
        self._chance = chance
        self._room = room
        self._more = more
        self._payload = payload
        self._admit = admit
        self._orders: list[Order] = []
        self._events: list[Event] = []
        self._suspicions: dict[str, Suspicion] = {}
        self._relays: dict[int, _Relay] = {}
        self._probe: _Probe | None = None
        self._seq = 0
        self.nodes: dict[str, Node] = {
            me.name: Node(me.name, me.addr, me.port, me.meta, me.versions, 1, ALIVE_STATE, now, now, now)
        }
        self._tell_alive(self.me)
        self._probe_at = now + chance.uniform(0, profile.probe_interval_s)
        self._gossip_at = now + chance.uniform(0, profile.gossip_interval_s)
        self._exchange_at = now + chance.uniform(0.5, 1.0) * profile.push_pull_interval_s

    @property
    def me(self) -> Node:
        """This member."""
        return self.nodes[self.name]

    def size(self) -> int:
        """How many members are there, oneself included."""
        return sum(node.is_there for node in self.nodes.values())

    def poll(self) -> list[Order]:
        """What to do now."""
        orders, self._orders = self._orders, []
        return orders

    def events(self) -> list[Event]:
        """What happened since this was asked last."""
        events, self._events = self._events, []
        return events

    # Messages

    def received(self, data: bytes, source: Endpoint, now: float) -> None:
        """One message of a packet. Raises Malformed."""
        message = w.decode(data)
        match message:
            case w.Ping():
                self._pinged(message, source, now)
            case w.IndirectPing():
                self._asked_to_ping(message, source, now)
            case w.Ack():
                self._acked(message, now)
            case w.Nack():
                if self._probe is not None and self._probe.seq == message.seq:
                    self._probe.nacks += 1
            case w.Alive():
                self._alive(message, now)
            case w.Suspect():
                self._suspect(message, now)
            case w.Dead():
                self._dead(message, now)
            case w.UserMessage():
                self._events.append(UserData(message.data))
            case w.ErrorReply():
                raise Malformed("type", "an error reply in a packet")

    def _pinged(self, ping: w.Ping, source: Endpoint, now: float) -> None:
        if ping.node and ping.node != self.name:
            self.counts["ping_for_another"] += 1
            return
        if (asker := self.nodes.get(ping.source_node)) is not None and asker.name != self.name:
            asker.heard_at = now
        to = (ping.source_addr, ping.source_port) if ping.source_addr and ping.source_port else source
        self._send(to, w.encode(w.Ack(ping.seq, self._payload())), piggyback=True)

    def _asked_to_ping(self, asked: w.IndirectPing, source: Endpoint, now: float) -> None:
        if not asked.target or not asked.port or len(self._relays) >= RELAYS_MAX:
            self.counts["relays_refused"] += 1
            return
        to = (asked.source_addr, asked.source_port) if asked.source_addr and asked.source_port else source
        seq = self._next_seq()
        wait = self.profile.probe_timeout_s
        nack_at = now + wait if asked.nack else None
        self._relays[seq] = _Relay(to, asked.seq, nack_at, now + self.profile.probe_interval_s + wait)
        self._send((asked.target, asked.port), w.encode(self._ping(seq, asked.node)), piggyback=True)

    def _acked(self, ack: w.Ack, now: float) -> None:
        if (relay := self._relays.pop(ack.seq, None)) is not None:
            self._send(relay.to, w.encode(w.Ack(relay.seq)))
            return
        probe = self._probe
        if probe is None or probe.seq != ack.seq:
            self.counts["acks_too_late"] += 1
            return
        if ack.payload and not probe.asked_others:
            self._events.append(AckPayload(probe.name, now - probe.sent_at, ack.payload))
        self._probe_succeeded(probe, now)

    def stream_acked(self, seq: int, now: float) -> None:
        """A ping over a stream was answered."""
        if self._probe is not None and self._probe.seq == seq:
            self.counts["answered_by_stream_only"] += 1
            self._probe_succeeded(self._probe, now)

    # What is said of members

    def _alive(self, said: w.Alive, now: float) -> None:
        if said.node == self.name:
            self._said_of_me(said)
            return
        known = self.nodes.get(said.node)
        if not self._admitted(said):
            return
        moved = known is not None and known.endpoint != (said.addr, said.port)
        if known is not None and moved and not self._may_move(known, now):
            self._tell_conflict(known, said)
            return
        if said.incarnation <= (known.incarnation if known else 0) and not moved:
            return
        if known is None:
            if len(self.nodes) >= NODES_MAX:
                self.counts["nodes_refused"] += 1
                return
            known = Node(said.node, said.addr, said.port, b"", b"", 0, DEAD_STATE, now, now, 0.0)
            self.nodes[said.node] = known
        self._suspicions.pop(said.node, None)
        was_there, had = known.is_there, (known.meta, known.endpoint)
        known.addr, known.port, known.meta = said.addr, said.port, said.meta
        known.versions, known.incarnation = said.versions, said.incarnation
        self._set_state(known, ALIVE_STATE, now)
        self._tell_alive(known)
        if not was_there:
            known.heard_at = now
            self._events.append(Joined(known.snapshot()))
        elif had != (known.meta, known.endpoint):
            self._events.append(Changed(known.snapshot()))

    def _admitted(self, said: w.Alive) -> bool:
        versions = said.versions
        if not said.addr or not said.port or (versions and not 0 < versions[0] <= versions[1]):
            self.counts["alive_refused"] += 1
            return False
        state = NodeState(said.node, said.addr, said.port, said.meta, said.incarnation, ALIVE_STATE, versions)
        if self._admit(state):
            self.counts["nodes_refused"] += 1
            return False
        return True

    def _may_move(self, known: Node, now: float) -> bool:
        """Whether a member's name may appear at another address."""
        reclaim = self.profile.reclaim_s
        long_dead = known.state == DEAD_STATE and 0 < reclaim < now - known.changed_at
        return known.state == LEFT_STATE or long_dead

    def _said_of_me(self, said: w.Alive) -> None:
        me = self.me
        if self.leaving or said.incarnation < me.incarnation:
            return
        if (said.addr, said.port) != me.endpoint:
            self._tell_conflict(me, said)
            return
        if said.incarnation == me.incarnation and (said.meta, said.versions) == (me.meta, me.versions):
            return
        self._refute(said.incarnation)

    def _tell_conflict(self, known: Node, said: w.Alive) -> None:
        self.counts["name_conflicts"] += 1
        self._events.append(Conflict(known.name, known.endpoint, (said.addr, said.port)))

    def _suspect(self, said: w.Suspect, now: float) -> None:
        node = self.nodes.get(said.node)
        if node is None or said.incarnation < node.incarnation:
            return
        if (suspicion := self._suspicions.get(said.node)) is not None:
            if suspicion.confirm(said.source):
                self.broadcasts.add(said.node, w.encode(said))
            return
        if node.state != ALIVE_STATE:
            return
        if node.name == self.name:
            if not self.leaving:
                self._refute(said.incarnation)
            return
        self.broadcasts.add(said.node, w.encode(said))
        node.incarnation = said.incarnation
        self._set_state(node, SUSPECT_STATE, now)
        bounds = self.profile.suspicion_bounds(self.size())
        self._suspicions[node.name] = Suspicion(said.incarnation, said.source, bounds, now)

    def _dead(self, said: w.Dead, now: float) -> None:
        node = self.nodes.get(said.node)
        if node is None or said.incarnation < node.incarnation or not node.is_there:
            return
        if node.name == self.name and not self.leaving:
            self._refute(said.incarnation)
            return
        self._suspicions.pop(node.name, None)
        self.broadcasts.add(node.name, w.encode(said))
        node.incarnation = said.incarnation
        self._set_state(node, LEFT_STATE if said.node == said.source else DEAD_STATE, now)
        self._events.append(Gone(node.snapshot()))

    def _refute(self, accused: int) -> None:
        me = self.me
        me.incarnation = min(max(me.incarnation, accused) + 1, SEQ_END - 1)
        self.counts["refuted"] += 1
        self._score(1)
        self._tell_alive(me)

    def _set_state(self, node: Node, state: int, now: float) -> None:
        if node.state != state:
            node.state, node.changed_at = state, now

    def _tell_alive(self, node: Node) -> None:
        said = w.Alive(node.incarnation, node.name, node.addr, node.port, node.meta, node.versions)
        self.broadcasts.add(node.name, w.encode(said))

    # What this member does by itself

    def say(self, meta: bytes) -> None:
        """Tell the others something else of oneself."""
        self.me.meta = meta
        self.me.incarnation += 1
        self._tell_alive(self.me)

    def leave(self, now: float) -> None:
        """Tell the others that one leaves; it is told once `is_telling_farewell` is false."""
        self.leaving = True
        self._dead(w.Dead(self.me.incarnation, self.name, self.name), now)

    @property
    def is_telling_farewell(self) -> bool:
        """Whether others are still there who may not have heard that this one leaves."""
        others = any(node.is_there for node in self.nodes.values())
        return self.leaving and others and self.name in self.broadcasts

    # States

    def state(self, *, join: bool, user_state: bytes = b"") -> w.PushPull:
        """Everything that is known, for a push/pull."""
        return w.PushPull(join, tuple(node.snapshot() for node in self.nodes.values()), user_state)

    def refusal(self, state: w.PushPull) -> str:
        """Why this state is not merged: a sentence, or ""."""
        there = [node for node in state.nodes if node.state in (ALIVE_STATE, SUSPECT_STATE)]
        if any(node.versions and not 0 < node.versions[0] <= node.versions[1] for node in there):
            return "a member's protocol versions make no range"
        known = [node.versions for node in there if node.versions]
        known += [node.versions for node in self.nodes.values() if node.is_there and node.versions]
        for low, high, now_spoken, layer in ((0, 1, 2, "protocol"), (3, 4, 5, "delegate protocol")):
            least, most = max(v[low] for v in known), min(v[high] for v in known)
            if any(not least <= v[now_spoken] <= most for v in known):
                return f"no {layer} version is understood by all members"
        if not state.join:
            return ""
        return next((why for node in there if node.name != self.name and (why := self._admit(node))), "")

    def merge(self, state: w.PushPull, now: float) -> None:
        """Take in what another one knows. Nobody is declared dead by hearsay: who is said to be is suspected."""
        for node in state.nodes:
            if node.state == LEFT_STATE:
                self._dead(w.Dead(node.incarnation, node.name, node.name), now)
            elif node.state == ALIVE_STATE:
                self._alive(w.Alive(node.incarnation, node.name, node.addr, node.port, node.meta, node.versions), now)
            else:
                self._suspect(w.Suspect(node.incarnation, node.name, self.name), now)

    # Time

    def wake_at(self) -> float:
        """When `tick` has something to do."""
        times = [self._probe_at, self._exchange_at]
        times.append(self._gossip_at)
        if self._probe is not None:
            times.append(self._probe.ends_at if self._probe.asked_others else self._probe.ask_others_at)
        times += [suspicion.ends_at for suspicion in self._suspicions.values()]
        times += [relay.ends_at if relay.nack_at is None else relay.nack_at for relay in self._relays.values()]
        return min(times)

    def tick(self, now: float) -> None:
        """Do what is due."""
        late = now - self.wake_at()
        if late > LATE_S:
            self._was_away(late, now)
        self._end_relays(now)
        self._go_on_probing(now)
        for name, suspicion in list(self._suspicions.items()):
            if now >= suspicion.ends_at:
                self._dead(w.Dead(suspicion.incarnation, name, self.name), now)
        if now >= self._probe_at:
            self._probe_at = _next(self._probe_at, self.profile.probe_interval_s, now)
            self._forget_dead(now)
            if self._probe is None:
                self._begin_probe(now)
        if now >= self._gossip_at:
            self._gossip_at = _next(self._gossip_at, self.profile.gossip_interval_s, now)
            self._gossip(now)
        if now >= self._exchange_at:
            scale = self.profile.push_pull_scale(self.size())
            self._exchange_at = _next(self._exchange_at, self.profile.push_pull_interval_s * scale, now)
            if others := self._others(lambda node: node.state == ALIVE_STATE):
                (node,) = choose(self._chance, others, 1)
                self._orders.append(ExchangeStates(node.endpoint, node.name))

    def _was_away(self, late: float, now: float) -> None:
        """This process did not run for a while: nobody is accused for it."""
        self.counts["late_ticks"] += 1
        for suspicion in self._suspicions.values():
            suspicion.delay(late)
        if self._probe is not None:
            self._probe = None
            self._score(1)

    def _score(self, change: int) -> None:
        self.health = min(HEALTH_MAX, max(0, self.health + change))

    def _others(self, which: Callable[[Node], bool]) -> list[Node]:
        return [node for node in self.nodes.values() if node.name != self.name and which(node)]

    # Probing

    def _begin_probe(self, now: float) -> None:
        others = self._others(lambda node: node.is_there)
        if not others or self.leaving:
            return
        patience = 2 * len(others) * self.profile.probe_interval_s
        overdue = [node for node in others if now - node.probed_at > patience]
        node = min(overdue or others, key=lambda node: (node.probed_at if overdue else node.heard_at, node.probed_at))
        node.probed_at = now
        seq = self._next_seq()
        ends = now + self.profile.probe_interval_s * (self.health + 1)
        self._probe = _Probe(node.name, seq, now, now + self.profile.probe_timeout_s, ends)
        first = [w.encode(self._ping(seq, node.name))]
        if node.state == SUSPECT_STATE:
            first.append(w.encode(w.Suspect(node.incarnation, node.name, self.name)))
        self._send(node.endpoint, *first, piggyback=True)

    def _go_on_probing(self, now: float) -> None:
        probe = self._probe
        if probe is None:
            return
        node = self.nodes.get(probe.name)
        if node is None or not node.is_there:
            self._probe = None
        elif now >= probe.ends_at:
            self._probe_failed(probe, node, now)
        elif now >= probe.ask_others_at and not probe.asked_others:
            probe.asked_others = True
            self._ask_others(probe, node)

    def _ask_others(self, probe: _Probe, node: Node) -> None:
        helpers = self._others(lambda other: other.state == ALIVE_STATE and other.name != node.name)
        for helper in choose(self._chance, helpers, self.profile.indirect_checks):
            nack = helper.understands(PMAX_NACK)
            probe.nacks_wanted += nack
            ask = w.IndirectPing(
                probe.seq, node.addr, node.port, node.name, nack, self.me.addr, self.me.port, self.name
            )
            self._send(helper.endpoint, w.encode(ask), piggyback=True)
        if node.understands(PMAX_STREAM_PING):
            message = w.encode(self._ping(probe.seq, node.name))
            self._orders.append(PingByStream(node.endpoint, message, probe.seq, probe.ends_at))

    def _probe_succeeded(self, probe: _Probe, now: float) -> None:
        if (node := self.nodes.get(probe.name)) is not None:
            node.heard_at = now
        self._score(-1)
        self._probe = None

    def _probe_failed(self, probe: _Probe, node: Node, now: float) -> None:
        self._probe = None
        self.counts["probes_failed"] += 1
        self._score(max(0, probe.nacks_wanted - probe.nacks) if probe.nacks_wanted else 1)
        self._suspect(w.Suspect(node.incarnation, node.name, self.name), now)

    def _end_relays(self, now: float) -> None:
        for seq, relay in list(self._relays.items()):
            if relay.nack_at is not None and now >= relay.nack_at:
                relay.nack_at = None
                self._send(relay.to, w.encode(w.Nack(relay.seq)))
            if now >= relay.ends_at:
                del self._relays[seq]

    def _forget_dead(self, now: float) -> None:
        for node in self._others(lambda node: not node.is_there):
            if now - node.changed_at > self.profile.gossip_to_dead_s:
                del self.nodes[node.name]

    def _ping(self, seq: int, name: str) -> w.Ping:
        return w.Ping(seq, name, self.me.addr, self.me.port, self.name)

    def _next_seq(self) -> int:
        self._seq = (self._seq + 1) % SEQ_END
        return self._seq

    # Sending

    def _gossip(self, now: float) -> None:
        def hears(node: Node) -> bool:
            if node.state == DEAD_STATE:
                return now - node.changed_at <= self.profile.gossip_to_dead_s
            return node.is_there

        for node in choose(self._chance, self._others(hears), self.profile.gossip_nodes):
            parts = self._news(self._room - COMPOUND_SIZE, PARTS_MAX)
            if not parts:
                return
            self._orders.append(SendPacket(node.endpoint, tuple(parts), node.understands(PMAX_CRC)))

    def _news(self, room: int, count: int) -> list[bytes]:
        parts = self.broadcasts.take(room, self.profile.transmits(self.size()), count)
        room -= sum(len(part) + PART_SIZE for part in parts)
        return parts + self._more(room, count - len(parts))

    def _send(self, to: Endpoint, *messages: bytes, piggyback: bool = False) -> None:
        parts = list(messages)
        if piggyback:
            room = self._room - COMPOUND_SIZE - sum(len(part) + PART_SIZE for part in parts)
            parts += self._news(room, PARTS_MAX - len(parts))
        self._orders.append(SendPacket(to, tuple(parts), crc=False))

    def order(self, order: Order) -> None:
        """Have something done for the layer above."""
        self._orders.append(order)

    def send_user(self, to: Endpoint, data: bytes) -> None:
        """Send a message of the layer above to one peer."""
        self._send(to, w.encode(w.UserMessage(data)))


def _next(due: float, interval: float, now: float) -> float:
    """The next time of something regular; what was missed is not made up for."""
    return due + interval if due + interval > now else now + interval
