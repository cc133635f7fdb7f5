"""The 120 cases of Nomad's own scheduler benchmark: how long is one evaluation, from reconciling to a plan.

Nodes 500, 1,000, 5,000, 10,000; racks 25, 50, 75; allocations 50 to 1,200; with and without an even spread over the
racks. Each node has 14,000 MHz and 32,000 MB and is in one of two datacenters; the job has one group and the
constraint `${meta.rack}` set_contains_any of half of the racks. Each figure is
`scheduler.matrix.NODES.RACKS.ALLOCATIONS.spread` or `.plain`, in allocations a second. Beside: the plain scheduler that
scores all nodes again for every placement, without spread, without reconciling and without building allocations.

Expected on two cores: from 300 allocations on, 45,000 to 75,000/s plain and 20,000 to 40,000/s with spread; 50 of them
pay for the first full score (18,000/s at 10,000 nodes). The ratio grows with nodes and allocations, to 5 and more.
"""

from collections.abc import Iterator
from itertools import product
from time import perf_counter

from benchmarks._scheduler_cluster import Cluster, make_cluster, make_job, place_plainly
from benchmarks.harness import Figure, median_of
from lepa.model.constraint import Constraint, Spread
from lepa.model.evaluation import Evaluation
from lepa.scheduler.candidates import find_candidates
from lepa.scheduler.plan_check import check_plan
from lepa.scheduler.process import process

NODES = (500, 1_000, 5_000, 10_000)
RACKS = (25, 50, 75)
ALLOCATIONS = (50, 300, 600, 900, 1_200)
RUNS = 3
BESIDE_PLACEMENTS = 50
FIGURES = tuple(
    f"scheduler.matrix.{nodes}.{racks}.{allocations}.{kind}"
    for nodes, racks, allocations, kind in product(NODES, RACKS, ALLOCATIONS, ("plain", "spread"))
)
SPREAD = (Spread(attribute="${meta.rack}", weight=100),)


def run() -> list[Figure]:
    """All 120 figures."""
    return list(_figures())


def _figures() -> Iterator[Figure]:
    for nodes, racks in product(NODES, RACKS):
        cluster = make_cluster(nodes, racks)
        wanted = ",".join(f"r{rack}" for rack in range(racks // 2))
        half = (Constraint(ltarget="${meta.rack}", operand="set_contains_any", rtarget=wanted),)
        job = make_job(1, constraints=half)
        feasible = find_candidates(cluster.columns, job, job.task_groups[0]).feasible
        plain_s = median_of(RUNS, lambda: place_plainly(cluster, BESIDE_PLACEMENTS, feasible))  # noqa: B023
        for allocations, spread in product(ALLOCATIONS, (False, True)):
            seconds = median_of(RUNS, lambda: _evaluate(cluster, allocations, half, spread))  # noqa: B023
            name = f"scheduler.matrix.{nodes}.{racks}.{allocations}.{'spread' if spread else 'plain'}"
            yield Figure(name, allocations / seconds, "1/s", BESIDE_PLACEMENTS / plain_s, "rescoring all nodes")


def _evaluate(cluster: Cluster, allocations: int, constraints: tuple[Constraint, ...], spread: bool) -> float:
    job = cluster.put_job(make_job(allocations, spreads=SPREAD if spread else (), constraints=constraints))
    evaluation = Evaluation(id="e", job_id=job.id, namespace=job.namespace, type=job.type, priority=job.priority)
    ids = iter(range(10**9))
    start = perf_counter()
    outcome = process(
        evaluation, cluster, now_ns=1, seed=7, new_id=lambda: f"{next(ids):036d}", columns=cluster.columns
    )
    seconds = perf_counter() - start
    assert len(outcome.plan.updates) == allocations
    assert not check_plan(outcome.plan, cluster).rejected_nodes
    return seconds
