"""How fast are placements: 1,000 identical tasks on 1,000 to 10,000 nodes.

`scheduler.place.N` times choosing nodes and keeping order (rank, take, count) from kept columns; `place_spread` the
same with an even spread over 75 racks; `scheduler.evaluate.N` a whole evaluation, from reconciling to a plan with all
Allocation objects. Beside each stands a plain vectorised scheduler that scores all nodes again for every placement.

Expected on two cores: place >= 100,000/s at 10,000 nodes, place_spread >= 30,000/s, evaluate >= 40,000/s; the plain one
makes 2,000 to 15,000/s.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter

from benchmarks._scheduler_cluster import Cluster, make_cluster, make_job, place_plainly
from benchmarks.harness import Figure
from lepa.model.constraint import Spread
from lepa.model.evaluation import Evaluation
from lepa.scheduler.columns import Proposal
from lepa.scheduler.plan_check import check_plan
from lepa.scheduler.process import process
from lepa.scheduler.rank import GroupRanking

PLACEMENTS = 1_000
RUNS = 5
NODES = (1_000, 5_000, 10_000)
FIGURES = (
    "scheduler.place.1000",
    "scheduler.place.5000",
    "scheduler.place.10000",
    "scheduler.place_spread.10000",
    "scheduler.evaluate.10000",
)
SPREAD = (Spread(attribute="${meta.rack}", weight=100),)


def run() -> list[Figure]:
    """All figures."""
    figures = []
    for nodes in NODES:
        cluster = make_cluster(nodes, racks=75)
        beside = _rate(lambda cluster=cluster: place_plainly(cluster, PLACEMENTS))
        figures.append(_figure(f"scheduler.place.{nodes}", _rate(lambda cluster=cluster: _place(cluster, ())), beside))
        if nodes == max(NODES):
            spread = _rate(lambda cluster=cluster: _place(cluster, SPREAD))
            figures.append(_figure(f"scheduler.place_spread.{nodes}", spread, beside))
            whole = _rate(lambda cluster=cluster: _evaluate(cluster))
            figures.append(_figure(f"scheduler.evaluate.{nodes}", whole, beside))
    return figures


def _figure(name: str, value: float, beside: float) -> Figure:
    return Figure(name, value, "1/s", beside, "rescoring all nodes each time")


def _rate(place: Callable[[], float]) -> float:
    """Placements a second, median; the first run warms the columns up. place: returns seconds."""
    place()
    return PLACEMENTS / median(place() for _ in range(RUNS))


def _place(cluster: Cluster, spreads: tuple[Spread, ...]) -> float:
    job = make_job(PLACEMENTS, spreads=spreads)
    group = job.task_groups[0]
    start = perf_counter()
    proposal = Proposal(cluster, cluster.columns)
    ranking = GroupRanking(cluster.columns, proposal, job, group, (), "binpack", seed=7)
    ask = ranking.ask(0)
    for _ in range(PLACEMENTS):
        row = ranking.take()
        assert row is not None
        proposal.occupy(row, ask)
        ranking.placed(row)
    return perf_counter() - start


def _evaluate(cluster: Cluster) -> float:
    job = cluster.put_job(make_job(PLACEMENTS))
    evaluation = Evaluation(id="e", job_id=job.id, namespace=job.namespace, type=job.type, priority=job.priority)
    ids = iter(range(10**9))
    start = perf_counter()
    outcome = process(
        evaluation, cluster, now_ns=1, seed=7, new_id=lambda: f"{next(ids):036d}", columns=cluster.columns
    )
    seconds = perf_counter() - start
    assert len(outcome.plan.updates) == PLACEMENTS
    assert not check_plan(outcome.plan, cluster).rejected_nodes
    return seconds
