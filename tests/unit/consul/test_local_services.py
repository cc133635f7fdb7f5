"""Registrations of one agent, kept in the catalog (lepa.consul.local_services, lepa.consul.check_runner)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.clocks import ManualClock, settle

from lepa.catalog.table import Instance, ServiceTable
from lepa.consul.following import Following
from lepa.consul.local_services import OUTPUT_SYNC_S, RESYNC_S, LocalServices
from lepa.consul.registrations import AgentNode
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError, not_found
from lepa.model.service import CheckState

TTL = {"Name": "web", "Check": {"TTL": "10m", "CheckID": "c"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def local(api: Any, catalog: Following, clock: ManualClock) -> AsyncIterator[LocalServices]:
    node = AgentNode("n1", "1", "10.0.0.1", "dc1")
    async with LocalServices(node, api, catalog, clock, SeededRandom(1)) as found:
        await settle()
        yield found


def stored(api: Any) -> list[str]:
    """Statuses of the registrations that were sent."""
    return [body.status for method, _, _, body in api.sent if method == "PUT"]


async def test_a_changed_status_is_sent_at_once_and_a_changed_output_later(
    local: LocalServices, api: Any, clock: ManualClock
) -> None:
    await local.register(TTL, replace_checks=False)
    local.tell("c", "passing", "fine")
    await local.settle()
    assert stored(api) == ["critical", "passing"]
    local.tell("c", "passing", "still fine")
    await local.settle()
    assert stored(api) == ["critical", "passing"]
    assert local.services["web"].checks[0].output == "still fine"
    await clock.advance(OUTPUT_SYNC_S)
    await local.settle()
    assert len(stored(api)) > 2


async def test_a_result_that_could_not_be_sent_is_sent_again(
    local: LocalServices, api: Any, clock: ManualClock
) -> None:
    await local.register(TTL, replace_checks=False)
    api.answers["PUT", "/v1/service/web/web"] = LepaError("no_leader", "No cluster leader")
    local.tell("c", "passing", "")
    await local.settle()
    api.answers.clear()
    api.sent.clear()
    await clock.advance(1.0)
    await local.settle()
    assert stored(api) == ["passing"]


async def test_everything_is_sent_again_from_time_to_time(local: LocalServices, api: Any, clock: ManualClock) -> None:
    await local.register({"Name": "web"}, replace_checks=False)
    await clock.advance(RESYNC_S)
    await local.settle()
    assert stored(api) == ["passing", "passing"]


async def test_a_registration_that_the_catalog_refuses_is_not_kept(local: LocalServices, api: Any) -> None:
    api.answers["PUT", "/v1/service/web/web"] = LepaError("no_leader", "No cluster leader")
    with pytest.raises(LepaError):
        await local.register(TTL, replace_checks=False)
    assert local.services == {}


async def test_a_removal_that_fails_leaves_everything_as_it_was(local: LocalServices, api: Any) -> None:
    await local.register(TTL, replace_checks=False)
    api.answers["DELETE", "/v1/service/web/web"] = LepaError("no_leader", "No cluster leader")
    with pytest.raises(LepaError):
        await local.deregister("web")
    local.tell("c", "passing", "")
    api.answers["DELETE", "/v1/service/web/web"] = not_found("gone already")
    await local.deregister("web")
    assert local.services == {}


async def test_a_new_name_for_an_id_removes_the_old_one(local: LocalServices, api: Any) -> None:
    await local.register({"Name": "old", "ID": "x"}, replace_checks=False)
    await local.register({"Name": "new", "ID": "x"}, replace_checks=False)
    assert api.sent[-1][:2] == ("DELETE", "/v1/service/old/x")


async def test_what_an_earlier_agent_registered_is_taken_up(api: Any, catalog: Following, clock: ManualClock) -> None:
    check = CheckState(id="c", type="ttl", status="passing", definition={"TTL": "10m"})
    mine = Instance(id="kept", service="kept", agent="n1", checks=(check,))
    theirs = Instance(id="other", service="other", agent="n2")
    catalog.publish(ServiceTable.build([mine, theirs], [], 20))
    node = AgentNode("n1", "1", "10.0.0.1", "dc1")
    async with LocalServices(node, api, catalog, clock, SeededRandom(1)) as local:
        await settle()
        assert list(local.services) == ["kept"]
        local.tell("c", "warning", "")
        assert local.services["kept"].status == "warning"


async def test_what_has_been_critical_for_too_long_is_removed(
    local: LocalServices, api: Any, clock: ManualClock
) -> None:
    check = {"TTL": "10m", "CheckID": "c", "DeregisterCriticalServiceAfter": "90s"}
    await local.register({"Name": "web", "Check": check}, replace_checks=False)
    await clock.advance(80.0)
    local.tell("c", "passing", "")
    local.tell("c", "critical", "")
    await clock.advance(80.0)
    await local.settle()
    assert list(local.services) == ["web"]
    await clock.advance(10.0)
    await local.settle()
    assert local.services == {}


async def test_a_check_that_nobody_answers_is_critical_and_says_why(local: LocalServices, clock: ManualClock) -> None:
    check = {"TCP": "127.0.0.1:1", "Interval": "10s", "CheckID": "asked", "Status": "passing"}
    await local.register({"Name": "web", "Check": check}, replace_checks=False)
    await clock.advance(10.0)
    while local.services["web"].checks[0].status == "passing":
        await settle()
    assert "127.0.0.1:1" in local.services["web"].checks[0].output


async def test_only_ttl_checks_are_told(local: LocalServices) -> None:
    body = {"Name": "web", "Check": {"TCP": "127.0.0.1:1", "Interval": "10m", "CheckID": "asked"}}
    await local.register(body, replace_checks=False)
    with pytest.raises(LepaError, match="TTL"):
        local.tell("asked", "passing", "")
    with pytest.raises(LepaError, match="Unknown check"):
        local.tell("nobody", "passing", "")


async def test_a_check_needs_a_service_that_is_registered_here(local: LocalServices) -> None:
    with pytest.raises(LepaError, match="checks of a node"):
        await local.register_check({"Name": "disk", "TTL": "10s"})
    with pytest.raises(LepaError, match="does not exist"):
        await local.register_check({"Name": "disk", "TTL": "10s", "ServiceID": "nobody"})
    await local.register({"Name": "web"}, replace_checks=False)
    await local.register_check({"Name": "disk", "TTL": "10s", "ServiceID": "web"})
    assert local.services["web"].status == "critical"
    await local.deregister_check("disk")
    assert local.services["web"].status == "passing"
