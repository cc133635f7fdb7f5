"""How a server gossips, from its configuration."""

import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from lepa.agent.config import Config
from lepa.agent.config_loader import build
from lepa.agent.gossip_settings import (
    admit_servers,
    joins,
    listen_on,
    load_keyring,
    member_tags,
    save_keyring,
)
from lepa.gossip.messages import NodeState
from lepa.gossip.tags import encode_tags
from lepa.model.errors import LepaError

KEY, OTHER = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
RAW = {"data_dir": "/data", "name": "one", "bind_addr": "10.0.0.1", "region": "eu", "datacenter": "dc2"}


def settings(**server: Any) -> Config:
    above = {key: server.pop(key) for key in ("advertise", "addresses", "bind_addr") if key in server}
    return build(RAW | above | {"server": {"enabled": True, **server}}).config


def test_tags_are_those_of_a_nomad_server() -> None:
    assert member_tags(settings(), "1.9.5") == {
        "role": "nomad",
        "region": "eu",
        "dc": "dc2",
        "build": "1.9.5",
        "vsn": "1",
        "raft_vsn": "3",
        "id": "one.eu",
        "rpc_addr": "10.0.0.1",
        "port": "4647",
        "bootstrap": "1",
    }


def node(**tags: str) -> NodeState:
    return NodeState("x", bytes(4), 1, encode_tags(tags), 1, 0)


def test_only_servers_are_let_in() -> None:
    assert admit_servers(node(**member_tags(settings(), "1.9.5"))) == ""
    assert admit_servers(node(role="web")) == '"x" is no server: its tag role is "web", not "nomad"'
    assert admit_servers(node(role="nomad", port="4647")) == '"x" is no server: it has no tag build, raft_vsn'
    odd = admit_servers(node(role="nomad", port="http", build="1", raft_vsn="3"))
    assert odd == '"x": its tag port is no number'


def test_where_it_listens_and_what_others_are_told() -> None:
    assert listen_on(settings()) == ("10.0.0.1", 4648, "10.0.0.1", 0)
    assert listen_on(settings(addresses={"serf": "10.0.0.9"})) == ("10.0.0.9", 4648, "10.0.0.9", 0)
    assert listen_on(settings(advertise={"serf": "192.0.2.7:5000"})) == ("10.0.0.1", 4648, "192.0.2.7", 5000)
    with pytest.raises(LepaError, match=r"advertise.serf: \"a:b:c\""):
        listen_on(settings(advertise={"serf": "a:b:c"}))


def test_whom_it_joins() -> None:
    server = {
        "retry_join": ["a", "b:4647", "c:5000"],
        "start_join": ["d"],
        "server_join": {"retry_join": ["e", "a:4648"], "retry_max": 3, "retry_interval": "5s"},
    }
    found = joins(settings(**server))
    assert found.until_joined == ("a:4648", "b:4648", "c:5000", "e:4648"), "the internal port names a server too"
    assert found.at_start == ("d:4648",)
    assert found.retry == (5.0, 3)
    assert joins(settings()) == ((), (), (30.0, 0))


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"retry_join": ["provider=aws tag_key=x"]}, "not looked up at cloud providers"),
        ({"retry_join": ["a:b"]}, '"b" is not a port'),
        ({"server_join": {"retry_jion": ["a"]}}, '"retry_jion" is not one of'),
        ({"server_join": {"retry_join": "a"}}, "has to be a list of texts"),
        ({"server_join": {"retry_max": -1}}, "is not a number of attempts"),
        ({"server_join": {"retry_interval": "soon"}}, "server.retry_interval"),
        ({"retry_interval": "0s"}, "more than 0s"),
    ],
)
def test_mistakes_are_named(server: dict[str, Any], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        joins(settings(**server))


def test_keys_are_kept_and_win_over_the_configuration(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert load_keyring(tmp_path, "") is None
    made = load_keyring(tmp_path, KEY)
    assert made is not None
    path = tmp_path / "serf.keyring"
    assert path.read_text() == f'["{KEY}"]'
    assert path.stat().st_mode & 0o777 == 0o600
    made.install(base64.b64decode(OTHER))
    made.use(base64.b64decode(OTHER))
    save_keyring(tmp_path, made)
    again = load_keyring(tmp_path, "")
    assert again is not None
    assert again.keys == made.keys
    again.remove(base64.b64decode(KEY))
    save_keyring(tmp_path, again)
    with caplog.at_level(logging.WARNING):
        kept = load_keyring(tmp_path, KEY)
    assert kept is not None
    assert kept.primary == base64.b64decode(OTHER)
    assert "server.encrypt is not used" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize("text", ["secret!", "c2hvcnQ=", base64.b64encode(bytes(20)).decode()])
def test_a_key_that_is_none_is_never_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(LepaError, match="keyring generate") as error:
        load_keyring(tmp_path, text)
    assert text not in error.value.message
    (tmp_path / "serf.keyring").write_text(f'["{text}"]')
    with pytest.raises(LepaError, match="list of base64 keys") as error:
        load_keyring(tmp_path, "")
    assert text not in error.value.message
