"""What always holds of the node's decisions."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_group, make_service, make_task

from lepa.client import alloc_sync, task_env
from lepa.client.alloc_health import AllocHealth
from lepa.client.files import starting_point
from lepa.client.hooks.env_file import parse_env_file
from lepa.client.hooks.template_text import with_delimiters
from lepa.client.restart_tracker import RestartTracker
from lepa.client.service_sync import difference
from lepa.client.task_lifecycle import decide, finished, hook_of
from lepa.drivers.protocol import ExitResult
from lepa.kit import go_template
from lepa.model.allocation import TaskState
from lepa.model.job import TaskGroup
from lepa.model.policies import RestartPolicy, TaskLifecycle, UpdateStrategy

SECOND = 1_000_000_000
HOOKS = st.sampled_from(["prestart", "poststart", "poststop", ""])
PENDING, RUNNING = TaskState(), TaskState(state="running")


@st.composite
def groups(draw: st.DrawFn) -> TaskGroup:
    """Groups of up to six tasks with at least one main task, at most one of which leads."""
    tasks = [make_task("main-0", leader=draw(st.booleans()))]
    for number, (hook, sidecar) in enumerate(draw(st.lists(st.tuples(HOOKS, st.booleans()), max_size=5)), 1):
        lifecycle = TaskLifecycle(hook=hook, sidecar=sidecar) if hook else None
        tasks.append(make_task(f"t-{number}", lifecycle=lifecycle))
    return make_group(tasks=tuple(draw(st.permutations(tasks))))


@given(groups(), st.data())
@settings(max_examples=300, deadline=None)
def test_every_schedule_of_exits_comes_to_an_end(group: TaskGroup, data: st.DataObject) -> None:
    """Whatever ends when and how, and whenever it is stopped: orders are obeyed until everything is dead."""
    states = {task.name: PENDING for task in group.tasks}
    stop_at = data.draw(st.one_of(st.none(), st.integers(0, 10)))
    for step in range(200):
        if finished(group, states):
            break
        orders = decide(group, states, stopping=stop_at is not None and step >= stop_at)
        _check(group, states, orders.start, orders.kill)
        for name in orders.start:
            states[name] = RUNNING
        for name in orders.kill:
            states[name] = TaskState(state="dead")
        running = sorted(name for name, state in states.items() if state.state == "running")
        if running and (not orders.kill or data.draw(st.booleans())):
            name = data.draw(st.sampled_from(running))
            states[name] = TaskState(state="dead", failed=data.draw(st.booleans()))
    assert finished(group, states)


def _check(group: TaskGroup, states: dict[str, TaskState], start: frozenset[str], kill: frozenset[str]) -> None:
    hooks = {task.name: hook_of(task) for task in group.tasks}
    assert all(states[name].state == "pending" for name in start)
    assert all(states[name].state != "dead" for name in kill)
    assert not start & kill
    main_alive = any(states[name].state != "dead" for name, hook in hooks.items() if hook == "main")
    if any(hooks[name] == "poststop" for name in start):
        assert not main_alive
    if any(hooks[name] in {"prestart", "poststart"} for name in kill):
        assert not main_alive


@given(
    st.integers(1, 5),
    st.integers(1, 100),
    st.sampled_from(["fail", "delay"]),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_restarts_never_exceed_the_attempts_of_an_interval(
    attempts: int, interval_s: int, mode: str, lives: list[tuple[float, float]]
) -> None:
    policy = RestartPolicy(attempts=attempts, interval=interval_s * SECOND, delay=0, mode=mode)
    tracker = RestartTracker(policy, for_ever=True, now=0.0)
    now, begun, count = 0.0, 0.0, 0
    for life_s, chance in lives:
        now += life_s
        verdict = tracker.exited(ExitResult(exit_code=1), now, chance)
        assert verdict.delay_s >= 0
        if now - begun > interval_s:
            begun, count = now, 0
        if verdict.action == "kill":
            assert mode == "fail"
            assert count == attempts
            return
        count += 1
        if count > attempts:
            assert mode == "delay"
            begun, count = now + verdict.delay_s, 0
        now += verdict.delay_s


@given(st.lists(st.tuples(st.floats(0.1, 5), st.booleans(), st.booleans()), max_size=40), st.floats(0, 20))
def test_health_needs_an_unbroken_time_and_is_decided_by_the_deadline(
    steps: list[tuple[float, bool, bool]], needed_s: float
) -> None:
    strategy = UpdateStrategy(min_healthy_time=int(needed_s * SECOND), healthy_deadline=60 * SECOND)
    health = AllocHealth(make_group(), strategy, now=0.0)
    now, good_since = 0.0, None
    for pause_s, runs, passing in steps:
        now += pause_s
        good = runs and passing
        good_since = (now if good_since is None else good_since) if good else None
        before = health.verdict
        verdict = health.observe({"web": RUNNING if runs else PENDING}, passing, now)
        if before is not None:
            assert verdict == before
        elif verdict:
            assert good_since is not None
            assert now - good_since >= int(needed_s * SECOND) / SECOND
        else:
            assert (verdict is False) == (now >= 60)


NAMES = st.text("abcdefgh.", min_size=1, max_size=6)


@given(st.text(max_size=60), st.dictionaries(NAMES, st.text(max_size=20)))
def test_interpolation_looks_at_nothing_twice_and_leaves_the_unknown(text: str, targets: dict[str, str]) -> None:
    assert task_env.interpolate(text, {}) == text
    marked = "".join(f"<${{{name}}}>" for name in targets)
    assert task_env.interpolate(marked, targets) == "".join(f"<{value}>" for value in targets.values())


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 200), st.sampled_from(["start", "end"]))
def test_reading_of_logs_begins_where_the_offset_says(sizes: list[int], offset: int, origin: str) -> None:
    known = list(enumerate(sizes))
    number, position = starting_point(known, offset, origin)
    before = sum(size for n, size in known if n < number) + position
    total = sum(sizes)
    assert 0 <= position <= sizes[number]
    assert before == (min(offset, total) if origin == "start" else max(0, total - offset))


@given(st.dictionaries(NAMES, st.integers(0, 3)), st.dictionaries(NAMES, st.integers(0, 3)))
def test_differences_lead_to_what_is_wanted(wanted: dict[str, int], known: dict[str, int]) -> None:
    goal = {name: make_service(name, port=port) for name, port in wanted.items()}
    have: dict[str, Any] = {name: make_service(name, port=port) for name, port in known.items()}
    for _ in range(10):
        batch = difference(goal, have)
        have |= {each.id: each for each in batch.upsert}
        for service_id in batch.delete:
            del have[service_id]
    assert have == goal


@given(st.dictionaries(NAMES, st.integers(1, 9)), st.dictionaries(NAMES, st.integers(1, 9)), st.integers(0, 9))
def test_every_newer_allocation_is_fetched_and_every_gone_one_forgotten(
    wanted: dict[str, int], have: dict[str, int], since: int
) -> None:
    orders = alloc_sync.compare(wanted, have, since)
    assert set(orders.forget) == have.keys() - wanted.keys()
    assert {name for name in wanted if name in have and wanted[name] > have[name]} <= set(orders.fetch)
    assert all(wanted[name] > have.get(name, since) for name in orders.fetch)


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=20)))
def test_double_quoted_variables_survive(variables: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return "".join({"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(sign, sign) for sign in escaped)

    text = "\n".join(f'{name}="{quoted(value)}"' for name, value in variables.items())
    assert parse_env_file(text, "x") == variables


@given(st.text('[]{}<> ab\n"`', max_size=40))
def test_plain_text_passes_other_delimiters_unchanged(text: str) -> None:
    plain = text.replace("<%", "").replace("<", "")
    assert go_template.parse(with_delimiters(plain, "<%", "%>")).render(None) == plain
