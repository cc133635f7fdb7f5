"""Agent configuration: what is taken, what is refused and how."""

from pathlib import Path
from typing import Any

import pytest

from lepa.agent import config
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
    found = config.load([file], {}).config
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
        config.build(raw)


def test_every_level_of_nomad_is_taken() -> None:
    for level in ("TRACE", "debug", "Info", "WARN", "error"):
        assert config.build(DEV | {"log_level": level}).config.log_level == level


def test_settings_without_effect_are_warned_of() -> None:
    assert config.build(DEV | {"consul": {"address": "x"}}).warnings == ('"consul" has no effect in this version',)


def test_secrets_are_not_shown() -> None:
    shown = config.shown(config.build(DEV | {"vault": {"token": "s.secret", "address": "http://v"}}).config)
    assert shown["vault"] == {"token": "<redacted>", "address": "http://v"}


def test_no_kind_of_secret_is_shown() -> None:
    """B237, CVE-2019-12741."""
    receiver = {"type": "loki", "address": "http://user:hidden-a@l:3100/push", "headers": {"X": "hidden-b"}}
    given = {
        "acl": {"enabled": True, "replication_token": "hidden-c"},
        "server": {"enabled": True, "encrypt": "hidden-d"},
        "client": {"enabled": True, "ship_logs": {"l": receiver}},
        "vault": {"token": "hidden-e"},
        "consul": {"auth": "user:hidden-f", "token": "hidden-g"},
    }
    shown = config.shown(config.build(DEV | given).config)
    assert "hidden" not in str(shown)
    assert shown["acl"]["replication_token"] == shown["server"]["encrypt"] == "<redacted>"
    assert shown["client"]["ship_logs"]["l"]["address"] == "http://<redacted>@l:3100/push"


def test_harmless_settings_are_shown_whatever_their_names_sound_like() -> None:
    given = {
        "acl": {"enabled": True, "token_ttl": "11s", "token_max_expiration_ttl": "9h"},
        "server": {"enabled": True, "root_key_gc_threshold": "2h", "encrypt": ""},
        "client": {"enabled": True, "meta": {"keyboard": "de", "tokens": "brass"}},
        "tls": {"key_file": "/etc/k.pem"},
        "vault": {"key_file": "/etc/v.pem", "secret_id": "hidden", "namespace": "https://a:hidden@v/ns"},
        "telemetry": {"allowed_metadata_keys_in_metrics": ["team"]},
    }
    shown = config.shown(config.build(DEV | given).config)
    assert (shown["acl"]["token_ttl"], shown["acl"]["token_max_expiration_ttl"]) == ("11s", "9h")
    assert (shown["server"]["root_key_gc_threshold"], shown["server"]["encrypt"]) == ("2h", "")
    assert shown["client"]["meta"] == {"keyboard": "de", "tokens": "brass"}
    assert shown["tls"]["key_file"] == "/etc/k.pem"
    assert shown["vault"] == {
        "key_file": "/etc/v.pem",
        "secret_id": "<redacted>",
        "namespace": "https://<redacted>@v/ns",
    }
    assert shown["telemetry"]["allowed_metadata_keys_in_metrics"] == ["team"]


def test_headers_for_receivers_are_not_shown() -> None:
    receiver = {"type": "loki", "address": "http://l/push", "headers": {"Authorization": "Bearer x"}}
    shown = config.shown(config.build(DEV | {"client": {"ship_logs": {"l": receiver}}}).config)
    assert shown["client"]["ship_logs"]["l"]["headers"] == {"Authorization": "<redacted>"}


# Pages for a browser


def test_pages_take_nomads_block() -> None:
    policy = {"connect_src": ["'self'", "https://a.example"], "img_src": []}
    label = {"text": "staging", "background_color": "#a00", "text_color": "white"}
    block = {"enabled": True, "show_cli_hints": True, "label": label, "content_security_policy": policy}
    found = config.build(DEV | {"ui": block})
    pages = config.page_settings(found.config)
    assert (pages.enabled, pages.label, pages.label_background, pages.label_color) == (True, "staging", "#a00", "white")
    assert pages.policy["connect-src"] == ("'self'", "https://a.example")
    assert pages.policy["script-src"] == ("'self'",)
    assert pages.policy["base-uri"] == ("'none'",)
    assert any("ui.show_cli_hints" in warning for warning in found.warnings)
    assert not config.page_settings(config.build(DEV | {"ui": {"enabled": False}}).config).enabled


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"label": {"background_color": "red; } body { display: none"}}, "no colour"),
        ({"label": {"text": "x" * 65}}, "at most 64"),
        ({"content_security_policy": {"img_src": ["'self'; script-src *"]}}, "not one source"),
        ({"enbled": True}, "enabled"),
    ],
)
def test_pages_refuse_what_would_break_them(block: dict[str, Any], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        config.build(DEV | {"ui": block})
