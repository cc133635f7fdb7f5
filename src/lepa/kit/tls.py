"""TLS from files: contexts for both ends, checked with a sentence, and renewed without losing a connection.

    ClientTls   how a client checks the server, and how it shows who it is
    ServerTls   what a server shows, and which clients it takes; `reload` reads its files again

Versions before TLS 1.2 are never spoken (RFC 8996). Whatever is wrong with a file is a ValueError that names it.
"""

import ssl
from contextlib import suppress
from typing import Any, Final

from lepa.kit.tls_settings import ClientTls

VERSIONS: Final = {"tls12": ssl.TLSVersion.TLSv1_2, "tls13": ssl.TLSVersion.TLSv1_3}
ALPN: Final = ("http/1.1",)

CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
}
"""Suites of TLS 1.2 by the names of IANA, and OpenSSL's names for them: those with forward secrecy and AEAD."""


class _NamedContext(ssl.SSLContext):
    """A client's context that wants one name, whatever address is called."""

    wanted: str | None = None

    def wrap_socket(self, *args: Any, **values: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*args, **values | {"server_hostname": self.wanted or values.get("server_hostname")})

    def wrap_bio(self, *args: Any, **values: Any) -> ssl.SSLObject:
        return super().wrap_bio(*args, **values | {"server_hostname": self.wanted or values.get("server_hostname")})


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """Raises ValueError."""
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.wanted = tls.server_name or None
    if tls.skip_verify or not tls.check_name:
        context.check_hostname = False
    if tls.skip_verify:
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca_cert or tls.ca_path:
        _trust(context, tls.ca_cert, tls.ca_path)
    else:
        context.load_default_certs()
    _show(context, tls.client_cert, tls.client_key)
    return context


class ServerTls:
    """What a server shows and demands. cert, key, ca: files. demand: whether clients need a certificate of `ca`.

    ciphers: names of `CIPHERS`, of TLS 1.2; none for OpenSSL's choice.
    """

    def __init__(
        self,
        cert: str,
        key: str,
        ca: str = "",
        *,
        demand: bool = False,
        min_version: str = "tls12",
        ciphers: tuple[str, ...] = (),
    ) -> None:
        """Raises ValueError."""
        self._cert, self._key, self._ca = cert, key, ca
        self._demand = demand
        self._min_version = min_version
        self._ciphers = ciphers
        self._current = self._read()
        self.context = self._read()
        """For listeners. It hands each connection to the context that holds now."""
        self.context.sni_callback = self._hand_over

    def reload(self) -> None:
        """Use the files as they are now for connections to come. Raises ValueError, and goes on as before."""
        self._current = self._read()

    def _hand_over(self, connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.minimum_version = VERSIONS[self._min_version]
        except KeyError:
            raise ValueError(f'tls_min_version "{self._min_version}": it has to be {" or ".join(VERSIONS)}') from None
        if self._ciphers:
            if unknown := [name for name in self._ciphers if name not in CIPHERS]:
                raise ValueError(f'tls_cipher_suites: "{unknown[0]}" is none of {", ".join(CIPHERS)}')
            context.set_ciphers(":".join(CIPHERS[name] for name in self._ciphers))
        context.set_alpn_protocols(list(ALPN))
        if self._demand:
            if not self._ca:
                raise ValueError("ca_file is missing: without it no client can be told to be ours")
            context.verify_mode = ssl.CERT_REQUIRED
            _trust(context, self._ca, "")
        if not self._cert or not self._key:
            raise ValueError("cert_file and key_file are missing: a server has to show who it is")
        _show(context, self._cert, self._key)
        return context


def _trust(context: ssl.SSLContext, file: str, folder: str) -> None:
    try:
        context.load_verify_locations(file or None, folder or None)
    except ssl.SSLError as error:
        raise ValueError(f"{file or folder} holds no certificate in PEM form") from error
    except OSError as error:
        raise ValueError(f"{file or folder} cannot be read: {error.strerror or error}") from error


def _show(context: ssl.SSLContext, cert: str, key: str) -> None:
    if not cert and not key:
        return
    if not cert or not key:
        given, missing = ("key", "certificate") if key else ("certificate", "key")
        raise ValueError(f"the {given} {key or cert} needs its {missing}")
    for path in (cert, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        # A password would be asked for on the terminal; nobody sits there.
        context.load_cert_chain(cert, key, password=lambda: b"")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{key} is not the key of {cert}") from error
        raise ValueError(f"{cert} and {key} are no certificate and key in PEM form without a password") from error


def names_of(certificate: dict[str, Any]) -> tuple[str, ...]:
    """The DNS names that a peer's certificate bears, as `ssl` shows it (`getpeercert`)."""
    return tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS")


def first_name(path: str) -> str:
    """The first DNS name of a certificate file, "" when there is none."""
    from cryptography import x509
    from cryptography.x509.oid import ExtensionOID

    with suppress(OSError, ValueError, x509.ExtensionNotFound):
        with open(path, "rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read())
        names = certificate.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
        assert isinstance(names, x509.SubjectAlternativeName)
        return next(iter(names.get_values_for_type(x509.DNSName)), "")
    return ""
