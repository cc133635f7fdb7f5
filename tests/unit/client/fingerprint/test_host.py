"""What the machine says of itself."""

import socket
from pathlib import Path

import pytest

from lepa.client.fingerprint import host
from lepa.client.settings import ClientSettings, ReservedSettings
from lepa.model.node import ClientHostNetworkConfig


@pytest.fixture
def settings(tmp_path: Path) -> ClientSettings:
    return ClientSettings(directory=tmp_path, name="n", network_interface="lo")


def test_processors(settings: ClientSettings) -> None:
    found = host.cpu(settings).attributes
    assert int(found["cpu.totalcompute"]) == int(found["cpu.numcores"]) * int(found["cpu.frequency"]) > 0
    assert found["cpu.arch"] in {"amd64", "arm64", "386", "arm"}
    given = ClientSettings(directory=settings.directory, name="n", cpu_mhz=5000, reserved=ReservedSettings(cpu=1000))
    assert host.cpu(given).attributes["cpu.usablecompute"] == "4000"


def test_memory_and_disk(settings: ClientSettings) -> None:
    assert int(host.memory(settings).attributes["memory.totalbytes"]) > 1_000_000
    found = host.storage(settings).attributes
    assert int(found["unique.storage.bytestotal"]) >= int(found["unique.storage.bytesfree"]) > 0
    assert found["unique.storage.volume"]


def test_kernel_and_its_signals(settings: ClientSettings) -> None:
    found = host.kernel(settings).attributes
    assert found["kernel.name"] == "linux"
    assert found["unique.hostname"] == socket.gethostname()
    assert {"SIGHUP", "SIGUSR1", "SIGTERM"} <= set(found["os.signals"].split(","))


def test_versions_that_job_files_ask_for(settings: ClientSettings) -> None:
    found = host.lepa(settings).attributes
    assert found["nomad.service_discovery"] == "true"
    assert tuple(map(int, found["nomad.version"].split("."))) >= (1, 8, 0)


def test_cni_plugins_tell_their_version(settings: ClientSettings, tmp_path: Path) -> None:
    plugins = tmp_path / "cni"
    plugins.mkdir()
    (plugins / "bridge").write_text('#!/bin/sh\necho "CNI bridge plugin v1.4.1" >&2\n')
    (plugins / "bridge").chmod(0o755)
    (plugins / "broken").write_text("#!/bin/sh\nexit 1\n")
    (plugins / "broken").chmod(0o755)
    (plugins / "README").write_text("no program")
    given = ClientSettings(directory=tmp_path, name="n", cni_path=f"{plugins}:{tmp_path / 'none'}")
    assert host.cni_plugins(given).attributes == {"plugins.cni.version.bridge": "1.4.1"}


def test_the_address_is_the_interfaces(settings: ClientSettings) -> None:
    assert host.host_address(settings) == "127.0.0.1"
    assert host.network(settings).attributes == {"unique.network.ip-address": "127.0.0.1"}
    assert (
        host.host_address(ClientSettings(directory=settings.directory, name="n", network_interface="none0"))
        == "127.0.0.1"
    )
    assert host.chosen_interface(ClientSettings(directory=settings.directory, name="n"))


def test_resources_and_networks(settings: ClientSettings) -> None:
    given = ClientSettings(
        directory=settings.directory,
        name="n",
        network_interface="lo",
        memory_mb=2048,
        disk_mb=1000,
        host_networks=(
            ClientHostNetworkConfig(name="inside", cidr="127.0.0.0/8", reserved_ports="22"),
            ClientHostNetworkConfig(name="absent", cidr="203.0.113.0/24"),
        ),
    )
    found = host.resources(given)
    assert (found.memory.memory_mb, found.disk.disk_mb) == (2048, 1000)
    assert found.networks[0].ip == "127.0.0.1"
    assert [
        address.alias
        for network in found.node_networks
        for address in network.addresses
        if address.address == "127.0.0.1"
    ] == ["default", "inside"]
    assert found.min_dynamic_port == 20_000
