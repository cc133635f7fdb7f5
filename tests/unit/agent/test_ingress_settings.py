import pytest

from lepa.agent.config import Config
from lepa.agent.config_loader import build
from lepa.agent.ingress_settings import announced, ingress_settings
from lepa.catalog.table import Instance, ServiceTable
from lepa.model.errors import LepaError


def make_config(**ingress: object) -> Config:
    raw = {"name": "n1", "data_dir": "/data", "server": {"enabled": True}, "bind_addr": "10.0.0.1", "ingress": ingress}
    return build(raw).config


def test_addresses_fall_back_to_that_of_the_agent() -> None:
    found = ingress_settings(make_config())
    assert (found.address, found.ui_address, found.http, found.ui) == ("10.0.0.1", "10.0.0.1", 9999, 9998)
    found = ingress_settings(make_config(address="10.0.0.2", ui_address="127.0.0.1"))
    assert (found.address, found.ui_address) == ("10.0.0.2", "127.0.0.1")


def test_times_are_read_as_durations() -> None:
    found = ingress_settings(make_config(connect_timeout="250ms", drain_timeout="1m", tcp=["7000=web"]))
    assert (found.connect_s, found.drain_s, found.tcp) == (0.25, 60.0, ("7000=web",))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"idle_timeout": "soon"}, "ingress.idle_timeout"),
        ({"tcp": ["web"]}, "7000=service"),
        ({"strategy": "best"}, "strategy"),
        ({"matcher": "regexp"}, "matcher"),
        ({"htpp": 1}, 'did you mean "http"'),
    ],
)
def test_settings_that_cannot_be(block: dict[str, object], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        ingress_settings(make_config(**block))


def table(*instances: Instance) -> ServiceTable:
    return ServiceTable.build(instances, [], 1)


def names(found: ServiceTable) -> dict[str, list[str]]:
    return {name: [f"{row.address}:{row.port}" for row in rows.all] for (_, name), rows in found.services.items()}


def test_the_ingress_is_an_instance_of_its_names() -> None:
    assert names(announced(table(), make_config(), "10.0.0.9")) == {
        "ingress": ["10.0.0.9:9999"],
        "fabio": ["10.0.0.9:9999"],
    }


def test_a_name_that_is_taken_is_left_alone() -> None:
    other = Instance(id="1", service="fabio", address="10.0.0.5", port=80)
    assert names(announced(table(other), make_config(names=["fabio"]), "10.0.0.9")) == {"fabio": ["10.0.0.5:80"]}


def test_tags_register_names_with_the_ingress() -> None:
    web = Instance(id="1", service="web", address="h", port=1, tags=("urlprefix-/ register=front", "register=not"))
    found = names(announced(table(web), make_config(names=[]), "10.0.0.9"))
    assert found == {"web": ["h:1"], "front": ["10.0.0.9:9999"]}
