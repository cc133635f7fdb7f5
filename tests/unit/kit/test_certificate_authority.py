"""Certificates that we make, read by OpenSSL."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lepa.kit.certificate_authority import Pair, Subject, authority, facts, issue

NOW = datetime.now(UTC)


def verified(folder: Path, ca: Pair, pair: Pair, *options: str) -> str:
    """What OpenSSL says of a certificate."""
    for name, text in (("ca.pem", ca.certificate), ("cert.pem", pair.certificate)):
        (folder / name).write_bytes(text)
    command = ["openssl", "verify", "-CAfile", "ca.pem", *options, "cert.pem"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_openssl_accepts_what_was_issued_for_its_purpose(tmp_path: Path) -> None:
    ca = authority(Subject("own CA", country="AT", organization="Owls"), 30, NOW)
    agent = issue(ca, "server.eu.nomad", 3, NOW, dns=["server.eu.nomad"], addresses=["::1"], server=True)
    person = issue(ca, "cli.eu.nomad", 3, NOW, dns=["cli.eu.nomad"], addresses=[], server=False)
    strict = ("-x509_strict", "-verify_hostname", "server.eu.nomad")
    assert verified(tmp_path, ca, agent, "-purpose", "sslserver", *strict) == "cert.pem: OK\n"
    assert verified(tmp_path, ca, agent, "-purpose", "sslclient") == "cert.pem: OK\n"
    assert verified(tmp_path, ca, person, "-purpose", "sslclient") == "cert.pem: OK\n"
    assert "purpose" in verified(tmp_path, ca, person, "-purpose", "sslserver")
    assert "expired" in verified(tmp_path, ca, agent, "-attime", str(int((NOW + timedelta(days=4)).timestamp())))


def test_an_authority_may_be_bound_to_its_domains(tmp_path: Path) -> None:
    ca = authority(Subject("own CA"), 30, NOW, ["nomad", "localhost"])
    inside = issue(ca, "a.nomad", 3, NOW, dns=["a.nomad", "localhost"], addresses=["127.0.0.1"], server=True)
    outside = issue(ca, "b.example", 3, NOW, dns=["b.example"], addresses=[], server=True)
    assert verified(tmp_path, ca, inside) == "cert.pem: OK\n"
    assert "permitted subtree violation" in verified(tmp_path, ca, outside)
    assert facts(ca.certificate).domains == ("nomad", "localhost")


def test_a_certificate_tells_what_was_put_into_it() -> None:
    ca = authority(Subject("own CA", locality="Wien", street_address="Ring 1", postal_code="1010"), 30, NOW)
    found = facts(issue(ca, "a", 3, NOW, dns=["a"], addresses=["10.0.0.1"], server=True).certificate)
    assert (found.subject, found.dns, found.addresses, found.usages) == (
        "CN=a",
        ("a",),
        ("10.0.0.1",),
        ("client", "server"),
    )
    assert "Wien" in found.issuer
    assert not found.is_authority
    assert facts(ca.certificate).is_authority
    assert found.ends - found.begins == timedelta(days=3, minutes=1)


def test_what_cannot_be_made_is_refused_with_a_reason() -> None:
    ca = authority(Subject("own CA"), 30, NOW)
    other = authority(Subject("other CA"), 30, NOW)
    leaf = issue(ca, "a", 3, NOW, dns=["a"], addresses=[], server=True)
    for by, days, address, reason in (
        (Pair(ca.certificate, other.key), 3, "10.0.0.1", "not that of the authority"),
        (leaf, 3, "10.0.0.1", "not that of an authority"),
        (ca, 0, "10.0.0.1", "one day at least"),
        (ca, 3, "10.0.0", "10.0.0"),
        (Pair(b"x", ca.key), 3, "10.0.0.1", "no certificate"),
    ):
        with pytest.raises(ValueError, match=reason):
            issue(by, "b", days, NOW, dns=[], addresses=[address], server=True)
    with pytest.raises(ValueError):
        authority(Subject("x", country="Austria"), 30, NOW)
    with pytest.raises(ValueError, match="no certificate"):
        facts(b"hello")
