"""Plugins that are run: scripts that write down what they were told."""

import json
from pathlib import Path

import pytest
from tests.unit.client.network.plugins import calls, plugin

from lepa.client.network.cni import PluginList
from lepa.client.network.cni_programs import CniPrograms
from lepa.model.errors import LepaError

NETWORK = PluginList("n", "0.4.0", ({"type": "first"}, {"type": "second"}))


async def test_add_goes_forwards_and_delete_backwards(tmp_path: Path) -> None:
    plugin(tmp_path, "first", '{"ips": [{"address": "10.0.0.2/24"}]}')
    plugin(tmp_path, "second", '{"ips": [{"address": "10.0.0.2/24"}], "second": true}')
    programs = CniPrograms(f"/nowhere:{tmp_path}")
    result = await programs.add(NETWORK, "id", Path("/ns"), {}, {"A": "b"})
    assert result["second"] is True
    assert await programs.delete(NETWORK, "id", Path("/ns"), {}, {}, result)
    told = calls(tmp_path)
    assert [(command, name) for command, name, _ in told] == [
        ("ADD", "first"),
        ("ADD", "second"),
        ("DEL", "second"),
        ("DEL", "first"),
    ]
    assert json.loads(told[1][2])["prevResult"]["ips"] == [{"address": "10.0.0.2/24"}]
    assert json.loads(told[2][2])["prevResult"]["second"] is True


async def test_a_failed_add_is_taken_back(tmp_path: Path) -> None:
    plugin(tmp_path, "first", "{}")
    plugin(tmp_path, "second", '{"code": 11, "msg": "try later"}', code=1)
    with pytest.raises(LepaError, match='CNI plugin "second" failed: try later'):
        await CniPrograms(str(tmp_path)).add(NETWORK, "id", Path("/ns"), {}, {})
    assert [(command, name) for command, name, _ in calls(tmp_path)][-2:] == [("DEL", "second"), ("DEL", "first")]


async def test_a_plugin_that_is_missing_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match=f'CNI plugin "first" is not in {tmp_path}; install it, or set cni_path'):
        await CniPrograms(str(tmp_path)).add(NETWORK, "id", Path("/ns"), {}, {})
