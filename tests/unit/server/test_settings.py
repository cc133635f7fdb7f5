"""Settings have Nomad's defaults."""

from lepa.server.settings import ServerSettings


def test_defaults() -> None:
    settings = ServerSettings()
    assert (settings.versions_kept, settings.job_max_priority, settings.event_batches_max) == (6, 100, 100)
    assert (settings.heartbeat.min_ttl_s, settings.heartbeat.grace_s) == (10, 10)
    assert settings.garbage.job_s == 4 * 3600
