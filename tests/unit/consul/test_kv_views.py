"""Requests about keys and sessions become operations."""

from typing import Any

import pytest

from lepa.consul.kv_views import (
    Owner,
    delete_operation,
    entry_view,
    key_names,
    new_session,
    session_view,
    txn_operations,
    txn_view,
    write_operation,
)
from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError

ENTRY = {"LockIndex": 0, "Key": "a", "Flags": 0, "Value": "", "Session": "", "CreateIndex": 1, "ModifyIndex": 2}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, {"Verb": "set"}),
        ({"flags": "7"}, {"Verb": "set", "Flags": 7}),
        ({"cas": "0"}, {"Verb": "cas", "Index": 0}),
        ({"acquire": "s"}, {"Verb": "lock", "Session": "s"}),
        ({"release": "s"}, {"Verb": "unlock", "Session": "s"}),
    ],
)
def test_a_put_is_one_operation(query: dict[str, str], wanted: dict[str, Any]) -> None:
    operation = write_operation("a", b"x", query)
    assert operation.items() >= ({"Key": "a", "Value": "eA=="} | wanted).items()


@pytest.mark.parametrize("query", [{"cas": "1", "acquire": "s"}, {"cas": "x"}, {"flags": "-1"}])
def test_puts_that_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(LepaError):
        write_operation("a", b"", query)


def test_deletes() -> None:
    assert delete_operation("a", {}) == {"Verb": "delete", "Key": "a"}
    assert delete_operation("", {"recurse": ""}) == {"Verb": "delete-tree", "Key": ""}
    assert delete_operation("a", {"cas": "4"}) == {"Verb": "delete-cas", "Key": "a", "Index": 4}
    with pytest.raises(LepaError):
        delete_operation("", {})
    with pytest.raises(LepaError):
        delete_operation("a", {"recurse": "", "cas": "1"})


def test_names_end_at_the_separator_and_come_once() -> None:
    keys = ["web/a", "web/sub/1", "web/sub/2", "web/z"]
    assert key_names(keys, "web/", "/") == ["web/a", "web/sub/", "web/z"]
    assert key_names(keys, "web/", "") == keys


def test_an_empty_value_is_null_and_no_session_is_left_out() -> None:
    assert entry_view(ENTRY) == {
        "LockIndex": 0, "Key": "a", "Flags": 0, "Value": None, "CreateIndex": 1, "ModifyIndex": 2
    }  # fmt: skip
    assert entry_view(ENTRY | {"Session": "s"})["Session"] == "s"


def test_a_transaction_shows_values_of_what_was_read_only() -> None:
    operations = txn_operations(
        [{"KV": {"Verb": "get", "Key": "a"}}, {"KV": {"Verb": "set", "Key": "b", "Value": None}}]
    )
    entries = [ENTRY | {"Value": "eA=="}, ENTRY | {"Key": "b", "Value": "eQ=="}]
    shown = txn_view({"Entries": entries, "Errors": []}, operations)
    assert [result["KV"]["Value"] for result in shown["Results"]] == ["eA==", None]
    failed = txn_view({"Entries": [], "Errors": [{"OpIndex": 1, "What": "no"}]}, operations)
    assert failed == {"Results": None, "Errors": [{"OpIndex": 1, "What": "no"}]}


@pytest.mark.parametrize("body", [{}, [1], [{"Node": {}}], [{"KV": {"Verb": "explode", "Key": "a"}}]])
def test_transactions_that_are_refused(body: Any) -> None:
    with pytest.raises(LepaError):
        txn_operations(body)


def test_a_session_has_defaults() -> None:
    session = new_session({}, Owner("n1", "1"))
    assert session["LockDelay"] == 15 * SECOND
    assert (session["Behavior"], session["TTL"], session["Checks"]) == ("release", 0, ["serfHealth"])


@pytest.mark.parametrize(
    ("given", "wanted"), [(5, 5 * SECOND), ("5s", 5 * SECOND), (5_000_000_000, 5 * SECOND), (0, 0)]
)
def test_a_lock_delay_is_a_text_or_seconds_or_nanoseconds(given: Any, wanted: int) -> None:
    assert new_session({"LockDelay": given}, Owner("n1", "1"))["LockDelay"] == wanted


def test_a_session_may_name_no_checks() -> None:
    assert new_session({"NodeChecks": []}, Owner("n1", "1"))["Checks"] == []
    assert new_session({"ServiceChecks": [{"ID": "c"}]}, Owner("n1", "1"))["ServiceChecks"] == ["c"]


def test_a_session_with_a_strange_behavior_is_refused() -> None:
    with pytest.raises(LepaError, match="Behavior"):
        new_session({"Behavior": "explode"}, Owner("n1", "1"))


def test_a_session_is_shown_in_consuls_words() -> None:
    stored = new_session({"TTL": "90s", "Name": "x"}, Owner("n1", "1")) | {
        "ID": "s",
        "CreateIndex": 1,
        "ModifyIndex": 1,
    }
    shown = session_view(stored)
    assert (shown["TTL"], shown["NodeChecks"], shown["ServiceChecks"]) == ("1m30s", ["serfHealth"], None)
