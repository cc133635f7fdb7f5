"""Histories of a register: those that some order explains, and those that none does."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.linearizability import Call, violation


def read(value: str, began: float, ended: float, process: str = "p") -> Call:
    return Call(process, "read", began, ended, value)


def cas(seen: str, value: str, began: float, ended: float, outcome: str = "done") -> Call:
    return Call("w", "cas", began, ended, value, seen, outcome)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [read("0", 0, 1), cas("0", "1", 2, 3), read("1", 4, 5)],
        [cas("0", "1", 0, 10), read("0", 1, 2), read("1", 3, 4)],
        [cas("0", "1", 0, 10), cas("0", "2", 0, 10, "refused"), read("1", 11, 12)],
        [cas("0", "1", 0, 1, "unknown"), read("0", 2, 3), read("1", 40, 50)],
        [cas("0", "1", 0, 1, "unknown"), read("0", 2, 3)],
        [cas("0", "1", 0, 1, "unknown"), cas("0", "2", 2, 3, "refused"), read("1", 4, 5)],
        [cas("0", "1", 0, 5), cas("1", "2", 1, 6), read("2", 7, 8), read("1", 2, 9)],
    ],
)
def test_what_some_order_explains_is_no_violation(calls: list[Call]) -> None:
    assert violation(calls, "0") == ""


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([cas("0", "1", 0, 1), read("0", 2, 3)], id="a read of what was replaced"),
        pytest.param([cas("0", "1", 0, 9), read("1", 1, 2), read("0", 3, 4)], id="a read that goes back"),
        pytest.param([cas("0", "1", 0, 1), cas("0", "2", 0, 1)], id="an index honoured twice"),
        pytest.param([read("7", 0, 1)], id="a value that nobody wrote"),
        pytest.param([cas("0", "1", 0, 1), cas("1", "2", 2, 3, "refused")], id="a refusal without a reason"),
        pytest.param([cas("0", "1", 0, 1), cas("1", "2", 2, 3), read("1", 4, 5)], id="a lost write"),
        pytest.param([cas("0", "1", 5, 6, "unknown"), read("1", 0, 1)], id="a read of what is not yet written"),
    ],
)
def test_what_no_order_explains_is_a_violation(calls: list[Call]) -> None:
    assert "no order of" in violation(calls, "0")


class Register:
    """A true register: calls take effect at one moment between their beginning and their end."""

    def __init__(self, seed: int, *, stale: bool = False) -> None:
        """stale: the planted bug: some reads are answered by a follower that is behind."""
        self.random = random.Random(seed)
        self.values = ["0"]
        self.stale = stale

    def history(self, count: int, processes: int) -> list[Call]:
        calls: list[Call] = []
        free = [0.0] * processes
        moment = 0.0
        for number in range(count):
            process = min(range(processes), key=lambda p: free[p])
            moment = max(moment, free[process]) + self.random.uniform(0.1, 1.0)
            began = max(free[process], moment - self.random.uniform(0, 3))
            ended = moment + self.random.uniform(0, 3)
            calls.append(self.call(f"p{process}", f"v{number}", began, ended))
            free[process] = ended
        return calls

    def call(self, process: str, value: str, began: float, ended: float) -> Call:
        now = self.values[-1]
        if self.random.random() < 0.5:
            old = self.stale and len(self.values) > 8 and self.random.random() < 0.2
            return Call(process, "read", began, ended, self.values[-8] if old else now)
        seen = now if self.random.random() < 0.7 else self.random.choice(self.values)
        outcome = "unknown" if self.random.random() < 0.05 else "done" if seen == now else "refused"
        if outcome == "done" or (outcome == "unknown" and seen == now and self.random.random() < 0.5):
            self.values.append(value)
        return Call(process, "cas", began, ended, value, seen, outcome)  # type: ignore[arg-type]


@given(st.integers(0, 10_000))
def test_what_a_register_does_is_linearizable(seed: int) -> None:
    assert violation(Register(seed).history(60, 5), "0") == ""


def test_a_read_from_a_follower_is_caught() -> None:
    caught = [bool(violation(Register(seed, stale=True).history(200, 5), "0")) for seed in range(20)]
    assert all(caught)


def test_a_thousand_calls_are_judged_quickly() -> None:
    began = time.monotonic()
    assert violation(Register(1).history(2_000, 8), "0") == ""
    assert time.monotonic() - began < 20.0
