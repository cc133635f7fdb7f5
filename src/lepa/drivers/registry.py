"""The drivers of this node: a name and a factory each. A new driver is one file and one row here.

Drivers of others come by Python entry points of the group `lepa.drivers`: the name is the driver's, the object a
factory as in this table. One that cannot be loaded is there all the same, and its fingerprint says why it does not
work.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from lepa.drivers.absent import AbsentDriver
from lepa.drivers.devices import registry as device_registry
from lepa.drivers.docker import DockerDriver
from lepa.drivers.docker_settings import DockerSettings
from lepa.drivers.java import OciJava
from lepa.drivers.mock import MockDriver
from lepa.drivers.oci import ExecSettings, OciExec
from lepa.drivers.podman import PodmanDriver
from lepa.drivers.podman_config import PodmanSettings
from lepa.drivers.protocol import Driver
from lepa.drivers.qemu import Qemu
from lepa.drivers.qemu_config import QemuSettings
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid

log = logging.getLogger(__name__)


class DriverHost(msgspec.Struct, frozen=True):
    """What drivers get from the agent.

    state_dir: a directory of the agent's in which each may have its own. chroot_env: what isolated tasks see of the
    host, path -> path inside; empty: its programs and libraries.
    """

    supervisor: Supervisor
    clock: Clock
    state_dir: str
    chroot_env: dict[str, str] = {}


Factory = Callable[[DriverHost, dict[str, Any]], Driver]


def build_drivers(host: DriverHost, plugins: Mapping[str, dict[str, Any]]) -> dict[str, Driver]:
    """Every driver by name, each with its `plugin` block of the agent's configuration.

    A driver that cannot work here is built all the same: its fingerprint says undetected, and why. Raises
    LepaError(invalid) for a plugin block with unknown or wrong settings.
    """
    drivers = {
        name: factory(host, plugins.get(name) or plugins.get(ALIASES.get(name, ""), {}))
        for name, factory in FACTORIES.items()
    }
    for entry in entry_points(group=GROUP):
        if entry.name in drivers:
            log.warning("driver left out: the name is taken name=%s from=%s", entry.name, entry.value)
        else:
            drivers[entry.name] = _others(entry, host, plugins.get(entry.name, {}))
    return drivers


def unknown_blocks(plugins: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    """Names of `plugin` blocks that belong to no driver or device plugin of this node: misspelt, or not installed."""
    named = {*known, *ALIASES.values(), *device_registry.ALIASES.values()}
    return sorted(name for name in plugins if name not in named)


def _others(entry: EntryPoint, host: DriverHost, raw: dict[str, Any]) -> Driver:
    """Somebody else's driver; its settings may be wrong, which is the operator's to mend, and so may its code."""
    try:
        driver: Driver = entry.load()(host, raw)
    except LepaError:
        raise
    except Exception as error:
        log.warning("driver not loaded name=%s from=%s reason=%s", entry.name, entry.value, error)
        return AbsentDriver(entry.name, f"{entry.value} could not be loaded: {type(error).__name__}: {error}")
    if driver.name != entry.name:
        return AbsentDriver(entry.name, f"{entry.value} made a driver that calls itself {driver.name!r}")
    return driver


GROUP = "lepa.drivers"
ALIASES = {"podman": "nomad-driver-podman"}
"""Names by which other orchestrators know the `plugin` block of a driver."""


def _settings(kind: Any, driver: str, raw: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"plugin {driver!r}: {error}") from error


def _raw_exec(host: DriverHost, raw: dict[str, Any]) -> Driver:
    return RawExec(host.supervisor, host.clock, _settings(RawExecSettings, "raw_exec", raw))


def _exec(host: DriverHost, raw: dict[str, Any]) -> Driver:
    return OciExec(host.supervisor, host.clock, _settings(ExecSettings, "exec", raw), host.state_dir, host.chroot_env)


def _java(host: DriverHost, raw: dict[str, Any]) -> Driver:
    return OciJava(host.supervisor, host.clock, _settings(ExecSettings, "java", raw), host.state_dir, host.chroot_env)


def _qemu(host: DriverHost, raw: dict[str, Any]) -> Driver:
    return Qemu(host.supervisor, host.clock, _settings(QemuSettings, "qemu", raw))


def _docker(host: DriverHost, raw: dict[str, Any]) -> Driver:
    try:
        return DockerDriver(host.clock, _settings(DockerSettings, "docker", raw), host.state_dir)
    except (ValueError, OSError) as error:
        raise invalid(f"plugin 'docker': {error}") from error


def _podman(host: DriverHost, raw: dict[str, Any]) -> Driver:
    try:
        return PodmanDriver(host.clock, _settings(PodmanSettings, "podman", raw), host.state_dir)
    except (ValueError, TypeError) as error:
        raise invalid(f"plugin 'podman': {error}") from error


def _mock(host: DriverHost, raw: dict[str, Any]) -> Driver:
    return MockDriver(host.clock)


FACTORIES: dict[str, Factory] = {
    "docker": _docker,
    "exec": _exec,
    "java": _java,
    "mock_driver": _mock,
    "podman": _podman,
    "qemu": _qemu,
    "raw_exec": _raw_exec,
}
