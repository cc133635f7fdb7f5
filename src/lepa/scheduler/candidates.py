"""Pure: the nodes that may run a group, whatever runs on them now, and why the others may not."""

from typing import NamedTuple

import numpy as np

from lepa.model.job import Job, TaskGroup
from lepa.model.node_class import escapes_class
from lepa.scheduler.columns import Mask, NodeColumns
from lepa.scheduler.feasible import (
    Check,
    FieldColumn,
    ReadyColumn,
    all_constraints,
    datacenter_matches,
    group_checks,
    pool_matches,
)

NODE_CLASS = FieldColumn("node_class")
COMPUTED_CLASS = FieldColumn("computed_class")
DATACENTER = FieldColumn("datacenter")
NODE_POOL = FieldColumn("node_pool")


class Candidates(NamedTuple):
    """in_pool, eligible, feasible: (rows,), each within the one before.

    in_pool: nodes of the job's pool. eligible: those that may get work and are in its datacenters. feasible: those that
    pass every check. filtered: nodes by the reason they failed; class_filtered: the same nodes by node class.
    """

    in_pool: Mask
    eligible: Mask
    feasible: Mask
    filtered: dict[str, int]
    class_filtered: dict[str, int]


def find_candidates(columns: NodeColumns, job: Job, group: TaskGroup) -> Candidates:
    """Sort out the nodes that are not ready, elsewhere, or fail a check."""
    in_pool = nodes_in_pool(columns, job)
    eligible = eligible_nodes(columns, job)
    feasible = eligible.copy()
    filtered: dict[str, int] = {}
    for check in group_checks(job, group):
        failed = feasible & ~columns.passing(check)
        count = int(np.count_nonzero(failed))
        if count:
            filtered[check.reason] = filtered.get(check.reason, 0) + count
            feasible &= ~failed
    return Candidates(in_pool, eligible, feasible, filtered, by_class(columns, eligible & ~feasible))


def nodes_in_pool(columns: NodeColumns, job: Job) -> Mask:
    """(rows,) nodes of the job's pool."""
    in_pool = Check("", NODE_POOL, lambda pool: pool_matches(str(pool), job.node_pool))
    return columns.exists & columns.passing(in_pool)


def eligible_nodes(columns: NodeColumns, job: Job) -> Mask:
    """(rows,) nodes of the job's pool and datacenters that may get work."""
    near = Check("", DATACENTER, lambda datacenter: datacenter_matches(str(datacenter), job.datacenters))
    ready = Check("", ReadyColumn(), bool)
    return nodes_in_pool(columns, job) & columns.passing(near) & columns.passing(ready)


def by_class(columns: NodeColumns, rows: Mask) -> dict[str, int]:
    """How many of some nodes are of each named node class."""
    return {name: count for name, count in columns.counts(NODE_CLASS, rows).items() if name}


class ClassEligibility(NamedTuple):
    """What a blocked evaluation waits for: computed classes that may or may not run the job; escaped: any node may."""

    classes: dict[str, bool]
    escaped: bool


def class_eligibility(columns: NodeColumns, job: Job, groups: list[tuple[TaskGroup, Candidates]]) -> ClassEligibility:
    """A class is eligible when one of its nodes passes every check of one of the groups that could not be placed."""
    coded = columns.coded(COMPUTED_CLASS)
    classes: dict[str, bool] = {}
    for _, candidates in groups:
        for name in columns.counts(COMPUTED_CLASS, candidates.eligible):
            classes.setdefault(name, False)
        for code in np.unique(coded.codes[candidates.feasible]):
            classes[str(coded.values[code])] = True
    classes.pop("", None)
    constraints = [constraint for group, _ in groups for constraint in all_constraints(job, group)]
    escaped = any(escapes_class(c.ltarget) or escapes_class(c.rtarget) for c in constraints)
    return ClassEligibility(classes, escaped)
