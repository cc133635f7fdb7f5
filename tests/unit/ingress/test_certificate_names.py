import ssl
from pathlib import Path

import pytest
from tests.certificates import make_certificate

from lepa.ingress.certificate_names import names_of


@pytest.mark.parametrize("names", [("a.example.com",), ("A.example.com", "*.b.example.com", "c")])
def test_names_that_openssl_wrote(tmp_path: Path, names: tuple[str, ...]) -> None:
    text = make_certificate(tmp_path / "a.pem", *names).read_text()
    certificate = text[text.index("-----BEGIN CERTIFICATE") :]
    assert names_of(ssl.PEM_cert_to_DER_cert(certificate)) == tuple(name.lower() for name in names)


@pytest.mark.parametrize("der", [b"", b"\x30\x82", bytes.fromhex("0603551d11"), bytes.fromhex("0603551d11040530")])
def test_broken_certificates_have_no_names(der: bytes) -> None:
    assert names_of(der) == ()
