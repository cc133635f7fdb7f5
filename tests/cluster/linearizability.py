"""Are these calls to one register linearizable? (V3)

A register holds a value; every value is written at most once. `cas` replaces the value that its caller has seen by a
new one, `read` tells the value. Each call took from `began` to `ended` (any clock that all callers share). A call that
was not answered may have been done at any time after it began, or never.

The search is that of Wing and Gong with Lowe's memory of what was tried ("Testing for linearizability", 2017): go
through calls in the order of time; a call that fits the value is done at once, and taken back when its own end is
reached with something before it not done. Values are unique, so few orders fit and it is fast.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

Outcome = Literal["done", "refused", "unknown"]


class Call(NamedTuple):
    """A call of one process. cas: seen -> value. read: value is what was read. refused: the value was not `seen`."""

    process: str
    kind: Literal["read", "cas"]
    began: float
    ended: float
    value: str
    seen: str = ""
    outcome: Outcome = "done"


class _Event:
    """The beginning or the end of a call in a list that can be shortened and restored."""

    __slots__ = ("after", "before", "call", "end", "number")

    def __init__(self, number: int, call: Call, end: "_Event | None") -> None:
        self.number = number
        self.call = call
        self.end = end
        self.before: _Event | None = None
        self.after: _Event | None = None


def violation(calls: Sequence[Call], first: str) -> str:
    """ "" when the calls are linearizable from the value `first`, else a sentence about where no order is left."""
    calls = [call for call in calls if not (call.kind == "read" and call.outcome != "done")]
    head = _events(calls)
    certain = {number for number, call in enumerate(calls) if call.outcome != "unknown"}
    left = len(certain)
    state, done, tried = first, 0, set[tuple[int, str]]()
    path: list[tuple[_Event, str]] = []
    furthest, at = 0, head.after
    while left:
        assert at is not None
        if at.end is not None:
            fits, new = _step(at.call, state)
            mark = (done | 1 << at.number, new)
            if fits and mark not in tried:
                tried.add(mark)
                path.append((at, state))
                done, state = mark
                left -= at.number in certain
                furthest = max(furthest, len(path))
                _lift(at)
                at = head.after
            else:
                at = at.after
            continue
        if not path:
            return _explained(at.call, first, calls, furthest)
        last, state = path.pop()
        done &= ~(1 << last.number)
        left += last.number in certain
        _restore(last)
        at = last.after
    return ""


def _step(call: Call, state: str) -> tuple[bool, str]:
    if call.kind == "read":
        return call.value == state, state
    if call.outcome == "refused":
        return call.seen != state, state
    return call.seen == state, call.value


def _events(calls: Sequence[Call]) -> _Event:
    """Beginnings and ends in the order of time, beginnings first; a call without an answer ends after all others."""
    timed: list[tuple[float, int, _Event]] = []
    for number, call in enumerate(calls):
        end = _Event(number, call, None)
        timed.append((call.began, 0, _Event(number, call, end)))
        timed.append((math.inf if call.outcome == "unknown" else call.ended, 1, end))
    timed.sort(key=lambda one: one[:2])
    head = last = _Event(-1, Call("", "read", 0.0, 0.0, ""), None)
    for _, _, event in timed:
        last.after, event.before = event, last
        last = event
    return head


def _lift(event: _Event) -> None:
    """Take a call out of the list."""
    for one in (event, event.end):
        assert one is not None
        assert one.before is not None
        one.before.after = one.after
        if one.after is not None:
            one.after.before = one.before


def _restore(event: _Event) -> None:
    """The opposite of `_lift`."""
    for one in (event.end, event):
        assert one is not None
        assert one.before is not None
        one.before.after = one
        if one.after is not None:
            one.after.before = one


def _explained(call: Call, first: str, calls: Sequence[Call], furthest: int) -> str:
    what = f"read {call.value!r}" if call.kind == "read" else f"{call.outcome} {call.seen!r} -> {call.value!r}"
    best = f"the best order has {furthest} calls"
    return f"no order of {len(calls)} calls from {first!r} explains {what} of {call.process} ({best})"
