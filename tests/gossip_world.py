"""A gossip cluster on a virtual network: real machines and real bytes, false time, loss, delay, cuts and stalls.

    world = GossipWorld(seed=7, loss=0.05)
    for name in "abc":
        world.start(name)
    world.join_all()
    world.run(10.0)
    world.kill("c")

The same seed gives the same trace. A stalled member hears nothing and does nothing; what arrived meanwhile it reads
first, as the running part does.
"""

import hashlib
import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lepa.gossip import messages as w
from lepa.gossip.keyring import Keyring
from lepa.gossip.orders import Endpoint, ExchangeStates, PingByStream, SendPacket
from lepa.gossip.packets import Framing
from lepa.gossip.profile import LAN, Profile
from lepa.gossip.serf import Event, Serf, Settings
from lepa.gossip.serf_members import MemberEvent
from lepa.gossip.streams import read as read_stream
from lepa.kit.sources import SeededRandom

PORT = 7946


@dataclass
class Host:
    """A machine with one member. events: with the time at which they happened."""

    serf: Serf
    stalled_until: float = 0.0
    wakes_at: float = math.inf
    waiting: list[Callable[[], None]] = field(default_factory=list)
    events: list[tuple[float, Event]] = field(default_factory=list)

    def statuses(self) -> dict[str, str]:
        return {member.name: member.status for member in self.serf.members.all()}


