"""Defaults of a node."""

from pathlib import Path

from lepa.client.settings import ClientSettings


def test_defaults_are_nomads() -> None:
    settings = ClientSettings(directory=Path("/x"), name="n")
    assert (settings.min_dynamic_port, settings.max_dynamic_port) == (20_000, 32_000)
    assert (settings.max_kill_timeout_s, settings.gc_allocs_max, settings.gc_disk_usage_percent) == (30.0, 50, 80.0)
    assert (settings.region, settings.datacenter, settings.node_pool) == ("global", "dc1", "default")
    assert settings.exec_allowed
    assert not settings.exit_with_agent
