"""lepa.serving.admin_client"""

import socket

import pytest
from tests.unit.serving.threads import in_thread

from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.serving.addresses import Address
from lepa.serving.admin_client import call
from lepa.serving.management import ManagementFrontend
from lepa.serving.registry_store import MemoryRegistryStore


async def test_answers_are_decoded_and_refusals_raised_with_their_sentence() -> None:
    async with ManagementFrontend("127.0.0.1", 0, MemoryRegistryStore(), None, SystemClock()) as frontend:
        address = Address("127.0.0.1", frontend.port)
        assert await in_thread(call, address, "GET", "/admin/ping") == "PONG"
        assert await in_thread(call, address, "POST", "/admin/get_all_models", {}) == []
        with pytest.raises(LepaError, match="Application 'x' does not exist") as refused:
            await in_thread(call, address, "POST", "/admin/delete_app", {"name": "x"})
        assert (refused.value.code, refused.value.facts) == ("not_found", {"status": 404})


def test_nobody_at_the_address_is_a_timeout_that_names_it() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", unused.getsockname()[1])
        with pytest.raises(LepaError, match=f"nobody answers at {address}") as refused:
            call(address, "GET", "/admin/ping")
    assert (refused.value.code, refused.value.facts) == ("timeout", {"unreached": True})
