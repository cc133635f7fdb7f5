"""Removes containers that this node made and no task of it knows any more, as after a crash in the wrong moment."""

import logging
from collections.abc import Callable, Container
from typing import Any

from lepa.drivers.docker_api import DockerApi, DockerError
from lepa.drivers.docker_config import ALLOC_ID_LABEL, TASK_ID_LABEL
from lepa.drivers.docker_settings import DanglingSettings
from lepa.kit.durations import parse_duration
from lepa.kit.sources import Clock

log = logging.getLogger(__name__)

OWNER_LABEL = "lepa.node"
"""Which node made a container: several may share a daemon."""
SECOND_NS = 1_000_000_000


class Leftovers:
    """Looks at all containers of `owner` once a period. known: ids of tasks and of allocations that have containers."""

    def __init__(
        self,
        api: DockerApi,
        clock: Clock,
        settings: DanglingSettings,
        owner: str,
        known: Callable[[], tuple[Container[str], Container[str]]],
    ) -> None:
        self._api = api
        self._clock = clock
        self._settings = settings
        self._owner = owner
        self._known = known
        self._period_s = parse_duration(settings.period) / SECOND_NS
        self._grace_s = parse_duration(settings.creation_grace) / SECOND_NS

    async def run(self) -> None:
        """Look, again and again; the first time after one period, when earlier tasks have been taken up."""
        while True:
            await self._clock.sleep(self._period_s)
            try:
                await self.look()
            except DockerError as error:
                log.info("containers not looked at reason=%s", error)

    async def look(self) -> list[str]:
        """Remove what is left over, or only tell of it (`dry_run`); the ids."""
        found = await self._api.containers(f"{OWNER_LABEL}={self._owner}")
        tasks, allocations = self._known()
        left = left_over(found, tasks, allocations, self._clock.now_ns() / SECOND_NS, self._grace_s)
        for number in left:
            log.warning("container belongs to no task container=%s dry_run=%s", number[:12], self._settings.dry_run)
            if not self._settings.dry_run:
                await self._api.remove(number)
        return left


def left_over(
    found: list[dict[str, Any]], tasks: Container[str], allocations: Container[str], now_s: float, grace_s: float
) -> list[str]:
    """Ids of those containers that are old enough and belong to nobody. Those without a task hold a group's network."""
    left = []
    for each in found:
        labels = each.get("Labels") or {}
        task_id = labels.get(TASK_ID_LABEL, "")
        owned = task_id in tasks if task_id else labels.get(ALLOC_ID_LABEL, "") in allocations
        if not owned and now_s - float(each.get("Created", now_s)) >= grace_s:
            left.append(str(each["Id"]))
    return left
