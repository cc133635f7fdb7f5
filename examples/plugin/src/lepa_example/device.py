"""A device plugin for graphics cards that do not exist: `plugin "example_gpu" { config { count = 2 } }`.

A task with `device "gpu" { count = 1 }` gets the cards' names in EXAMPLE_GPU_IDS, the directory `files` at
/opt/example-gpu, and for each card a device file that is really /dev/full.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from lepa.drivers.devices.protocol import Reservation
from lepa.drivers.protocol import DeviceNode, Mount
from lepa.model.errors import invalid, not_found
from lepa.model.node import NodeDevice, NodeDeviceResource
from lepa.model.resources import AllocatedDeviceResource

GROUP = ("example", "gpu", "imaginary-100")
"""Vendor, type and model."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """count: how many cards there are. files: a directory that users of a card see. broken: cards that are ill."""

    count: int = 0
    files: str = ""
    broken: tuple[str, ...] = ()


def example_gpu(raw: dict[str, Any]) -> "ExampleGpu":
    """The entry point: makes the plugin of its `plugin` block."""
    try:
        return ExampleGpu(msgspec.convert(raw, Settings))
    except msgspec.ValidationError as error:
        raise invalid(f"plugin 'example_gpu': {error}") from error


class ExampleGpu:
    """Device plugin "example_gpu"."""

    name = "example_gpu"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ids = [f"card-{number}" for number in range(settings.count)]

    async def fingerprint(self) -> Sequence[NodeDeviceResource]:
        """One group of cards, with what jobs may ask for as `${device.attr.memory}`."""
        if not self._ids:
            return ()
        vendor, kind, model = GROUP
        cards = tuple(
            NodeDevice(id=each, healthy=each not in self._settings.broken, health_description="") for each in self._ids
        )
        attributes = {"memory": {"Int": 16, "Unit": "GiB"}}
        return (NodeDeviceResource(vendor=vendor, type=kind, name=model, instances=cards, attributes=attributes),)

    async def reserve(self, given: AllocatedDeviceResource) -> Reservation:
        """What a task needs that was given these cards."""
        if missing := set(given.device_ids) - set(self._ids):
            raise not_found(f"card {', '.join(sorted(missing))} is gone")
        files = self._settings.files
        return Reservation(
            env={"EXAMPLE_GPU_IDS": ",".join(given.device_ids)},
            mounts=(Mount(host_path=files, task_path="/opt/example-gpu", read_only=True),) if files else (),
            devices=tuple(DeviceNode(host_path="/dev/full", task_path=f"/dev/{each}") for each in given.device_ids),
        )

    async def stats(self) -> Sequence[dict[str, Any]]:
        """These cards are never busy."""
        vendor, kind, model = GROUP
        return [{"Vendor": vendor, "Type": kind, "Name": model, "InstanceStats": {each: {} for each in self._ids}}]

    async def close(self) -> None:
        """Nothing to let go of."""
