"""What a snapshot answers."""

from tests.builders import make_alloc, make_deployment, make_eval, make_job, make_node, make_service

from lepa.model.wire import Wire
from lepa.scheduler.view import View
from lepa.state import keys
from lepa.state.reducer import load
from lepa.state.snapshot import Snapshot, empty_snapshot
from lepa.store.protocol import Entry, Read


def loaded(*rows: tuple[str, Wire]) -> Snapshot:
    entries = [Entry(key, keys.put(key, row).value, at, at) for at, (key, row) in enumerate(rows, 1)]
    return load(Read(len(rows), sorted(entries)))


def a_view(snapshot: Snapshot) -> View:
    """Holds when mypy says so; the test below holds it to names as well."""
    return snapshot


def test_a_snapshot_is_a_schedulers_view() -> None:
    view = a_view(empty_snapshot())
    wanted = [name for name in vars(View) if not name.startswith("_")]
    assert all(hasattr(view, name) for name in wanted)


def test_an_empty_state_has_what_is_always_there() -> None:
    snapshot = empty_snapshot()
    assert [pool.name for pool in snapshot.node_pools()] == ["all", "default"]
    assert [namespace.name for namespace in snapshot.namespaces()] == ["default"]
    assert snapshot.scheduler_configuration().scheduler_algorithm == "binpack"
    assert snapshot.job("default", "web") is None
    assert snapshot.job_allocations("default", "web") == ()


def test_rows_of_a_job_are_found_oldest_first() -> None:
    job, other = make_job("web"), make_job("other")
    snapshot = loaded(
        (keys.alloc_key("z"), make_alloc("z", job=job)),
        (keys.alloc_key("a"), make_alloc("a", job=job)),
        (keys.alloc_key("b"), make_alloc("b", job=other)),
        (keys.eval_key("e"), make_eval("e", job=job)),
        (keys.deployment_key("y"), make_deployment("y", job=job)),
        (keys.deployment_key("x"), make_deployment("x", job=job)),
    )
    assert [alloc.id for alloc in snapshot.job_allocations("default", "web")] == ["z", "a"]
    assert [evaluation.id for evaluation in snapshot.job_evaluations("default", "web")] == ["e"]
    latest = snapshot.latest_deployment("default", "web")
    assert latest is not None
    assert latest.id == "x"


def test_jobs_come_by_namespace_and_id_and_pages_begin_anywhere() -> None:
    names = [("b", "a"), ("a", "z"), ("a", "b/c"), ("a", "b")]
    snapshot = loaded(*((keys.job_key(ns, job_id), make_job(job_id, namespace=ns)) for ns, job_id in names))
    assert [(job.namespace, job.id) for job in snapshot.jobs()] == sorted(names)
    assert [job.id for job in snapshot.jobs(("a", "b/c"))] == ["b/c", "z", "a"]
    assert [job.id for job in snapshot.jobs_in("a")] == ["b", "b/c", "z"]


def test_allocations_come_in_order_of_creation_or_by_prefix() -> None:
    snapshot = loaded(*((keys.alloc_key(name), make_alloc(name)) for name in ("3f2b", "3f1", "3f2a")))
    assert [alloc.id for alloc in snapshot.allocations()] == ["3f2b", "3f1", "3f2a"]
    assert [alloc.id for alloc in snapshot.allocations((2, ""))] == ["3f1", "3f2a"]
    assert [alloc.id for alloc in snapshot.allocations_by_prefix("3f2")] == ["3f2a", "3f2b"]


def test_versions_come_newest_first() -> None:
    snapshot = loaded(*((keys.job_version_key("default", "web", at), make_job(version=at)) for at in range(12)))
    assert [job.version for job in snapshot.job_versions("default", "web")] == list(range(12))[::-1]
    kept = snapshot.job_version("default", "web", 7)
    assert kept is not None
    assert kept.version == 7


def test_services_are_found_by_name_allocation_and_node() -> None:
    snapshot = loaded(
        *((keys.service_key("default", "web", name), make_service(name, alloc_id=name)) for name in ("s1", "s2"))
    )
    assert [service.id for service in snapshot.service_instances("default", "web")] == ["s1", "s2"]
    assert [service.id for service in snapshot.allocation_services("s2")] == ["s2"]
    assert len(snapshot.node_services("node-1")) == 2


def test_nodes_are_found_by_pool_and_prefix() -> None:
    snapshot = loaded(
        (keys.node_key("aa1"), make_node("aa1")), (keys.node_key("ab2"), make_node("ab2", node_pool="gpu"))
    )
    assert {node.id for node in snapshot.nodes()} == {"aa1", "ab2"}
    assert [node.id for node in snapshot.pool_nodes("gpu")] == ["ab2"]
    assert [node.id for node in snapshot.nodes_by_prefix("aa")] == ["aa1"]


def test_after_a_read_everything_counts_as_changed_at_its_revision() -> None:
    snapshot = loaded((keys.node_key("n"), make_node("n")), (keys.alloc_key("a"), make_alloc("a")))
    assert snapshot.table_index("evals", "jobs") == 2
    assert snapshot.touched_nodes(1) is None
    assert snapshot.touched_nodes(2) == frozenset()
