"""Certificates for tests, made by the openssl program."""

import subprocess
from pathlib import Path


def make_certificate(path: Path, *names: str) -> Path:
    """Write a self-signed certificate for these host names and its key into one file; its path."""
    key, certificate = path.with_suffix(".k"), path.with_suffix(".c")
    alternatives = ",".join(f"DNS:{name}" for name in names)
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={alternatives}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    path.write_text(key.read_text() + certificate.read_text())
    key.unlink()
    certificate.unlink()
    return path
