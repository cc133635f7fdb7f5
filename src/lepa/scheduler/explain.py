"""Pure: why each node would be chosen for a group, or would not, if the whole group were placed anew now.

The group's own allocations are taken away in thought, every node is looked at as the scheduler does, and the group is
placed again on what is left. So the answer is about the present state; what a past scheduling saw is told by
`lepa.scheduler.recorded`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from lepa.model.allocation import Allocation
from lepa.model.explanation import GroupExplanation, NodeVerdict
from lepa.model.job import Job, TaskGroup
from lepa.model.node import Node
from lepa.model.usage import occupies
from lepa.scheduler.changes import Placement
from lepa.scheduler.columns import CORES, CPU, DISK, MEMORY, Proposal
from lepa.scheduler.context import Context
from lepa.scheduler.feasible import Check, datacenter_matches, group_checks, is_ready, pool_matches
from lepa.scheduler.place import GroupPlacer
from lepa.scheduler.rank import SLOTS_EXHAUSTED
from lepa.scheduler.reasons import failed_check_words
from lepa.scheduler.volumes import bind

NODES_SHOWN: Final = 200
TRIALS_MAX: Final = 1_000
"""Placements that are tried again for one group."""

ORDER: Final = ("chosen", "fits", "exhausted", "closed", "filtered", "not ready", "elsewhere")


def explain_group(context: Context, job: Job, group: TaskGroup, *, nodes_max: int = NODES_SHOWN) -> GroupExplanation:
    """Every node's verdict about one group. `context.columns` have to be fresh."""
    look = _Look(context, job, group)
    verdicts = sorted(look.verdicts(), key=lambda v: (ORDER.index(v.verdict), v.rank, v.node_name, v.node_id))
    counts = Counter(verdict.verdict for verdict in verdicts)
    running = sum(look.running.values())
    return GroupExplanation(
        name=group.name,
        wanted=look.wanted,
        running=running,
        summary=_summary(look.wanted, running, sum(look.placed.values()), counts, job),
        verdicts={name: counts[name] for name in ORDER if counts[name]},
        nodes=tuple(verdicts[:nodes_max]),
        nodes_omitted=max(0, len(verdicts) - nodes_max),
    )


def _summary(wanted: int, running: int, placed: int, counts: "Counter[str]", job: Job) -> str:
    room = counts["chosen"] + counts["fits"]
    nodes = sum(counts.values())
    parts = [f"{running} of {wanted} run"]
    if job.stop:
        parts.append("the job is stopped")
    elif placed < min(wanted, TRIALS_MAX):
        parts.append(f"there is room for {placed} on {nodes} node{'' if nodes == 1 else 's'}")
    elif wanted:
        parts.append(f"{room} of {nodes} node{' has' if nodes == 1 else 's have'} room for it")
    return "; ".join(parts)


