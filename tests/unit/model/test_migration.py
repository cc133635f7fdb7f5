"""Tokens that open the data of an allocation to another node."""

from lepa.model.migration import migrate_token, opens


def test_a_token_opens_one_allocation_of_one_node() -> None:
    token = migrate_token("secret", "a1")
    assert opens(token, "secret", "a1")
    assert not opens(token, "secret", "a2")
    assert not opens(token, "other", "a1")
    assert not opens("", "secret", "a1")


def test_a_node_without_a_secret_opens_nothing() -> None:
    assert not opens(migrate_token("x", "a1"), "", "a1")
