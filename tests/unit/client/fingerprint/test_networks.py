"""Which networks a node offers: `lepa.client.fingerprint.networks`."""

from pathlib import Path

from tests.components import require_root
from tests.unit.client.network.plugins import plugin

from lepa.client.fingerprint.networks import offered
from lepa.client.network.conflists import PLUGINS
from lepa.client.settings import ClientSettings


def test_a_bridge_needs_its_plugins_and_other_networks_theirs(tmp_path: Path) -> None:
    require_root()
    programs, configs = tmp_path / "bin", tmp_path / "config"
    programs.mkdir()
    configs.mkdir()
    settings = ClientSettings(directory=tmp_path, name="n", cni_path=str(programs), cni_config_dir=str(configs))
    (configs / "a.conflist").write_text('{"name": "here", "plugins": [{"type": "fake"}]}')
    (configs / "b.conflist").write_text('{"name": "gone", "plugins": [{"type": "missing"}]}')
    plugin(programs, "fake", "{}")
    assert [network.mode for network in offered(settings)] == ["cni/here"]
    for name in PLUGINS:
        plugin(programs, name, "{}")
    assert [network.mode for network in offered(settings)] == ["bridge", "cni/here"]
