"""Serving with real processes: frontends, model containers, and what happens when they die, fail or move.

Covers lepa.serving.connection, lepa.serving.deployers, lepa.serving.frontend, lepa.serving.management,
lepa.serving.replicas, lepa.serving.registry_follower and both container managers from end to end.
"""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tests.integration.fake_nomad import fake_nomad, free_port

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.job_files import PartResources
from lepa.serving.container_managers.jobs import JobsContainerManager
from lepa.serving.container_managers.local import MANAGEMENT, QUERY, LocalContainerManager

SLO_MICROS = 1_000_000
DIGITS = load_digits()


@pytest.fixture(scope="module")
def digits_model() -> Any:
    return LogisticRegression(max_iter=200).fit(DIGITS.data, DIGITS.target)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClipperConnection]:
    manager = LocalContainerManager("test", tmp_path, query_port=0, management_port=0, rpc_port=0)
    connection = ClipperConnection(manager)
    connection.start_clipper()
    try:
        yield connection
    finally:
        connection.stop_all()


def eventually(done: Any, timeout_s: float = 20.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)


def answers(connection: ClipperConnection, app: str, value: Any) -> bool:
    return not connection.predict(app, value)["default"]


def serve_digits(connection: ClipperConnection, model: Any, replicas: int) -> None:
    connection.register_application("digits", "doubles", "-1", SLO_MICROS)
    deployers.deploy_sklearn_model(connection, "digits-model", 1, "doubles", model, num_replicas=replicas)
    connection.link_model_to_app("digits", "digits-model")
    eventually(lambda: answers(connection, "digits", list(DIGITS.data[0])))


def model_pids(connection: ClipperConnection) -> list[int]:
    manager = connection.cm
    assert isinstance(manager, LocalContainerManager)
    return [process.pid for process in manager.processes("digits-model:1")]


def test_digits_are_recognised_and_the_loss_of_a_replica_is_not_noticed(
    cluster: ClipperConnection, digits_model: Any
) -> None:
    serve_digits(cluster, digits_model, replicas=2)
    expected = digits_model.predict(DIGITS.data[:200])

    def ask(number: int) -> Any:
        if number == 60:
            os.kill(model_pids(cluster)[0], signal.SIGKILL)
        return cluster.predict("digits", list(DIGITS.data[number]))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(200)))
    assert [answer["output"] for answer in found] == list(expected)
    assert not any(answer["default"] for answer in found)
    eventually(lambda: len(cluster.get_all_model_replicas()) == 1)
    assert cluster.get_num_replicas("digits-model") == 1
    cluster.set_num_replicas("digits-model", 2)
    cluster.wait_for_replicas("digits-model", 1, 2)


def test_frontend_that_is_killed_comes_back_with_its_models(cluster: ClipperConnection, digits_model: Any) -> None:
    serve_digits(cluster, digits_model, replicas=1)
    manager = cluster.cm
    assert isinstance(manager, LocalContainerManager)
    manager.restart_query_frontend()
    eventually(lambda: answers(cluster, "digits", list(DIGITS.data[1])))


def test_management_frontend_remembers_what_was_registered(cluster: ClipperConnection) -> None:
    cluster.register_application("kept", "ints", "0", SLO_MICROS)
    manager = cluster.cm
    assert isinstance(manager, LocalContainerManager)
    manager.restart_management_frontend()
    assert cluster.get_all_apps() == ["kept"]


def test_model_that_raises_fails_only_the_queries_that_it_cannot_answer(cluster: ClipperConnection) -> None:
    def picky(inputs: Any) -> list[str]:
        for row in inputs:
            if row[0] < 0:
                raise ValueError("negative")
        return [str(float(row.sum())) for row in inputs]

    deployers.create_endpoint(cluster, "picky", "doubles", picky, default_output="0", slo_micros=SLO_MICROS)
    eventually(lambda: answers(cluster, "picky", [1.0]))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: cluster.predict("picky", [n, 0.5]), [3, -1, 4, -1, 5, 6, -2, 7]))
    assert [answer["output"] for answer in found] == [3.5, 0, 4.5, 0, 5.5, 6.5, 0, 7.5]
    assert "ValueError: negative" in found[1]["default_explanation"]
    assert cluster.get_num_replicas("picky") == 1


