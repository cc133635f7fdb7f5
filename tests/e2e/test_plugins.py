"""A package of somebody else's adds a driver and devices (lepa.client.devices, lepa.drivers.devices.registry).

The package is examples/plugin, installed as people install it; docs/how-to/write-a-driver.md is about it.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import components
from tests.e2e.agents import LEPA, Agent, eventually, running
from tests.e2e.jobs import WAIT, shell_job

from lepa.drivers.absent import AbsentDriver
from lepa.drivers.devices.registry import build_device_plugins
from lepa.drivers.registry import DriverHost, build_drivers
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
DEVICE_OPTIONS = {"count": 2, "broken": []}

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with the package and what tells of its entry points."""
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*install, "--target", target, EXAMPLE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(target)


@pytest.fixture
def agent(tmp_path: Path, installed: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    components.allow_crun()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    monkeypatch.setenv("PYTHONPATH", installed)
    files = tmp_path / "gpu-files"
    files.mkdir()
    (files / "version").write_text("1.2\n")
    devices = {"config": {**DEVICE_OPTIONS, "files": str(files)}}
    with running(tmp_path / "agent", settings={"plugin": {"example_gpu": devices}}) as found:
        yield found


def test_the_driver_and_the_devices_are_the_nodes_and_tasks_use_them(agent: Agent) -> None:
    """Two cards: a job that has one leaves one; a job that wants two then waits, and says for what."""
    node = agent.get(f"/v1/node/{agent.get('/v1/nodes')[0]['ID']}")
    assert node["Attributes"]["driver.python"] == "1"
    (group,) = node["NodeResources"]["Devices"]
    assert (group["Vendor"], group["Type"], group["Name"]) == ("example", "gpu", "imaginary-100")
    assert [each["ID"] for each in group["Instances"]] == ["card-0", "card-1"]

    script = "import os, time; print('ids', os.environ['EXAMPLE_GPU_IDS'], flush=True); time.sleep(600)"
    device = {"Name": "example/gpu", "Count": 1}
    ask = {"CPU": 20, "MemoryMB": 32, "Devices": [device]}
    agent.run(shell_job("scripts", task={"Driver": "python", "Config": {"script": script}, "Resources": ask}))
    (stub,) = agent.running("scripts")
    text = eventually(lambda: agent.output(stub["ID"], "main"))
    assert text in ("ids card-0\n", "ids card-1\n")

    look = f"ls -l /dev/ | grep card-; cat /opt/example-gpu/version; echo ids $EXAMPLE_GPU_IDS; {WAIT}"
    config = {"command": "/bin/sh", "args": ["-c", look]}
    memory = [{"LTarget": "${device.attr.memory}", "Operand": ">=", "RTarget": "8 GiB"}]
    isolated = {"CPU": 20, "MemoryMB": 32, "Devices": [{**device, "Constraints": memory}]}
    agent.run(shell_job("isolated", task={"Driver": "exec", "Config": config, "Resources": isolated}))
    (other,) = agent.running("isolated")
    lines = eventually(lambda: found if "ids" in (found := agent.output(other["ID"], "main")) else "").splitlines()
    own = {"ids card-0\n": "card-1", "ids card-1\n": "card-0"}[text]
    assert lines[0].startswith("crw-rw----")
    assert lines[0].endswith(own)
    assert lines[1:] == ["1.2", f"ids {own}"]

    evaluation = agent.evaluation(agent.run(shell_job("more", task={"Resources": ask})))
    assert "devices" in str(evaluation["FailedTGAllocs"]["main"]["DimensionExhausted"])
    agent.purge("isolated")
    agent.running("more")
    shown = subprocess.run([LEPA, "node", "status", "-self"], env=agent.environment(), capture_output=True, text=True)
    assert "example/gpu/imaginary-100" in shown.stdout
    stats = agent.get("/v1/client/stats")
    assert [group["Name"] for group in stats["DeviceStats"]] == ["imaginary-100"]


def test_a_plugin_that_is_broken_harms_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad_plugin.py").write_text("def no(*given):\n    raise RuntimeError('oh no')\n")
    info = tmp_path / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[lepa.drivers]\nbad = bad_plugin:no\ngone = nowhere:no\nexec = bad_plugin:no\n"
        "[lepa.devices]\nbad = bad_plugin:no\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    clock = SystemClock()
    drivers = build_drivers(DriverHost(Supervisor("/nowhere", clock=clock), clock, str(tmp_path)), {})
    assert isinstance(drivers["bad"], AbsentDriver)
    assert "RuntimeError: oh no" in drivers["bad"]._reason
    assert "nowhere" in drivers["gone"]._reason
    assert not isinstance(drivers["exec"], AbsentDriver)
    assert [plugin.name for plugin in build_device_plugins({})] == ["nvidia"]
