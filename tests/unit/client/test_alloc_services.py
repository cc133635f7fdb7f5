"""Who offers what at the moment."""

from typing import Any, cast

import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client.alloc_services import GROUP, AllocServices, checks_count
from lepa.client.checks import Checks
from lepa.client.instances import Instance, Source
from lepa.client.service_sync import ServiceSync
from lepa.model.service import CheckState, Service, ServiceCheck, ServiceRegistration


class FakeSync:
    def __init__(self) -> None:
        self.wanted: dict[str, ServiceRegistration] = {}
        self.unseen: list[str] = []

    def register(self, registration: ServiceRegistration) -> None:
        self.wanted[registration.id] = registration

    def set_status(self, service_id: str, status: str, checks: tuple[CheckState, ...] = ()) -> None:
        self.wanted[service_id] = ServiceRegistration(id=service_id, status=status, checks=checks)

    def deregister(self, ids: list[str], *, unseen: bool) -> None:
        for service_id in ids:
            self.wanted.pop(service_id, None)
        self.unseen += ids if unseen else []


class FakeChecks:
    def __init__(self) -> None:
        self.followed: dict[str, Instance] = {}
        self.verdict, self.has_asked = "critical", False

    def follow(self, instance: Instance) -> None:
        self.followed[instance.registration.id] = instance

    def leave(self, service_id: str) -> None:
        self.followed.pop(service_id, None)

    def status(self, service_id: str) -> str:
        return self.verdict

    def states(self, service_id: str) -> tuple[CheckState, ...]:
        return (CheckState(id="c", status=self.verdict),)

    def asked(self, service_id: str) -> bool:
        return self.has_asked


def source(*names: str, checks: int = 0) -> Source:
    checked = tuple(ServiceCheck(name=str(n), type="tcp") for n in range(checks))
    services = tuple(Service(name=name, checks=checked) for name in names)
    job = make_job(groups=(make_group(tasks=(make_task(services=services),), services=services),))
    return Source(make_node(), job, job.task_groups[0], make_alloc("a", job=job), {})


class Fixture:
    def __init__(self, *, restored: bool) -> None:
        self.sync, self.checks = FakeSync(), FakeChecks()
        self.services = AllocServices(cast(ServiceSync, self.sync), restored=restored)
        self.services.follow_checks(cast(Checks, self.checks))

    def names(self) -> set[str]:
        return {each.service_name for each in self.sync.wanted.values()}


@pytest.fixture
def it() -> Fixture:
    return Fixture(restored=False)


def test_offering_again_changes_what_differs(it: Fixture) -> None:
    it.services.offer(GROUP, source("a", "b"), None)
    assert it.names() == {"a", "b"}
    it.services.offer(GROUP, source("b", "c"), None)
    assert it.names() == {"b", "c"}
    assert len(it.checks.followed) == 2
    assert it.services.offers(GROUP)


def test_withdrawing_names_what_was_removed(it: Fixture) -> None:
    found = source("a")
    it.services.offer("web", found, found.group.tasks[0])
    assert len(it.services.withdraw("web", found, found.group.tasks[0])) == 1
    assert it.services.withdraw("web", found, found.group.tasks[0]) == []
    assert it.names() == set()


def test_a_registration_has_the_status_of_its_checks_now(it: Fixture) -> None:
    it.checks.verdict = "passing"
    it.services.offer(GROUP, source("a", checks=1), None)
    assert [each.status for each in it.sync.wanted.values()] == ["passing"]
    assert [check.status for each in it.sync.wanted.values() for check in each.checks] == ["passing"]


def test_after_an_agents_restart_a_service_waits_for_its_first_results() -> None:
    it = Fixture(restored=True)
    it.services.offer(GROUP, source("a", checks=1), None)
    assert it.names() == set()
    (service_id,) = it.checks.followed
    it.services.checked(service_id, "critical")
    assert it.names() == set()
    it.checks.has_asked, it.checks.verdict = True, "passing"
    it.services.checked(service_id, "passing")
    assert [each.status for each in it.sync.wanted.values()] == ["passing"]
    it.services.checked(service_id, "critical")
    assert [each.status for each in it.sync.wanted.values()] == ["critical"]


def test_what_an_earlier_agent_may_have_registered_is_removed_too() -> None:
    it = Fixture(restored=True)
    found = source("a")
    assert it.services.withdraw("web", found, found.group.tasks[0]) == it.sync.unseen != []


def test_how_many_checks_a_group_has() -> None:
    found: Any = source("a", "b", checks=2)
    assert checks_count(found.group) == 8
