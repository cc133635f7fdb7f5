"""Serving as jobs of a real agent: models are placed, killed and moved, and predictions go on."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import HOST, Agent, eventually, running

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.addresses import Address
from lepa.serving.addressing import SrvDnsProvider
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.job_files import PartResources
from lepa.serving.container_managers.jobs import JobsContainerManager

SLO_MICROS = 500_000
SMALL = PartResources(cpu=100, memory_mb=100)


UP_S = 40.0


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("agent")) as found:
        yield found


def api(agent: Agent) -> Address:
    return Address(HOST, agent.ports["http"])


def running_of(agent: Agent, job_id: str) -> list[Any]:
    """Allocations that run and are to run, now."""
    allocations = agent.allocations(job_id)
    return [one for one in allocations if one["ClientStatus"] == "running" and one["DesiredStatus"] == "run"]


@contextlib.contextmanager
def cluster(agent: Agent, name: str, **settings: Any) -> Iterator[ClipperConnection]:
    parts = {"management": SMALL, "query_frontend": SMALL, "model": SMALL, **settings}
    connection = ClipperConnection(JobsContainerManager(str(api(agent)), name, **parts))
    connection.start_clipper()
    try:
        yield connection
    finally:
        connection.stop_all()
        eventually(lambda: not agent.get(f"/v1/jobs?prefix=clipper-{name}-"), UP_S)


def pids_of(model: str) -> list[int]:
    """Model processes are known by their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"CLIPPER_MODEL_NAME={model}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def test_predictions_go_on_when_a_replica_dies_and_when_the_frontend_moves(agent: Agent, tmp_path: Path) -> None:
    """B277."""
    with cluster(agent, "moving") as connection:
        connection.register_application("sum", "doubles", "-1", SLO_MICROS)
        deployers.deploy_python_closure(
            connection, "summing", 1, "doubles", lambda rows: [float(row.sum()) for row in rows], num_replicas=2
        )
        connection.link_model_to_app("sum", "summing")
        eventually(lambda: not connection.predict("sum", [1.0])["default"], UP_S)

        os.kill(pids_of("summing")[0], signal.SIGKILL)
        answers = [connection.predict("sum", [number, 0.5]) for number in range(100)]
        assert [answer["output"] for answer in answers] == [number + 0.5 for number in range(100)]
        connection.wait_for_replicas("summing", 1, 2)

        old = connection.cm.get_query_addr()
        (frontend,) = running_of(agent, "clipper-moving-query-frontend")
        agent.put(f"/v1/allocation/{frontend['ID']}/stop")

        def moved() -> bool:
            with contextlib.suppress(LepaError):
                return connection.cm.get_query_addr() != old and not connection.predict("sum", [2.0])["default"]
            return False

        eventually(moved, UP_S)
        assert any("model loaded" in path.read_text() for path in connection.get_clipper_logs(tmp_path))


def test_parts_find_each_other_by_srv_and_a_second_process_connects(agent: Agent) -> None:
    address = Address(HOST, agent.ports["dns"])
    dns = SrvDnsProvider(address)
    with cluster(agent, "named", dns=dns, discovery=f"dns://{address}/consul") as connection:
        deployers.create_endpoint(connection, "echo", "strings", list, slo_micros=SLO_MICROS)
        other = ClipperConnection(JobsContainerManager(str(api(agent)), "named", dns=dns))
        other.connect()
        eventually(lambda: other.predict("echo", "hello")["output"] == "hello", UP_S)
        assert other.get_all_models() == ["echo:1"]
        assert len(agent.get("/v1/jobs?prefix=clipper-named-")) == 3
        other.set_num_replicas("echo", 2)
        other.wait_for_replicas("echo", 1, 2)
        other.stop_models(["echo"])
        assert other.get_all_models() == []


def test_a_model_that_cannot_start_is_reported_and_stopped(agent: Agent, tmp_path: Path) -> None:
    with cluster(agent, "broken") as connection:
        deployers.save_model(tmp_path / "model", "ints", len)
        (tmp_path / "model" / "func.pkl").write_bytes(b"not a pickle")
        image = connection.build_model("bad", 1, tmp_path / "model")
        with pytest.raises(LepaError, match=r"waited 15 s|did not come up"):
            connection.deploy_model("bad", 1, "ints", image, ready_timeout_s=15.0)
        eventually(lambda: not running_of(agent, "clipper-broken-model-bad-1"), UP_S)


def selections(agent: Agent) -> list[str]:
    """Variables in which the cluster "kept" keeps the state of selection policies."""
    return [each["Path"] for each in agent.get("/v1/vars?prefix=serving/kept/selection/")]


def test_the_registry_in_variables_is_there_when_the_management_frontend_has_lost_its_disk(agent: Agent) -> None:
    """lepa.serving.variables_store"""
    store = f"vars://{api(agent)}/serving/kept"
    with cluster(agent, "kept", store=store) as connection:
        connection.register_application("sum", "doubles", "-1", SLO_MICROS, policy="epsilon-greedy")
        deployers.deploy_python_closure(
            connection, "summing", 1, "doubles", lambda rows: [float(row.sum()) for row in rows]
        )
        connection.link_model_to_app("sum", "summing")
        eventually(lambda: not connection.predict("sum", [1.0])["default"], UP_S)
        assert connection.update("sum", [1.0], 1.0)
        paths = agent.get("/v1/vars?prefix=serving/kept/")
        assert "serving/kept/registry" in {each["Path"] for each in paths}
        eventually(
            lambda: any("/selection/" in each["Path"] for each in agent.get("/v1/vars?prefix=serving/kept/")), UP_S
        )

        agent.delete("/v1/job/clipper-kept-mgmt", purge="true")
        eventually(lambda: not agent.get("/v1/service/clipper-kept-mgmt-http"), UP_S)
        assert connection.predict("sum", [2.0])["output"] == 2.0
        connection.connect()
        assert connection.get_linked_models("sum") == ["summing"]
        assert connection.get_all_models() == ["summing:1"]
        connection.unregister_application("sum")
        assert not selections(agent)
