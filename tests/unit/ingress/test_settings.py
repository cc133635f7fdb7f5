import pytest

from lepa.ingress.routes import StaticListener
from lepa.ingress.settings import IngressSettings, static_listener
from lepa.model.errors import LepaError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7000=web", StaticListener(7000, "web")),
        (" 7000 = web ", StaticListener(7000, "web")),
        ("10.0.0.1:7000=team/web", StaticListener(7000, "web", "team", "10.0.0.1")),
        ("[::1]:7000=web", StaticListener(7000, "web", address="::1")),
    ],
)
def test_ports_of_services(text: str, expected: StaticListener) -> None:
    assert static_listener(text) == expected


@pytest.mark.parametrize("text", ["", "7000", "7000=", "x=web", "0=web", "70000=web", ":=web"])
def test_what_is_no_port_of_a_service(text: str) -> None:
    with pytest.raises(LepaError, match="not of the form"):
        static_listener(text)


def test_listeners_are_the_ports_that_are_not_0() -> None:
    settings = IngressSettings(address="::1", http=0, https=443, sni=8443)
    assert [(each.kind, each.address, each.port) for each in settings.listeners()] == [
        ("https", "::1", 443),
        ("tcp+sni", "::1", 8443),
    ]


def test_own_entry_points_are_added_to_the_usual_ones() -> None:
    entrypoints = dict(IngressSettings(entrypoints={"mysql": "3306"}).rules().entrypoints)
    assert (entrypoints["web"], entrypoints["mysql"]) == ("http", "3306")
