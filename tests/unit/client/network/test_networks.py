"""Networks of groups: made, taken up by a later agent, taken away; with real namespaces and stand-ins for plugins."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_alloc, make_group, make_job
from tests.components import require_root
from tests.unit.client.network.plugins import calls, plugin

from lepa.client.local_state import LocalState
from lepa.client.network import namespace
from lepa.client.network.cni import PluginList
from lepa.client.network.networks import HOST_NETWORK, Networks, lists_in
from lepa.client.settings import ClientSettings
from lepa.model.errors import LepaError, invalid
from lepa.model.node import ClientHostNetworkConfig
from lepa.model.resources import (
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    CNIConfig,
    DNSConfig,
    NetworkResource,
)

RESULT = '{"interfaces": [{"name": "eth0", "sandbox": "x"}], "ips": [{"interface": 0, "address": "10.0.0.9/24"}]}'
LIST = '{"name": "mine", "plugins": [{"type": "fake", "capabilities": {"portMappings": true}}]}'


class NoOverlays:
    async def plugin_list(self, name: str) -> PluginList:
        raise invalid(f"no {name}")

    async def enter(self, name: str, path: Path) -> tuple[str, ...]:
        return ()


class Bench:
    """A node's networks below a directory; `again` is a later agent's."""

    def __init__(self, directory: Path) -> None:
        require_root()
        self.directory = directory
        self.plugins = directory / "bin"
        self.plugins.mkdir()
        plugin(self.plugins, "fake", RESULT)
        configs = directory / "config"
        configs.mkdir()
        (configs / "mine.conflist").write_text(LIST)
        self.networks = self.again()

    def again(self, **fields: Any) -> Networks:
        self.state = LocalState(self.directory / "state.db")
        settings = ClientSettings(
            directory=self.directory,
            name="n",
            cni_path=str(self.plugins),
            cni_config_dir=str(self.directory / "config"),
            **fields,
        )
        return Networks(settings, self.state, NoOverlays())

    def namespaces(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "netns").glob("*") if namespace.exists(path))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = Bench(tmp_path)
    yield found
    for path in (tmp_path / "netns").glob("*"):
        namespace.remove(path)
    found.state.close()


def group(mode: str = "cni/mine", **fields: Any) -> Any:
    return make_group(networks=(NetworkResource(mode=mode, **fields),))


def alloc(*ports: AllocatedPortMapping) -> Any:
    return make_alloc("a1", allocated_resources=AllocatedResources(shared=AllocatedSharedResources(ports=ports)))


async def test_the_hosts_network_needs_nothing(bench: Bench) -> None:
    job = make_job()
    assert await bench.networks.attach(alloc(), job, make_group()) == HOST_NETWORK
    assert await bench.networks.attach(alloc(), job, group("host")) == HOST_NETWORK
    assert bench.namespaces() == []


async def test_none_is_a_namespace_with_nothing_but_loopback(bench: Bench) -> None:
    found = await bench.networks.attach(alloc(), make_job(), group("none"))
    assert found.status is not None
    assert (found.status.interface_name, found.status.address) == ("lo", "")
    assert calls(bench.plugins) == []
    await bench.networks.detach(alloc().id)
    assert bench.namespaces() == []


async def test_a_network_is_made_and_taken_away(bench: Bench) -> None:
    found = await bench.networks.attach(alloc(), make_job(), group())
    assert found.status is not None
    assert found.status.address == "10.0.0.9"
    assert bench.namespaces() == [alloc().id]
    assert Path(found.hosts).read_text().endswith(f"10.0.0.9 {alloc().id[:8]}\n")
    await bench.networks.detach(alloc().id)
    assert [command for command, _, _ in calls(bench.plugins)] == ["ADD", "DEL"]
    assert bench.namespaces() == []
    assert not Path(found.hosts).exists()
    assert bench.state.networks() == {}


async def test_a_later_agent_takes_it_up_as_it_is(bench: Bench) -> None:
    before = await bench.networks.attach(alloc(), make_job(), group())
    bench.state.close()
    networks = bench.again()
    assert await networks.attach(alloc(), make_job(), group()) == before
    assert [command for command, _, _ in calls(bench.plugins)] == ["ADD"]
    await networks.detach(alloc().id)
    assert bench.namespaces() == []


async def test_one_that_vanished_with_its_host_is_made_anew(bench: Bench) -> None:
    found = await bench.networks.attach(alloc(), make_job(), group())
    bench.state.close()
    namespace.remove(Path(found.namespace))
    await bench.again().attach(alloc(), make_job(), group())
    assert [command for command, _, _ in calls(bench.plugins)] == ["ADD", "DEL", "ADD"]
    assert bench.namespaces() == [alloc().id]


async def test_a_failed_one_leaves_nothing(bench: Bench) -> None:
    plugin(bench.plugins, "fake", '{"msg": "no room"}', code=1)
    with pytest.raises(LepaError, match="no room"):
        await bench.networks.attach(alloc(), make_job(), group())
    assert (bench.namespaces(), bench.state.networks()) == ([], {})


async def test_networks_of_unknown_allocations_are_collected(bench: Bench) -> None:
    await bench.networks.attach(alloc(), make_job(), group())
    bench.state.close()
    networks = bench.again()
    await networks.collect([alloc().id])
    assert bench.namespaces() == [alloc().id]
    await networks.collect([])
    assert bench.namespaces() == []


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, None),
        ({"bind_wildcard": False}, "192.0.2.7"),
        ({"host_networks": (ClientHostNetworkConfig(name="net1", cidr="192.0.2.0/24"),)}, "192.0.2.7"),
    ],
    ids=["everywhere", "told not to", "with host networks"],
)
async def test_mapped_ports_are_bound_everywhere_while_there_are_no_host_networks(
    bench: Bench, fields: dict[str, Any], address: str | None
) -> None:
    bench.state.close()
    port = AllocatedPortMapping(label="http", value=20_001, to=80, host_ip="192.0.2.7")
    await bench.again(**fields).attach(alloc(port), make_job(), group())
    ((_, _, told),) = calls(bench.plugins)
    assert ('"hostIP": "192.0.2.7"' in told) == (address is not None)


async def test_the_jobs_dns_and_arguments_are_used(bench: Bench) -> None:
    wanted = group(dns=DNSConfig(servers=("9.9.9.9",)), cni=CNIConfig({"VLAN": "7"}))
    found = await bench.networks.attach(alloc(), make_job(), wanted)
    assert found.status is not None
    assert found.status.dns == DNSConfig(("9.9.9.9",))
    record = bench.state.network(alloc().id)
    assert record is not None
    assert record.arguments["VLAN"] == "7"
    assert record.arguments["NOMAD_ALLOC_ID"] == alloc().id


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("cni/other", 'no CNI network "other" in .*; known: mine'),
        ("overlay/x", "no x"),
        ("strange", 'network mode "strange" is not known'),
    ],
)
async def test_an_unknown_network_is_told(bench: Bench, mode: str, told: str) -> None:
    with pytest.raises(LepaError, match=told):
        await bench.networks.attach(alloc(), make_job(), group(mode))
    assert bench.state.networks() == {}


def test_files_that_cannot_be_understood_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.conflist").write_text(LIST)
    (tmp_path / "b.conf").write_text("{")
    (tmp_path / "c.txt").write_text(LIST.replace("mine", "not"))
    assert list(lists_in(tmp_path)) == ["mine"]
    assert lists_in(tmp_path / "nothing") == {}
