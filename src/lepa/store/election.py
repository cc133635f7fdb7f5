"""Pure: who may lead: campaign, keep, lose.

A server leads while a key of its own making stands in the store. The key hangs on a lease: when its server no longer
keeps the lease, the store deletes the key, the others see it and campaign, and the store lets one of them create it.

                     no leader seen            won
      following ----------------------> campaigning -----> leading
          ^                                 |                 |
          |   lost, failed                  |                 |  key of another, lease lapsed,
          +---------------------------------+-----------------+  not kept in time, resigned

The fence of a leader is the revision at which its key was created. Each commit of a leader carries it, so the store
refuses a write that comes too late, whatever the clocks say; giving up in time is only good manners.

Times are monotonic seconds. Feed it events, each with `now`; carry out what `poll` orders; come back at `wake_at`.
"""

from dataclasses import dataclass
from sys import maxsize
from typing import Final, NamedTuple

from lepa.store.protocol import Committed, Compare, Fence, Put, Txn

KEEPS_PER_TTL: Final = 3
"""How often the lease is kept within its time to live: two may fail."""


class Campaign(NamedTuple):
    """Take a lease of `ttl_s` and commit `campaign_txn` with it; report campaign_ended or campaign_failed.

    instead_of: the leader key that is taken away in between, by the revision of its creation; 0: none.
    """

    ttl_s: float
    instead_of: int = 0


class KeepLease(NamedTuple):
    """Extend the lease; report lease_kept, lease_lapsed, or nothing when the store did not answer."""


class Lead(NamedTuple):
    """Begin to lead; every commit carries the fence."""

    fence: Fence


class StepDown(NamedTuple):
    """Stop leading now and revoke the lease if it still can be."""

    reason: str


Order = Campaign | KeepLease | Lead | StepDown


@dataclass
class _Following:
    campaign_at: float | None = None  # None: somebody leads


@dataclass
class _Campaigning:
    asked_at: float


@dataclass
class _Leading:
    fence: Fence
    keep_at: float
    lapses_at: float


class Election:
    """One server's part in the election. key: where the leader is named. me: what this server writes there."""

    def __init__(self, key: str, me: bytes, ttl_s: float, now: float) -> None:
        self._key = key
        self._me = me
        self._ttl_s = ttl_s
        self._state: _Following | _Campaigning | _Leading = _Following(campaign_at=now)
        self._standing = 0
        self._orders: list[Order] = []

    @property
    def fence(self) -> Fence | None:
        """Proof of leadership while this server leads."""
        return self._state.fence if isinstance(self._state, _Leading) else None

    def leads(self, now: float) -> bool:
        """Whether this server leads and the lease has certainly not lapsed."""
        return isinstance(self._state, _Leading) and now < self._state.lapses_at

    def campaign_txn(self, lease: int) -> Txn:
        """Create the leader key, unless it is there."""
        return Txn((Put(self._key, self._me, lease),), (Compare(self._key, created=0),))

    def leader_seen(self, created: int, now: float, revision: int = maxsize) -> None:
        """The leader key stands, created at that revision; 0: it does not. revision: of the state that was seen.

        What is seen may be older than this server's own key: the end of the one before, in whose place it leads.
        """
        if isinstance(self._state, _Leading) and revision < self._state.fence.created:
            return
        self._standing = created
        if isinstance(self._state, _Leading):
            if created > self._state.fence.created or created == 0:
                self._step_down("another server leads" if created else "the leader key is gone", now, bool(created))
        elif isinstance(self._state, _Following):
            self._state = _Following(campaign_at=None if created else now)

    def take_over(self, now: float) -> bool:
        """Campaign for the place of the server that leads now; False while this server has something else to do.

        The others begin to campaign when they hear that the key is gone; then this one has its lease, and is faster.
        """
        if not isinstance(self._state, _Following) or not self._standing:
            return False
        self._state = _Campaigning(asked_at=now)
        self._orders.append(Campaign(self._ttl_s, self._standing))
        return True

    def campaign_ended(self, committed: Committed, now: float) -> None:
        """The campaign was answered: won when the commit went through."""
        if not isinstance(self._state, _Campaigning):
            return
        if not committed.ok:  # to whom, the watch may not have told yet, or it has told that he is gone again
            again_at = None if self._standing else now + self._ttl_s / KEEPS_PER_TTL
            self._state = _Following(again_at)
            return
        asked_at = self._state.asked_at
        self._state = _Leading(
            Fence(self._key, committed.revision),
            keep_at=asked_at + self._ttl_s / KEEPS_PER_TTL,
            lapses_at=asked_at + self._ttl_s,
        )
        self._orders.append(Lead(self._state.fence))

    def campaign_failed(self, now: float) -> None:
        """The campaign was not answered; if it went through all the same, its lease will lapse."""
        if isinstance(self._state, _Campaigning):
            self._state = _Following(campaign_at=now + self._ttl_s / KEEPS_PER_TTL)

    def lease_kept(self, asked_at: float) -> None:
        """The store extended the lease; it was asked to at `asked_at`."""
        if isinstance(self._state, _Leading):
            self._state.lapses_at = max(self._state.lapses_at, asked_at + self._ttl_s)

    def lease_lapsed(self, now: float) -> None:
        """The store no longer knows the lease."""
        self._step_down("the lease has lapsed", now, led_by_another=False)

    def fenced(self, now: float) -> None:
        """The store refused a write: another server leads, or has led meanwhile."""
        if isinstance(self._state, _Leading):
            led = self._standing > self._state.fence.created
            self._step_down("a write was refused because another server leads", now, led_by_another=led)

    def resign(self, now: float) -> None:
        """Lead no longer, and let others try first."""
        self._step_down("resigned", now, led_by_another=True)

    def poll(self, now: float) -> list[Order]:
        """What to do now."""
        state = self._state
        if isinstance(state, _Following) and state.campaign_at is not None and now >= state.campaign_at:
            self._state = _Campaigning(asked_at=now)
            self._orders.append(Campaign(self._ttl_s))
        elif isinstance(state, _Leading) and now >= state.lapses_at:
            self._step_down("the lease could not be kept in time", now, led_by_another=False)
        elif isinstance(state, _Leading) and now >= state.keep_at:
            state.keep_at = now + self._ttl_s / KEEPS_PER_TTL
            self._orders.append(KeepLease())
        orders, self._orders = self._orders, []
        return orders

    def wake_at(self) -> float | None:
        """When `poll` has something to do if nothing happens before."""
        if isinstance(self._state, _Leading):
            return min(self._state.keep_at, self._state.lapses_at)
        return self._state.campaign_at if isinstance(self._state, _Following) else None

    def _step_down(self, reason: str, now: float, led_by_another: bool) -> None:
        if isinstance(self._state, _Leading):
            self._state = _Following(campaign_at=None if led_by_another else now + self._ttl_s / KEEPS_PER_TTL)
            self._orders.append(StepDown(reason))
