"""Settings of the parts, made of the agent's configuration: lepa.agent.node_settings, lepa.agent.server_settings."""

from pathlib import Path
from typing import Any

import pytest

from lepa.agent.config_loader import build
from lepa.agent.node_settings import client_settings, numbers
from lepa.agent.server_settings import server_settings
from lepa.model.errors import LepaError

RAW = {
    "name": "n1",
    "region": "eu",
    "data_dir": "/data",
    "server": {"enabled": True, "eval_gc_threshold": "2h", "job_tracked_versions": 9},
    "client": {
        "enabled": True,
        "reserved": {"cpu": 100, "cores": "0,2-3", "reserved_ports": "22"},
        "host_network": {"public": {"cidr": "10.0.0.0/8"}},
        "max_kill_timeout": "1m",
    },
}


def test_a_node_gets_its_part() -> None:
    found = client_settings(build(RAW).config, Path("/data"), "127.0.0.1:4646", "1.9.5", dev=False)
    assert (found.name, found.region, found.directory, found.alloc_dir) == (
        "n1",
        "eu",
        Path("/data/client"),
        Path("/data/alloc"),
    )
    assert (found.reserved.cpu, found.reserved.cores, found.reserved.ports) == (100, (0, 2, 3), "22")
    assert found.host_networks[0].cidr == "10.0.0.0/8"
    assert found.max_kill_timeout_s == 60.0
    assert "raw_exec" not in found.plugins
    assert not found.exit_with_agent


def test_development_turns_raw_exec_on_and_stays_on_loopback() -> None:
    found = client_settings(build(RAW).config, Path("/data"), "127.0.0.1:4646", "1.9.5", dev=True)
    assert found.plugins["raw_exec"] == {"enabled": True}
    assert found.network_interface == "lo"
    assert found.exit_with_agent


def test_the_older_option_turns_raw_exec_on_too() -> None:
    raw = RAW | {"client": {"enabled": True, "options": {"driver.raw_exec.enable": "1"}}}
    found = client_settings(build(raw).config, Path("/data"), "127.0.0.1:4646", "1.9.5", dev=False)
    assert found.plugins["raw_exec"] == {"enabled": True}


def test_a_server_gets_its_part() -> None:
    raw = RAW | {"advertise": {"rpc": "10.0.0.1", "http": "10.0.0.1"}}
    found = server_settings(build(raw).config, "1.9.5", several=False)
    assert found.http_address == "10.0.0.1:4646"
    assert server_settings(build(raw).config, "1.9.5", several=True).lease_ttl_s < found.lease_ttl_s
    assert found.build == "1.9.5"
    assert (found.name, found.rpc_address, found.versions_kept) == ("n1.eu", "10.0.0.1:4647", 9)
    assert found.garbage.evaluation_s == 7200.0


def test_numbers_are_read_from_lists_and_ranges() -> None:
    assert numbers("0, 2-4,9") == (0, 2, 3, 4, 9)
    assert numbers("") == ()


def test_scheduler_settings_of_the_file_are_the_leaders_first_ones() -> None:
    block = {
        "scheduler_algorithm": "spread",
        "memory_oversubscription_enabled": True,
        "preemption_config": {"service_scheduler_enabled": True},
    }
    raw = {"data_dir": "/x", "server": {"enabled": True, "default_scheduler_config": block}}
    found = server_settings(build(raw).config, "1.9.5", several=False).scheduler_defaults
    assert (found.scheduler_algorithm, found.memory_oversubscription_enabled) == ("spread", True)
    assert found.preemption_config.service_scheduler_enabled
    assert found.preemption_config.system_scheduler_enabled
    block["scheduler_algorithm"] = "random"
    with pytest.raises(LepaError, match="neither binpack nor spread"):
        server_settings(build(raw).config, "1.9.5", several=False)


def test_how_servers_look_after_each_other_begins_as_the_file_says() -> None:
    block = {"cleanup_dead_servers": True, "last_contact_threshold": "1500ms", "min_quorum": 3}
    raw: dict[str, Any] = {"data_dir": "/x", "server": {"enabled": True}, "autopilot": block}
    found = server_settings(build(raw).config, "1.9.5", several=True).autopilot_defaults
    assert (found.cleanup_dead_servers, found.last_contact_threshold, found.min_quorum) == (True, "1.5s", 3)
    assert found.stabilization_s == 10.0
    block["server_stabilization_time"] = "soon"
    with pytest.raises(LepaError, match="configuration: autopilot: server_stabilization_time"):
        server_settings(build(raw).config, "1.9.5", several=True)
    block["redundancy"] = True
    with pytest.raises(LepaError, match="redundancy"):
        build(raw)


def test_searches_have_the_limits_of_the_file() -> None:
    raw = {"data_dir": "/x", "server": {"enabled": True, "search": {"limit_results": 5, "fuzzy_enabled": False}}}
    found = server_settings(build(raw).config, "1.9.5", several=False).search
    assert (found.limit_results, found.fuzzy_enabled, found.limit_query) == (5, False, 20)
    raw["server"]["search"]["limit_query"] = 0  # type: ignore[index]
    with pytest.raises(LepaError, match="limit_query: 0 is not between 1 and"):
        server_settings(build(raw).config, "1.9.5", several=False)