class _Look:
    """One look at all nodes. running, placed: allocations of the group by row, now and when placed anew."""

    def __init__(self, context: Context, job: Job, group: TaskGroup) -> None:
        group = bind(context.view, job, group, f"{job.id}.{group.name}[0]")
        self._context, self._columns, self._job, self._group = context, context.columns, job, group
        self._proposal = Proposal(context.view, context.columns)
        own, others = self._siblings()
        self.running = Counter(self._columns.row_of.get(alloc.node_id, -1) for alloc in own)
        for alloc in own:
            self._proposal.put(msgspec.structs.replace(alloc, desired_status="stop", client_status="complete"), alloc)
        self._placer = GroupPlacer(context, self._proposal, job, group, others, None)
        ranking = self._placer.ranking
        rows = np.flatnonzero(self._columns.exists).tolist()
        self._short = {row: self._obstacle(row) for row in rows if ranking.is_open(row)}
        self._scores = {row: ranking.score_of(row) for row, reason in self._short.items() if not reason}
        self._details = {row: self._fit_words(row) for row in self._scores}
        self._ranks = self._ranked()
        self.wanted = len(self._short) if self._everywhere and group.count else group.count
        self.placed: Counter[int] = Counter()
        self._place_anew()

    @property
    def _everywhere(self) -> bool:
        return self._job.type in ("system", "sysbatch")

    def _siblings(self) -> tuple[list[Allocation], list[Allocation]]:
        """The group's allocations that run, and those of the job's other groups."""
        own: list[Allocation] = []
        others: list[Allocation] = []
        for alloc in self._context.view.job_allocations(self._job.namespace, self._job.id):
            if occupies(alloc):
                (own if alloc.task_group == self._group.name else others).append(alloc)
        return own, others

    def _obstacle(self, row: int) -> str:
        """The dimension that is exhausted on a candidate, or ""."""
        return self._placer.ranking.shortage(row) or self._placer.obstacle(row)

    def _ranked(self) -> dict[int, int]:
        ranking = self._placer.ranking
        order = sorted(self._scores, key=lambda row: (-self._scores[row].norm_score, ranking.tie(row)))
        return {row: position for position, row in enumerate(order, 1)}

    def _place_anew(self) -> None:
        job, group = self._job, self._group
        if self._everywhere:
            self.placed.update({row: 1 for row, reason in self._short.items() if not reason and group.count})
            return
        placement = Placement(f"{job.id}.{group.name}[0]", job, group)
        for _ in range(min(group.count, TRIALS_MAX)):
            alloc = self._placer.place(placement)
            if alloc is None:
                return
            self.placed[self._columns.row_of[alloc.node_id]] += 1

    def verdicts(self) -> Iterator[NodeVerdict]:
        """One for each node."""
        checks = group_checks(self._job, self._group)
        closed = self._placer.ranking.closed_by_reason()
        for row in np.flatnonzero(self._columns.exists).tolist():
            verdict, reasons = self._verdict(row, checks, [name for name, rows in closed.items() if rows[row]])
            node, score = self._columns.node(row), self._scores.get(row)
            yield NodeVerdict(
                node_id=node.id,
                node_name=node.name,
                datacenter=node.datacenter,
                node_pool=node.node_pool,
                node_class=node.node_class,
                verdict=verdict,
                reasons=tuple(reasons),
                score=score.norm_score if score else 0.0,
                scores=score.scores if score else {},
                rank=self._ranks.get(row, 0),
                running=self.running[row],
                placed=self.placed[row],
            )

    def _verdict(self, row: int, checks: Sequence[Check], closed: list[str]) -> tuple[str, list[str]]:
        node = self._columns.node(row)
        if away := _elsewhere(node, self._job):
            return "elsewhere", away
        if not is_ready(node):
            return "not ready", [_unready(node)]
        if failed := [failed_check_words(check, node) for check in checks if not check.allows(node)]:
            return "filtered", list(dict.fromkeys(failed))
        if row not in self._short:
            return "closed", [f"{name} keeps more of the job away from it" for name in closed or ["a constraint"]]
        if reason := self._short[row]:
            return "exhausted", [self._shortage_words(row, reason)]
        return ("chosen" if self.placed[row] else "fits"), self._details[row]

    def _fit_words(self, row: int) -> list[str]:
        used, capacity, ask = self._proposal.used, self._columns.capacity, self._placer.ranking.ask(row)
        full = [
            round(100 * (used[dimension, row] + ask[dimension]) / (capacity[dimension, row] or 1.0))
            for dimension in (CPU, MEMORY)
        ]
        found = [f"it would be {full[0]} % full by CPU and {full[1]} % by memory"]
        found += [_term_words(name, value) for name, value in self._scores[row].scores.items() if name != "binpack"]
        return found

    def _shortage_words(self, row: int, reason: str) -> str:
        ask, capacity = self._placer.ranking.ask(row), self._columns.capacity
        for dimension, name, unit in (
            (CPU, "cpu", "MHz of CPU"),
            (MEMORY, "memory", "MiB of memory"),
            (DISK, "disk", "MiB of disk"),
            (CORES, "cores", "whole cores"),
        ):
            if reason == name:
                total = capacity[dimension, row]
                free = max(0.0, total - self._proposal.used[dimension, row])
                return f"the group asks for {ask[dimension]:.0f} {unit}; {free:.0f} of {total:.0f} are free"
        if reason == SLOTS_EXHAUSTED:
            return "it runs as many allocations as its operator lets it"
        if reason.startswith("network: reserved port collision "):
            label, _, port = reason.rpartition(" ")[2].partition("=")
            return f'port {port} ("{label}") is taken on it'
        return f"it cannot give everything that the group asks for ({reason})"


def _term_words(name: str, value: float) -> str:
    words = {
        "job-anti-affinity": "the group runs there already",
        "node-affinity": "affinities",
        "allocation-spread": "spread over values",
        "node-reschedule-penalty": "an earlier try failed there",
    }
    return f"{words.get(name, name)}: {value:+.2f}"


def _elsewhere(node: Node, job: Job) -> list[str]:
    found = []
    if not pool_matches(node.node_pool, job.node_pool):
        found.append(f'it is in node pool "{node.node_pool}", the job asks for "{job.node_pool}"')
    if not datacenter_matches(node.datacenter, job.datacenters):
        found.append(f'it is in datacenter "{node.datacenter}", the job asks for {", ".join(job.datacenters)}')
    return found


def _unready(node: Node) -> str:
    if node.status != "ready":
        return f"it is {node.status}"
    return "it is being drained" if node.drain_strategy is not None else "it is marked as ineligible for new work"
