"""Serving as jobs of a real agent: models are placed, killed and moved, and predictions go on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.addresses import Address
from lepa.serving.addressing import SrvDnsProvider
from lepa.serving.admin_client import call
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.job_files import PartResources
from lepa.serving.container_managers.jobs import JobsContainerManager

SLO_MICROS = 500_000
SMALL = PartResources(cpu=100, memory_mb=100)


def eventually(done: Any, timeout_s: float = 40.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.05)


def free_ports(*names: str) -> dict[str, int]:
    with contextlib.ExitStack() as stack:
        probes = {name: stack.enter_context(socket.socket()) for name in names}
        for probe in probes.values():
            probe.bind(("127.0.0.1", 0))
        return {name: probe.getsockname()[1] for name, probe in probes.items()}


class Agent:
    """A development agent in a process of its own."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.api = Address("127.0.0.1", ports["http"])
        self.dns = Address("127.0.0.1", ports["dns"])

    def get(self, path: str) -> Any:
        return call(self.api, "GET", path)

    def healthy(self) -> bool:
        try:
            return any(node["Status"] == "ready" for node in self.get("/v1/nodes"))
        except LepaError:
            return False

    def running(self, job_id: str) -> list[Any]:
        allocations = self.get(f"/v1/job/{job_id}/allocations")
        return [one for one in allocations if one["ClientStatus"] == "running" and one["DesiredStatus"] == "run"]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    ports = free_ports("http", "rpc", "dns")
    (folder / "agent.json").write_text(json.dumps({"ports": ports, "log_level": "INFO"}))
    lepa = Path(sys.executable).with_name("lepa")
    command = [lepa, "agent", "-dev", "-config", folder / "agent.json", "-data-dir", folder / "data"]
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    made = Agent(ports)
    try:
        eventually(lambda: made.healthy() or process.poll() is not None)
        assert process.poll() is None, (folder / "agent.log").read_text()
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def cluster(agent: Agent, name: str, **settings: Any) -> Iterator[ClipperConnection]:
    parts = {"management": SMALL, "query_frontend": SMALL, "model": SMALL, **settings}
    connection = ClipperConnection(JobsContainerManager(str(agent.api), name, **parts))
    connection.start_clipper()
    try:
        yield connection
    finally:
        connection.stop_all()
        eventually(lambda: not agent.get(f"/v1/jobs?prefix=clipper-{name}-"))


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
        eventually(lambda: not connection.predict("sum", [1.0])["default"])

        os.kill(pids_of("summing")[0], signal.SIGKILL)
        answers = [connection.predict("sum", [number, 0.5]) for number in range(100)]
        assert [answer["output"] for answer in answers] == [number + 0.5 for number in range(100)]
        connection.wait_for_replicas("summing", 1, 2)

        old = connection.cm.get_query_addr()
        (frontend,) = agent.running("clipper-moving-query-frontend")
        call(agent.api, "PUT", f"/v1/allocation/{frontend['ID']}/stop")

        def moved() -> bool:
            with contextlib.suppress(LepaError):
                return connection.cm.get_query_addr() != old and not connection.predict("sum", [2.0])["default"]
            return False

        eventually(moved)
        assert any("model loaded" in path.read_text() for path in connection.get_clipper_logs(tmp_path))


def test_parts_find_each_other_by_srv_and_a_second_process_connects(agent: Agent) -> None:
    dns = SrvDnsProvider(agent.dns)
    with cluster(agent, "named", dns=dns, discovery=f"dns://{agent.dns}/consul") as connection:
        deployers.create_endpoint(connection, "echo", "strings", list, slo_micros=SLO_MICROS)
        other = ClipperConnection(JobsContainerManager(str(agent.api), "named", dns=dns))
        other.connect()
        eventually(lambda: other.predict("echo", "hello")["output"] == "hello")
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
        eventually(lambda: not agent.running("clipper-broken-model-bad-1"))


def test_the_registry_in_variables_is_there_when_the_management_frontend_has_lost_its_disk(agent: Agent) -> None:
    """lepa.serving.variables_store"""
    store = f"vars://{agent.api}/serving/kept"
    with cluster(agent, "kept", store=store) as connection:
        connection.register_application("sum", "doubles", "-1", SLO_MICROS, policy="epsilon-greedy")
        deployers.deploy_python_closure(
            connection, "summing", 1, "doubles", lambda rows: [float(row.sum()) for row in rows]
        )
        connection.link_model_to_app("sum", "summing")
        eventually(lambda: not connection.predict("sum", [1.0])["default"])
        assert connection.update("sum", [1.0], 1.0)
        paths = agent.get("/v1/vars?prefix=serving/kept/")
        assert "serving/kept/registry" in {each["Path"] for each in paths}
        eventually(lambda: any("/selection/" in each["Path"] for each in agent.get("/v1/vars?prefix=serving/kept/")))

        call(agent.api, "DELETE", "/v1/job/clipper-kept-mgmt?purge=true")
        eventually(lambda: not agent.get("/v1/service/clipper-kept-mgmt-http"))
        assert connection.predict("sum", [2.0])["output"] == 2.0
        connection.connect()
        assert connection.get_linked_models("sum") == ["summing"]
        assert connection.get_all_models() == ["summing:1"]
        connection.unregister_application("sum")
        assert not any("/selection/" in each["Path"] for each in agent.get("/v1/vars?prefix=serving/kept/"))
