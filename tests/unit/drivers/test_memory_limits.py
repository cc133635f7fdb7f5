import pytest
from tests.unit.drivers.test_docker_config import make

from lepa.drivers.memory_limits import memory_limits


@pytest.mark.parametrize(
    ("memory", "memory_max", "driver", "limits"),
    [
        pytest.param(100, 0, 0, (100, 0), id="memory alone"),
        pytest.param(100, 300, 0, (300, 100), id="a maximum"),
        pytest.param(100, 0, 200, (200, 100), id="a maximum of the driver's"),
        pytest.param(100, 300, 200, (300, 100), id="the larger maximum"),
        pytest.param(100, 50, 0, (100, 0), id="a maximum that is none"),
        pytest.param(100, -1, 200, (0, 100), id="no limit"),
    ],
)
def test_memory_is_the_limit_or_the_reservation_below_one(
    memory: int, memory_max: int, driver: int, limits: tuple[int, int]
) -> None:
    assert memory_limits(make(memory, memory_max), driver) == limits
