"""Pure: the nodes of one task group, best first, kept in order while placements are made.

Every feasible node is scored once, all together, in numpy. After that a placement changes the score of one node only:
it is scored again by itself and goes back among the others (`lepa.scheduler.lanes`). A thousand placements on ten
thousand nodes cost one vectorised pass and a thousand steps of a few microseconds.

A node's score is the mean of the terms that apply to it:

    binpack                   0..1, how full (or with algorithm "spread": how empty) it would be
    job-anti-affinity         -(n+1)/count, where n > 0 allocations of the group are there
    node-reschedule-penalty   -1 where an earlier try failed
    node-affinity             -1..1, weights of the affinities that match; present as soon as there is any affinity
    allocation-spread         how far the node's attribute values are below their wanted share; likewise

Spread changes the score of all nodes that share a value at once, but not their order among themselves: they are a lane
for each (combination of values, number of terms). Equal scores are ordered by bits mixed from the seed and the node id.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lepa.model.allocation import Allocation
from lepa.model.evaluation import AllocMetric, NodeScoreMeta
from lepa.model.job import Job, TaskGroup
from lepa.model.usage import Usage, group_usage
from lepa.scheduler.candidates import DATACENTER, by_class, find_candidates
from lepa.scheduler.chance import FIRST_FACTOR, GAMMA, SECOND_FACTOR
from lepa.scheduler.columns import CORES, CPU, DISK, MEMORY, Floats, Ints, Mask, NodeColumns, Proposal
from lepa.scheduler.distinct import DistinctRules
from lepa.scheduler.feasible import (
    Check,
    ReservedPortsColumn,
    constraint_check,
)
from lepa.scheduler.lanes import Head, Lanes
from lepa.scheduler.ports import NodePorts, parse_ports
from lepa.scheduler.spreads import spread_blocks

LN10 = math.log(10.0)
TOP_SCORES = 5
"""Nodes whose scores AllocMetric keeps."""
TERMS_MAX = 8
"""More than the number of terms a score can have: lanes are numbered combination * TERMS_MAX + terms."""
SLOTS_EXHAUSTED = "max allocations exceeded"
RESCHEDULE_PENALTY = -1.0
DIMENSIONS = ("cpu", "memory", "disk", "cores")


def fullness_scores(free_cpu: Floats, free_memory: Floats, algorithm: str) -> Floats:
    """Score nodes by how full they would be; free_cpu, free_memory: (rows,) free fractions after placement, 0..1.

    The curve is Nomad's published one for best fit, 20 - 10^free_cpu - 10^free_memory over 18: 1 for a full node, 0 for
    an empty one. Algorithm "spread" turns it round.
    """
    total = np.exp(LN10 * free_cpu) + np.exp(LN10 * free_memory)
    score = (total - 2.0) / 18.0 if algorithm == "spread" else (20.0 - total) / 18.0
    bounded: Floats = np.clip(score, 0.0, 1.0)
    return bounded


def fullness_score(free_cpu: float, free_memory: float, algorithm: str) -> float:
    """`fullness_scores` of one node."""
    total = math.exp(LN10 * free_cpu) + math.exp(LN10 * free_memory)
    score = (total - 2.0) / 18.0 if algorithm == "spread" else (20.0 - total) / 18.0
    return min(1.0, max(0.0, score))


class GroupRanking:
    """The candidates of one group in order, while placements change what the proposal says of them.

    siblings: allocations of the job that the plan keeps, for anti-affinity, spread and the distinct constraints.
    """

    def __init__(
        self,
        columns: NodeColumns,
        proposal: Proposal,
        job: Job,
        group: TaskGroup,
        siblings: Sequence[Allocation],
        algorithm: str,
        seed: int,
    ) -> None:
        self._columns, self._proposal = columns, proposal
        self._job, self._group, self._algorithm = job, group, algorithm
        self._count = max(1, group.count)
        self.candidates = find_candidates(columns, job, group)
        self._asks = _Asks(columns, group)
        own = [alloc for alloc in siblings if alloc.task_group == group.name]
        self._collisions: Ints = columns.count_rows(own)
        self._distinct = DistinctRules(columns, job, group, own, siblings)
        self._affinity = affinity_scores(columns, job, group)
        self._spreads = spread_blocks(columns, job, group, own, self.candidates.feasible)
        self._static_ports = [p for n in group.networks for p in n.reserved_ports if not p.ignore_collision]
        self._refused: dict[int, str] = {}
        self._ties = mixed_ties(columns.tie_bits, seed)
        self._lanes = Lanes(self._offset)
        self._combinations, self._lanes_by_block = self._combine_spreads()
        self._fill_lanes()
        self._successes: AllocMetric | None = None

    # Asking.

    def take(self, penalised: frozenset[int] = frozenset()) -> int | None:
        """The best row, which leaves the order until it is `placed`; None when no node fits.

        penalised: rows where an earlier try failed; they bear the reschedule penalty for this one question.
        """
        head = self._pop()
        if head is None or head.row not in penalised:
            return head.row if head else None
        choices = []
        while head is not None and head.row in penalised:
            choices.append(head._replace(negated_score=-self._penalised_score(head.row)))
            head = self._pop()
        choices += [head] if head else []
        best = min(choices)
        for other in choices:
            if other is not best:
                self._insert(other.row)
        return best.row

    def take_row(self, row: int) -> bool:
        """Take one row out of the order if the group fits there, wherever it stands."""
        usable = self.candidates.feasible[row] and row not in self._refused and not self._distinct.closed(row)
        if not usable or self.shortage(row):
            return False
        self._lanes.remove(row)
        return True

    def placed(self, row: int) -> None:
        """Count a placement that the proposal already holds, and put the row back where it now belongs."""
        self._collisions[row] += 1
        self._distinct.count(row)
        if self._spreads:
            self._count_spreads(row)
        if self._static_ports:
            port = self._static_ports[0]
            self.refuse(row, f"network: reserved port collision {port.label}={port.value}")
        else:
            self._insert(row)

    def released(self, row: int) -> None:
        """Count a sibling that the proposal has just stopped; its node may be open again."""
        self._collisions[row] -= 1
        self._distinct.count(row, -1)
        self._count_spreads(row, -1)
        self._refused.pop(row, None)
        self._insert(row)

    def restored(self, row: int) -> None:
        """Take back `released`: the proposal has the sibling running again."""
        self._lanes.remove(row)
        self.placed(row)

    def refuse(self, row: int, dimension: str) -> None:
        """Keep a taken row out: something that is not in the columns (ports, devices) is exhausted there."""
        self._refused[row] = dimension

    def ask(self, row: int) -> Usage:
        """What one allocation of the group occupies on a row's node."""
        return self._asks.of(row)

    def shortage(self, row: int) -> str:
        """The first exhausted dimension of a row, or ""."""
        used, capacity, ask = self._proposal.used.item, self._columns.capacity.item, self._asks.of(row)
        if used(CPU, row) + ask[CPU] > capacity(CPU, row):
            return "cpu"
        if used(MEMORY, row) + ask[MEMORY] > capacity(MEMORY, row):
            return "memory"
        if used(DISK, row) + ask[DISK] > capacity(DISK, row):
            return "disk"
        if ask[CORES] and used(CORES, row) + ask[CORES] > capacity(CORES, row):
            return "cores"
        return SLOTS_EXHAUSTED if self._proposal.slots.item(row) < 1 else ""

    @property
    def group_name(self) -> str:
        """The group that is ranked for."""
        return self._group.name

    def tie(self, row: int) -> int:
        """The bits that order a row among equals."""
        return self._ties.item(row)

    def is_open(self, row: int) -> bool:
        """Whether a row is a candidate that no distinct constraint closes, whether the group fits or not."""
        return bool(self.candidates.feasible[row]) and not self._distinct.closed(row)

    def open_rows(self) -> Mask:
        """(rows,) `is_open` of all."""
        return self.candidates.feasible & ~self._distinct.closed_rows()

    # Explaining.

    def score_of(self, row: int) -> NodeScoreMeta:
        """What a row scores now, with the terms that its score is the mean of."""
        return self._score_meta(row)

    def closed_by_reason(self) -> dict[str, Mask]:
        """(rows,) candidates that a distinct constraint closes, by its text."""
        return self._distinct.closed_by_reason(self.candidates.feasible)

    def success_metric(self, row: int) -> AllocMetric:
        """How a placement was chosen: the row taken, then the best of the first ranking."""
        if self._successes is None:
            self._successes = self._metric(self._first_dimensions, self._first_best)
        others = [meta for meta in self._first_best if meta.node_id != self._columns.node(row).id]
        best = (self._score_meta(row), *others[: TOP_SCORES - 1])
        return msgspec.structs.replace(self._successes, score_meta_data=best)

    def shared_metric(self) -> AllocMetric:
        """How the placements of the group were chosen, for all of them."""
        if self._successes is None:
            self._successes = self._metric(self._first_dimensions, self._first_best)
        return self._successes

    def failure_metric(self, rows: Sequence[int] = ()) -> AllocMetric:
        """Why no further allocation of the group can be placed; on some rows only when they are given."""
        dimensions = self._exhausted()[1]
        if rows:
            given: Mask = np.zeros_like(self.candidates.feasible)
            given[list(rows)] = True
            dimensions = {name: short & given for name, short in dimensions.items() if (short & given).any()}
        return self._metric(dimensions, ())

    def _metric(self, dimensions: dict[str, Mask], best: tuple[NodeScoreMeta, ...]) -> AllocMetric:
        found, columns = self.candidates, self._columns
        filtered = dict(found.filtered)
        for reason, rows in self._distinct.closed_by_reason(found.feasible).items():
            filtered[reason] = filtered.get(reason, 0) + int(np.count_nonzero(rows))
        exhausted: Mask = np.zeros_like(found.feasible)
        for rows in dimensions.values():
            exhausted |= rows
        return AllocMetric(
            nodes_evaluated=int(np.count_nonzero(found.eligible)),
            nodes_filtered=sum(filtered.values()),
            nodes_in_pool=int(np.count_nonzero(found.in_pool)),
            node_pool=self._job.node_pool,
            nodes_available=columns.counts(DATACENTER, found.eligible),
            class_filtered=found.class_filtered,
            constraint_filtered=filtered,
            nodes_exhausted=int(np.count_nonzero(exhausted)),
            class_exhausted=by_class(columns, exhausted),
            dimension_exhausted={name: int(np.count_nonzero(rows)) for name, rows in dimensions.items()},
            score_meta_data=best,
        )

    def _exhausted(self) -> tuple[Mask, dict[str, Mask]]:
        """(rows,) where the group fits now, and the other open rows by the dimension that is short."""
        left = self.open_rows()
        found: dict[str, Mask] = {}

        def sort_out(name: str, short: Mask) -> None:
            nonlocal left
            short = left & short
            if short.any():
                found[name] = found[name] | short if name in found else short
                left = left & ~short

        for dimension, name in enumerate(DIMENSIONS):
            sort_out(
                name, self._proposal.used[dimension] + self._asks.rows[dimension] > self._columns.capacity[dimension]
            )
        sort_out(SLOTS_EXHAUSTED, self._proposal.slots < 1)
        for row, reason in [*self._port_collisions(left), *self._refused.items()]:
            one: Mask = np.zeros_like(left)
            one[row] = True
            sort_out(reason, one)
        return left, found

    def _port_collisions(self, left: Mask) -> list[tuple[int, str]]:
        """Rows where a static port is taken, looked at exactly only where the columns say that it may be."""
        suspects: set[int] = set()
        for port in self._static_ports:
            suspects |= self._columns.rows_using_port(port.value)
            kept_back = Check("", ReservedPortsColumn(), partial(_is_among, port.value))
            suspects.update(np.flatnonzero(left & self._columns.passing(kept_back)).tolist())
        found = []
        for row in sorted(row for row in suspects if left[row]):
            node = self._columns.node(row)
            key = (self._job.namespace, self._job.id)
            ports = NodePorts(node, self._proposal.node_allocations(node.id), key)
            collision = ports.static_collision(self._static_ports)
            if collision:
                found.append((row, collision))
        return found

    # Keeping order.

    def _fill_lanes(self) -> None:
        fits, self._first_dimensions = self._exhausted()
        rows: Ints = np.flatnonzero(fits)
        collisions = self._collisions[rows]
        sums = self._fullness(rows)
        terms = np.ones(len(rows))
        crowded = collisions > 0
        sums[crowded] -= (collisions[crowded] + 1) / self._count
        terms += crowded
        if self._affinity is not None:
            sums += self._affinity[rows]
            terms += 1
        if self._spreads:
            terms += 1
        values = sums / terms
        keys: Ints = np.zeros(len(rows), np.int64)
        if self._spreads:
            keys = self._combinations[rows] * TERMS_MAX + terms.astype(np.int64)
        self._lanes.fill(keys, values, self._ties[rows], rows)
        self._first_best = tuple(self._score_meta(row) for row in self._lanes.best(TOP_SCORES))

    def _fullness(self, rows: Ints) -> Floats:
        capacity, used, ask = self._columns.capacity, self._proposal.used, self._asks.rows
        free = []
        for dimension in (CPU, MEMORY):
            total = np.maximum(capacity[dimension, rows], 1.0)
            asked = ask[dimension][rows] if isinstance(ask[dimension], np.ndarray) else ask[dimension]
            free.append(1.0 - (used[dimension, rows] + asked) / total)
        return fullness_scores(free[0], free[1], self._algorithm)

    def _pop(self) -> Head | None:
        """The best row that nothing has closed since it was put in order."""
        head = self._lanes.pop()
        while head is not None and self._distinct.closed(head.row):
            head = self._lanes.pop()
        return head

    def _insert(self, row: int) -> None:
        """Put a row back in order if the group fits there and nothing closes it."""
        if not self.candidates.feasible.item(row) or self._distinct.closed(row) or self.shortage(row):
            return
        total, terms = self._own_sum(row)
        key = self._combinations.item(row) * TERMS_MAX + terms if self._spreads else 0
        self._lanes.insert(key, total / terms, self._ties.item(row), row)

    def _own_sum(self, row: int) -> tuple[float, int]:
        """The sum of a row's terms without spread, and the number of its terms with it."""
        used, capacity, ask = self._proposal.used.item, self._columns.capacity.item, self._asks.of(row)
        free_cpu = 1.0 - (used(CPU, row) + ask[CPU]) / (capacity(CPU, row) or 1.0)
        free_memory = 1.0 - (used(MEMORY, row) + ask[MEMORY]) / (capacity(MEMORY, row) or 1.0)
        total, terms = fullness_score(free_cpu, free_memory, self._algorithm), 1
        collisions = self._collisions.item(row)
        if collisions > 0:
            total, terms = total - (collisions + 1) / self._count, terms + 1
        if self._affinity is not None:
            total, terms = total + self._affinity.item(row), terms + 1
        return total, terms + 1 if self._spreads else terms

    def _penalised_score(self, row: int) -> float:
        total, terms = self._own_sum(row)
        return (total + self._spread_boost(row) + RESCHEDULE_PENALTY) / (terms + 1)

    def _score_meta(self, row: int) -> NodeScoreMeta:
        total, terms = self._own_sum(row)
        collisions = self._collisions.item(row)
        scores = {"binpack": total}
        if collisions > 0:
            scores["job-anti-affinity"] = -(collisions + 1) / self._count
        if self._affinity is not None:
            scores["node-affinity"] = self._affinity.item(row)
        scores["binpack"] = total - sum(score for name, score in scores.items() if name != "binpack")
        if self._spreads:
            scores["allocation-spread"] = self._spread_boost(row)
        norm = (total + scores.get("allocation-spread", 0.0)) / terms
        return NodeScoreMeta(node_id=self._columns.node(row).id, scores=scores, norm_score=norm)

    # Spreads.

    def _combine_spreads(self) -> tuple[Ints, list[dict[int, list[int]]]]:
        """A number for each combination of spread values, by row; and for each spread the combinations of each code."""
        combinations: Ints = np.zeros(len(self._columns.nodes), np.int64)
        sizes = [max(1, len(block.wanted)) for block in self._spreads]
        for block, size in zip(self._spreads, sizes, strict=True):
            combinations = combinations * size + block.codes
        self._codes_of_combination: dict[int, list[int]] = {}
        by_block: list[dict[int, list[int]]] = [{} for _ in self._spreads]
        for combination in np.unique(combinations).tolist() if self._spreads else ():
            codes: list[int] = []
            rest = combination
            for size in reversed(sizes):
                rest, code = divmod(rest, size)
                codes.insert(0, code)
            self._codes_of_combination[combination] = codes
            for position, code in enumerate(codes):
                by_block[position].setdefault(code, []).append(combination)
        return combinations, by_block

    def _offset(self, key: int) -> float:
        """What spread adds to the scores of a lane."""
        if not self._spreads:
            return 0.0
        combination, terms = divmod(key, TERMS_MAX)
        codes = self._codes_of_combination[combination]
        return sum(block.boost(code) for block, code in zip(self._spreads, codes, strict=True)) / terms

    def _spread_boost(self, row: int) -> float:
        return sum(block.boost(block.codes.item(row)) for block in self._spreads)

    def _count_spreads(self, row: int, change: int = 1) -> None:
        changed: set[int] = set()
        for block, combinations in zip(self._spreads, self._lanes_by_block, strict=True):
            code = block.codes.item(row)
            block.used[code] += change
            changed.update(combinations[code])
        for combination in changed:
            for terms in range(2, TERMS_MAX):
                self._lanes.shift(combination * TERMS_MAX + terms)


