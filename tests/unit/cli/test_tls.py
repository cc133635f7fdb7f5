"""Authorities and certificates by command."""

import stat
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

from lepa.kit.certificate_authority import facts


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_authority_and_certificates_for_every_role(tmp_path: Path, lepa: Run) -> None:
    done = lepa("tls", "ca", "create")
    assert done.out == "==> the authority is in nomad-agent-ca.pem, its key in nomad-agent-ca-key.pem\n"
    for role in ("server", "client", "cli"):
        assert lepa("tls", "cert", "create", f"-{role}", "-cluster-region", "eu").code == 0
        assert lepa("tls", "cert", "create", f"-{role}").code == 0
        found = facts((tmp_path / f"eu-{role}-nomad.pem").read_bytes())
        assert found.dns == (f"{role}.eu.nomad", "localhost")
        assert found.usages == (("client",) if role == "cli" else ("client", "server"))
    for key in tmp_path.glob("*-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_more_names_another_domain_and_an_authority_elsewhere(tmp_path: Path, lepa: Run) -> None:
    assert lepa("tls", "ca", "create", "-domain=owls", "-name-constraint", "-days", "9").code == 0
    assert facts((tmp_path / "owls-agent-ca.pem").read_bytes()).domains == ("owls", "localhost")
    files = ("-ca", "owls-agent-ca.pem", "-key", "owls-agent-ca-key.pem")
    more = ("-additional-dnsname", "a.owls", "-additional-dnsname=b.owls", "-additional-ipaddress", "10.0.0.7")
    assert lepa("tls", "cert", "create", "-server", "-domain", "owls", *files, *more).code == 0
    found = facts((tmp_path / "global-server-owls.pem").read_bytes())
    assert found.dns == ("server.global.owls", "localhost", "a.owls", "b.owls")
    assert found.addresses == ("127.0.0.1", "10.0.0.7")
    told = lepa("tls", "cert", "info", "global-server-owls.pem").out
    assert "Subject           = CN=server.global.owls" in told
    assert "Addresses         = 127.0.0.1, 10.0.0.7" in told
    assert "Permitted Domains = owls, localhost" in lepa("tls", "ca", "info", "owls-agent-ca.pem").out


def test_nothing_is_written_over_and_mistakes_are_named(tmp_path: Path, lepa: Run) -> None:
    error = lepa("tls", "cert", "create", "-server").error
    assert "nomad-agent-ca.pem cannot be read: No such file or directory; `lepa tls ca create` makes an" in error
    assert lepa("tls", "ca", "create").code == 0
    before = (tmp_path / "nomad-agent-ca.pem").read_bytes()
    assert "exists already" in lepa("tls", "ca", "create").error
    assert (tmp_path / "nomad-agent-ca.pem").read_bytes() == before
    assert "exactly one of -server, -client and -cli" in lepa("tls", "cert", "create").error
    assert "exactly one of -server, -client and -cli" in lepa("tls", "cert", "create", "-server", "-cli").error
    assert "one day at least" in lepa("tls", "cert", "create", "-cli", "-days", "0").error
    assert "no certificate" in lepa("tls", "cert", "info", "nomad-agent-ca-key.pem").error
    assert "cannot be made" in lepa("tls", "ca", "create", "-domain", "x", "-country", "Austria").error
