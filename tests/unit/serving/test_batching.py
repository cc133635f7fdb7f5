"""lepa.serving.batching"""

import pytest

from lepa.serving.batch_sizes import BATCH_SIZE_MAX, AimdSize, FixedSize
from lepa.serving.batching import LINGER_PAUSE_SHARE, LINGER_SHARE, Batcher, SendBatch, Task


def batcher(size: int = 10, replicas: int = 1, queue_max: int = 100) -> Batcher:
    made = Batcher(lambda: FixedSize(size), queue_max)
    for replica in range(replicas):
        made.add_replica(replica)
    return made


def tasks(*deadlines: float) -> list[Task]:
    return [Task(b"", deadline, []) for deadline in deadlines]


def submit(made: Batcher, *deadlines: float) -> list[Task]:
    submitted = tasks(*deadlines)
    assert all(made.submit(task) for task in submitted)
    return submitted


def run_batches(made: Batcher, count: int, latency_s: float, width: int = 1) -> float:
    """Let some batches go to and fro; returns the time after them."""
    now = 0.0
    for _ in range(count):
        submit(made, *[now + 10.0] * width)
        while not made.poll(now)[0]:
            now += latency_s / 100
        now += latency_s
        made.completed(0, now)
        made.answered(now)
    return now


def test_an_idle_replica_takes_what_waits_at_once_in_order_of_deadlines() -> None:
    made = batcher()
    late, soon = submit(made, 2.0, 1.0)
    assert made.poll(0.0) == ([SendBatch(0, [soon, late], "idle")], [])


def test_a_batch_has_at_most_the_learned_size_and_the_rest_goes_to_the_next_replica() -> None:
    made = batcher(size=2, replicas=2)
    submit(made, *[1.0] * 5)
    orders, _ = made.poll(0.0)
    assert [(order.replica, len(order.tasks), order.reason) for order in orders] == [(0, 2, "full"), (1, 2, "full")]
    assert made.queued == 1


def test_a_replica_gets_no_second_batch_before_the_first_is_back() -> None:
    made = batcher()
    first = submit(made, 1.0)
    made.poll(0.0)
    submit(made, 1.0)
    assert made.poll(0.1) == ([], [])
    assert made.completed(0, 0.2) == first


def test_expired_tasks_are_dropped_when_a_batch_is_formed() -> None:
    made = batcher()
    expired, alive = submit(made, 1.0, 3.0)
    orders, dropped = made.poll(2.0)
    assert dropped == [expired]
    assert orders[0].tasks == [alive]


def test_a_task_that_cannot_be_back_in_time_is_passed_over_for_one_that_can() -> None:
    made = batcher(size=1)
    now = run_batches(made, 3, latency_s=0.1)
    hopeless, hopeful = submit(made, now + 0.05, now + 1.0)
    assert made.poll(now)[0][0].tasks == [hopeful]
    made.completed(0, now + 0.01)
    assert hopeless.attempts == 0


def test_a_hopeless_task_goes_when_nothing_better_waits_so_that_a_model_that_got_faster_is_noticed() -> None:
    made = batcher()
    now = run_batches(made, 3, latency_s=0.1)
    (hopeless,) = submit(made, now + 0.05)
    assert made.poll(now + 0.02)[0][0].tasks == [hopeless]


def test_a_full_queue_refuses_but_takes_back_what_waited_before() -> None:
    made = batcher(queue_max=1, replicas=0)
    (first,) = submit(made, 1.0)
    assert not made.submit(tasks(1.0)[0])
    assert made.submit(first, force=True)


def test_the_tasks_of_a_lost_replica_are_handed_back() -> None:
    made = batcher()
    submitted = submit(made, 1.0, 1.0)
    made.poll(0.0)
    assert made.remove_replica(0) == submitted
    assert made.replica_count == 0


def test_a_replica_that_is_back_waits_for_the_callers_it_released_while_they_keep_coming() -> None:
    made = batcher()
    now = run_batches(made, 4, latency_s=0.1, width=4)
    submit(made, now + 10.0)
    assert made.poll(now)[0] == []
    assert made.wake_at() == pytest.approx(now + 0.1 * LINGER_PAUSE_SHARE, abs=0.002)
    submit(made, now + 10.0)
    assert made.poll(now + 0.009)[0] == []
    assert made.wake_at() == pytest.approx(now + 0.009 + 0.1 * LINGER_PAUSE_SHARE, abs=0.002)
    submit(made, *[now + 10.0] * 2)
    assert made.poll(now + 0.015)[0][0].reason == "full"


