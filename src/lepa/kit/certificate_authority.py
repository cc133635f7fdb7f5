"""A small certificate authority in files, for clusters that have no other (RFC 5280).

Keys are elliptic (P-256). Times and serial numbers: certificates begin a minute early, for clocks that differ a little,
and have random serial numbers of 159 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

EARLY = timedelta(minutes=1)
LABELS = {
    NameOID.COUNTRY_NAME: "country",
    NameOID.POSTAL_CODE: "postal_code",
    NameOID.STATE_OR_PROVINCE_NAME: "province",
    NameOID.LOCALITY_NAME: "locality",
    NameOID.STREET_ADDRESS: "street_address",
    NameOID.ORGANIZATION_NAME: "organization",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "organizational_unit",
    NameOID.COMMON_NAME: "common_name",
}


@dataclass(frozen=True)
class Subject:
    """Whom a certificate is about. country: two letters."""

    common_name: str
    country: str = ""
    postal_code: str = ""
    province: str = ""
    locality: str = ""
    street_address: str = ""
    organization: str = ""
    organizational_unit: str = ""

    def name(self) -> x509.Name:
        """Raises ValueError for a country that is not two letters and for texts that are too long."""
        given = [(oid, getattr(self, label)) for oid, label in LABELS.items()]
        return x509.Name([x509.NameAttribute(oid, text) for oid, text in given if text])


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def authority(subject: Subject, days: int, now: datetime, domains: Sequence[str] = ()) -> Pair:
    """A new authority that signs itself. domains: the only ones it may sign for; none for any. Raises ValueError."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = subject.name()
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key, days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if domains:
        permitted = [x509.DNSName(domain) for domain in domains]
        builder = builder.add_extension(x509.NameConstraints(permitted, None), critical=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    by: Pair, common_name: str, days: int, now: datetime, *, dns: Sequence[str], addresses: Sequence[str], server: bool
) -> Pair:
    """A certificate signed by an authority. server: whether it may serve, besides being a client.

    Raises ValueError for files that are none, an authority that may not sign, and addresses that are none.
    """
    signer = _certificate(by.certificate)
    signer_key = serialization.load_pem_private_key(by.key, None)
    if not isinstance(signer_key, ec.EllipticCurvePrivateKey) or signer_key.public_key() != signer.public_key():
        raise ValueError("the key is not that of the authority's certificate")
    if not signer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        raise ValueError("the certificate is not that of an authority")
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(name) for name in dns] + [x509.IPAddress(ip_address(each)) for each in addresses]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if server else [])
    usage = x509.KeyUsage(
        digital_signature=True, key_encipherment=True, key_cert_sign=False, crl_sign=False, content_commitment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(Subject(common_name).name(), signer.subject, key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key()), critical=False)
    )
    return _pair(builder.sign(signer_key, hashes.SHA256()), key)


@dataclass(frozen=True)
class Facts:
    """What a certificate says of itself. Times are UTC."""

    subject: str
    issuer: str
    serial: int
    begins: datetime
    ends: datetime
    is_authority: bool
    dns: tuple[str, ...]
    addresses: tuple[str, ...]
    usages: tuple[str, ...]
    domains: tuple[str, ...]


def facts(certificate: bytes) -> Facts:
    """Raises ValueError for bytes that are no certificate in PEM form."""
    read = _certificate(certificate)
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    usages: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    is_authority = False
    for extension in read.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            dns = tuple(value.get_values_for_type(x509.DNSName))
            addresses = tuple(map(str, value.get_values_for_type(x509.IPAddress)))
        elif isinstance(value, x509.BasicConstraints):
            is_authority = value.ca
        elif isinstance(value, x509.ExtendedKeyUsage):
            usages = tuple(_USAGES.get(each, each.dotted_string) for each in value)
        elif isinstance(value, x509.NameConstraints):
            domains = tuple(str(each.value) for each in value.permitted_subtrees or ())
    return Facts(
        subject=read.subject.rfc4514_string(),
        issuer=read.issuer.rfc4514_string(),
        serial=read.serial_number,
        begins=read.not_valid_before_utc,
        ends=read.not_valid_after_utc,
        is_authority=is_authority,
        dns=dns,
        addresses=addresses,
        usages=usages,
        domains=domains,
    )


_USAGES = {ExtendedKeyUsageOID.CLIENT_AUTH: "client", ExtendedKeyUsageOID.SERVER_AUTH: "server"}


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, now: datetime
) -> x509.CertificateBuilder:
    if days < 1:
        raise ValueError(f"{days} days: a certificate has to hold for one day at least")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=days))
    )


def _certificate(text: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text)
    except ValueError as error:
        raise ValueError("no certificate in PEM form") from error


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)