class _Asks:
    """What a group asks for: the same everywhere, or by row where whole cores count for a node's own MHz."""

    def __init__(self, columns: NodeColumns, group: TaskGroup) -> None:
        self._same: Usage | None = None
        self.rows: tuple[Any, ...]
        if not any(task.resources.cores for task in group.tasks):
            self._same = group_usage(group)
            self.rows = tuple(self._same)
            return
        self._by_mhz = {int(mhz): group_usage(group, int(mhz)) for mhz in np.unique(columns.core_mhz)}
        self._core_mhz = columns.core_mhz
        self.rows = tuple(np.array([self._by_mhz[int(mhz)] for mhz in columns.core_mhz], np.float64).T)

    def of(self, row: int) -> Usage:
        """What it asks for on one row."""
        return self._same or self._by_mhz[int(self._core_mhz[row])]


def _is_among(port: int, ports: object) -> bool:
    return port in parse_ports(str(ports))


def affinity_scores(columns: NodeColumns, job: Job, group: TaskGroup) -> Floats | None:
    """(rows,) -1..1: the weights of the affinities that match, over the sum of all; None without affinities."""
    affinities = [*job.affinities, *group.affinities, *(a for task in group.tasks for a in task.affinities)]
    total = sum(abs(affinity.weight) for affinity in affinities)
    if not total:
        return None
    scores: Floats = np.zeros(len(columns.nodes))
    for affinity in affinities:
        scores[columns.passing(constraint_check(affinity))] += affinity.weight / total
    return scores


def mixed_ties(bits: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """(rows,) the order among equals that a seed decides: splitmix64 of each node's bits."""
    x = bits ^ np.uint64(seed & ((1 << 64) - 1))
    x = x + np.uint64(GAMMA)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(FIRST_FACTOR)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(SECOND_FACTOR)
    return x ^ (x >> np.uint64(31))