def test_the_wait_is_never_longer_than_half_of_a_batch() -> None:
    made = batcher(size=100)
    now = run_batches(made, 4, latency_s=0.1, width=40)
    waited, reasons = 0.0, []
    while not reasons:
        submit(made, now + 10.0)
        waited += 0.005
        reasons = [order.reason for order in made.poll(now + waited)[0]]
    assert reasons == ["waited"]
    assert waited == pytest.approx(0.1 * LINGER_SHARE, abs=0.01)


def test_the_wait_does_not_begin_before_the_callers_have_their_answers() -> None:
    made = batcher()
    now = run_batches(made, 4, latency_s=0.1, width=4)
    submit(made, *[now + 10.0] * 4)
    made.poll(now)
    made.completed(0, now + 0.1)
    submit(made, now + 10.0)
    assert made.poll(now + 0.15)[0] == []
    made.answered(now + 0.15)
    assert made.poll(now + 0.159)[0] == []
    assert made.poll(now + 0.17)[0][0].reason == "waited"


def test_the_wait_is_given_up_when_the_callers_do_not_come_back() -> None:
    made = batcher(size=100)
    now = run_batches(made, 4, latency_s=0.1, width=4)
    reasons = []
    for _ in range(12):
        submit(made, *[now + 10.0] * 2)
        orders, _ = made.poll(now)
        while not orders:
            now += 0.001
            orders, _ = made.poll(now)
        reasons.append(orders[0].reason)
        submit(made, now + 10.0)
        now += 0.1
        made.completed(0, now)
        made.answered(now)
    assert reasons[0] == "waited"
    assert reasons[-1] == "idle"


def test_a_near_deadline_ends_the_wait() -> None:
    made = batcher()
    now = run_batches(made, 4, latency_s=0.1, width=4)
    submit(made, now + 0.15)
    assert made.poll(now)[0][0].reason == "deadline"


def test_size_grows_by_a_step_while_there_is_time_and_shrinks_by_a_tenth_when_there_is_none() -> None:
    size = AimdSize()
    for _ in range(10):
        size.observe(size.size, 0.01, 1.0)
    assert size.size == 21
    size.observe(21, 0.95, 1.0)
    assert size.size == 21
    size.observe(21, 1.1, 1.0)
    assert size.size == 18


def test_size_does_not_grow_from_batches_that_were_not_full() -> None:
    size = AimdSize()
    size.observe(1, 0.01, 1.0)
    size.observe(1, 0.01, 1.0)
    assert size.size == 3


def test_sizes_are_bounded() -> None:
    size = AimdSize()
    for _ in range(BATCH_SIZE_MAX):
        size.observe(size.size, 0.0, 1.0)
    assert size.size == BATCH_SIZE_MAX
    for _ in range(200):
        size.observe(size.size, 2.0, 1.0)
    assert size.size == 1
    assert FixedSize(10**6).size == BATCH_SIZE_MAX


def test_another_policy_starts_over() -> None:
    made = batcher(size=5)
    made.set_sizes(lambda: FixedSize(7))
    assert made.batch_size(0) == 7


def test_a_delayed_batch_waits_until_it_is_full_or_long_enough() -> None:
    made = batcher(size=3)
    made.wait_s = 0.002
    submit(made, 10.0)
    assert made.poll(0.0) == ([], [])
    assert made.wake_at() == 0.002
    submit(made, 10.0)
    assert made.poll(0.001) == ([], [])
    ((_, sent, reason),), _ = made.poll(0.002)
    assert (len(sent), reason) == (2, "waited")
    made.completed(0, 0.003)
    submit(made, *[10.0] * 3)
    assert made.poll(0.003)[0][0].reason == "full"
    made.completed(0, 0.004)
    made.answered(0.004)
    assert made.wake_at() is None
    submit(made, 0.0041)
    assert made.poll(0.004)[0][0].reason == "deadline"
