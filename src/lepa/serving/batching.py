"""Pure: decides when a batch leaves, how large it is, and who gets it.

One `Batcher` stands before the replicas of one model version. Queries wait in order of their deadlines. Each replica
has at most one batch in flight, and pulls the next one when that is back, so a slow replica gets less.

When. An idle replica takes what waits at once: a timer started by the first arrival would only delay it. The
exception is learned. Callers that wait for their answers send again just after a batch is back; a replica that leaves
at once takes the first few of them and the rest wait for a whole batch time (they split into two camps, and up to 40
% of the model's time is lost). So a replica that has just come back lingers until as many queries wait as waited or
were in flight, while they keep coming: no pause longer than a tenth of its measured batch time, no wait longer than
half of it, counted from when the answers are on their way. Where that does not pay (arrivals that do not depend on
answers) the wait is given up, and tried again once in sixteen batches.

How large. A `BatchSize` policy learns from each batch's latency (`batch_sizes`).

Delayed batching, where it is asked for, replaces all that: a batch that is not full waits a fixed time for more.

Who is dropped. A query whose deadline has passed is dropped when a batch is formed: its caller has the default
already. One that could not be back in time is passed over while there are others that could; alone it is sent, for
its output is worth keeping and its latency is worth knowing.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from lepa.serving.batch_sizes import AimdSize, BatchSize

QUEUE_MAX = 20_000
"""Queries that wait for one model version; more get the default at once."""

LINGER_PAUSE_SHARE = 0.1
"""Of the measured batch time: the longest pause between two arrivals while waiting for released callers."""
LINGER_SHARE = 0.5
"""Of the measured batch time: the longest such wait altogether."""
LINGER_MIN_S = 20e-6
"""A pause shorter than this is not worth a timer."""
LINGER_PROBE_EVERY = 16
"""Batches between two tries of a wait that does not pay."""
LINGER_GAIN = 0.125
"""Weight of the newest try in the score that says whether waiting pays."""
SERVICE_GAIN = 0.2
"""Weight of the newest batch in the measured batch time."""
FASTEST_DRIFT = 1.02
"""Growth, per batch, of the fastest batch time seen, so that a lucky one is forgotten."""
OBJECTIVE_SHARE = 0.45
"""Of the latency objective: what one batch may take. A query may have to wait for the batch before its own."""


class Task:
    """One input that a model shall predict, and who waits for it.

    deadline: when its first query wants the answer, it orders the queue. expires: when its last query stops waiting.
    waiting: whatever the owner hangs on it. attempts: batches it has left in.
    """

    __slots__ = ("attempts", "data", "deadline", "expires", "waiting")

    def __init__(self, data: bytes, deadline: float, waiting: list[Any]) -> None:
        self.data = data
        self.deadline = deadline
        self.expires = deadline
        self.waiting = waiting
        self.attempts = 0


class SendBatch(NamedTuple):
    """An order: these tasks to this replica. reason: full, idle, waited (long enough) or deadline (is near)."""

    replica: int
    tasks: list[Task]
    reason: str


class _Replica:
    """What the batcher knows of one replica. linger_until: when the wait ends unless somebody arrives, None when
    there is none; linger_end: when it ends at the latest; linger_seen, linger_want: queries that wait, and that end it;
    linger_score: share of the waits that paid; service_s, fastest_s: batch times."""

    __slots__ = (
        "fastest_s",
        "id",
        "in_flight",
        "linger_end",
        "linger_score",
        "linger_seen",
        "linger_tries",
        "linger_until",
        "linger_want",
        "sent_at",
        "service_s",
        "size",
    )

    def __init__(self, replica_id: int, size: BatchSize) -> None:
        self.id = replica_id
        self.size = size
        self.in_flight: list[Task] | None = None
        self.sent_at = 0.0
        self.service_s = 0.0
        self.fastest_s = 0.0
        self.linger_until: float | None = None
        self.linger_end = 0.0
        self.linger_seen = 0
        self.linger_want = 0
        self.linger_score = 1.0
        self.linger_tries = 0

    def observe(self, count: int, latency_s: float, objective_s: float) -> None:
        self.size.observe(count, latency_s, objective_s)
        self.service_s += SERVICE_GAIN * (latency_s - self.service_s) if self.service_s else latency_s
        self.fastest_s = min(latency_s, self.fastest_s * FASTEST_DRIFT) if self.fastest_s else latency_s

    def expect(self, queued: int, released: int) -> bool:
        """Shall the replica linger for the callers that its batch releases?"""
        pause_s = self.service_s * LINGER_PAUSE_SHARE
        want = min(self.size.size, queued + released)
        self.linger_tries += 1
        pays = self.linger_score >= 0.5 or self.linger_tries % LINGER_PROBE_EVERY == 0
        if queued < want and pause_s >= LINGER_MIN_S and pays:
            self.linger_until = self.linger_end = inf
            self.linger_seen = queued
            self.linger_want = want
        return self.linger_until is not None

    def start_linger(self, now: float) -> None:
        if self.linger_until == inf:
            self.linger_until = now + self.service_s * LINGER_PAUSE_SHARE
            self.linger_end = now + self.service_s * LINGER_SHARE

    def why_go(self, queued: int, first_deadline: float, now: float) -> str | None:
        """The reason to leave now with what waits, or None to linger on."""
        if self.linger_until is None:
            return "full" if queued >= self.size.size else "idle"
        if queued >= self.linger_want:
            self._end_linger(paid=True)
            return "full"
        if first_deadline - now < 2 * self.service_s:
            self.linger_until = None
            return "deadline"
        if queued > self.linger_seen and now < self.linger_end:
            self.linger_seen = queued
            self.linger_until = min(now + self.service_s * LINGER_PAUSE_SHARE, self.linger_end)
            return None
        if now < self.linger_until:
            return None
        self._end_linger(paid=False)
        return "waited"

    def _end_linger(self, paid: bool) -> None:
        self.linger_until = None
        self.linger_score += LINGER_GAIN * (paid - self.linger_score)


class Batcher:
    """The queue before one model version, and its replicas. objective_s: what one batch may take; wait_s: how long one
    that is not full waits, 0 for what is learned; both set by the owner."""

    def __init__(self, make_size: Callable[[], BatchSize] = AimdSize, queue_max: int = QUEUE_MAX) -> None:
        self.objective_s = 1.0
        self.wait_s = 0.0
        self._waiting_since: float | None = None
        self._make_size = make_size
        self._queue_max = queue_max
        self._queue: list[tuple[float, int, Task]] = []
        self._sequence = 0
        self._replicas: dict[int, _Replica] = {}
        self._idle: dict[int, _Replica] = {}
        self._expecting: list[_Replica] = []

    @property
    def replica_count(self) -> int:
        return len(self._replicas)

    @property
    def queued(self) -> int:
        return len(self._queue)

    def batch_size(self, replica_id: int) -> int:
        """The size that the replica's policy has reached."""
        return self._replicas[replica_id].size.size

    def set_sizes(self, make_size: Callable[[], BatchSize]) -> None:
        """Start over with another policy, for the replicas of today and of tomorrow."""
        self._make_size = make_size
        for replica in self._replicas.values():
            replica.size = make_size()

    def add_replica(self, replica_id: int) -> None:
        """A replica is connected and idle."""
        self._replicas[replica_id] = self._idle[replica_id] = _Replica(replica_id, self._make_size())

    def remove_replica(self, replica_id: int) -> list[Task]:
        """A replica is gone; what it had in flight is the caller's to submit again or to give up."""
        self._idle.pop(replica_id, None)
        replica = self._replicas.pop(replica_id)
        return replica.in_flight or []

    def submit(self, task: Task, force: bool = False) -> bool:
        """Let a task wait for a batch. False when too many wait already; `force` is for those that waited before."""
        if len(self._queue) >= self._queue_max and not force:
            return False
        self._sequence += 1
        heappush(self._queue, (task.deadline, self._sequence, task))
        return True

    def completed(self, replica_id: int, now: float) -> list[Task]:
        """A replica's batch is back: its tasks. The replica is idle again, or lingers once they are `answered`."""
        replica = self._replicas[replica_id]
        tasks, replica.in_flight = replica.in_flight or [], None
        replica.observe(len(tasks), now - replica.sent_at, self.objective_s)
        if not self.wait_s and replica.expect(len(self._queue), len(tasks)):
            self._expecting.append(replica)
        self._idle[replica_id] = replica
        return tasks

    def answered(self, now: float) -> None:
        """The answers of completed batches are on their way to their callers: only now waits for those begin."""
        for replica in self._expecting:
            replica.start_linger(now)
        self._expecting.clear()

    def poll(self, now: float) -> tuple[list[SendBatch], list[Task]]:
        """What leaves now, and the expired tasks that were dropped on the way."""
        orders: list[SendBatch] = []
        dropped: list[Task] = []
        if self._queue and self._waiting_since is None:
            self._waiting_since = now
        for replica in list(self._idle.values()):
            if not self._queue:
                break
            queued, first_deadline = len(self._queue), self._queue[0][0]
            if self.wait_s:
                reason = self._why_wait_no_longer(replica, queued, first_deadline, now)
            else:
                reason = replica.why_go(queued, first_deadline, now)
            if reason is None:
                continue
            tasks = self._take(replica, now, dropped)
            if tasks:
                self._idle.pop(replica.id)
                replica.in_flight = tasks
                replica.sent_at = now
                orders.append(SendBatch(replica.id, tasks, reason))
                self._waiting_since = now
        if not self._queue:
            self._waiting_since = None
        return orders, dropped

    def _why_wait_no_longer(self, replica: _Replica, queued: int, first_deadline: float, now: float) -> str | None:
        """The reason for which a delayed batch leaves, or None."""
        if queued >= replica.size.size:
            return "full"
        if first_deadline - now < 2 * replica.service_s:
            return "deadline"
        since = now if self._waiting_since is None else self._waiting_since
        return "waited" if now >= since + self.wait_s else None

    def _take(self, replica: _Replica, now: float, dropped: list[Task]) -> list[Task]:
        """The tasks of the next batch, earliest deadline first."""
        queue, size, soonest = self._queue, replica.size.size, now + replica.fastest_s
        tasks: list[Task] = []
        hopeless: list[Task] = []
        while queue and len(tasks) < size:
            task = heappop(queue)[2]
            if task.expires > soonest:
                tasks.append(task)
            elif task.expires > now:
                hopeless.append(task)
            else:
                dropped.append(task)
        if not tasks:
            tasks, hopeless = hopeless[:size], hopeless[size:]
        for task in hopeless:
            self.submit(task, force=True)
        for task in tasks:
            task.attempts += 1
        return tasks

    def wake_at(self) -> float | None:
        """When `poll` has something to do without any event: the end of the first wait, if a task is there to go."""
        if not self._queue:
            return None
        if self.wait_s and self._idle and self._waiting_since is not None:
            return self._waiting_since + self.wait_s
        ends = [replica.linger_until for replica in self._idle.values() if replica.linger_until is not None]
        return min(ends, default=None)
