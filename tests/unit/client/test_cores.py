from typing import Any

from tests.builders import make_alloc

from lepa.client.cores import Cores, shared
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError
from lepa.model.resources import AllocatedCpuResources, AllocatedResources, AllocatedTaskResources


def holding(*cores: int) -> Allocation:
    task = AllocatedTaskResources(cpu=AllocatedCpuResources(reserved_cores=cores))
    return make_alloc(f"holds-{cores}", allocated_resources=AllocatedResources(tasks={"web": task}))


def test_what_is_reserved_is_not_shared_unless_nothing_would_be_left() -> None:
    assert shared([3, 2, 1, 0], [holding(1), holding(2), make_alloc("none")]) == (0, 3)
    assert shared([0, 1], [holding(0, 1)]) == (0, 1)


class Told:
    name = "told"

    def __init__(self, error: LepaError | None = None) -> None:
        self.calls: list[tuple[int, ...]] = []
        self._error = error

    async def share_cores(self, cores: tuple[int, ...]) -> None:
        self.calls.append(cores)
        if self._error:
            raise self._error


async def test_drivers_that_can_are_told_of_changes_and_nothing_else() -> None:
    able, broken = Told(), Told(LepaError("internal", "no"))
    drivers: Any = {"a": broken, "b": able, "c": object()}
    cores = Cores(drivers)
    await cores.share([0, 1, 2], [])
    await cores.share([0, 1, 2], [holding(0)])
    await cores.share([0, 1, 2], [holding(0)])
    await cores.share([0, 1, 2], [])
    assert able.calls == broken.calls == [(1, 2), (0, 1, 2)]