class GossipWorld:
    """Hosts by name. loss: share of packets that get lost; streams get through unless the way is cut."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, profile: Profile = LAN, delay_s: float = 0.002) -> None:
        self.now = 0.0
        self.hosts: dict[str, Host] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.loss = loss
        self.packets: list[bytes] = []
        self.taps: list[Callable[[bytes], None]] = []
        self._profile = profile
        self._delay_s = delay_s
        self._random = SeededRandom(seed)
        self._numbers = itertools.count()
        self._queue: list[tuple[float, int, str, Callable[[], None]]] = []
        self._trace = hashlib.sha256()
        self._places: dict[str, int] = {}
        self._addresses = itertools.count(1)

    # Hosts

    def start(
        self,
        name: str,
        *,
        keys: tuple[bytes, ...] = (),
        tags: Mapping[str, str] | None = None,
        elsewhere: bool = False,
    ) -> Host:
        """A new member, or one that was there, at its old address unless `elsewhere`."""
        if name not in self._places or elsewhere:
            self._places[name] = next(self._addresses)
        number = self._places[name]
        settings = Settings(name, bytes([10, 0, number >> 8, number & 255]), PORT, tags or {}, self._profile)
        framing = Framing(Keyring(keys) if keys else None)
        host = Host(Serf(settings, framing, SeededRandom(self._random.seed()), self.now))
        self.hosts[name] = host
        self._pump(name)
        return host

    def kill(self, name: str) -> None:
        """The machine is gone without a word."""
        del self.hosts[name]

    def stall(self, name: str, seconds: float) -> None:
        host = self.hosts[name]
        host.stalled_until = host.wakes_at = self.now + seconds
        self._at(host.stalled_until, name, lambda: None)

    def cut(self, one: str, other: str) -> None:
        """Nothing gets from one to the other, nor back."""
        self.cuts |= {(one, other), (other, one)}

    def join(self, name: str, other: str) -> None:
        self._exchange(name, self.hosts[other].serf.membership.me.endpoint, join=True)

    def join_all(self) -> None:
        first, *rest = self.hosts
        for name in rest:
            self.join(name, first)

    def act(self, name: str, what: Callable[[Serf], object]) -> None:
        """Have a host do something now."""
        what(self.hosts[name].serf)
        self._pump(name)

    def agreed(self, statuses: Mapping[str, str]) -> bool:
        """Whether every host sees exactly this."""
        return all(host.statuses() == dict(statuses) for host in self.hosts.values())

    def failures(self) -> list[tuple[float, str, str]]:
        """Times at which somebody was declared failed, by whom, and who."""
        return [
            (at, name, event.member.name)
            for name, host in self.hosts.items()
            for at, event in host.events
            if isinstance(event, MemberEvent) and event.kind == "failed"
        ]

    @property
    def trace(self) -> str:
        """A hash of everything that was sent, when and to whom."""
        return self._trace.hexdigest()

    # Time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, name, what = heapq.heappop(self._queue)
            host = self.hosts.get(name)
            if host is None:
                continue
            if self.now < host.stalled_until:
                host.waiting.append(what)
                continue
            if self.now >= host.wakes_at:
                host.wakes_at = math.inf
            waiting, host.waiting = host.waiting, []
            for each in (*waiting, what):
                each()
            if name in self.hosts and self.now >= self.hosts[name].serf.wake_at():
                self.hosts[name].serf.tick(self.now)
            self._pump(name)
        self.now = end

    def run_until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Seconds until a condition holds; fails when that takes longer."""
        began = self.now
        while not condition():
            assert self.now - began < within_s, f"not within {within_s} s: {self.views()}"
            self.run(0.05)
        return self.now - began

    def views(self) -> dict[str, dict[str, str]]:
        """What each host sees."""
        return {name: host.statuses() for name, host in self.hosts.items()}

    # The network

    def _pump(self, name: str) -> None:
        host = self.hosts.get(name)
        if host is None:
            return
        for order in host.serf.poll():
            match order:
                case SendPacket(to, parts, crc):
                    self._send(name, to, parts, crc)
                case PingByStream():
                    self._ping(name, order)
                case ExchangeStates(to, _):
                    self._exchange(name, to, join=False)
        host.events += [(self.now, event) for event in host.serf.events()]
        wake = max(self.now, host.serf.wake_at(), host.stalled_until)
        if wake < host.wakes_at:
            host.wakes_at = wake
            self._at(wake, name, lambda: None)

    def _at(self, time: float, name: str, what: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time, next(self._numbers), name, what))

    def _send(self, name: str, to: Endpoint, parts: tuple[bytes, ...], crc: bool) -> None:
        nonce = self._random.seed().to_bytes(12, "big")
        data = self.hosts[name].serf.framing.packet(parts, nonce, crc=crc)
        assert len(data) <= 1400, f"a packet of {len(data)} bytes"
        self._trace.update(f"{self.now:.6f} {name} {to} ".encode() + data)
        for tap in self.taps:
            tap(data)
        target = self._reached(name, to)
        if target is None or self._random.uniform(0, 1) < self.loss:
            return
        source = self.hosts[name].serf.membership.me.endpoint
        self._later(target, lambda: self.hosts[target].serf.packet(data, source, self.now))

    def _later(self, name: str, what: Callable[[], None]) -> None:
        self._at(self.now + self._delay_s * self._random.uniform(0.25, 1.0), name, what)

    def _reached(self, name: str, to: Endpoint) -> str | None:
        found = (other for other, host in self.hosts.items() if host.serf.membership.me.endpoint == to)
        target = next(found, None)
        return None if target is None or (name, target) in self.cuts else target

    def _ping(self, name: str, ping: PingByStream) -> None:
        target = self._reached(name, ping.to)
        if target is None:
            return

        def answered() -> None:
            self.hosts[name].serf.stream_acked(ping.seq, self.now)

        self._later(target, lambda: self._later(name, answered))

    def _exchange(self, name: str, to: Endpoint, *, join: bool) -> None:
        target = self._reached(name, to)
        if target is None:
            return
        sent = self._state(name, join=join)

        def arrived() -> None:
            answer = self._state(target, join=join)
            self.hosts[target].serf.merge(sent, self.now)
            self._later(name, lambda: answered(answer))

        def answered(answer: w.PushPull) -> None:
            serf = self.hosts[name].serf
            serf.merge(answer, self.now, joining=join)
            if join:
                serf.joined(self.now)

        self._later(target, arrived)

    def _state(self, name: str, *, join: bool) -> w.PushPull:
        """A state as it arrives, through its bytes."""
        serf = self.hosts[name].serf
        data = serf.framing.stream(serf.state(join=join), bytes(12))
        found = read_stream(data, serf.framing)
        assert isinstance(found, w.PushPull)
        return found
