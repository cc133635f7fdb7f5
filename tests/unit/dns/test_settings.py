import pytest

from lepa.dns.settings import DnsSettings, recursor_address
from lepa.model.errors import LepaError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.2", ("10.0.0.2", 53)),
        ("10.0.0.2:5353", ("10.0.0.2", 5353)),
        ("fd00::2", ("fd00::2", 53)),
        ("[fd00::2]", ("fd00::2", 53)),
        ("[fd00::2]:5353", ("fd00::2", 5353)),
    ],
)
def test_recursors_are_addresses_with_or_without_port(text: str, expected: tuple[str, int]) -> None:
    assert recursor_address(text) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"domains": ()},
        {"domains": (".",)},
        {"domains": ("a..b",)},
        {"domains": (".".join(["a" * 60] * 3),)},
        {"node_ttl_s": -1},
        {"service_ttl_s": {"web": 1 << 31}},
        {"name_server": "ns.example.com"},
        {"udp_size_max": 511},
        {"recursors": ("dns.example.com",)},
        {"recursors": ("10.0.0.2:x",)},
        {"recursors": ("10.0.0.2:0",)},
        {"recursors": ("10.0.0.2:99999",)},
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_sentence(settings: dict[str, object]) -> None:
    with pytest.raises(LepaError, match="dns: ") as caught:
        DnsSettings(**settings)
    assert caught.value.code == "invalid"
