"""Pure: when a failed allocation may be tried on another node, and how often."""

from typing import NamedTuple

from lepa.kit.durations import SECOND, parse_rfc3339
from lepa.model.allocation import Allocation, RescheduleEvent, RescheduleTracker
from lepa.model.job import TaskGroup
from lepa.model.policies import ReschedulePolicy

WINDOW_NS = SECOND
"""A move that is due within this time is made now."""
EVENTS_MAX = 5
"""Earlier moves that a group with unlimited tries remembers."""


class Move(NamedTuple):
    """A move that the policy allows: when, in Unix nanoseconds, and the delay that led to it."""

    at_ns: int
    delay: int


def reschedules_at_all(policy: ReschedulePolicy | None) -> bool:
    """Whether a policy allows any move."""
    return policy is not None and (policy.unlimited or policy.attempts > 0)


def next_move(alloc: Allocation, policy: ReschedulePolicy | None) -> Move | None:
    """When a failed allocation may move, or None when its tries are used up."""
    if policy is None or not reschedules_at_all(policy):
        return None
    failed_at = failure_time(alloc)
    events = alloc.reschedule_tracker.events if alloc.reschedule_tracker else ()
    if not policy.unlimited:
        recent = [event for event in events if event.reschedule_time > failed_at - policy.interval]
        if len(recent) >= policy.attempts:
            return None
    delay = next_delay(policy, events, failed_at)
    return Move(failed_at + delay, delay)


def failure_time(alloc: Allocation) -> int:
    """Unix nanoseconds at which its last task finished."""
    finished = [parse_rfc3339(state.finished_at) for state in alloc.task_states.values()]
    return max(finished, default=0) or alloc.modify_time


def next_delay(policy: ReschedulePolicy, events: tuple[RescheduleEvent, ...], failed_at: int) -> int:
    """Nanoseconds to wait; grows from move to move, and starts over after a calm time as long as the longest delay."""
    if not events or policy.delay_function == "constant":
        return policy.delay
    last = events[-1]
    before_last = events[-2].delay if len(events) > 1 else 0
    delay = last.delay * 2 if policy.delay_function == "exponential" else last.delay + before_last
    delay = max(delay, policy.delay)
    if policy.max_delay and delay >= policy.max_delay:
        calm = failed_at - last.reschedule_time > policy.max_delay
        return policy.delay if calm else policy.max_delay
    return delay


def moved_tracker(previous: Allocation, group: TaskGroup, now_ns: int) -> RescheduleTracker:
    """The tracker of the replacement of a failed allocation: what is remembered of earlier moves, and this one."""
    policy = group.reschedule_policy
    events = previous.reschedule_tracker.events if previous.reschedule_tracker else ()
    delay = 0
    if policy is not None:
        delay = next_delay(policy, events, failure_time(previous))
        if policy.unlimited:
            events = events[-(EVENTS_MAX - 1) :]
        else:
            events = tuple(event for event in events if event.reschedule_time > now_ns - policy.interval)
    event = RescheduleEvent(
        reschedule_time=now_ns, prev_alloc_id=previous.id, prev_node_id=previous.node_id, delay=delay
    )
    return RescheduleTracker(events=(*events, event), last_reschedule="ok")


def failed_nodes(previous: Allocation) -> set[str]:
    """Nodes on which earlier tries failed."""
    events = previous.reschedule_tracker.events if previous.reschedule_tracker else ()
    return {previous.node_id, *(event.prev_node_id for event in events)}
