"""The table of fingerprinters."""

import asyncio
from pathlib import Path

import pytest

from lepa.client.fingerprint import registry
from lepa.client.fingerprint.facts import Facts
from lepa.client.fingerprint.registry import FINGERPRINTERS, Fingerprint
from lepa.client.settings import ClientSettings
from lepa.drivers.absent import AbsentDriver
from lepa.drivers.mock import MockDriver
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.node import DriverInfo


@pytest.fixture
def fingerprint(tmp_path: Path) -> Fingerprint:
    return Fingerprint(ClientSettings(directory=tmp_path, name="n", network_interface="lo"), SystemClock())


async def test_everything_is_put_together_and_a_failure_is_left_out(
    fingerprint: Fingerprint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(settings: ClientSettings) -> Facts:
        raise OSError("no such device")

    monkeypatch.setitem(FINGERPRINTERS, "memory", fails)  # type: ignore[arg-type]
    facts = await fingerprint.host()
    assert "cpu.arch" in facts.attributes
    assert "memory.totalbytes" not in facts.attributes
    assert facts.resources.cpu.total_cpu_cores > 0


class Silent(AbsentDriver):
    async def fingerprint(self) -> DriverInfo:
        await asyncio.Event().wait()
        return DriverInfo()


class Broken(AbsentDriver):
    async def fingerprint(self) -> DriverInfo:
        raise LepaError("internal", "broken")


async def test_a_driver_that_does_not_answer_is_unhealthy(
    fingerprint: Fingerprint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "DRIVER_S", 0.01)
    drivers = {"mock_driver": MockDriver(SystemClock()), "silent": Silent("silent"), "broken": Broken("broken")}
    found = await fingerprint.drivers(drivers)
    assert found["mock_driver"].healthy
    assert (found["silent"].detected, found["silent"].health_description) == (False, "no answer within 0.01 s")
    assert found["broken"].health_description == "broken"
