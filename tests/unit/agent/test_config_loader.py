"""Agent configuration: what is taken, what is refused and how."""

from pathlib import Path

import pytest

from lepa.agent.config_loader import build, load
from lepa.model.errors import LepaError

DEV = {"data_dir": "/tmp/x", "server": {"enabled": True}}


def test_nomads_keys_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "agent.hcl"
    file.write_text(
        """
        datacenter = "dc2"
        data_dir   = "/opt/lepa"
        ports { http = 5646 }
        server {
          enabled          = true
          bootstrap_expect = 1
          job_gc_threshold = "10m"
        }
        client {
          enabled = true
          meta { rack = "r1" }
          host_volume "data" {
            path = "/srv"
          }
          reserved { cpu = 500 }
        }
        plugin "raw_exec" {
          config { enabled = true }
        }
        """
    )
    found = load([file], {}).config
    assert (found.datacenter, found.ports.http, found.ports.rpc) == ("dc2", 5646, 4647)
    assert found.client.meta == {"rack": "r1"}
    assert found.client.host_volume["data"].path == "/srv"
    assert found.plugin["raw_exec"].config == {"enabled": True}
    assert found.name


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"data_dir": "/x"}, "neither server nor client is enabled"),
        ({"server": {"enabled": True}}, "data_dir is missing"),
        (DEV | {"data_dir": "relative"}, "data_dir must be an absolute path"),
        (DEV | {"datacentre": "dc1"}, 'unknown field `datacentre`; did you mean "datacenter"'),
        (DEV | {"ports": {"http": "4646"}}, r"Expected `int`, got `str` - at `\$.ports.http`"),
        ({"data_dir": "/x", "client": {"enabled": True}}, "a client without a server needs"),
        (DEV | {"tls": {"rpc_upgrade_mode": True}}, "tls.rpc_upgrade_mode"),
        (DEV | {"tls": {"https": True}}, "unknown field `https`"),
        (DEV | {"acl": {"enabled": True, "token_max_expiration_ttl": "soon"}}, "acl.token_max_expiration_ttl"),
        (
            {"data_dir": "/x", "server": {"enabled": True, "bootstrap_expect": 30}},
            "bootstrap_expect: 30 is not a number of servers; it has to be 1, 3, 5 or at most 9",
        ),
        (
            {"data_dir": "/x", "server": {"enabled": True, "etcd": {"cert_file": "/c"}}},
            "server.etcd: cert_file and key_file need a ca_file",
        ),
        (
            {"data_dir": "/x", "server": {"enabled": True, "job_gc_threshold": "soon"}},
            'job_gc_threshold: invalid duration "soon"',
        ),
        (DEV | {"ports": {"rpc": 70_000}}, "ports.rpc: 70000 is not a port; it has to be 0 to 65535"),
        (DEV | {"log_level": "LOUD"}, 'log_level: "LOUD" is not a level; use one of TRACE, DEBUG, INFO'),
        (
            DEV | {"client": {"reserved": {"reserved_ports": "80,x"}}},
            'client.reserved.reserved_ports: "x" is neither a number nor a range up to 65535',
        ),
        (DEV | {"client": {"reserved": {"cores": "0-"}}}, 'client.reserved.cores: "0-" is neither'),
        (
            DEV | {"client": {"host_network": {"n": {"reserved_ports": "1-70000"}}}},
            'client.host_network.n.reserved_ports: "1-70000" is neither',
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(raw: dict[str, object], message: str) -> None:
    with pytest.raises(LepaError, match=message.replace("{", r"\{").replace("}", r"\}")):
        build(raw)


def test_every_level_of_nomad_is_taken() -> None:
    for level in ("TRACE", "debug", "Info", "WARN", "error"):
        assert build(DEV | {"log_level": level}).config.log_level == level


def test_settings_without_effect_are_warned_of() -> None:
    assert build(DEV | {"consul": {"address": "x"}}).warnings == ('"consul" has no effect in this version',)
