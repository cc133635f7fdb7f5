"""lepa.serving.autoscale"""

import pytest

from lepa.model.errors import LepaError
from lepa.serving.autoscale import Autoscale, Load, ReplicaScaler, check_autoscale

SETTINGS = Autoscale(replicas_min=0, replicas_max=8, busy_target=0.5, down_after_s=10, idle_s=30)


def busy(replicas: int, share: float) -> Load:
    return Load(replicas, share, queries=100, queued=0)


def idle(replicas: int) -> Load:
    return Load(replicas, 0.0, queries=0, queued=0)


def test_replicas_follow_the_load_up_at_once_and_at_most_to_double() -> None:
    scaler = ReplicaScaler(SETTINGS, 0.0)
    assert scaler.decide(busy(1, 0.9), 1.0).replicas == 2
    assert scaler.decide(busy(2, 2.0), 2.0).replicas == 4
    assert scaler.decide(busy(2, 9.0), 3.0).replicas == 4
    assert scaler.decide(busy(8, 9.0), 4.0).replicas == 8


def test_replicas_go_down_only_when_fewer_were_enough_for_long() -> None:
    scaler = ReplicaScaler(SETTINGS, 0.0)
    scaler.decide(busy(4, 1.9), 0.0)
    assert scaler.decide(busy(4, 0.2), 5.0).replicas == 4
    assert scaler.decide(busy(4, 0.2), 11.0).replicas == 1
    assert scaler.decide(busy(1, 0.2), 12.0).reason == "as many as needed"


def test_the_last_replica_goes_after_the_idle_time_and_comes_with_the_first_query() -> None:
    scaler = ReplicaScaler(SETTINGS, 0.0)
    scaler.decide(busy(1, 0.1), 1.0)
    assert scaler.decide(idle(1), 20.0).replicas == 1
    assert scaler.decide(idle(1), 31.0) == (0, "no query for 30 s")
    assert scaler.decide(idle(0), 40.0).replicas == 0
    assert scaler.decide(Load(0, 0.0, queries=0, queued=1), 41.0) == (1, "the first query")


def test_the_least_number_is_kept() -> None:
    scaler = ReplicaScaler(Autoscale(replicas_min=2), 0.0)
    assert scaler.decide(idle(2), 10_000.0).replicas == 2
    assert scaler.decide(idle(0), 10_001.0).replicas == 2


@pytest.mark.parametrize(
    "settings",
    [
        Autoscale(replicas_min=-1),
        Autoscale(replicas_min=3, replicas_max=2),
        Autoscale(replicas_min=0, replicas_max=0),
        Autoscale(replicas_max=10_000),
        Autoscale(busy_target=0.0),
        Autoscale(idle_s=-1.0),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: Autoscale) -> None:
    with pytest.raises(LepaError):
        check_autoscale(settings)
