"""A serving cluster on three nodes: two query frontends, three models with four replicas, and machines that fail.

Callers ask all the time. Whatever happens, every question gets one answer, within its objective, and it is the model's
or, in the moments in which something moves, the application's default. It is never wrong.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.bed import PORTS, wait_until
from tests.cluster.cluster import Cluster, cluster

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.addresses import Address
from lepa.serving.addressing import Fabio, NomadServiceProvider, SrvDnsProvider
from lepa.serving.admin_client import call
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.job_files import PartResources
from lepa.serving.container_managers.jobs import JobsContainerManager

SLO_MICROS = 1_000_000
SMALL = PartResources(cpu=100, memory_mb=120)
MODELS = {"add": 2, "double": 1, "negate": 1}
"""Replicas by model."""
FUNCTIONS = {
    "add": lambda rows: [float(row.sum()) for row in rows],
    "double": lambda rows: [2 * float(row[0]) for row in rows],
    "negate": lambda rows: [-float(row[0]) for row in rows],
}
"""Without names of their own: what has one is looked up in this module, which the nodes do not have."""
EXPECTED = {
    "add": lambda number: number + 0.5,
    "double": lambda number: 2.0 * number,
    "negate": lambda number: -float(number),
}
PAUSE_S = 0.02
MOVE_S = 60.0
BALANCER_PORT = 7000
SECOND_PROCESS = """
import sys
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.jobs import JobsContainerManager

connection = ClipperConnection(JobsContainerManager(sys.argv[1], "left"))
connection.connect()
assert connection.predict("double", [4.0])["output"] == 8.0
connection.set_num_replicas("negate", 2)
connection.wait_for_replicas("negate", 1, 2)
connection.stop_models(["double"])
"""
"""Run on a node: it finds what the test has started, asks it, and changes it."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("serving"), ingress={"enabled": True}) as made:
        made.server.put("/v1/operator/scheduler/configuration", {"SchedulerAlgorithm": "spread"})
        yield made


@pytest.fixture(autouse=True)
def _orderly(here: Cluster) -> Iterator[None]:
    yield
    here.recover()
    here.check_at_rest(40.0)
    here.clear()


def manager(here: Cluster, name: str, **settings: Any) -> JobsContainerManager:
    parts: dict[str, Any] = {"management": SMALL, "query_frontend": SMALL, "model": SMALL}
    return JobsContainerManager(f"{here.server.host}:{PORTS['http']}", name, **parts, **settings)


@contextlib.contextmanager
def serving(here: Cluster, name: str, **settings: Any) -> Iterator[ClipperConnection]:
    """A cluster with two query frontends and the three models, each behind an application of its own."""
    connection = ClipperConnection(manager(here, name, **settings))
    connection.start_clipper(num_frontend_replicas=2)
    for model, replicas in MODELS.items():
        connection.register_application(model, "doubles", "none", SLO_MICROS)
        deployers.deploy_python_closure(connection, model, 1, "doubles", FUNCTIONS[model], num_replicas=replicas)
        connection.link_model_to_app(model, model)
    try:
        yield connection
    finally:
        connection.stop_all()
    wait_until(lambda: not here.server.get("/v1/jobs", prefix=f"clipper-{name}-"))


class Callers:
    """One thread for each application, which asks all the time. refused: what nobody answered."""

    def __init__(self, connection: ClipperConnection) -> None:
        self._connection = connection
        self._stop = threading.Event()
        self.answered = dict.fromkeys(MODELS, 0)
        self.defaults = dict.fromkeys(MODELS, 0)
        self.wrong: list[Any] = []
        self.late: list[float] = []
        self.refused: list[str] = []

    @contextlib.contextmanager
    def asking(self) -> Iterator["Callers"]:
        threads = [threading.Thread(target=self._ask, args=(model,)) for model in MODELS]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(30)

    def _ask(self, model: str) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            asked = time.monotonic()
            try:
                answer = self._connection.predict(model, [float(number), 0.5])
            except LepaError as error:
                self.refused.append(f"{model}: {error}")
                continue
            if answer["default"]:
                self.defaults[model] += 1
            elif answer["output"] == EXPECTED[model](number):
                self.answered[model] += 1
            else:
                self.wrong.append((model, number, answer))
            if (took := time.monotonic() - asked) > SLO_MICROS / 1e6 + 0.5:
                self.late.append(took)

    def go_on(self, count: int = 10) -> None:
        """Return once each model has given `count` more answers."""
        before = dict(self.answered)
        wait_until(lambda: all(self.answered[model] >= before[model] + count for model in MODELS), MOVE_S)

    def check(self, unlucky_max: int = 0) -> None:
        """Nothing was wrong. At most `unlucky_max` questions went to an address where nobody was any more, and were
        answered late or not at all."""
        print(f"answered {self.answered}, defaults {self.defaults}, late {self.late}, refused {self.refused}")
        assert self.wrong == []
        assert len(self.late) + len(self.refused) <= unlucky_max


