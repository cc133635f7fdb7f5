"""The reference of DNS names every setting and every counter."""

from pathlib import Path

from lepa.dns.responder import OUTCOMES
from lepa.dns.server import DnsServer
from lepa.dns.settings import DnsSettings
from lepa.kit.sources import SystemClock

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "dns.md").read_text()


def test_every_setting_is_documented() -> None:
    assert [name for name in DnsSettings.__struct_fields__ if f"`{name}`" not in REFERENCE] == []


def test_every_counter_is_documented() -> None:
    server = DnsServer("127.0.0.1", 0, DnsSettings(), SystemClock())
    server.start()
    counters = {*server.metrics(), *OUTCOMES.values()}
    server.stop()
    assert [name for name in sorted(counters) if f"`{name}`" not in REFERENCE] == []
