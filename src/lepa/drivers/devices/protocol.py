"""Pure: what a device plugin must do.

A plugin finds devices of this host in groups (vendor, type, model) and says what a task needs to use those that the
scheduler gave it. Who uses what is the servers' knowledge: a plugin keeps no account of it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from lepa.drivers.protocol import DeviceNode, Mount
from lepa.model.node import NodeDeviceResource
from lepa.model.resources import AllocatedDeviceResource
from lepa.model.wire import Wire


class Reservation(Wire, frozen=True):
    """What a task gets of its devices: variables, mounts, and device files (for drivers that have such a thing)."""

    env: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()

    def and_also(self, other: "Reservation") -> "Reservation":
        """Both together; of one variable in both, the other's value."""
        return Reservation(
            env={**self.env, **other.env},
            mounts=(*self.mounts, *other.mounts),
            devices=(*self.devices, *other.devices),
        )


class DevicePlugin(Protocol):
    """One source of devices."""

    name: str

    async def fingerprint(self) -> Sequence[NodeDeviceResource]:
        """The devices that are there now, unhealthy ones with the reason. Called again and again."""

    async def reserve(self, given: AllocatedDeviceResource) -> Reservation:
        """What a task needs that was given these. Raises LepaError when they are not there (any more)."""

    async def stats(self) -> Sequence[dict[str, Any]]:
        """Present use, one object a group as in Nomad's DeviceGroupStats; () when the plugin measures nothing."""

    async def close(self) -> None:
        """Let go of everything."""
