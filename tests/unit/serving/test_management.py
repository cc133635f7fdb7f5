"""lepa.serving.management, lepa.serving.management_bodies and lepa.serving.management_http"""

import asyncio
import http.client
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import ManualClock
from tests.unit.serving.threads import in_thread

from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.serving.addresses import Address
from lepa.serving.admin_client import call, send
from lepa.serving.management import ManagementFrontend
from lepa.serving.registry_follower import REPORT_EVERY_S
from lepa.serving.registry_store import MemoryRegistryStore

APP = {"name": "app", "input_type": "d", "default_output": "0", "latency_slo_micros": 1000}
MODEL = {"model_name": "m", "model_version": "1", "input_type": "doubles", "labels": ["a"], "container_name": "image"}


class Admin:
    """Asks a management frontend over HTTP."""

    def __init__(self, frontend: ManagementFrontend, clock: ManualClock) -> None:
        self.address = Address("127.0.0.1", frontend.port)
        self.clock = clock

    async def post(self, verb: str, **fields: Any) -> Any:
        return await in_thread(call, self.address, "POST", f"/admin/{verb}", fields)

    async def get(self, path: str) -> Any:
        return await in_thread(call, self.address, "GET", path)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    clock = ManualClock()
    async with ManagementFrontend("127.0.0.1", 0, MemoryRegistryStore(), tmp_path / "models", clock) as frontend:
        yield Admin(frontend, clock)


async def test_the_life_of_an_application_and_its_model_in_clippers_sentences(admin: Admin) -> None:
    assert await admin.post("add_app", **APP) == "Successfully added application with name 'app'"
    added = await admin.post("add_model", **MODEL, batch_size=-1)
    assert added == "Successfully added model with name 'm' and input type 'doubles'"
    linked = await admin.post("add_model_links", app_name="app", model_names=["m"])
    assert linked == "Successfully linked model with name 'm' to application 'app'"
    assert await admin.post("get_linked_models", app_name="app") == ["m"]
    assert await admin.post("get_all_applications", verbose=False) == ["app"]
    assert (await admin.post("get_all_applications", verbose=True))[0]["linked_models"] == ["m"]
    assert (await admin.post("get_application", name="app"))["input_type"] == "doubles"
    assert await admin.post("get_application", name="x") == {}
    assert await admin.post("get_all_models", verbose=False) == ["m:1"]
    assert (await admin.post("get_all_models", verbose=True))[0]["labels"] == ["a"]
    assert (await admin.post("get_model", model_name="m", model_version="1"))["is_current_version"] is True
    assert await admin.post("get_model", model_name="m", model_version="2") == {}
    assert await admin.post("get_state", app_name="app", uid=3) == 0
    version = await admin.post("set_model_version", model_name="m", model_version="1")
    assert version == "Successfully set model with name 'm' to version '1'"
    assert await admin.post("delete_model_links", app_name="app", model_names=["m"]) == "Success!"
    gone = await admin.post("delete_versioned_model", model_name="m", model_version="1")
    assert gone == "Successfully deleted model with name 'm' and version '1'"
    assert await admin.post("delete_app", name="app") == "Successfully deleted application with name 'app'"


@pytest.mark.parametrize(
    ("verb", "fields", "sentence"),
    [
        ("add_app", {"name": "app"}, r'Error parsing JSON: .*Expected JSON schema: \s+\{\s+"name" := string'),
        ("get_linked_models", {"app_name": "x"}, "No application with name 'x' exists."),
        ("get_state", {"app_name": "x", "uid": 0}, "No application with name 'x' exists."),
        ("no_such_verb", {}, "Not Found"),
    ],
)
async def test_refusals_say_why(admin: Admin, verb: str, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LepaError, match=sentence):
        await admin.post(verb, **fields)


async def test_a_version_that_is_a_number_is_refused_whole(admin: Admin) -> None:
    """B259."""
    with pytest.raises(LepaError, match=r"Expected `str`, got `int` - at `\$.model_version`") as refused:
        await admin.post("add_model", **{**MODEL, "model_version": 1})
    assert refused.value.code == "invalid"
    assert await admin.post("get_all_models", verbose=False) == []
    assert (await admin.get("/admin/registry"))["revision"] == 0


async def test_scaling_by_load_needs_no_settings(admin: Admin) -> None:
    """B276."""
    await admin.post("add_model", **MODEL)
    await admin.post("set_autoscale", model_name="m", autoscale={})
    scaling = (await admin.get("/admin/registry"))["scaling"]["m"]
    assert (scaling["replicas_min"], scaling["replicas_max"], scaling["busy_target"]) == (1, 10, 0.7)


