"""Pure: hands evaluations to workers: the most urgent first, one a job at a time, each until it is acknowledged.

    enqueue -> delayed (until its time) -> ready -> dequeue -> unacknowledged -> ack
                                          ^    \\                   |
                            waiting for its job |                   | nack, or no answer in time
                                                +--- a pause <------+   (after the third delivery: failed)

An evaluation says "look at this job again", so of several that wait for one job only the newest is worth a look: the
others are superseded when their job is free again, and whoever runs the broker cancels them. An evaluation that is
enqueued again while it is with a worker comes back after the acknowledgement, so that no request to look is lost.

Bounded by the evaluations in the state: each is held at most once.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from lepa.kit.durations import parse_rfc3339
from lepa.model.evaluation import Evaluation

DELIVERIES_MAX = 3
ACK_TIMEOUT_S = 60.0
FIRST_NACK_DELAY_S = 1.0
NACK_DELAY_S = 20.0

JobKey = tuple[str, str]


class Delivery(NamedTuple):
    """An evaluation handed to a worker. wait_index: schedule on a snapshot at least that new."""

    evaluation: Evaluation
    token: str
    wait_index: int


class BrokerCounts(NamedTuple):
    """How many evaluations are where."""

    ready: int
    unacknowledged: int
    waiting: int
    delayed: int


class _Unacknowledged(NamedTuple):
    evaluation: Evaluation
    token: str
    deadline: float


def delay_s(evaluation: Evaluation, now_ns: int) -> float:
    """Seconds until the evaluation may be looked at; 0 when it may be now."""
    until_ns = parse_rfc3339(evaluation.wait_until)
    return max(0.0, (until_ns - now_ns) / 1e9) if until_ns else evaluation.wait / 1e9


class EvalBroker:
    """Evaluations on their way to workers. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as a server does that leads no more."""
        self._known: set[str] = set()
        self._ready: dict[str, list[tuple[int, int, int, Evaluation]]] = {}
        self._delayed: list[tuple[float, int, Evaluation]] = []
        self._unacknowledged: dict[str, _Unacknowledged] = {}
        self._claims: dict[JobKey, str] = {}
        self._waiting: dict[JobKey, list[Evaluation]] = {}
        self._floors: dict[JobKey, int] = {}
        self._again: dict[str, Evaluation] = {}
        self._deliveries: dict[str, int] = {}
        self._kept: set[str] = set()
        self._failed: list[Evaluation] = []
        self._superseded: list[Evaluation] = []
        self._sequence = 0

    def enqueue(self, evaluation: Evaluation, now: float, delay_s: float = 0.0) -> None:
        """Take an evaluation that may be looked at in delay_s seconds. One that is here already stays where it is."""
        if evaluation.id in self._unacknowledged:
            self._again[evaluation.id] = evaluation
        elif evaluation.id not in self._known:
            self._known.add(evaluation.id)
            if delay_s > 0:
                self._delay(evaluation, now + delay_s)
            else:
                self._admit(evaluation)

    def dequeue(self, types: Iterable[str], token: str, now: float) -> Delivery | None:
        """Hand out the most urgent ready evaluation of these scheduler types. `token` names the delivery."""
        queues = [queue for kind in types if (queue := self._ready.get(kind))]
        if not queues:
            return None
        evaluation = heappop(min(queues, key=lambda queue: queue[0][:3]))[3]
        self._deliveries[evaluation.id] = self._deliveries.get(evaluation.id, 0) + 1
        self._unacknowledged[evaluation.id] = _Unacknowledged(evaluation, token, now + ACK_TIMEOUT_S)
        floor = self._floors.pop(_job_key(evaluation), 0)
        return Delivery(evaluation, token, max(floor, evaluation.modify_index, evaluation.snapshot_index))

    def holds(self, eval_id: str, token: str) -> bool:
        """Whether this delivery still counts: a plan of a worker that was given up must not be applied."""
        held = self._unacknowledged.get(eval_id)
        return held is not None and held.token == token

    def ack(self, eval_id: str, token: str, index: int, now: float) -> bool:
        """The worker is done. index: revision of its last write; the job's next look is at a state at least as new.

        False when the delivery no longer counts.
        """
        if not self.holds(eval_id, token):
            return False
        evaluation = self._unacknowledged.pop(eval_id).evaluation
        self._forget(eval_id)
        again = self._again.pop(eval_id, None)
        self._release(evaluation, index)
        if again is not None:
            self.enqueue(again, now)
        return True

    def nack(self, eval_id: str, token: str, now: float) -> bool:
        """The worker could not do it: deliver again after a pause, or give up. False when it no longer counts."""
        if not self.holds(eval_id, token):
            return False
        evaluation = self._unacknowledged.pop(eval_id).evaluation
        evaluation = self._again.pop(eval_id, evaluation)
        count = self._deliveries[eval_id]
        if count >= DELIVERIES_MAX:
            self._forget(eval_id)
            self._release(evaluation, 0)
            self._failed.append(evaluation)
        else:
            self._delay(evaluation, now + (FIRST_NACK_DELAY_S if count == 1 else NACK_DELAY_S))
        return True

    def take_back(self, eval_id: str, token: str) -> bool:
        """Nobody has looked at this delivery: it is ready again, as if it had not been made. False when it does not
        count any longer."""
        if not self.holds(eval_id, token):
            return False
        evaluation = self._unacknowledged.pop(eval_id).evaluation
        self._deliveries[eval_id] -= 1
        self._admit(self._again.pop(eval_id, evaluation))
        return True

    def keep(self, eval_id: str, token: str) -> bool:
        """Take a delivery back and hand it out again only to those who ask for what is `kept`."""
        if self.holds(eval_id, token):
            self._kept.add(eval_id)
        return self.take_back(eval_id, token)

    def poll(self, now: float) -> None:
        """Let time do its part: delayed evaluations become ready, deliveries without an answer are taken back."""
        while self._delayed and self._delayed[0][0] <= now:
            self._admit(heappop(self._delayed)[2])
        for eval_id, held in list(self._unacknowledged.items()):
            if held.deadline <= now:
                self.nack(eval_id, held.token, now)

    def wake_at(self) -> float | None:
        """When `poll` has something to do next; None: not before the next event."""
        times = [held.deadline for held in self._unacknowledged.values()]
        times += [self._delayed[0][0]] if self._delayed else []
        return min(times, default=None)

    def take_failed(self) -> list[Evaluation]:
        """Evaluations given up since the last call, for the caller to mark as failed."""
        failed, self._failed = self._failed, []
        return failed

    def take_superseded(self) -> list[Evaluation]:
        """Evaluations that a newer one of their job made needless, for the caller to cancel."""
        superseded, self._superseded = self._superseded, []
        return superseded

    def counts(self) -> BrokerCounts:
        """How many evaluations are where."""
        return BrokerCounts(
            ready=sum(len(queue) for queue in self._ready.values()),
            unacknowledged=len(self._unacknowledged),
            waiting=sum(len(waiting) for waiting in self._waiting.values()),
            delayed=len(self._delayed),
        )

    def ready_by_type(self) -> dict[str, int]:
        """Evaluations that wait for a worker, by scheduler type."""
        return {kind: len(queue) for kind, queue in self._ready.items()}

    def unacknowledged_by_type(self) -> dict[str, int]:
        """Evaluations that workers have, by scheduler type."""
        return Counter(held.evaluation.type for held in self._unacknowledged.values())

    def _delay(self, evaluation: Evaluation, at: float) -> None:
        self._sequence += 1
        heappush(self._delayed, (at, self._sequence, evaluation))

    def _admit(self, evaluation: Evaluation) -> None:
        """Ready when its job is free or its own already; else it waits for its job."""
        job = _job_key(evaluation)
        if self._claims.setdefault(job, evaluation.id) != evaluation.id:
            self._waiting.setdefault(job, []).append(evaluation)
            return
        self._sequence += 1
        rank = (-evaluation.priority, evaluation.create_index, self._sequence, evaluation)
        queue = kept(evaluation.type) if evaluation.id in self._kept else evaluation.type
        heappush(self._ready.setdefault(queue, []), rank)

    def _release(self, evaluation: Evaluation, index: int) -> None:
        """Free the job, and give it to the newest that waits for it."""
        job = _job_key(evaluation)
        del self._claims[job]
        waiting = self._waiting.pop(job, [])
        if not waiting:
            return
        newest = max(waiting, key=lambda waits: waits.create_index)
        for superseded in waiting:
            if superseded is not newest:
                self._forget(superseded.id)
                self._superseded.append(superseded)
        self._floors[job] = index
        self._admit(newest)

    def _forget(self, eval_id: str) -> None:
        self._known.discard(eval_id)
        self._deliveries.pop(eval_id, None)
        self._kept.discard(eval_id)


def kept(kind: str) -> str:
    """What to ask for besides a scheduler's type to get evaluations that the leader keeps for its own workers."""
    return f"{kind} of the leader"


def _job_key(evaluation: Evaluation) -> JobKey:
    return evaluation.namespace, evaluation.job_id
