"""The device plugins of this node: those of this build, and those of others by entry points of group `lepa.devices`.

An entry point's name is the plugin's, its object a factory that takes the `plugin` block's settings. A plugin that
cannot be loaded is logged and left out; its devices are then not there.
"""

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from lepa.drivers.devices.nvidia import nvidia
from lepa.drivers.devices.protocol import DevicePlugin
from lepa.model.errors import LepaError

log = logging.getLogger(__name__)

GROUP = "lepa.devices"
Factory = Callable[[dict[str, Any]], DevicePlugin]
FACTORIES: dict[str, Factory] = {"nvidia": nvidia}
ALIASES = {"nvidia": "nomad-device-nvidia"}


def build_device_plugins(plugins: Mapping[str, dict[str, Any]]) -> tuple[DevicePlugin, ...]:
    """Every plugin that could be made. Raises LepaError(invalid) for wrong settings."""
    found = {
        name: factory(plugins.get(name) or plugins.get(ALIASES.get(name, ""), {}))
        for name, factory in FACTORIES.items()
    }
    for entry in entry_points(group=GROUP):
        try:
            found.setdefault(entry.name, entry.load()(plugins.get(entry.name, {})))
        except LepaError:
            raise
        except Exception as error:  # it is somebody else's code: whatever it does wrong, the node goes on without it
            log.warning("device plugin not loaded name=%s from=%s reason=%s", entry.name, entry.value, error)
    return tuple(found.values())