def test_model_that_hangs_costs_only_its_own_queries_the_objective(cluster: ClipperConnection) -> None:
    def slow(inputs: Any) -> list[str]:
        import time

        time.sleep(3600 if any(text == "hang" for text in inputs) else 0)
        return list(inputs)

    deployers.create_endpoint(cluster, "slow", "strings", slow, slo_micros=SLO_MICROS, num_replicas=2)
    eventually(lambda: answers(cluster, "slow", "a"))
    start = time.monotonic()
    answer = cluster.predict("slow", "hang")
    waited_s = time.monotonic() - start
    assert answer["default"]
    assert answer["default_explanation"].startswith("Failed to retrieve")
    assert waited_s >= SLO_MICROS / 1e6 - 0.001
    assert cluster.predict("slow", "b")["output"] == "b"


def test_a_function_over_whole_lists_answers_within_a_long_objective(cluster: ClipperConnection) -> None:
    """B267."""

    def largest(lists: Any) -> list[int]:
        return [max(numbers) for numbers in lists]

    deployers.create_endpoint(cluster, "largest", "integers", largest, "-1", slo_micros=30_000_000)
    eventually(lambda: answers(cluster, "largest", [1, 2]))
    assert cluster.predict("largest", list(range(1000)))["output"] == 999
    assert cluster.predict("largest", [7])["output"] == 7


def test_fifty_callers_at_once_of_a_model_with_large_batches_are_all_answered(cluster: ClipperConnection) -> None:
    """B270."""
    cluster.register_application("many", "strings", "-1", SLO_MICROS)
    deployers.deploy_python_closure(cluster, "many", 1, "strings", list, batch_size=1000)
    cluster.link_model_to_app("many", "many")
    eventually(lambda: answers(cluster, "many", "a"))
    texts = [f"caller {number}" for number in range(200)]
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda text: cluster.predict("many", text), texts))
    assert [answer["output"] for answer in found] == texts


def test_what_was_cut_off_does_not_block_the_name_of_the_cluster(
    cluster: ClipperConnection, digits_model: Any, tmp_path: Path
) -> None:
    """B281."""
    serve_digits(cluster, digits_model, replicas=1)
    manager = cluster.cm
    assert isinstance(manager, LocalContainerManager)
    frontends = [each for each in manager._read().processes if each.part in {MANAGEMENT, QUERY}]
    for frontend in frontends:
        os.kill(frontend.pid, signal.SIGKILL)
    eventually(lambda: not any(map(manager._alive, frontends)))
    again = ClipperConnection(LocalContainerManager("test", tmp_path, query_port=0, management_port=0, rpc_port=0))
    again.start_clipper()
    eventually(lambda: answers(again, "digits", list(DIGITS.data[3])))
    assert len(again.get_all_model_replicas()) == again.get_num_replicas("digits-model") == 1


def test_versions_go_forward_and_back(cluster: ClipperConnection) -> None:
    deployers.create_endpoint(cluster, "which", "ints", lambda inputs: ["1"] * len(inputs), slo_micros=SLO_MICROS)
    deployers.deploy_python_closure(cluster, "which", 2, "ints", lambda inputs: ["2"] * len(inputs))
    eventually(lambda: cluster.predict("which", [7])["output"] == 2)
    assert cluster.predict("which", [8], version=1)["output"] == 1
    cluster.roll_back_model("which")
    eventually(lambda: cluster.predict("which", [9])["output"] == 1)
    cluster.stop_inactive_model_versions(["which"])
    assert cluster.get_all_models() == ["which:1"]


def test_model_that_cannot_start_is_reported_with_its_last_words(cluster: ClipperConnection, tmp_path: Path) -> None:
    directory = tmp_path / "broken"
    deployers.save_model(directory, "ints", len)
    (directory / "func.pkl").write_bytes(b"not a pickle")
    with pytest.raises(LepaError, match="UnpicklingError"):
        cluster.build_and_deploy_model("broken", 1, "ints", directory)


def test_second_process_connects_and_a_second_start_is_refused(cluster: ClipperConnection, tmp_path: Path) -> None:
    other = ClipperConnection(LocalContainerManager("test", tmp_path))
    with pytest.raises(LepaError, match="connect"):
        other.get_all_apps()
    other.connect()
    assert other.get_all_apps() == []
    with pytest.raises(LepaError, match="already exists"):
        other.start_clipper()
    with pytest.raises(LepaError, match="does not run here"):
        ClipperConnection(LocalContainerManager("another", tmp_path)).connect()


