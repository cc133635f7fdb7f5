"""Requests that wait for a newer view of the catalog."""

import asyncio

import pytest

from lepa.catalog.table import Instance, ServiceTable
from lepa.consul import following
from lepa.consul.following import Following
from lepa.consul.indexes import View
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError


def table(index: int, *names: str) -> ServiceTable:
    return ServiceTable.build([Instance(id=name, service=name) for name in names], (), index)


def index_of_web(view: View) -> int:
    return view.index_of("default", "web")


async def test_there_is_nothing_to_show_before_the_catalog_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FIRST_WAIT_S", 0.01)
    with pytest.raises(LepaError, match="No cluster leader"):
        await Following(SystemClock()).first()


async def test_the_first_view_is_waited_for() -> None:
    held = Following(SystemClock())
    waiting = asyncio.ensure_future(held.first())
    await asyncio.sleep(0)
    held.publish(table(5, "web"))
    assert (await waiting).changed == 5


async def test_a_change_of_something_else_does_not_wake() -> None:
    held = Following(SystemClock())
    held.publish(table(5, "web"))
    waiting = asyncio.ensure_future(held.changed(index_of_web, 5, 60.0))
    held.publish(table(6, "web", "db"))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    held.publish(table(7, "db"))
    assert index_of_web(await waiting) == 7


async def test_what_changed_before_the_wait_began_is_answered_at_once() -> None:
    held = Following(SystemClock())
    held.publish(table(5, "web"))
    held.publish(table(6, "db"))
    assert index_of_web(await held.changed(index_of_web, 5, 60.0)) == 6


async def test_an_index_from_the_future_is_answered_at_once() -> None:
    held = Following(SystemClock())
    held.publish(table(5, "web"))
    assert (await held.changed(index_of_web, 900, 60.0)).changed == 5


async def test_a_wait_ends_with_its_time() -> None:
    held = Following(SystemClock())
    held.publish(table(5, "web"))
    assert (await held.changed(index_of_web, 5, 0.001)).changed == 5


async def test_only_so_many_wait_and_those_that_leave_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "WAITING_MAX", 1)
    held = Following(SystemClock())
    held.publish(table(5, "web"))
    waiting = asyncio.ensure_future(held.changed(index_of_web, 5, 60.0))
    await asyncio.sleep(0)
    with pytest.raises(LepaError, match="try again later"):
        await held.changed(index_of_web, 5, 60.0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert (await held.changed(index_of_web, 5, 0.001)).changed == 5
