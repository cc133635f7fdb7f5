"""Devices: lepa.drivers.devices.protocol, lepa.drivers.devices.nvidia, lepa.client.devices."""

import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest

from lepa.client.devices import Devices
from lepa.drivers.devices import nvidia as nvidia_module
from lepa.drivers.devices.nvidia import Card, Nvidia, NvidiaSettings, groups, nvidia, read_cards
from lepa.drivers.devices.protocol import Reservation
from lepa.drivers.protocol import DeviceNode, Mount
from lepa.model.errors import LepaError
from lepa.model.node import NodeDevice, NodeDeviceResource
from lepa.model.resources import AllocatedDeviceResource, AllocatedTaskResources

GIVEN = AllocatedTaskResources(devices=(AllocatedDeviceResource(vendor="v", type="t", name="n", device_ids=("a",)),))


class Plugin:
    """Finds one device, or fails."""

    name = "p"

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    async def fingerprint(self) -> Sequence[NodeDeviceResource]:
        if self.fails:
            raise RuntimeError("no")
        return [NodeDeviceResource(vendor="v", type="t", name="n", instances=(NodeDevice(id="a", healthy=True),))]

    async def reserve(self, given: AllocatedDeviceResource) -> Reservation:
        return Reservation(env={"IDS": ",".join(given.device_ids)}, mounts=(Mount("/a", "/b"),))

    async def stats(self) -> Sequence[dict[str, Any]]:
        if self.fails:
            raise RuntimeError("no")
        return [{"Name": "n"}]

    async def close(self) -> None:
        self.closed = True


async def test_a_failing_plugin_leaves_the_others_devices() -> None:
    devices = Devices([Plugin(fails=True), Plugin()])
    assert [group.name for group in await devices.fingerprint()] == ["n"]
    reserved = await devices.reserve(GIVEN)
    assert (reserved.env, reserved.mounts) == ({"IDS": "a"}, (Mount("/a", "/b"),))
    assert await devices.reserve(None) == Reservation()
    assert await devices.stats() == ({"Name": "n"},)
    await devices.close()


async def test_devices_that_are_gone_cannot_be_used() -> None:
    plugin = Plugin()
    devices = Devices([plugin])
    await devices.fingerprint()
    plugin.fails = True
    assert await devices.fingerprint() == ()
    with pytest.raises(LepaError, match="v/t/n is not on this node"):
        await devices.reserve(GIVEN)


def test_reservations_add_up() -> None:
    one = Reservation({"A": "1", "B": "1"}, (Mount("/a", "/b"),))
    both = one.and_also(Reservation({"B": "2"}, (), (DeviceNode("/dev/x"),)))
    assert both == Reservation({"A": "1", "B": "2"}, (Mount("/a", "/b"),), (DeviceNode("/dev/x"),))


class _Error(Exception):
    pass


def library(cards: int) -> types.ModuleType:
    """A stand-in for pynvml with its function names, text as bytes, and answers that not every card has."""

    def refuse(*given: Any) -> Any:
        raise _Error

    made = types.ModuleType("pynvml")
    answers: dict[str, Any] = {
        "NVMLError": _Error,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"550.1",
        "nvmlDeviceGetCount": lambda: cards,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: b"Tesla T4",
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=16 << 30, used=1 << 30),
        "nvmlDeviceGetUtilizationRates": refuse,
        "nvmlDeviceGetPciInfo": lambda handle: types.SimpleNamespace(busId=b"0000:01:00.0"),
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 70_000,
        "nvmlDeviceGetTemperature": refuse,
    }
    for name, value in answers.items():
        setattr(made, name, value)
    return made


async def test_cards_are_grouped_by_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(3))
    plugin = Nvidia(NvidiaSettings(ignored_gpu_ids=("GPU-1",)))
    (group,) = await plugin.fingerprint()
    assert (group.vendor, group.type, group.name) == ("nvidia", "gpu", "Tesla T4")
    assert [each.id for each in group.instances] == ["GPU-0", "GPU-2"]
    assert group.attributes["memory"] == {"Int": 16384, "Unit": "MiB"}
    assert group.attributes["power"] == {"Int": 70, "Unit": "W"}
    given = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="Tesla T4", device_ids=("GPU-0", "GPU-2"))
    assert (await plugin.reserve(given)).env == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-2"}
    with pytest.raises(LepaError, match="GPU-1 is not on this node"):
        await plugin.reserve(AllocatedDeviceResource(device_ids=("GPU-1",)))
    stats = await plugin.stats()
    assert stats[0]["InstanceStats"]["GPU-0"]["Summary"]["IntNumeratorVal"] == 1024
    await plugin.close()


async def test_without_library_driver_or_consent_there_are_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_cards() == []
    broken = library(1)
    broken.nvmlInit = broken.nvmlDeviceGetTemperature
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert read_cards() == []
    monkeypatch.setitem(sys.modules, "pynvml", library(1))
    assert await nvidia({"enabled": False}).fingerprint() == []
    with pytest.raises(LepaError, match="plugin 'nvidia'"):
        nvidia({"enable": True})
    assert groups([Card(id="x", number=0, name="m")])[0].attributes.keys() == {"memory", "driver_version"}


def test_the_agent_does_not_load_the_library_before_it_looks() -> None:
    code = f"import sys; import {nvidia_module.__name__}; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
