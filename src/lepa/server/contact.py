"""Servers hear of each other: every follower tells the leader twice a second that it lives, and is told who else does.

From this come the age of what a follower knows (`X-Nomad-LastContact`), which servers are alive, and a quick end of a
leader whose process is gone: a port that refuses connections for a second is nobody's, and the leader's key is taken
away before its lease lapses. If it was somebody's after all, he loses an election and nothing else: his writes are
fenced, and before he reads he asks the store whether he still leads.
"""

import logging
from typing import Final

from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.channel import Peers, Unreached
from lepa.rpc.methods import SERVER_PULSE
from lepa.rpc.server_requests import Pulse, PulseRequest
from lepa.server.leadership import Leadership
from lepa.server.roster import Roster
from lepa.state.replica import Replica

PULSE_S: Final = 0.5
ANSWER_S: Final = 2.0
REFUSED_S: Final = 1.0
"""For how long the leader's port has to refuse connections."""
FAILED_S: Final = 5.0
"""A server that was not heard of for that long has failed."""
ALIVE, FAILED = "alive", "failed"

log = logging.getLogger(__name__)


class Contact:
    """What this server hears of the others, as an async context manager."""

    def __init__(
        self,
        leadership: Leadership,
        roster: Roster,
        replica: Replica,
        peers: Peers | None,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """peers: None for a server that stands alone."""
        self._leadership = leadership
        self._roster = roster
        self._replica = replica
        self._peers = peers
        self._clock = clock
        self._metrics = metrics
        self._tasks = Tasks("contact")
        self._heard: dict[str, float] = {}
        self._led_since = clock.now()
        self._led = 0
        self._last = clock.now()
        self._told = Pulse()
        self._refused_since: tuple[int, float] = (0, 0.0)

    async def __aenter__(self) -> "Contact":
        if self._peers is not None:
            self._tasks.start("pulse", self._run(self._peers))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.close()

    def age_ms(self) -> int:
        """How long ago this server last heard of the leader; 0 at the leader."""
        return 0 if self._leadership.leading is not None else int(1e3 * (self._clock.now() - self._last))

    def silence_ms(self) -> int:
        """For how long the present leader has been silent; 0 at the leader.

        The silence of the one before does not count: when that one is gone nobody has heard of a leader for a while.
        """
        leads = self._leadership.leading is not None
        return 0 if leads else int(1e3 * (self._clock.now() - max(self._last, self._began())))

    def statuses(self) -> dict[str, str]:
        """ "alive" or "failed" for each server by name."""
        return {server.name: self._status(server.name, server.rpc_address) for server in self._roster.servers()}

    def overdue_ms(self) -> dict[str, int]:
        """How long each server's word to the leader is overdue, by name; a follower knows what it was last told."""
        if self._peers is None:
            return {}
        if self._leadership.leading is None:
            return {**self._told.overdue_ms, self._roster.me.name: _overdue_ms(self.age_ms())}
        now = self._clock.now()
        others = (server.name for server in self._roster.servers() if server.name != self._roster.me.name)
        return {name: _overdue_ms(1e3 * (now - self._heard_at(name))) for name in others}

    def addresses(self) -> tuple[str, ...]:
        """Internal addresses of the servers that live, by name: what nodes are told."""
        statuses = self.statuses()
        return tuple(server.rpc_address for server in self._roster.servers() if statuses[server.name] == ALIVE)

    def is_me(self, address: str) -> bool:
        """Whether this is the internal address of this server."""
        return address == self._roster.me.rpc_address

    def answer(self, request: PulseRequest) -> Pulse:
        """A follower lives. Only the leader is asked."""
        self._heard[request.name] = self._clock.now()
        return Pulse(index=self._replica.snapshot.index, statuses=self.statuses(), overdue_ms=self.overdue_ms())

    def _status(self, name: str, address: str) -> str:
        now = self._clock.now()
        if name == self._roster.me.name or self._peers is None:
            return ALIVE
        if self._leadership.leading is not None:
            return ALIVE if now - self._heard_at(name) < FAILED_S else FAILED
        if now - self._last >= FAILED_S and address == self._leadership.leader_address:
            return FAILED
        return self._told.statuses.get(name, ALIVE)

    def _heard_at(self, name: str) -> float:
        return max(self._heard.get(name, 0.0), self._began())

    def _began(self) -> float:
        """When the present term was first noticed here: before that its leader could neither hear nor tell anything."""
        if self._led != self._leadership.key.created:
            self._led, self._led_since = self._leadership.key.created, self._clock.now()
        return self._led_since

    async def _run(self, peers: Peers) -> None:
        while True:
            leads = self._leadership.leading is not None
            if leads:
                self._last = self._clock.now()
                self._began()
            elif self._leadership.leader_address:
                await self._pulse(peers, self._leadership.leader_address, self._leadership.key.created)
            self._metrics.gauge("nomad.raft.leader.lastContact", self.age_ms())
            await self._clock.sleep(PULSE_S)

    async def _pulse(self, peers: Peers, address: str, created: int) -> None:
        request = PulseRequest(name=self._roster.me.name, index=self._replica.snapshot.index)
        try:
            reply = await peers.ask(address, SERVER_PULSE, request, ANSWER_S)
        except Unreached as error:
            if error.refused:
                await self._refused(address, created)
        except LepaError as error:
            log.debug("leader not reached address=%s error=%s", address, error.message)
        else:
            self._last = self._clock.now()
            self._told = reply.value
            self._refused_since = (0, 0.0)

    async def _refused(self, address: str, created: int) -> None:
        now = self._clock.now()
        if self._refused_since[0] != created:
            self._refused_since = (created, now)
        if now - self._refused_since[1] < REFUSED_S:
            return
        try:
            await self._leadership.key.depose(address, created)
        except LepaError as error:
            log.warning("a leader that is gone could not be deposed error=%s", error.message)


def _overdue_ms(age_ms: float) -> int:
    return max(0, int(age_ms - 1e3 * PULSE_S))
