"""The settings in force, shown without secrets."""

from lepa.agent.config_loader import build
from lepa.agent.config_view import shown

DEV = {"data_dir": "/tmp/x", "server": {"enabled": True}}


def test_secrets_are_not_shown() -> None:
    found = shown(build(DEV | {"vault": {"token": "s.secret", "address": "http://v"}}).config)
    assert found["vault"] == {"token": "<redacted>", "address": "http://v"}


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
    found = shown(build(DEV | given).config)
    assert "hidden" not in str(found)
    assert found["acl"]["replication_token"] == found["server"]["encrypt"] == "<redacted>"
    assert found["client"]["ship_logs"]["l"]["address"] == "http://<redacted>@l:3100/push"


def test_harmless_settings_are_shown_whatever_their_names_sound_like() -> None:
    given = {
        "acl": {"enabled": True, "token_ttl": "11s", "token_max_expiration_ttl": "9h"},
        "server": {"enabled": True, "root_key_gc_threshold": "2h", "encrypt": ""},
        "client": {"enabled": True, "meta": {"keyboard": "de", "tokens": "brass"}},
        "tls": {"key_file": "/etc/k.pem"},
        "vault": {"key_file": "/etc/v.pem", "secret_id": "hidden", "namespace": "https://a:hidden@v/ns"},
        "telemetry": {"allowed_metadata_keys_in_metrics": ["team"]},
    }
    found = shown(build(DEV | given).config)
    assert (found["acl"]["token_ttl"], found["acl"]["token_max_expiration_ttl"]) == ("11s", "9h")
    assert (found["server"]["root_key_gc_threshold"], found["server"]["encrypt"]) == ("2h", "")
    assert found["client"]["meta"] == {"keyboard": "de", "tokens": "brass"}
    assert found["tls"]["key_file"] == "/etc/k.pem"
    assert found["vault"] == {
        "key_file": "/etc/v.pem",
        "secret_id": "<redacted>",
        "namespace": "https://<redacted>@v/ns",
    }
    assert found["telemetry"]["allowed_metadata_keys_in_metrics"] == ["team"]


def test_headers_for_receivers_are_not_shown() -> None:
    receiver = {"type": "loki", "address": "http://l/push", "headers": {"Authorization": "Bearer x"}}
    found = shown(build(DEV | {"client": {"ship_logs": {"l": receiver}}}).config)
    assert found["client"]["ship_logs"]["l"]["headers"] == {"Authorization": "<redacted>"}
