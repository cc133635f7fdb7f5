"""Nodes of a group, best first (with `lepa.scheduler.distinct`)."""

import math
from typing import Any

import numpy as np
import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task
from tests.fake_view import FakeView

from lepa.model.allocation import Allocation
from lepa.model.constraint import Affinity, Constraint, Spread
from lepa.model.job import Job
from lepa.model.node import NodeReservedNetworkResources, NodeReservedResources
from lepa.model.resources import NetworkResource, Port, Resources
from lepa.scheduler.columns import NodeColumns, Proposal
from lepa.scheduler.rank import GroupRanking, fullness_score, fullness_scores

NODES = tuple(make_node(f"n{i}", meta={"rack": f"r{i % 3}"}) for i in range(9))


class Ranked:
    """A ranking with what it works on, and placements by node id."""

    def __init__(
        self,
        *nodes: Any,
        job: Job | None = None,
        allocs: tuple[Allocation, ...] = (),
        algorithm: str = "binpack",
        seed: int = 1,
        **group: Any,
    ) -> None:
        job = job or make_job(groups=(make_group(**group),))
        self.view = FakeView(*(nodes or NODES), allocs=allocs)
        self.columns = NodeColumns()
        self.columns.refresh(self.view)
        self.proposal = Proposal(self.view, self.columns)
        siblings = [alloc for alloc in allocs if alloc.job_id == job.id]
        self.ranking = GroupRanking(self.columns, self.proposal, job, job.task_groups[0], siblings, algorithm, seed)

    def place(self, *penalised: str) -> str | None:
        """The node of one more placement."""
        row = self.ranking.take(frozenset(self.columns.row_of[node] for node in penalised))
        if row is None:
            return None
        self.proposal.occupy(row, self.ranking.ask(row))
        self.ranking.placed(row)
        return self.columns.node(row).id

    def scores(self) -> dict[str, dict[str, float]]:
        return {meta.node_id: meta.scores for meta in self.ranking.shared_metric().score_meta_data}


