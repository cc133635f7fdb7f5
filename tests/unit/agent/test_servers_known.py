"""Where a node begins to look for servers."""

from typing import Any

import pytest

from lepa.agent.config_loader import build
from lepa.agent.servers_known import client_servers
from lepa.model.errors import LepaError


def known(**client: Any) -> tuple[str, ...]:
    raw = {"data_dir": "/data", "client": {"enabled": True, **client}}
    return client_servers(build(raw).config)


def test_servers_are_names_or_addresses_with_or_without_a_port() -> None:
    given = ["10.0.0.2", "10.0.0.3:5000", "servers.example.org", "fd00::1", "[fd00::2]", "[fd00::3]:5000"]
    assert known(servers=given) == (
        "10.0.0.2:4647",
        "10.0.0.3:5000",
        "servers.example.org:4647",
        "[fd00::1]:4647",
        "[fd00::2]:4647",
        "[fd00::3]:5000",
    )


def test_those_to_join_are_servers_too_and_none_is_named_twice() -> None:
    join = {"retry_join": ["b", "a:4647"], "start_join": ["c"], "retry_max": 3, "retry_interval": "15s"}
    assert known(servers=["a"], server_join=join) == ("a:4647", "b:4647", "c:4647")
    assert known(server_join={"retry_join": ["b"]}) == ("b:4647",)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"servers": ["a:port"]}, '"a:port" is not the address of a server'),
        ({"servers": [":4647"]}, "is not the address of a server"),
        ({"servers": ["a:0"]}, "is not the address of a server"),
        ({"server_join": {"retry_join": ["provider=aws tag_key=x"]}}, "not looked up at cloud providers"),
        ({"server_join": {"retry_jion": ["a"]}}, '"retry_jion" is not one of'),
        ({"server_join": {"retry_join": "a"}}, "has to be a list of texts"),
    ],
)
def test_what_is_no_server_is_refused_with_a_sentence(client: dict[str, Any], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        known(**client)
