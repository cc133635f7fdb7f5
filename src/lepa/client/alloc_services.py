"""The services of one allocation: who offers what at the moment, and the checks of it.

An owner is the group ("") or a task. Its instances are in the catalog from `offer` to `withdraw`; offering again, with
a changed job or tags, changes what differs and leaves the checks alone that stay the same.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from lepa.client import instances
from lepa.client.checks import Checks
from lepa.client.instances import Instance, Source
from lepa.client.service_sync import ServiceSync
from lepa.model.job import TaskGroup
from lepa.model.service import ServiceRegistration
from lepa.model.task import Task

GROUP = ""


class AllocServices:
    """Instances by owner.

    restored: an earlier agent may have registered some. Those stay as they are in the catalog until their checks have
    been asked once: an agent's restart must not make a healthy service critical for a moment.
    """

    def __init__(self, sync: ServiceSync, *, restored: bool) -> None:
        self._sync = sync
        self._restored = restored
        self._offered: dict[str, list[Instance]] = {}
        self._held: dict[str, ServiceRegistration] = {}
        self._seen: set[str] = set()

    def follow_checks(self, checks: Checks) -> None:
        """Checks of these services; their results are to be reported to `checked`."""
        self._checks = checks

    def offers(self, owner: str) -> bool:
        """Whether the owner's instances are in the catalog."""
        return owner in self._offered

    def offer(self, owner: str, source: Source, task: Task | None) -> None:
        """Register the instances of the group (task None) or of a task, and begin their checks."""
        wanted = _instances(source, task)
        ids = {instance.registration.id for instance in wanted}
        before = [instance.registration.id for instance in self._offered.get(owner, ())]
        self._remove([service_id for service_id in before if service_id not in ids])
        self._offered[owner] = wanted
        hold = self._restored and owner not in self._seen
        self._seen.add(owner)
        for instance in wanted:
            self._checks.follow(instance)
            registration = self._with_results(instance.registration)
            if hold and instance.checks:
                self._held[registration.id] = registration
            else:
                self._sync.register(registration)

    def checked(self, service_id: str, status: str) -> None:
        """An instance's checks say this."""
        held = self._held.get(service_id)
        if held is None:
            self._sync.set_status(service_id, status, self._checks.states(service_id))
        elif self._checks.asked(service_id):
            del self._held[service_id]
            self._sync.register(self._with_results(held))

    def _with_results(self, registration: ServiceRegistration) -> ServiceRegistration:
        service_id = registration.id
        return replace(registration, status=self._checks.status(service_id), checks=self._checks.states(service_id))

    def withdraw(self, owner: str, source: Source, task: Task | None) -> list[str]:
        """Remove the owner's instances from the catalog; returns the ids of what was removed."""
        known = self._offered.pop(owner, None)
        if known is None and not self._restored:
            return []
        ids = [instance.registration.id for instance in (_instances(source, task) if known is None else known)]
        self._remove(ids)
        return ids

    async def gone(self, service_ids: Iterable[str]) -> None:
        """Return when the servers have removed these, or after a while."""
        await self._sync.gone(service_ids)

    def _remove(self, service_ids: Sequence[str]) -> None:
        for service_id in service_ids:
            self._checks.leave(service_id)
            self._held.pop(service_id, None)
        if service_ids:
            self._sync.deregister(service_ids, unseen=self._restored)


def _instances(source: Source, task: Task | None) -> list[Instance]:
    return instances.of_group(source) if task is None else instances.of_task(source, task)


def checks_count(group: TaskGroup) -> int:
    """How many checks the services of a group have when all of them are offered."""
    services = [*group.services, *(service for task in group.tasks for service in task.services)]
    return sum(len(service.checks) for service in services)