@pytest.mark.parametrize(("cpu", "memory", "score"), [(0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (0.5, 0.5, 0.7597)])
def test_fullness_follows_the_published_curve(cpu: float, memory: float, score: float) -> None:
    assert fullness_score(cpu, memory, "binpack") == pytest.approx(score, abs=1e-3)
    assert fullness_score(cpu, memory, "spread") == pytest.approx(1 - score, abs=1e-3)
    vector = fullness_scores(np.array([cpu]), np.array([memory]), "binpack")
    assert vector[0] == pytest.approx(fullness_score(cpu, memory, "binpack"))


def test_binpack_fills_and_spread_evens() -> None:
    other = make_alloc("x", node_id="n3", job=make_job("other"))
    assert Ranked(allocs=(other,)).place() == "n3"
    placed = Ranked(allocs=(other,), algorithm="spread")
    assert "n3" not in {placed.place() for _ in range(8)}


def test_the_same_seed_decides_between_equals_in_the_same_way() -> None:
    first = [Ranked(seed=5).place() for _ in range(3)]
    assert len(set(first)) == 1
    assert len({Ranked(seed=seed).place() for seed in range(20)}) > 1


def test_rows_of_the_columns_do_not_matter() -> None:
    forward, backward = Ranked(*NODES), Ranked(*reversed(NODES))
    assert [forward.place() for _ in range(20)] == [backward.place() for _ in range(20)]


def test_order_stays_that_of_scoring_everything_again() -> None:
    ranked = Ranked(count=40)
    placed = {f"n{i}": 0 for i in range(9)}
    for _ in range(40):
        best = max(_score(count) for count in placed.values())
        node = ranked.place()
        assert node is not None
        assert _score(placed[node]) == pytest.approx(best)
        placed[node] += 1


def _score(count: int) -> float:
    used = count + 1
    full = fullness_score(1 - used * 100 / 4_000, 1 - used * 128 / 8_192, "binpack")
    return (full - (count + 1) / 40) / 2 if count else full


def test_anti_affinity_moves_on_to_the_next_node() -> None:
    own = make_alloc("x", node_id="n3")
    ranked = Ranked(count=2, allocs=(own,))
    assert ranked.place() != "n3"
    assert Ranked(make_node("n3"), count=2, allocs=(own,)).scores()["n3"]["job-anti-affinity"] == -1


def test_a_node_where_a_try_failed_is_penalised_for_one_question() -> None:
    ranked = Ranked(make_node("n1"), make_node("n2"), count=10)
    first = Ranked(make_node("n1"), make_node("n2"), count=10).place()
    assert first is not None
    assert ranked.place(first) != first
    assert ranked.place() == first
    alone = Ranked(make_node("n1"))
    assert alone.place("n1") == "n1", "a penalty does not forbid"


def test_weak_affinity_still_wins_against_none() -> None:
    """B052."""
    affinity = Affinity(ltarget="${node.unique.id}", operand="=", rtarget="n4", weight=10)
    repelled = Affinity(ltarget="${node.unique.id}", operand="=", rtarget="n1", weight=-100)
    for seed in range(10):
        assert Ranked(seed=seed, affinities=(affinity,)).place() == "n4"
        ranked = Ranked(make_node("n1"), make_node("n2"), seed=seed, affinities=(repelled,))
        assert ranked.place() == "n2"
        assert ranked.scores()["n2"]["node-affinity"] == 0


def test_spread_evens_out_over_values() -> None:
    ranked = Ranked(count=9, spreads=(Spread(attribute="${meta.rack}", weight=100),))
    placed = [ranked.place() for _ in range(9)]
    racks = [int(str(node)[1:]) % 3 for node in placed]
    assert sorted(racks) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sorted(racks[:3]) == [0, 1, 2]


def test_two_spreads_are_weighed_together() -> None:
    nodes = [make_node(f"n{i}", datacenter=f"dc{i % 2}", meta={"rack": f"r{i % 3}"}) for i in range(6)]
    spreads = (Spread(attribute="${meta.rack}"), Spread(attribute="${node.datacenter}"))
    ranked = Ranked(*nodes, count=6, spreads=spreads, job=None)
    placed = [ranked.place() for _ in range(6)]
    assert len(set(placed)) == 6


def test_existing_allocations_count_for_spread() -> None:
    own = tuple(make_alloc(f"a{i}", node_id="n0", index=i) for i in range(2))
    ranked = Ranked(count=6, allocs=own, spreads=(Spread(attribute="${meta.rack}", weight=100),))
    placed = [int(str(ranked.place())[1:]) % 3 for _ in range(4)]
    assert sorted(placed) == [1, 1, 2, 2]


def test_distinct_hosts_and_property_close_nodes() -> None:
    hosts = Ranked(count=20, constraints=(Constraint(operand="distinct_hosts"),))
    assert len({hosts.place() for _ in range(9)}) == 9
    assert hosts.place() is None
    assert hosts.ranking.failure_metric().constraint_filtered == {"distinct_hosts": 9}
    limit = Constraint(operand="distinct_property", ltarget="${meta.rack}", rtarget="2")
    racks = Ranked(count=20, constraints=(limit,))
    assert sorted(int(str(racks.place())[1:]) % 3 for _ in range(6)) == [0, 0, 1, 1, 2, 2]
    assert racks.place() is None
    assert racks.ranking.failure_metric().constraint_filtered == {"distinct_property: ${meta.rack}": 9}


def test_distinct_hosts_looks_only_at_the_own_namespace() -> None:
    """B049."""
    stranger = make_alloc("x", node_id="n0", namespace="other")
    view = FakeView(NODES[0], allocs=[stranger])
    assert list(view.job_allocations("default", "web")) == []


def test_nodes_without_the_property_are_closed() -> None:
    limit = Constraint(operand="distinct_property", ltarget="${meta.absent}")
    assert Ranked(constraints=(limit,)).place() is None


def test_exhausted_dimensions_are_told() -> None:
    ranked = Ranked(make_node("n1", cpu=250), make_node("n2", memory_mb=200, node_class="small"))
    assert [ranked.place() for _ in range(4)].count(None) == 1
    metric = ranked.ranking.failure_metric()
    assert metric.dimension_exhausted == {"cpu": 1, "memory": 1}
    assert metric.class_exhausted == {"small": 1}
    assert (metric.nodes_evaluated, metric.nodes_exhausted, metric.nodes_filtered) == (2, 2, 0)
    assert metric.nodes_available == {"dc1": 2}


def test_a_node_takes_no_more_allocations_than_it_may() -> None:
    ranked = Ranked(make_node("n1", node_max_allocs=2))
    assert [ranked.place() for _ in range(3)] == ["n1", "n1", None]
    assert ranked.ranking.failure_metric().dimension_exhausted == {"max allocations exceeded": 1}


def test_static_ports_close_a_node_after_one() -> None:
    network = NetworkResource(reserved_ports=(Port(label="http", value=8080),))
    kept = NodeReservedResources(networks=NodeReservedNetworkResources(reserved_host_ports="8000-9000"))
    ranked = Ranked(make_node("n1"), make_node("n2", reserved_resources=kept), networks=(network,))
    assert ranked.place() == "n1"
    assert ranked.place() is None
    assert ranked.ranking.failure_metric().dimension_exhausted == {"network: reserved port collision http=8080": 2}


def test_cores_ask_for_each_node_s_own_mhz() -> None:
    task = make_task(resources=Resources(cpu=0, cores=1, memory_mb=1))
    ranked = Ranked(make_node("n1", cpu=8_000), tasks=(task,))
    assert ranked.ranking.ask(0).cpu == 2_000
    assert ranked.place() is None, "the node has no cores to reserve"
    assert ranked.ranking.failure_metric().dimension_exhausted == {"cores": 1}


def test_metric_has_the_chosen_node_first_and_five_scores() -> None:
    ranked = Ranked(count=3)
    row = ranked.ranking.take()
    assert row is not None
    metric = ranked.ranking.success_metric(row)
    assert metric.score_meta_data[0].node_id == ranked.columns.node(row).id
    assert len({meta.node_id for meta in metric.score_meta_data}) == 5
    assert all(math.isfinite(meta.norm_score) for meta in metric.score_meta_data)


def test_released_room_is_used_again() -> None:
    own = make_alloc("x", node_id="n1")
    ranked = Ranked(make_node("n1", cpu=100), allocs=(own,))
    assert ranked.place() is None
    ranked.proposal.put(make_alloc("x", node_id="n1", desired_status="stop"), own)
    ranked.ranking.released(0)
    assert ranked.ranking.take_row(0)
    ranked.proposal.put(own, make_alloc("x", node_id="n1", desired_status="stop"))
    ranked.ranking.restored(0)
    assert ranked.place() is None
