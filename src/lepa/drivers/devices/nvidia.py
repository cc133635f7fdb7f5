"""NVIDIA cards by NVIDIA's management library, where `nvidia-ml-py` is installed and finds a driver; else none.

A task gets its cards by name (NVIDIA_VISIBLE_DEVICES, for the container runtime) and by their device files.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from lepa.drivers.devices.protocol import Reservation
from lepa.drivers.protocol import DeviceNode
from lepa.model.errors import invalid, not_found
from lepa.model.node import NodeDevice, NodeDeviceLocality, NodeDeviceResource
from lepa.model.resources import AllocatedDeviceResource

VENDOR, TYPE = "nvidia", "gpu"
MIB = 1024 * 1024
SHARED_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
"""Device files that every user of a card needs beside the card's own."""


class NvidiaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "nvidia"` block. ignored_gpu_ids: cards that jobs do not get."""

    enabled: bool = True
    ignored_gpu_ids: tuple[str, ...] = ()
    fingerprint_period: str = "1m"


class Card(msgspec.Struct, frozen=True):
    """A card as the library describes it. memory_mib: all of it; watts: its limit, 0 when not known."""

    id: str
    number: int
    name: str
    memory_mib: int = 0
    watts: int = 0
    bus: str = ""
    driver: str = ""
    used_mib: int = 0
    busy_percent: int = 0
    celsius: int = 0


def nvidia(raw: dict[str, Any]) -> "Nvidia":
    """The plugin with its settings. Raises LepaError(invalid)."""
    try:
        return Nvidia(msgspec.convert(raw, NvidiaSettings))
    except msgspec.ValidationError as error:
        raise invalid(f"plugin 'nvidia': {error}") from error


class Nvidia:
    """Device plugin "nvidia"."""

    name = "nvidia"

    def __init__(self, settings: NvidiaSettings) -> None:
        self._settings = settings

    async def fingerprint(self) -> Sequence[NodeDeviceResource]:
        """Cards by model."""
        return groups(await self._cards())

    async def reserve(self, given: AllocatedDeviceResource) -> Reservation:
        """The cards' names and files. Raises LepaError(not_found)."""
        known = {card.id: card for card in await self._cards()}
        if missing := [each for each in given.device_ids if each not in known]:
            raise not_found(f"GPU {', '.join(missing)} is not on this node any more")
        files = [f"/dev/nvidia{known[each].number}" for each in given.device_ids]
        shared = [path for path in SHARED_FILES if os.path.exists(path)]
        return Reservation(
            env={"NVIDIA_VISIBLE_DEVICES": ",".join(given.device_ids)},
            devices=tuple(
                DeviceNode(host_path=path, task_path=path) for path in (*files, *shared) if os.path.exists(path)
            ),
        )

    async def stats(self) -> Sequence[dict[str, Any]]:
        """Memory, load and temperature of each card."""
        return [
            {
                "Vendor": VENDOR,
                "Type": TYPE,
                "Name": card.name,
                "InstanceStats": {
                    card.id: {
                        "Summary": _stat(card.used_mib, card.memory_mib, "MiB", "Memory state"),
                        "Stats": {
                            "Attributes": {
                                "GPU utilization": _stat(card.busy_percent, None, "%", "GPU utilization"),
                                "Temperature": _stat(card.celsius, None, "C", "Temperature"),
                            }
                        },
                    }
                },
            }
            for card in await self._cards()
        ]

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _cards(self) -> list[Card]:
        if not self._settings.enabled:
            return []
        cards = await asyncio.to_thread(read_cards)
        return [card for card in cards if card.id not in self._settings.ignored_gpu_ids]


def groups(cards: Sequence[Card]) -> list[NodeDeviceResource]:
    """Cards of one model are one group, with the attributes that jobs compare: `${device.attr.memory}`."""
    models: dict[str, list[Card]] = {}
    for card in cards:
        models.setdefault(card.name, []).append(card)
    return [
        NodeDeviceResource(
            vendor=VENDOR,
            type=TYPE,
            name=name,
            instances=tuple(
                NodeDevice(id=card.id, healthy=True, locality=NodeDeviceLocality(pci_bus_id=card.bus)) for card in same
            ),
            attributes={
                "memory": {"Int": same[0].memory_mib, "Unit": "MiB"},
                "driver_version": {"String": same[0].driver},
                **({"power": {"Int": same[0].watts, "Unit": "W"}} if same[0].watts else {}),
            },
        )
        for name, same in sorted(models.items())
    ]


def read_cards() -> list[Card]:
    """What the library says now; none without the library, its driver or a card. Blocks: call it in a thread."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        return [_card(pynvml, number, driver) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def _card(library: Any, number: int, driver: str) -> Card:
    handle = library.nvmlDeviceGetHandleByIndex(number)

    def asked(question: str, default: Any, *arguments: Any) -> Any:
        """An answer that not every card has."""
        try:
            return getattr(library, question)(handle, *arguments)
        except library.NVMLError:
            return default

    memory, use, bus = (
        asked("nvmlDeviceGetMemoryInfo", None),
        asked("nvmlDeviceGetUtilizationRates", None),
        asked("nvmlDeviceGetPciInfo", None),
    )
    return Card(
        id=_text(library.nvmlDeviceGetUUID(handle)),
        number=number,
        name=_text(library.nvmlDeviceGetName(handle)),
        memory_mib=memory.total // MIB if memory else 0,
        used_mib=memory.used // MIB if memory else 0,
        watts=asked("nvmlDeviceGetPowerManagementLimit", 0) // 1000,
        busy_percent=use.gpu if use else 0,
        celsius=asked("nvmlDeviceGetTemperature", 0, 0),
        bus=_text(bus.busId) if bus else "",
        driver=driver,
    )


def _stat(value: int, most: int | None, unit: str, about: str) -> dict[str, Any]:
    found: dict[str, Any] = {"IntNumeratorVal": value, "Unit": unit, "Desc": about}
    return found if most is None else {**found, "IntDenominatorVal": most}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
