"""lepa.serving.autoscaler"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lepa.model.errors import LepaError
from lepa.serving import autoscaler as module
from lepa.serving import connection
from lepa.serving.addresses import Address
from lepa.serving.autoscale import Autoscale
from lepa.serving.autoscaler import Autoscaler
from lepa.serving.records import ModelVersion, Registry, add_model, set_autoscale


class Manager:
    """Counts replicas, and answers for both frontends."""

    def __init__(self) -> None:
        self.replicas = 1
        self.busy_s = 0.0
        self.predictions = 0
        self.streams = self.streams_begun = 0
        self.streams_s = 0.0
        self.frontends = [Address("a", 1), Address("b", 1)]
        self.away: set[Address] = set()
        registry = add_model(Registry(), ModelVersion("m", "1", "ints", container_name="image"))
        self.registry = set_autoscale(registry, "m", Autoscale(busy_target=0.5, down_after_s=0.0))

    def get_admin_addr(self) -> Address:
        return Address("admin", 1)

    def get_frontend_addrs(self) -> list[Address]:
        return self.frontends

    def query_addr_lost(self, address: Address) -> None:
        assert address in self.away

    def get_num_replicas(self, name: str, version: str) -> int:
        return self.replicas

    def set_num_replicas(self, name: str, version: str, input_type: str, image: str, num_replicas: int) -> None:
        assert (name, version, input_type, image) == ("m", "1", "integers", "image")
        self.replicas = num_replicas

    def answer(self, address: Address, method: str, path: str) -> Any:
        if path == "/admin/registry":
            return msgspec.to_builtins(self.registry)
        if address in self.away:
            raise LepaError("timeout", "nobody answers")
        share = 0.25 if address == self.frontends[0] else 0.75
        streams = {"streams": self.streams, "streams_begun": self.streams_begun, "streams_s": self.streams_s * share}
        model = {"model": "m", "version": "1", "busy_s": self.busy_s * share, "queued": 0, **streams}
        return {"models": [model], "applications": [{"predictions": self.predictions * share, "arms": ["m:1"]}]}


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> tuple[Manager, Callable[[float, float, int], int]]:
    manager = Manager()
    monkeypatch.setattr(module, "call", manager.answer)
    monkeypatch.setattr(connection, "call", manager.answer)
    now = [0.0]
    made = Autoscaler(manager, lambda: now[0])  # type: ignore[arg-type]
    made.look()

    def after(seconds: float, busy_s: float, predictions: int) -> int:
        now[0] += seconds
        manager.busy_s += busy_s
        manager.predictions += predictions
        made.look()
        return manager.replicas

    return manager, after


def test_replicas_follow_the_difference_of_two_looks(scaled: Any) -> None:
    _, after = scaled
    assert after(1.0, 0.9, 10) == 2
    assert after(1.0, 1.9, 10) == 4
    assert after(1.0, 0.2, 10) == 1


def test_a_frontend_that_is_away_does_not_hide_the_load_of_the_others(scaled: Any) -> None:
    manager, after = scaled
    manager.away = {manager.frontends[0]}
    assert after(1.0, 4 * 0.3, 10) == 2
    manager.away = set(manager.frontends)
    with pytest.raises(LepaError, match="no query frontend answers"):
        after(1.0, 1.0, 10)


def test_streams_are_load_while_they_last_and_replicas_go_when_they_end(scaled: Any) -> None:
    """B274."""
    manager, after = scaled
    manager.registry = set_autoscale(
        manager.registry,
        "m",
        Autoscale(replicas_min=0, busy_target=0.5, down_after_s=0.0, idle_s=2.0, streams_target=4.0),
    )
    manager.streams = 4
    manager.streams_begun = 4
    assert after(1.0, 0.0, 0) == 1
    manager.streams_s += 4.0
    assert after(1.0, 0.0, 0) == 2
    manager.streams_s += 40.0
    assert after(10.0, 0.0, 0) == 2
    manager.streams = 0
    assert after(1.0, 0.0, 0) == 1
    assert after(2.0, 0.0, 0) == 0


def test_counters_that_begin_anew_are_no_load(scaled: Any) -> None:
    manager, after = scaled
    assert after(1.0, 0.9, 10) == 2
    manager.busy_s = manager.predictions = 0
    assert after(1.0, 0.0, 0) == 1


def test_a_model_that_is_not_scaled_is_left_alone(scaled: Any) -> None:
    manager, after = scaled
    manager.registry = set_autoscale(manager.registry, "m", None)
    assert after(1.0, 5.0, 10) == 1
