"""What an agent makes of its `tls` block; tests/e2e/test_tls.py has agents that speak it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from lepa.agent.config_loader import build
from lepa.agent.tls import AgentTls
from lepa.kit.certificate_authority import Subject, authority, issue
from lepa.model.errors import LepaError


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings that name an authority, a certificate and its key."""
    folder = tmp_path_factory.mktemp("pems")
    now = datetime.now(UTC)
    ca = authority(Subject("ca"), 3, now)
    pair = issue(ca, "x", 3, now, dns=["server.eu.nomad"], addresses=[], server=True)
    found = {}
    for key, text in {"ca_file": ca.certificate, "cert_file": pair.certificate, "key_file": pair.key}.items():
        found[key] = str(folder / key)
        (folder / key).write_bytes(text)
    return found


def agent_tls(**tls: Any) -> AgentTls:
    settings = {"data_dir": "/x", "region": "eu", "server": {"enabled": True}, "tls": tls}
    return AgentTls(build(settings).config)


def test_without_tls_everything_is_plain() -> None:
    plain = agent_tls()
    assert (plain.http, plain.internal, plain.scheme) == (None, None, "http")
    assert (plain.towards_servers(), plain.towards_agents(), plain.admission()) == (None, None, None)
    assert plain.own_environment() == {}
    plain.reload()


def test_each_port_is_decided_alone(pems: dict[str, str]) -> None:
    http = agent_tls(http=True, **pems)
    assert (http.scheme, http.internal, http.towards_servers()) == ("https", None, None)
    assert http.own().server_name == "server.eu.nomad"
    assert http.own_environment()["LEPA_CACERT"] == pems["ca_file"]
    internal = agent_tls(rpc=True, **pems)
    assert (internal.scheme, internal.http, internal.towards_agents()) == ("http", None, None)
    assert internal.towards_servers() is not None
    assert internal.admission() is None


@pytest.mark.parametrize(
    ("names", "as_server", "admitted"),
    [
        (["server.eu.nomad"], True, True),
        (["server.eu.nomad"], False, True),
        (["client.eu.nomad"], False, True),
        (["localhost", "client.eu.nomad"], False, True),
        (["client.eu.nomad"], True, False),
        (["server.us.nomad"], True, False),
        (["client.us.nomad"], False, False),
        (["cli.eu.nomad"], False, False),
        ([], False, False),
    ],
)
def test_a_name_says_what_a_peer_may_be(
    pems: dict[str, str], names: list[str], as_server: bool, admitted: bool
) -> None:
    admit = agent_tls(rpc=True, verify_server_hostname=True, **pems).admission()
    assert admit is not None
    certificate = {"subjectAltName": tuple(("DNS", name) for name in names)}
    if admitted:
        admit(certificate, as_server)
    else:
        with pytest.raises(LepaError, match=r"wanted is .*server\.eu\.nomad") as refused:
            admit(certificate, as_server)
        assert refused.value.code == "denied"


def test_a_bad_file_is_an_error_of_the_configuration(pems: dict[str, str]) -> None:
    with pytest.raises(LepaError, match=r"configuration: tls: /none cannot be read"):
        agent_tls(http=True, **pems | {"cert_file": "/none"})
    with pytest.raises(LepaError, match="configuration: tls: cert_file and key_file are missing"):
        agent_tls(rpc=True, ca_file=pems["ca_file"])
