"""Replaying changes one by one, in batches, or reading the store anew all end in the same state."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import make_alloc, make_deployment, make_eval, make_job, make_node, make_service

from lepa.model.kv import KvEntry, Session
from lepa.model.usage import usage_of
from lepa.model.wire import Wire
from lepa.state import keys
from lepa.state.job_tally import JobTally
from lepa.state.reducer import RowChange, load, reduce
from lepa.state.snapshot import Snapshot, empty_snapshot
from lepa.store.protocol import Change, Entry, Read

JOBS = ("web", "db", "web/periodic-1")
PUT, DELETE = "put", "delete"

job_ids = st.sampled_from(JOBS)


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, Wire]:
    """A key and the row to put there."""
    job = make_job(
        draw(job_ids),
        stop=draw(st.booleans()),
        type=draw(st.sampled_from(["service", "system"])),
        parent_id=draw(st.sampled_from(["", "web"])),
    )
    number = draw(st.integers(0, 5))
    made: dict[str, tuple[str, Wire]] = {
        "job": (keys.job_key("default", job.id), job),
        "version": (keys.job_version_key("default", job.id, number), job),
        "node": (keys.node_key(f"n{number}"), make_node(f"n{number}", node_pool=draw(st.sampled_from("ab")))),
        "alloc": (
            keys.alloc_key(f"a{number}"),
            make_alloc(
                f"a{number}",
                job=job,
                node_id=f"n{draw(st.integers(0, 2))}",
                eval_id=draw(st.sampled_from(["", "e0", "e1"])),
                deployment_id=draw(st.sampled_from(["", "d0"])),
                client_status=draw(st.sampled_from(["pending", "running", "complete", "failed", "lost"])),
                desired_status=draw(st.sampled_from(["run", "stop"])),
            ),
        ),
        "eval": (
            keys.eval_key(f"e{number}"),
            make_eval(
                f"e{number}",
                job=job,
                status=draw(st.sampled_from(["pending", "complete", "blocked"])),
                queued_allocations=draw(st.sampled_from([{}, {"web": 2}])),
            ),
        ),
        "deployment": (keys.deployment_key(f"d{number}"), make_deployment(f"d{number}", job=job)),
        "service": (keys.service_key("default", "web", f"s{number}"), make_service(f"s{number}")),
        "kv": (keys.kv_key(f"a/{number}"), KvEntry(key=f"a/{number}", session=draw(st.sampled_from(["", "s"])))),
        "session": (keys.session_key(f"s{number}"), Session(id=f"s{number}")),
    }
    return made[draw(st.sampled_from(sorted(made)))]


commands = st.lists(st.tuples(st.sampled_from([PUT, PUT, DELETE]), rows()), min_size=1, max_size=4)
histories = st.lists(st.tuples(commands, st.booleans()), min_size=1, max_size=12)
"""Transactions, each with whether a batch ends after it."""


class FakeStore:
    """Just enough of a store: entries and the changes that made them."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.revision = 0

    def apply(self, transaction: list[tuple[str, tuple[str, Wire]]]) -> list[Change]:
        revision, changes = self.revision + 1, []
        for kind, (key, row) in {key: (kind, (key, row)) for kind, (key, row) in transaction}.values():
            before = self.entries.pop(key, None)
            created = before.created if before else revision
            if kind == PUT:
                value = keys.put(key, row).value
                self.entries[key] = Entry(key, value, created, revision)
                changes.append(Change(key, value, created, revision))
            elif before:
                changes.append(Change(key, None, created, revision))
        self.revision += 1 if changes else 0
        return changes

    def read(self) -> Read:
        return Read(self.revision, sorted(self.entries.values()))


def content(snapshot: Snapshot) -> Any:
    """Everything but the indexes of tables, groups and summaries."""
    return {
        "index": snapshot.index,
        "tables": {
            name: (
                dict(table.rows.items()),
                list(table.keys),
                list(table.created),
                {by: {key: group.keys for key, group in groups.items()} for by, groups in table.groups.items()},
            )
            for name, table in snapshot.tables.items()
        },
        "tallies": {key: tally._replace(changed=0) for key, tally in snapshot.tallies.items()},
        "children": dict(snapshot.children_counts.items()),
        "usages": dict(snapshot.usages.items()),
        "queued": {job_id: queued(snapshot, job_id) for job_id in JOBS},
    }


def queued(snapshot: Snapshot, job_id: str) -> Any:
    summary = snapshot.job_summary("default", job_id)
    return summary.summary if summary else None


@settings(max_examples=80, deadline=None)
@given(histories)
def test_replay_in_any_batches_and_a_fresh_read_agree(history: list[Any]) -> None:
    store, one_by_one, batched = FakeStore(), empty_snapshot(), empty_snapshot()
    pending: list[Change] = []
    told: list[RowChange] = []
    told_in_batches: list[RowChange] = []
    for transaction, ends in history:
        changes = store.apply(transaction)
        one_by_one, _, rows = reduce(one_by_one, changes)
        told += rows
        pending += changes
        if ends:
            batched, _, rows = reduce(batched, pending)
            told_in_batches += rows
            pending = []
    batched, _, rows = reduce(batched, pending)
    assert content(one_by_one) == content(batched) == content(load(store.read()))
    assert told == [*told_in_batches, *rows]


@settings(max_examples=40, deadline=None)
@given(histories)
def test_old_snapshots_never_change(history: list[Any]) -> None:
    store, snapshot = FakeStore(), empty_snapshot()
    kept = [(snapshot, content(snapshot))]
    for transaction, _ in history:
        snapshot = reduce(snapshot, store.apply(transaction)).snapshot
        kept.append((snapshot, content(snapshot)))
    assert all(content(old) == then for old, then in kept)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_indexes_only_grow_and_everything_changed_is_touched(history: list[Any]) -> None:
    store, snapshot = FakeStore(), empty_snapshot()
    for transaction, _ in history:
        reduction = reduce(snapshot, store.apply(transaction))
        for watch in reduction.touched:
            assert reduction.snapshot.index_of(watch) == reduction.snapshot.index
        for name, table in reduction.snapshot.tables.items():
            assert table.index >= snapshot.tables[name].index
        for job in reduction.snapshot.jobs():
            before = snapshot.job(job.namespace, job.id)
            if before is None or before.status != job.status:
                assert any(
                    watch.table == "job_summary" and watch.key == (job.namespace, job.id) for watch in reduction.touched
                )
        snapshot = reduction.snapshot


@settings(max_examples=40, deadline=None)
@given(histories)
def test_tallies_are_what_counting_from_scratch_gives(history: list[Any]) -> None:
    store, snapshot = FakeStore(), empty_snapshot()
    for transaction, _ in history:
        snapshot = reduce(snapshot, store.apply(transaction)).snapshot
    for job_id in JOBS:
        tally = snapshot.tallies.get(("default", job_id), JobTally())
        allocs = snapshot.job_allocations("default", job_id)
        assert tally.allocations == len(allocs) == sum(tally.counts.values())
        assert tally.evaluations == len(snapshot.job_evaluations("default", job_id))


@settings(max_examples=40, deadline=None)
@given(histories)
def test_what_is_used_of_a_node_is_what_its_allocations_occupy(history: list[Any]) -> None:
    store, snapshot = FakeStore(), empty_snapshot()
    for transaction, _ in history:
        snapshot = reduce(snapshot, store.apply(transaction)).snapshot
        nodes = {alloc.node_id for alloc in snapshot.allocations()} | set(snapshot.usages)
        for node_id in nodes - {""}:
            assert snapshot.node_usage(node_id) == usage_of(snapshot.node_allocations(node_id))