def frontends(here: Cluster, name: str) -> set[Address]:
    """Where query frontends of a serving cluster take questions."""
    found = here.server.get(f"/v1/service/clipper-{name}-query-frontend-service")
    return {address for one in found if answers(address := Address(one["Address"], one["Port"]))}


def answers(address: Address) -> bool:
    with contextlib.suppress(LepaError):
        call(address, "GET", "/health", timeout_s=1.0)
        return True
    return False


def kill_a_frontend(here: Cluster, name: str) -> None:
    """Kill a frontend's process; it comes back in its place."""
    allocation = here.server.running(f"clipper-{name}-query-frontend", 2)[0]
    os.kill(pid := here.first_process(allocation), signal.SIGKILL)
    wait_until(lambda: here.first_process(allocation) not in (0, pid) and len(frontends(here, name)) == 2, MOVE_S)


def move_a_frontend(here: Cluster, name: str) -> None:
    """Ask for the end of a frontend; another one comes up at another address."""
    before = frontends(here, name)
    allocation = here.server.running(f"clipper-{name}-query-frontend", 2)[0]
    here.server.put(f"/v1/allocation/{allocation['ID']}/stop")
    wait_until(lambda: len(now := frontends(here, name)) == 2 and now != before, MOVE_S)


def lose_the_machine_of_a_frontend(here: Cluster, name: str) -> None:
    """Switch off a machine with a frontend, and without the registry; everything on it comes up elsewhere."""
    before = frontends(here, name)
    (management,) = here.server.running(f"clipper-{name}-mgmt")
    places = here.running_by_node(f"clipper-{name}-query-frontend", 2)
    victim = here.nodes[next(node for node in places if node != management["NodeName"])]
    here.bed.power_off(victim)
    wait_until(lambda: len(now := frontends(here, name)) == 2 and victim.host not in {a.host for a in now}, MOVE_S)
    assert frontends(here, name) != before


def variant(here: Cluster, name: str) -> dict[str, Any]:
    api, dns = Address(here.server.host, PORTS["http"]), Address(here.server.host, PORTS["dns"])
    return {
        "service-api": {"dns": NomadServiceProvider(api)},
        "dns": {"dns": SrvDnsProvider(dns), "discovery": f"dns://127.0.0.1:{PORTS['dns']}/consul"},
        "balancer": {"load_balancer": Fabio(here.server.host, rpc_port=BALANCER_PORT)},
    }[name]


BALANCER_UNLUCKY_MAX = 5
"""Questions that a balancer may refuse while the catalog still names a frontend that is gone and the other moves."""


@pytest.mark.parametrize("way", ["service-api", "dns", "balancer"])
def test_predictions_go_on_while_a_frontend_is_killed_and_moves(here: Cluster, way: str, tmp_path: Path) -> None:
    with serving(here, way, **variant(here, way)) as connection:
        assert len(frontends(here, way)) == 2
        with Callers(connection).asking() as callers:
            callers.go_on()
            kill_a_frontend(here, way)
            callers.go_on()
            move_a_frontend(here, way)
            callers.go_on(50)
        callers.check(unlucky_max=BALANCER_UNLUCKY_MAX if way == "balancer" else 0)
        texts = [path.read_text() for path in connection.get_clipper_logs(tmp_path)]
        assert sum("model loaded" in text for text in texts) >= sum(MODELS.values())


@pytest.mark.parametrize("way", ["service-api", "balancer"])
def test_predictions_go_on_when_the_machine_of_a_frontend_loses_its_power(here: Cluster, way: str) -> None:
    with serving(here, way, **variant(here, way)) as connection:
        with Callers(connection).asking() as callers:
            callers.go_on()
            lose_the_machine_of_a_frontend(here, way)
            callers.go_on(50)
        callers.check(unlucky_max=20)
        here.recover()


def test_a_second_process_connects_and_two_clusters_do_not_meet(here: Cluster) -> None:
    with serving(here, "left") as left, serving(here, "right") as right:
        here.nodes["two"].machine.run(sys.executable, "-c", SECOND_PROCESS, f"{here.server.host}:{PORTS['http']}")
        assert left.get_all_models() == ["add:1", "negate:1"]
        assert sorted(right.get_all_models()) == sorted(f"{model}:1" for model in MODELS)
        assert right.predict("double", [4.0])["output"] == 8.0
        left.stop_all()
        wait_until(lambda: not here.server.get("/v1/jobs", prefix="clipper-left-"))
        assert right.predict("negate", [4.0])["output"] == -4.0
        assert len(here.server.get("/v1/jobs", prefix="clipper-right-")) == 2 + len(MODELS)
