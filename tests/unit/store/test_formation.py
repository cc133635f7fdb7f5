"""How servers that know only addresses become one cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lepa.model.errors import LepaError
from lepa.store.formation import (
    AGREED_S,
    Agreement,
    Hello,
    Join,
    Membership,
    Peer,
    Propose,
    Wait,
    check_cluster,
    clock_doubt,
    next_step,
)


def peer(name: str) -> Peer:
    return Peer(name, f"{name}:4647", f"http://{name}:4650", f"http://{name}:4649")


def hello(name: str, expect: int = 3, cluster: str = "", **changes: object) -> Hello:
    return replace(Hello(peer(name), "global", expect, cluster), **changes)


def why(step: object) -> str:
    assert isinstance(step, Wait), step
    return step.why


def test_too_few_servers_wait_and_say_for_whom() -> None:
    step = next_step(hello("b"), [hello("a")], {"c:4647": "connection refused"})
    assert why(step) == "2 of 3 servers are here (a, b); c:4647 does not answer: connection refused"


def test_the_first_by_name_proposes_and_the_others_wait() -> None:
    a, b, c = hello("a"), hello("b"), hello("c")
    assert next_step(a, [c, b, a], {}) == Propose((peer("a"), peer("b"), peer("c")))
    assert why(next_step(b, [a, c], {})) == '"a" forms the cluster'


def test_more_servers_than_expected_are_left_to_join_later() -> None:
    everybody = [hello(name) for name in "abcd"]
    assert next_step(everybody[0], everybody, {}) == Propose((peer("a"), peer("b"), peer("c")))


def test_where_there_is_a_cluster_a_fresh_server_joins_it() -> None:
    member = hello("b", cluster="x")
    assert next_step(hello("a"), [hello("c"), member], {}) == Join(member)
    assert next_step(hello("a", expect=0), [member], {}) == Join(member)


def test_a_server_that_expects_none_waits_for_a_cluster() -> None:
    assert "set bootstrap_expect" in why(next_step(hello("a", expect=0), [hello("b")], {}))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (hello("b", region="eu"), '"b" at b:4647 is of the region "eu", this server of "global"'),
        (hello("b", protocol=9), "forms clusters differently"),
        (hello("b", expect=5), '"b" expects 5 servers, and this one 3'),
        (replace(hello("a"), me=replace(peer("a"), rpc_address="z:4647")), 'at z:4647 is called "a" as well'),
    ],
)
def test_servers_that_do_not_fit_are_told_so(other: Hello, said: str) -> None:
    assert said in why(next_step(hello("a"), [other, hello("c")], {}))


def test_two_clusters_are_not_chosen_from() -> None:
    step = next_step(hello("a"), [hello("b", cluster="x"), hello("c", cluster="y")], {})
    assert '"b" and "c" belong to different clusters' in why(step)


def test_a_server_agrees_to_one_proposal_at_a_time() -> None:
    me, agreement = hello("a"), Agreement()
    first = Membership("x", "b", (peer("a"), peer("b"), peer("c")))
    second = replace(first, cluster="y")
    agreement.agree(me, first, now=0.0)
    agreement.agree(me, first, now=1.0)
    with pytest.raises(LepaError, match="just agreed to another"):
        agreement.agree(me, second, now=2.0)
    with pytest.raises(LepaError, match="has not agreed"):
        agreement.begin(me, second)
    agreement.begin(me, first)
    agreement.agree(me, second, now=2.0 + AGREED_S)
    with pytest.raises(LepaError, match="has not agreed"):
        agreement.begin(me, first)


def test_a_server_agrees_only_to_what_it_expects() -> None:
    agreement = Agreement()
    with pytest.raises(LepaError, match="expects to be one of 3"):
        agreement.agree(hello("a"), Membership("x", "b", (peer("a"), peer("b"))), now=0.0)
    with pytest.raises(LepaError, match="expects to be one of 3"):
        agreement.agree(hello("a"), Membership("x", "b", (peer("b"), peer("c"), peer("d"))), now=0.0)
    with pytest.raises(LepaError, match="belongs to a cluster already"):
        agreement.agree(hello("a", cluster="z"), Membership("x", "b", (peer("a"), peer("b"), peer("c"))), now=0.0)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), max_size=30))
def test_two_proposals_that_need_everybody_are_never_both_begun(asked: list[tuple[str, str]]) -> None:
    """Whatever the order in which servers are asked, within the time that an agreement holds."""
    agreements = {name: Agreement() for name in "abcde"}
    proposals = {
        "x": Membership("x", "", tuple(map(peer, "abc"))),
        "y": Membership("y", "", tuple(map(peer, "cde"))),
        "z": Membership("z", "", tuple(map(peer, "abc"))),
    }
    agreed: dict[str, set[str]] = {cluster: set() for cluster in proposals}
    for name, cluster in asked:
        try:
            agreements[name].agree(hello(name), proposals[cluster], now=0.0)
        except LepaError:
            continue
        agreed[cluster].add(name)
    begun = [c for c, proposal in proposals.items() if agreed[c] >= {one.name for one in proposal.peers}]
    assert len(begun) <= 1


def test_a_server_with_the_data_of_another_cluster_says_so() -> None:
    mine = Membership("x", "a", (peer("a"),))
    check_cluster(mine, hello("b", cluster="x"))
    check_cluster(mine, hello("b"))
    with pytest.raises(LepaError, match=r"belongs to the cluster x, and \"b\" at b:4647 to y"):
        check_cluster(mine, hello("b", cluster="y"))


def test_a_clock_ten_minutes_off_is_told() -> None:
    now = 1_000_000_000_000_000_000
    assert clock_doubt(hello("b", now_ns=now + 5 * 10**9), now) == ""
    assert 'the clock of "b" is 600 s ahead of ours' in clock_doubt(hello("b", now_ns=now + 600 * 10**9), now)
    assert "600 s behind ours" in clock_doubt(hello("b", now_ns=now - 600 * 10**9), now)