def test_cluster_runs_as_jobs_and_follows_a_frontend_that_moves(tmp_path: Path, digits_model: Any) -> None:
    with fake_nomad(tmp_path) as (nomad, api):
        manager = JobsContainerManager(api, "one", model=PartResources(cpu=100, memory_mb=100))
        connection = ClipperConnection(manager)
        connection.start_clipper()
        serve_digits(connection, digits_model, replicas=2)
        assert connection.get_num_replicas("digits-model") == 2

        again = ClipperConnection(JobsContainerManager(api, "one"))
        again.connect()
        assert nomad.submissions == [
            "clipper-one-mgmt",
            "clipper-one-query-frontend",
            "clipper-one-model-digits-model-1",
        ]

        job = nomad.jobs["clipper-one-query-frontend"]
        old = manager.get_query_addr()
        nomad.stop("clipper-one-query-frontend")
        nomad.submit(job)
        manager.connect()
        assert manager.get_query_addr() != old
        eventually(lambda: answers(connection, "digits", list(DIGITS.data[2])))

        assert any("model loaded" in path.read_text() for path in connection.get_clipper_logs(tmp_path / "logs"))
        connection.stop_all()
        assert nomad.jobs == {}


def test_two_frontends_share_every_replica_and_clusters_do_not_touch(tmp_path: Path) -> None:
    with fake_nomad(tmp_path) as (nomad, api):
        port = free_port()
        first = ClipperConnection(JobsContainerManager(api, "a", management=PartResources(ports={"http": port})))
        second = ClipperConnection(JobsContainerManager(api, "a-model-b"))
        first.start_clipper(num_frontend_replicas=2)
        second.start_clipper()
        assert first.cm.get_admin_addr().port == port
        deployers.create_endpoint(first, "echo", "strings", lambda inputs: list(inputs), slo_micros=SLO_MICROS)
        assert [top["models"][0]["replicas"] for top in first.tops().values()] == [1, 1]
        eventually(lambda: len(first.get_all_model_replicas()) == 1)
        first.stop_all()
        assert sorted(nomad.jobs) == ["clipper-a-model-b-mgmt", "clipper-a-model-b-query-frontend"]
        second.stop_all(graceful=False)
        assert nomad.jobs == {}


def test_job_that_never_comes_up_is_given_up_with_what_the_orchestrator_says(tmp_path: Path) -> None:
    with fake_nomad(tmp_path) as (_, api):
        manager = JobsContainerManager(api, "bad", python="/bin/false", up_timeout_s=0.5)
        with pytest.raises(LepaError, match=r"clipper-bad-mgmt was submitted.*failed: Exit Code: 1"):
            ClipperConnection(manager).start_clipper()


def test_a_model_goes_to_zero_and_comes_back_with_the_first_query(cluster: ClipperConnection) -> None:
    def identity(inputs: Any) -> list[str]:
        return list(inputs)

    deployers.create_endpoint(cluster, "seldom", "strings", identity, slo_micros=5_000_000)
    eventually(lambda: answers(cluster, "seldom", "a"))
    cluster.set_autoscale("seldom", replicas_min=0, idle_s=0.5, down_after_s=0.5)
    eventually(lambda: not cluster.get_all_model_replicas())
    assert cluster.get_num_replicas("seldom") == 0
    answer = cluster.predict("seldom", "b")
    assert (answer["output"], answer["default"]) == ("b", False)
    cluster.stop_autoscale("seldom")


def test_at_two_hundred_a_second_neither_a_kill_nor_fewer_replicas_nor_a_new_version_costs_an_answer(
    cluster: ClipperConnection,
) -> None:
    def doubled(inputs: Any) -> list[str]:
        return [str(2.0 * float(row[0])) for row in inputs]

    deployers.create_endpoint(cluster, "digits-model", "doubles", doubled, slo_micros=2_000_000, num_replicas=3)
    eventually(lambda: answers(cluster, "digits-model", [0.5]))
    start = time.monotonic()

    def ask(number: int) -> tuple[Any, float]:
        time.sleep(max(0.0, start + number / 200 - time.monotonic()))
        asked = time.monotonic()
        return cluster.predict("digits-model", [float(number)]), time.monotonic() - asked

    def disturb() -> None:
        time.sleep(0.5)
        os.kill(model_pids(cluster)[0], signal.SIGKILL)
        time.sleep(0.5)
        cluster.set_num_replicas("digits-model", 1)
        deployers.deploy_python_closure(cluster, "digits-model", 2, "doubles", doubled)
        cluster.stop_inactive_model_versions(["digits-model"])

    with ThreadPoolExecutor(17) as pool:
        disturbance = pool.submit(disturb)
        found = list(pool.map(ask, range(1000)))
        disturbance.result()
    assert [answer["output"] for answer, _ in found] == [2.0 * number for number in range(1000)]
    assert not [answer for answer, _ in found if answer["default"]]
    assert max(seconds for _, seconds in found) < 2.2
    assert cluster.get_all_models() == ["digits-model:2"]
