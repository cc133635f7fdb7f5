"""One server's part in the election, event by event."""

from lepa.store.election import Campaign, Election, KeepLease, Lead, StepDown
from lepa.store.protocol import Committed, Compare, Fence, Put

KEY = "leader"


def elected(now: float = 0.0, revision: int = 7) -> Election:
    election = Election(KEY, b"me", ttl_s=9.0, now=now)
    assert election.poll(now) == [Campaign(9.0)]
    election.campaign_ended(Committed(True, revision), now)
    assert election.poll(now) == [Lead(Fence(KEY, revision))]
    return election


def test_a_server_campaigns_at_once_when_nobody_leads() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=1.0)
    assert election.wake_at() == 1.0
    assert election.poll(1.0) == [Campaign(9.0)]
    assert election.poll(1.0) == []


def test_a_server_follows_the_leader_it_sees() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    election.leader_seen(created=3, now=0.0)
    assert election.poll(100.0) == []
    assert election.wake_at() is None


def test_the_end_of_a_leader_starts_a_campaign() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    election.leader_seen(created=3, now=0.0)
    election.leader_seen(created=0, now=5.0)
    assert election.poll(5.0) == [Campaign(9.0)]


def test_a_campaign_only_creates_the_key() -> None:
    txn = Election(KEY, b"me", ttl_s=9.0, now=0.0).campaign_txn(lease=4)
    assert txn.operations == (Put(KEY, b"me", 4),)
    assert txn.compares == (Compare(KEY, created=0),)


def test_the_winner_leads_with_the_revision_of_its_key_as_fence() -> None:
    assert elected(revision=7).fence == Fence(KEY, 7)


def test_a_leader_that_stood_still_for_longer_than_its_lease_does_not_lead_before_it_has_looked() -> None:
    election = elected(now=0.0)
    assert (election.leads(8.9), election.leads(9.0)) == (True, False)
    election.lease_kept(asked_at=3.0)
    assert (election.leads(9.0), election.leads(12.0)) == (True, False)
    assert not Election(KEY, b"me", ttl_s=9.0, now=0.0).leads(0.0)


def test_a_follower_that_is_asked_to_takes_the_place_of_the_leader() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    assert not election.take_over(0.0), "nobody leads yet"
    election.leader_seen(created=3, now=0.0)
    assert election.take_over(1.0)
    assert not election.take_over(1.0), "it is under way"
    election.leader_seen(created=0, now=1.0)
    assert election.poll(1.0) == [Campaign(9.0, instead_of=3)]
    election.campaign_ended(Committed(True, 8), 1.0)
    assert election.poll(1.0) == [Lead(Fence(KEY, 8))]
    assert not election.take_over(2.0), "it leads"
    election.leader_seen(created=0, now=2.0, revision=7)
    assert election.poll(2.0) == [], "that is the end of the one before"
    election.leader_seen(created=0, now=2.0, revision=9)
    assert election.poll(2.0) == [StepDown("the leader key is gone")]


def test_the_loser_follows() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    election.poll(0.0)
    election.leader_seen(created=7, now=0.05)
    election.campaign_ended(Committed(False, 7), 0.1)
    assert election.poll(50.0) == []
    assert election.fence is None


def test_a_loser_who_has_not_seen_the_winner_tries_again_until_it_does() -> None:
    """The key may have been created and deleted again before the campaign was answered: nobody would tell."""
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    election.poll(0.0)
    election.leader_seen(created=7, now=0.1)
    election.leader_seen(created=0, now=0.2)
    election.campaign_ended(Committed(False, 8), 1.0)
    assert election.poll(3.9) == []
    assert election.poll(4.0) == [Campaign(9.0)]
    election.campaign_ended(Committed(False, 9), 4.1)
    election.leader_seen(created=9, now=4.2)
    assert election.poll(50.0) == []


def test_a_leader_whose_write_was_refused_steps_down() -> None:
    election = elected(revision=7)
    election.fenced(4.0)
    assert election.poll(4.0) == [StepDown("a write was refused because another server leads")]
    assert election.poll(6.9) == []
    assert election.poll(7.0) == [Campaign(9.0)]
    election.fenced(7.0)
    assert election.poll(7.0) == []


def test_a_failed_campaign_is_tried_again_later() -> None:
    election = Election(KEY, b"me", ttl_s=9.0, now=0.0)
    election.poll(0.0)
    election.campaign_failed(1.0)
    assert election.poll(3.9) == []
    assert election.poll(4.0) == [Campaign(9.0)]


def test_a_leader_keeps_its_lease_three_times_in_its_time_to_live() -> None:
    election = elected()
    assert election.wake_at() == 3.0
    assert election.poll(3.0) == [KeepLease()]
    election.lease_kept(asked_at=3.0)
    assert election.poll(5.9) == []
    assert election.poll(6.0) == [KeepLease()]


def test_a_leader_that_cannot_keep_its_lease_steps_down_in_time() -> None:
    election = elected()
    assert election.poll(3.0) == [KeepLease()]
    assert election.poll(6.0) == [KeepLease()]
    assert election.poll(9.0) == [StepDown("the lease could not be kept in time")]
    assert election.fence is None


def test_time_counts_from_when_the_store_was_asked_not_from_its_answer() -> None:
    election = elected()
    election.poll(3.0)
    election.lease_kept(asked_at=3.0)
    assert [order for at in (6.0, 9.0) for order in election.poll(at)] == [KeepLease(), KeepLease()]
    assert election.poll(12.0) == [StepDown("the lease could not be kept in time")]


def test_a_leader_steps_down_when_its_lease_has_lapsed() -> None:
    election = elected()
    election.lease_lapsed(4.0)
    assert election.poll(4.0) == [StepDown("the lease has lapsed")]
    assert election.poll(7.0) == [Campaign(9.0)]


def test_a_leader_steps_down_when_it_sees_another() -> None:
    election = elected(revision=7)
    election.leader_seen(created=12, now=4.0)
    assert election.poll(4.0) == [StepDown("another server leads")]
    assert election.poll(100.0) == []


def test_a_leader_is_not_disturbed_by_its_own_key_or_an_older_one() -> None:
    election = elected(revision=7)
    election.leader_seen(created=7, now=1.0)
    election.leader_seen(created=3, now=1.0)
    assert election.fence == Fence(KEY, 7)


def test_a_leader_steps_down_when_its_key_is_gone() -> None:
    election = elected()
    election.leader_seen(created=0, now=4.0)
    assert election.poll(4.0) == [StepDown("the leader key is gone")]


def test_who_resigns_lets_others_try_first() -> None:
    election = elected()
    election.resign(2.0)
    assert election.poll(2.0) == [StepDown("resigned")]
    assert election.wake_at() is None
    election.leader_seen(created=0, now=3.0)
    assert election.poll(3.0) == [Campaign(9.0)]


def test_answers_that_come_too_late_change_nothing() -> None:
    election = elected()
    election.resign(2.0)
    election.poll(2.0)
    election.lease_kept(asked_at=2.0)
    election.campaign_ended(Committed(True, 9), 2.5)
    election.campaign_failed(2.5)
    election.lease_lapsed(2.5)
    assert election.poll(2.5) == []
    assert election.fence is None
