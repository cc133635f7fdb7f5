"""Pure: (snapshot, changes) -> the next snapshot.

A batch of store changes is decoded and put into the tables. What follows from it is brought up to date: each touched
job's counts and status, the counts of its parent's children, the nodes concerned and what is used of them. Out comes
the next snapshot with everything that was touched.

Reducing changes one by one or in batches, or reading the store anew, ends in the same rows, orders, counts and
statuses. Only indexes of tables and groups may be higher after a read, because a read does not tell when something
was deleted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from immutables import Map
from msgspec.structs import force_setattr, replace

from lepa.model.allocation import Allocation
from lepa.model.evaluation import Evaluation
from lepa.model.job import Job
from lepa.model.job_views import JobChildrenSummary
from lepa.model.node import Node
from lepa.model.usage import NodeUsage
from lepa.state.job_tally import JobKey, JobTally, TallyEdit, is_open, job_status, lives
from lepa.state.keys import KINDS, THIS_REVISION, split
from lepa.state.shapes import SHAPES
from lepa.state.sharing import share_allocation
from lepa.state.snapshot import JOB_SUMMARY, TOUCHES_MAX, Snapshot, Touch, empty_snapshot
from lepa.state.tables import Key, Table, TableEdit, Watch
from lepa.store.protocol import Change, Read

R = TypeVar("R", Allocation, Evaluation)


class RowChange(NamedTuple):
    """One row put (after) or deleted (after is None) at `revision`; before is None when it is new.

    A job whose status alone is another one, because of its allocations and evaluations, counts as put too.
    """

    table: str
    key: Key
    before: Any
    after: Any
    revision: int


class Reduction(NamedTuple):
    """The next snapshot, all that was touched and can be waited for, and the changes, decoded, in order."""

    snapshot: Snapshot
    touched: frozenset[Watch]
    changes: tuple[RowChange, ...]


def reduce(snapshot: Snapshot, changes: Sequence[Change]) -> Reduction:
    """The snapshot after `changes`: whole revisions newer than it, in order."""
    if not changes:
        return Reduction(snapshot, frozenset(), ())
    return _Batch(snapshot, changes[-1].revision).reduce(changes)


def load(read: Read) -> Snapshot:
    """The snapshot of a whole store. Everything counts as changed at its revision: what was deleted is not known."""
    changes = [Change(entry.key, entry.value, entry.created, entry.modified) for entry in read.entries]
    snapshot = _Batch(empty_snapshot(), read.revision, as_of=read.revision).reduce(changes).snapshot
    tables = {name: table.as_of(read.revision) for name, table in snapshot.tables.items()}
    return Snapshot(
        read.revision,
        tables,
        snapshot.tallies,
        snapshot.children_counts,
        summary_index=read.revision,
        forgotten=read.revision,
        usages=snapshot.usages,
    )


class _Batch:
    """One step from a snapshot to the next, whose index is `index`. as_of: counts as the revision of all changes."""

    def __init__(self, before: Snapshot, index: int, as_of: int = 0) -> None:
        self.before = before
        self.index = index
        self.as_of = as_of
        self.edits: dict[str, TableEdit[Any]] = {}
        self.tallies: dict[JobKey, TallyEdit] = {}
        self.restated: set[JobKey] = set()  # jobs whose summary changed for another reason than a count
        self.noted: set[JobKey] = set()  # jobs whose status may be another one after the revision at hand
        self.told: dict[JobKey, str] = {}  # statuses as they were told last
        self.nodes: set[str] = set()
        self.usages: dict[str, NodeUsage] = {}

    def reduce(self, changes: Sequence[Change]) -> Reduction:
        rows = list(self._rows(changes) if self.as_of else self._changes(changes))
        tables, touched = dict(self.before.tables), set[Watch]()
        for name, edit in self.edits.items():
            tables[name], watches = edit.finish()
            touched |= watches
        tallies = self._tallies()
        statuses = self._statuses(tables["jobs"], tallies)
        tables["jobs"] = tables["jobs"].with_rows(statuses)
        children = self._children(tables["jobs"], statuses.keys())
        summarised = self._summarised(tallies, statuses) | children.keys()
        for key in summarised:
            if key not in tallies:  # a parent that was not touched itself
                tallies[key] = self.before.tallies.get(key, JobTally())
            tallies[key] = tallies[key]._replace(changed=self.index)
        touched.update(Watch(JOB_SUMMARY, "id", key) for key in summarised)
        touched.update([Watch(JOB_SUMMARY)] if summarised else [])
        touches, forgotten = self._touches()
        after = Snapshot(
            self.index,
            tables,
            _updated(self.before.tallies, tallies, lambda key, tally: tally.empty and key not in tables["jobs"].rows),
            _updated(self.before.children_counts, children, lambda _, counts: counts == JobChildrenSummary()),
            self.index if summarised else self.before.summary_index,
            touches,
            forgotten,
            _updated(self.before.usages, self.usages, lambda _, usage: not usage.running),
        )
        return Reduction(after, frozenset(touched), tuple(rows))

    def _changes(self, changes: Sequence[Change]) -> Iterator[RowChange]:
        """What changes, and the jobs that get another status by it, revision by revision: whoever follows the same
        revisions in other batches is told the same."""
        for revision, group in groupby(changes, key=lambda change: change.revision):
            rows = [self._with_status(row, "before") if row.table == "jobs" else row for row in self._rows(group)]
            moved = self._moved_jobs() if self.noted else {}
            for row in rows:
                if row.table == "jobs" and row.after is not None:
                    moved.pop(row.key, None)
                    yield self._with_status(row, "after")
                else:
                    yield row
            for key, job in moved.items():
                yield RowChange("jobs", key, job, replace(job, status=self.told[key], modify_index=revision), revision)

    def _with_status(self, change: RowChange, side: str) -> RowChange:
        """The same, the job on one side with the status that was told last."""
        if (job := getattr(change, side)) is None:
            return change
        return change._replace(**{side: replace(job, status=self.told.get(change.key, job.status))})

    def _moved_jobs(self) -> dict[JobKey, Job]:
        """Jobs that have another status after the revision at hand, with the one they had before it."""
        found = {}
        for key in sorted(self.noted):
            known = self.before.job(*key)
            job = self.edits["jobs"].get(key) if "jobs" in self.edits else known
            old = self.told.pop(key, known.status if known is not None else "")
            if job is None:
                continue
            tally = self.tallies[key].finish() if key in self.tallies else self.before.tallies.get(key, JobTally())
            self.told[key] = job_status(job, tally)
            if self.told[key] != old:
                found[key] = replace(job, status=old)
        self.noted.clear()
        return found

    def _rows(self, changes: Iterable[Change]) -> Iterator[RowChange]:
        for change in changes:
            table, parts = split(change.key)
            shape = SHAPES.get(table)
            if shape is None:
                continue
            if table not in self.edits:
                self.edits[table] = TableEdit(self.before.tables[table])
            edit, key, index = self.edits[table], shape.key(parts), self.as_of or change.revision
            if change.value is None:
                row, before = None, edit.delete(key, index)
            else:
                row = decode(table, change.value, change.created, change.revision)
                before = edit.put(key, row, index)
            if note := _NOTES.get(table):
                note(self, before, row)
            yield RowChange(table, key, before, row, change.revision)

    # What each row says about jobs and nodes

    def note_job(self, before: Job | None, after: Job | None) -> None:
        keys = {(job.namespace, job.id) for job in (before, after) if job}
        self.restated |= keys
        self.noted |= keys

    def note_allocation(self, before: Allocation | None, after: Allocation | None) -> None:
        for alloc, by in ((before, -1), (after, 1)):
            if alloc is not None:
                self._tally((alloc.namespace, alloc.job_id)).count_allocation(alloc, by)
        self._note_status(before, after, lives)
        if before is not None and before.node_id:
            self._use(before.node_id, before, None)
        if after is not None and after.node_id:
            self._use(after.node_id, None, after)

    def note_evaluation(self, before: Evaluation | None, after: Evaluation | None) -> None:
        for evaluation, by in ((before, -1), (after, 1)):
            if evaluation is not None:
                key = (evaluation.namespace, evaluation.job_id)
                self._tally(key).count_evaluation(evaluation, by)
                if evaluation.queued_allocations:
                    self.restated.add(key)
        self._note_status(before, after, is_open)

    def _note_status(self, before: R | None, after: R | None, counts: Callable[[R], bool]) -> None:
        """Note the job of a row that is new or gone, or that counts otherwise than before for the job's status."""
        if before is None or after is None or counts(before) != counts(after):
            self.noted.update((row.namespace, row.job_id) for row in (before, after) if row is not None)

    def note_node(self, before: Node | None, after: Node | None) -> None:
        self.nodes.update(node.id for node in (before, after) if node)

    def _use(self, node_id: str, before: Allocation | None, after: Allocation | None) -> None:
        self.nodes.add(node_id)
        usage = self.usages.get(node_id) or self.before.node_usage(node_id)
        self.usages[node_id] = usage.changed(before, after)

    def _tally(self, key: JobKey) -> TallyEdit:
        if key not in self.tallies:
            self.tallies[key] = TallyEdit(self.before.tallies.get(key, JobTally()))
        return self.tallies[key]

    # What follows

    def _tallies(self) -> dict[JobKey, JobTally]:
        """The tallies of all touched jobs."""
        untouched = {key: self.before.tallies.get(key, JobTally()) for key in self.restated}
        return untouched | {key: edit.finish() for key, edit in self.tallies.items()}

    def _statuses(self, jobs: Table[Job], tallies: dict[JobKey, JobTally]) -> dict[JobKey, Job]:
        """Touched jobs whose row does not have their true status yet, with it."""
        found = {}
        for key, tally in tallies.items():
            job = jobs.get(key)
            if job is not None and job.status != (status := job_status(job, tally)):
                found[key] = replace(job, status=status)
        return found

    def _children(self, jobs: Table[Job], restatused: Iterable[JobKey]) -> dict[JobKey, JobChildrenSummary]:
        """New counts of children, of parents for which they changed."""
        moves: dict[JobKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for key in {*self.restated, *restatused}:
            for job, by in ((self.before.job(*key), -1), (jobs.get(key), 1)):
                if job is not None and job.parent_id:
                    moves[job.namespace, job.parent_id][job.status] += by
        return {
            parent: _moved(self.before.children_counts.get(parent, JobChildrenSummary()), by_status)
            for parent, by_status in moves.items()
            if any(by_status.values())
        }

    def _summarised(self, tallies: dict[JobKey, JobTally], statuses: dict[JobKey, Job]) -> set[JobKey]:
        """Jobs whose summary or status is not what it was."""
        counted = {key for key in self.tallies if tallies[key] != self.before.tallies.get(key)}
        return counted | self.restated | statuses.keys()

    def _touches(self) -> tuple[tuple[Touch, ...], int]:
        """The log of touched nodes with this batch, cut to its bound, and the index up to which it is forgotten."""
        touches, forgotten = self.before.touches, self.before.forgotten
        if not self.nodes:
            return touches, forgotten
        if len(touches) >= TOUCHES_MAX:
            cut = TOUCHES_MAX // 4
            touches, forgotten = touches[cut:], touches[cut - 1].at
        return (*touches, Touch(self.index, frozenset(self.nodes))), forgotten


_NOTES: Final[dict[str, Callable[[_Batch, Any, Any], None]]] = {
    "jobs": _Batch.note_job,
    "allocs": _Batch.note_allocation,
    "evals": _Batch.note_evaluation,
    "nodes": _Batch.note_node,
}


def _moved(counts: JobChildrenSummary, by_status: dict[str, int]) -> JobChildrenSummary:
    return replace(counts, **{status: getattr(counts, status) + by for status, by in by_status.items()})


def _updated(old: "Map[Any, Any]", new: Mapping[Any, Any], empty: Callable[[Any, Any], bool]) -> "Map[Any, Any]":
    """`old` with `new`, without those of `new` that say nothing."""
    edit = old.mutate()
    for key, value in new.items():
        if not empty(key, value):
            edit[key] = value
        elif key in edit:
            del edit[key]
    return edit.finish()


# Decoding


def decode(table: str, value: bytes, created: int, revision: int) -> Any:
    """The row that `value` stores, with its indexes filled in from the revisions."""
    form = _FORMS[table]
    row = form.decoder.decode(value)
    if form.created:
        force_setattr(row, "create_index", created)
    if form.modified:
        force_setattr(row, "modify_index", revision)
    for name in form.own:
        if getattr(row, name) in (0, THIS_REVISION):
            force_setattr(row, name, revision)
    for name in form.others:
        if getattr(row, name) == THIS_REVISION:
            force_setattr(row, name, revision)
    if form.finish is not None:
        form.finish(row, revision)
    return row


def _finish_allocation(alloc: Allocation, revision: int) -> None:
    status = alloc.deployment_status
    if status is not None and status.modify_index == THIS_REVISION:
        force_setattr(status, "modify_index", revision)
    share_allocation(alloc)


def _finish_node(node: Node, revision: int) -> None:
    for event in node.events:
        if event.create_index == THIS_REVISION:
            force_setattr(event, "create_index", revision)


class _Form(NamedTuple):
    """How rows of one table are decoded.

    created, modified: whether they have these indexes. own: fields in which 0 means THIS_REVISION too; others: in which
    only THIS_REVISION does. finish: what else there is to do.
    """

    decoder: msgspec.msgpack.Decoder[Any]
    created: bool
    modified: bool
    own: tuple[str, ...]
    others: tuple[str, ...]
    finish: Callable[[Any, int], None] | None


_OWN_REVISIONS: Final = {
    "jobs": ("job_modify_index",),
    "job_versions": ("job_modify_index",),
    "allocs": ("alloc_modify_index",),
}
_REVISIONS: Final = {
    "job_submissions": ("job_modify_index",),
    "evals": ("job_modify_index", "node_modify_index", "snapshot_index"),
    "deployments": ("job_modify_index", "job_spec_modify_index", "job_create_index"),
    "nodes": ("last_missed_heartbeat_index", "last_alloc_update_index"),
}
_FINISHERS: Final[dict[str, Callable[[Any, int], None]]] = {"allocs": _finish_allocation, "nodes": _finish_node}
_FORMS: Final = {
    table: _Form(
        msgspec.msgpack.Decoder(kind),
        "create_index" in kind.__struct_fields__,
        "modify_index" in kind.__struct_fields__,
        _OWN_REVISIONS.get(table, ()),
        _REVISIONS.get(table, ()),
        _FINISHERS.get(table),
    )
    for table, kind in KINDS.items()
}
