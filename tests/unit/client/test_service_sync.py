"""The servers' catalog follows what runs here."""

import asyncio
from typing import Any

import pytest
from tests.builders import make_service
from tests.clocks import ManualClock, settle

from lepa.client.service_sync import ServiceSync, difference
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.rpc import methods as m
from lepa.rpc.requests import Reply


class Catalog:
    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.calls = 0
        self.away = False

    async def call(self, method: m.Method[Any, Any], request: Any) -> Reply[Any]:
        self.calls += 1
        if self.away:
            raise LepaError("no_leader", "away")
        if method is m.SERVICE_UPSERT:
            self.known |= {each.id: each for each in request.services}
        else:
            for service_id in request.ids:
                self.known.pop(service_id, None)
        return Reply(value=None)

    def stream(self, method: Any, request: Any) -> Any:
        raise AssertionError


@pytest.fixture
def catalog() -> Catalog:
    return Catalog()


class Fixture:
    def __init__(self, catalog: Catalog) -> None:
        self.clock = ManualClock()
        self.sync = ServiceSync(catalog, self.clock, lambda: ("node", "secret"))


async def running(catalog: Catalog, tasks: Tasks) -> Fixture:
    fixture = Fixture(catalog)
    tasks.start("sync", fixture.sync.run())
    await settle()
    return fixture


async def test_only_differences_are_sent(catalog: Catalog) -> None:
    async with Tasks("test") as tasks:
        it = await running(catalog, tasks)
        it.sync.register(make_service("a"))
        it.sync.register(make_service("b"))
        await it.clock.advance(0.1)
        assert set(catalog.known) == {"a", "b"}
        assert catalog.calls == 1
        it.sync.set_status("a", "critical")
        it.sync.set_status("b", "passing")
        it.sync.set_status("none", "passing")
        it.sync.deregister(["b"])
        await it.clock.advance(0.1)
        assert {service.id: service.status for service in catalog.known.values()} == {"a": "critical"}
        calls = catalog.calls
        await it.clock.advance(10.0)
        assert catalog.calls == calls


async def test_a_failure_is_tried_again_and_the_newest_wish_counts(catalog: Catalog) -> None:
    async with Tasks("test") as tasks:
        it = await running(catalog, tasks)
        catalog.away = True
        it.sync.register(make_service("a"))
        await it.clock.advance(3.0)
        it.sync.deregister(["a"])
        it.sync.register(make_service("b"))
        catalog.away = False
        await it.clock.advance(3.0)
        assert set(catalog.known) == {"b"}


async def test_gone_waits_for_the_servers_but_not_for_ever(catalog: Catalog) -> None:
    async with Tasks("test") as tasks:
        it = await running(catalog, tasks)
        it.sync.register(make_service("a"))
        await it.clock.advance(0.1)
        it.sync.deregister(["a"])
        gone = asyncio.create_task(it.sync.gone(["a"]))
        await settle()
        assert not gone.done()
        await it.clock.advance(0.1)
        assert gone.done()
        it.sync.register(make_service("a"))
        await it.clock.advance(0.1)
        catalog.away = True
        it.sync.deregister(["a"])
        gone = asyncio.create_task(it.sync.gone(["a"]))
        await it.clock.advance(3.5)
        assert gone.done()


async def test_what_an_earlier_agent_registered_can_be_removed_and_a_loss_is_made_good(catalog: Catalog) -> None:
    async with Tasks("test") as tasks:
        it = await running(catalog, tasks)
        catalog.known = {"old": make_service("old")}
        it.sync.deregister(["old"], unseen=True)
        it.sync.register(make_service("a"))
        await it.clock.advance(0.1)
        assert set(catalog.known) == {"a"}
        catalog.known.clear()
        it.sync.forget_known()
        await it.clock.advance(0.1)
        assert set(catalog.known) == {"a"}


def test_batches_are_bounded() -> None:
    wanted = {str(n): make_service(str(n)) for n in range(250)}
    assert len(difference(wanted, {}).upsert) == 100
    assert len(difference({}, dict.fromkeys(wanted)).delete) == 100
