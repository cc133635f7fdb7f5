"""lepa.serving.connection: what it refuses before it asks anybody; the rest is in the integration tests."""

from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.serving import connection as connection_module
from lepa.serving import deployers
from lepa.serving.addresses import Address
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.local import LocalContainerManager


def test_nothing_is_asked_before_connecting(tmp_path: Path) -> None:
    connection = ClipperConnection(LocalContainerManager("none", tmp_path))
    for ask in (connection.get_all_apps, connection.get_query_addr, connection.inspect_instance):
        with pytest.raises(LepaError, match=r"call connect\(\) or start_clipper\(\) first"):
            ask()


def test_a_model_that_is_deployed_before_the_cluster_leaves_nothing_half_made(tmp_path: Path) -> None:
    """B266."""
    connection = ClipperConnection(LocalContainerManager("none", tmp_path / "serving"))
    with pytest.raises(LepaError, match=r"call connect\(\) or start_clipper\(\) first"):
        deployers.deploy_python_closure(connection, "early", 1, "doubles", list)
    with pytest.raises(LepaError, match="no management frontend; start it first"):
        connection.connect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "Model", "a_b", "-a", "a-", "a:b"])
def test_names_that_cannot_be_part_of_a_job_or_host_name_are_refused(tmp_path: Path, name: str) -> None:
    connection = ClipperConnection(LocalContainerManager("none", tmp_path))
    connection._connected = True
    with pytest.raises(LepaError, match="Invalid value"):
        connection.build_model(name, 1, tmp_path)


class Frontends(LocalContainerManager):
    """A manager that knows where query frontends are said to be: each look-up tells the next list."""

    def __init__(self, directory: Path, *look_ups: list[Address]) -> None:
        super().__init__("none", directory)
        self.look_ups = list(look_ups)
        self.lost: list[Address] = []

    def get_query_addrs(self) -> list[Address]:
        return self.look_ups.pop(0)

    def query_addr_lost(self, address: Address) -> None:
        self.lost.append(address)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> dict[Address, LepaError]:
    """Addresses where something goes wrong; all others answer with where they were asked."""
    trouble: dict[Address, LepaError] = {}

    def call(address: Address, method: str, path: str, body: object) -> str:
        if address in trouble:
            raise trouble[address]
        return f"{address}{path}"

    monkeypatch.setattr(connection_module, "call", call)
    return trouble


A, B, C = (Address(host, 1337) for host in "abc")
GONE = LepaError("timeout", "nobody answers", unreached=True)


def connected(manager: LocalContainerManager) -> ClipperConnection:
    connection = ClipperConnection(manager)
    connection._connected = True
    return connection


def test_the_next_frontend_is_asked_and_all_are_looked_for_again(
    tmp_path: Path, answering: dict[Address, LepaError]
) -> None:
    answering |= {A: GONE, B: LepaError("timeout", "it was asked and does not answer")}
    manager = Frontends(tmp_path, [A, B], [A, B, C])
    assert connected(manager).predict("app", 1) == "c:1337/app/predict"
    assert manager.lost == [A, B]
    with pytest.raises(LepaError, match="nobody answers"):
        connected(Frontends(tmp_path, [A], [A])).predict("app", 1)


def test_feedback_is_not_told_twice_and_a_refusal_is_an_answer(
    tmp_path: Path, answering: dict[Address, LepaError]
) -> None:
    answering |= {A: GONE, B: LepaError("timeout", "it was asked and does not answer")}
    assert not connected(Frontends(tmp_path, [A, C])).update("app", 1, 2.0)
    with pytest.raises(LepaError, match="it was asked"):
        connected(Frontends(tmp_path, [B, C])).update("app", 1, 2.0)
    answering[A] = LepaError("invalid", "wrong shape")
    with pytest.raises(LepaError, match="wrong shape"):
        connected(Frontends(tmp_path, [A, C])).predict("app", 1)


def test_stopping_works_unconnected(tmp_path: Path) -> None:
    ClipperConnection(LocalContainerManager("none", tmp_path)).stop_all()


class Two(LocalContainerManager):
    """A manager with two query frontends."""

    def __init__(self, directory: Path) -> None:
        super().__init__("two", directory)
        self.lost: list[Address] = []

    def get_frontend_addrs(self) -> list[Address]:
        return [A, B]

    def query_addr_lost(self, address: Address) -> None:
        self.lost.append(address)


def test_replicas_are_there_when_every_frontend_that_answers_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[Address, list[int]] = {A: [2, 2], B: [1, 2]}

    def call(address: Address, method: str, path: str) -> dict[str, object]:
        if address not in counts:
            raise GONE
        shown = counts[address]
        count = shown.pop(0) if len(shown) > 1 else shown[0]
        return {"models": [{"model": "m", "version": "1", "replicas": count}]}

    monkeypatch.setattr(connection_module, "call", call)
    manager = Two(tmp_path)
    connected(manager).wait_for_replicas("m", 1, 2, timeout_s=5.0)
    assert counts == {A: [2], B: [2]}
    del counts[A]
    connected(manager).wait_for_replicas("m", 1, 2, timeout_s=5.0)
    assert manager.lost == [A]
    del counts[B]
    with pytest.raises(LepaError, match="2 replicas of m:1 are connected"):
        connected(manager).wait_for_replicas("m", 1, 2, timeout_s=0.0)