async def test_a_follower_hears_of_a_change_at_once(admin: Admin) -> None:
    waiting = asyncio.create_task(admin.get("/admin/registry?index=0&wait=60"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await admin.post("add_app", **APP)
    assert (await waiting)["revision"] == 1
    assert (await admin.get("/admin/registry?index=0&wait=60"))["revision"] == 1
    assert (await admin.get("/admin/registry"))["applications"]["app"]["input_type"] == "doubles"
    with pytest.raises(LepaError, match="index and wait are numbers"):
        await admin.get("/admin/registry?index=x")


async def test_containers_are_those_that_frontends_reported_lately(admin: Admin) -> None:
    container = {
        "model_id": "m:1",
        "model_name": "m",
        "model_version": "1",
        "model_replica_id": 0,
        "input_type": "doubles",
    }
    await admin.post("report_containers", frontend="f", containers=[container])
    assert await admin.post("get_all_containers", verbose=True) == [container]
    assert await admin.post("get_all_containers", verbose=False) == ["m:1:0"]
    assert await admin.post("get_container", model_name="m", model_version="1", replica_id=0) == container
    assert await admin.post("get_container", model_name="m", model_version="1", replica_id=1) == {}
    await admin.clock.advance(3 * REPORT_EVERY_S + 1)
    assert await admin.post("get_all_containers", verbose=False) == []


async def test_a_container_that_two_frontends_report_is_one(admin: Admin) -> None:
    def seen(number: int, instance: str) -> dict[str, Any]:
        names = {"model_id": "m:1", "model_name": "m", "model_version": "1", "input_type": "doubles"}
        return names | {"model_replica_id": number, "instance": instance}

    await admin.post("report_containers", frontend="f", containers=[seen(0, "x"), seen(1, "y"), seen(2, "")])
    await admin.post("report_containers", frontend="g", containers=[seen(0, "y"), seen(1, "x"), seen(2, "z")])
    await admin.post("report_containers", frontend="h", containers=[seen(0, "")])
    found = await admin.post("get_all_containers", verbose=True)
    assert [each["model_replica_id"] for each in found] == [0, 1, 2, 3, 4]
    assert not any("instance" in each for each in found)


async def test_archives_are_kept_and_given_out(admin: Admin) -> None:
    path = "/admin/model_archive/m/1"
    with pytest.raises(LepaError, match="no archive of model m:1 is here"):
        await in_thread(send, admin.address, "GET", path)
    await in_thread(send, admin.address, "PUT", path, bytes(3_000_000))
    assert await in_thread(send, admin.address, "GET", path) == bytes(3_000_000)
    with pytest.raises(LepaError, match="cannot name a model archive"):
        await in_thread(send, admin.address, "PUT", "/admin/model_archive/m/..%2F..%2Fx", b"")


async def test_without_a_data_directory_there_are_no_archives() -> None:
    async with ManagementFrontend("127.0.0.1", 0, MemoryRegistryStore(), None, SystemClock()) as frontend:
        with pytest.raises(LepaError, match="keeps no model archives"):
            await in_thread(send, Address("127.0.0.1", frontend.port), "GET", "/admin/model_archive/m/1")


async def test_old_clients_hear_of_errors_in_clippers_words(tmp_path: Path) -> None:
    store, clock = MemoryRegistryStore(), SystemClock()
    async with ManagementFrontend("127.0.0.1", 0, store, None, clock, compat=True) as frontend:

        def refusal(verb: str, body: bytes) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", frontend.port)
            connection.request("POST", f"/admin/{verb}", body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

        assert await in_thread(refusal, "delete_app", b'{"name":"x"}') == (400, "Application 'x' does not exist")
        status, text = await in_thread(refusal, "delete_app", b'{"name":1}')
        assert (status, text) == (
            400,
            "Error parsing JSON: Type mismatch! JSON key name expected type Stringbut found type Number. "
            'Expected JSON schema: \n  {\n   "name" := string\n  }',
        )


async def test_a_policy_is_set_and_refused_with_a_sentence(admin: Admin) -> None:
    await admin.post("add_app", **APP)
    options = {"canary": "2", "share": 0.1}
    said = await admin.post("set_policy", name="app", policy="canary", policy_options=options)
    assert said == "Successfully set the policy of application 'app' to canary"
    assert (await admin.post("get_application", name="app"))["policy_options"] == options
    with pytest.raises(LepaError, match="share must be in"):
        await admin.post("set_policy", name="app", policy="canary", policy_options={"share": 2})
    with pytest.raises(LepaError, match="invalid selection_policy"):
        await admin.post("set_policy", name="app", policy="best")
