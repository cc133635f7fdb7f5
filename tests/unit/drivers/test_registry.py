import pytest
from tests.clocks import ManualClock

from lepa.drivers.registry import FACTORIES, DriverHost, build_drivers, unknown_blocks
from lepa.drivers.supervisor.client import Supervisor
from lepa.model.errors import LepaError


@pytest.fixture
def host() -> DriverHost:
    clock = ManualClock()
    return DriverHost(Supervisor("/nowhere", clock=clock), clock, "/nowhere/state")


def test_every_driver_is_built_under_its_own_name(host: DriverHost) -> None:
    drivers = build_drivers(host, {})
    assert set(drivers) == set(FACTORIES) == {"docker", "exec", "java", "mock_driver", "podman", "qemu", "raw_exec"}
    assert all(driver.name == name for name, driver in drivers.items())


@pytest.mark.parametrize(
    ("driver", "block"),
    [
        ("raw_exec", {"enable": True}),
        ("docker", {"volumes": {"enabled": "perhaps"}}),
        ("docker", {"endpoint": "nowhere"}),
        ("exec", {"pids_limit": "x"}),
    ],
)
def test_a_wrong_plugin_block_is_refused_by_name(host: DriverHost, driver: str, block: dict[str, object]) -> None:
    with pytest.raises(LepaError, match=driver):
        build_drivers(host, {driver: block})


async def test_an_undetected_driver_says_why(host: DriverHost) -> None:
    info = await build_drivers(host, {})["raw_exec"].fingerprint()
    assert not info.detected
    assert info.health_description


def test_blocks_of_no_plugin_are_named() -> None:
    blocks = {"docker": {}, "nomad-driver-podman": {}, "nomad-device-nvidia": {}, "dokcer": {}}
    assert unknown_blocks(blocks, [*FACTORIES, "nvidia"]) == ["dokcer"]
