"""Serving where there is no room for more, and where the agent is killed while a model is on its way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.agents import HOST, Agent, eventually, running

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.job_files import PartResources
from lepa.serving.container_managers.jobs import JobsContainerManager

SLO_MICROS = 500_000
MODEL_JOB = "clipper-small-model-echo-1"
SMALL = PartResources(cpu=100, memory_mb=100)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with running(tmp_path / "agent", dev=False) as made:
        yield made


def start(agent: Agent, model: PartResources) -> ClipperConnection:
    """A cluster with an application that is linked to model echo, version 1."""
    api = f"{HOST}:{agent.ports['http']}"
    connection = ClipperConnection(
        JobsContainerManager(api, "small", management=SMALL, query_frontend=SMALL, model=model)
    )
    connection.start_clipper()
    connection.register_application("echo", "strings", "-1", SLO_MICROS)
    return connection


def test_without_room_for_another_replica_the_first_serves_on_and_the_model_can_be_stopped(agent: Agent) -> None:
    """B278, B280."""
    (node,) = agent.get("/v1/nodes")
    memory_mb = agent.get(f"/v1/node/{node['ID']}")["NodeResources"]["Memory"]["MemoryMB"]
    connection = start(agent, PartResources(cpu=100, memory_mb=memory_mb * 6 // 10))
    deployers.deploy_python_closure(connection, "echo", 1, "strings", list)
    connection.link_model_to_app("echo", "echo")
    eventually(lambda: connection.predict("echo", "a")["output"] == "a")

    connection.set_num_replicas("echo", 2)
    evaluations = f"/v1/job/{MODEL_JOB}/evaluations"
    eventually(lambda: any(each["Status"] == "blocked" for each in agent.get(evaluations)))
    with pytest.raises(LepaError, match="waited 1 s until 2 replicas of echo:1 are connected"):
        connection.wait_for_replicas("echo", 1, 2, timeout_s=1.0)
    assert connection.predict("echo", "b") | {"query_id": 0} == {"query_id": 0, "output": "b", "default": False}

    connection.stop_models(["echo"])
    assert connection.get_all_models() == []
    assert agent.request("GET", f"/v1/job/{MODEL_JOB}").status == 404
    eventually(lambda: not connection.get_all_model_replicas())


def test_a_model_that_is_on_its_way_while_the_agent_is_killed_comes_up(agent: Agent, tmp_path: Path) -> None:
    """B282."""
    connection = start(agent, SMALL)
    deployers.save_model(tmp_path / "model", "strings", list)
    image = connection.build_model("echo", 1, tmp_path / "model")
    connection.cm.deploy_model("echo", "1", "strings", image)
    agent.kill9()
    agent.start()
    connection.wait_for_replicas("echo", 1, 1)
    connection.register_model("echo", 1, "strings", image)
    connection.link_model_to_app("echo", "echo")
    eventually(lambda: connection.predict("echo", "a")["output"] == "a")
    assert len(agent.running(MODEL_JOB)) == 1
