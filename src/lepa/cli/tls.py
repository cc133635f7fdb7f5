"""`lepa tls`: an authority of one's own, and the certificates that it signs."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import pairs
from lepa.model.errors import LepaError, conflict, invalid

if TYPE_CHECKING:
    from lepa.kit.certificate_authority import Pair

DOMAIN = "nomad"
LOCAL_NAME, LOCAL_ADDRESS = "localhost", "127.0.0.1"
SUBJECT = {
    "country": ("Two letters of the subject's country.", "letters"),
    "postal-code": ("Postal code of the subject.", "code"),
    "province": ("Province of the subject.", "name"),
    "locality": ("Town of the subject.", "name"),
    "street-address": ("Street address of the subject.", "text"),
    "organization": ("Organization of the subject.", "name"),
    "organizational-unit": ("Unit of the organization.", "name"),
}


@command()
@option("days", "How long it holds.", kind=int, default=1825, metavar="number")
@option("domain", "Domain of the names that it signs for.", default=DOMAIN, metavar="name")
@option("common-name", "Name of the authority.", default="", metavar="name")
@flag("name-constraint", "Let it sign for -domain, -additional-domain and localhost only.")
@repeated("additional-domain", "One more domain that it may sign for; implies -name-constraint.", metavar="name")
@option("country", SUBJECT["country"][0], default="", metavar="letters")
@option("postal-code", SUBJECT["postal-code"][0], default="", metavar="code")
@option("province", SUBJECT["province"][0], default="", metavar="name")
@option("locality", SUBJECT["locality"][0], default="", metavar="name")
@option("street-address", SUBJECT["street-address"][0], default="", metavar="text")
@option("organization", SUBJECT["organization"][0], default="", metavar="name")
@option("organizational-unit", SUBJECT["organizational-unit"][0], default="", metavar="name")
def ca_create(
    days: int, domain: str, common_name: str, name_constraint: bool, additional_domain: Sequence[str], **subject: str
) -> None:
    """Make an authority: DOMAIN-agent-ca.pem, which every agent and caller trusts, and DOMAIN-agent-ca-key.pem, which
    signs, and which is to be kept from everybody else.
    """
    from lepa.kit.certificate_authority import Subject, authority

    now = _now()
    domains = [domain, LOCAL_NAME, *additional_domain] if name_constraint or additional_domain else []
    about = Subject(common_name or f"{domain} agent CA", **subject)
    try:
        pair = authority(about, days, now, domains)
    except ValueError as error:
        raise invalid(f"the authority cannot be made: {error}") from error
    _write(Path(f"{domain}-agent-ca.pem"), Path(f"{domain}-agent-ca-key.pem"), pair, "the authority")


@command()
@flag("server", "Make one for a server.")
@flag("client", "Make one for a client.")
@flag("cli", "Make one for a person's commands.")
@option("ca", "Certificate of the authority. Default: DOMAIN-agent-ca.pem.", default="", metavar="file")
@option("key", "Key of the authority. Default: DOMAIN-agent-ca-key.pem.", default="", metavar="file")
@option("days", "How long it holds.", kind=int, default=365, metavar="number")
@option("domain", "Domain of the names that it bears.", default=DOMAIN, metavar="name")
@option("cluster-region", "Region of the agent. Default: global.", default="", metavar="name")
@option("region", "The same.", default="", metavar="name", hidden=True)
@repeated("additional-dnsname", "One more name that it bears.", metavar="name")
@repeated("additional-ipaddress", "One more address that it bears.", metavar="address")
def cert_create(
    server: bool,
    client: bool,
    cli: bool,
    ca: str,
    key: str,
    days: int,
    domain: str,
    cluster_region: str,
    region: str,
    additional_dnsname: Sequence[str],
    additional_ipaddress: Sequence[str],
) -> None:
    """Make a certificate that the authority signs, and its key: REGION-ROLE-DOMAIN.pem and REGION-ROLE-DOMAIN-key.pem.

    Exactly one of -server, -client and -cli says what it is for. Its name is ROLE.REGION.DOMAIN: servers and clients
    know each other by it.
    """
    from lepa.kit.certificate_authority import Pair, issue

    roles = [role for role, wanted in (("server", server), ("client", client), ("cli", cli)) if wanted]
    if len(roles) != 1:
        raise invalid("exactly one of -server, -client and -cli has to be given")
    role, place = roles[0], cluster_region or region or "global"
    certificate, secret = ca or f"{domain}-agent-ca.pem", key or f"{domain}-agent-ca-key.pem"
    by = Pair(_authority(certificate, "-ca"), _authority(secret, "-key"))
    name = f"{role}.{place}.{domain}"
    now = _now()
    try:
        pair = issue(
            by,
            name,
            days,
            now,
            dns=[name, LOCAL_NAME, *additional_dnsname],
            addresses=[LOCAL_ADDRESS, *additional_ipaddress],
            server=role != "cli",
        )
    except ValueError as error:
        raise invalid(f"the certificate cannot be made: {error}") from error
    base = f"{place}-{role}-{domain}"
    _write(Path(f"{base}.pem"), Path(f"{base}-key.pem"), pair, f"the certificate of {name}")


@command()
@argument("file")
def info(file: str) -> None:
    """Show what a certificate says."""
    from lepa.kit.certificate_authority import facts

    try:
        found = facts(_read(file))
    except ValueError as error:
        raise invalid(f"{file}: {error}") from error
    rows = [
        ("Subject", found.subject),
        ("Issuer", found.issuer),
        ("Serial Number", str(found.serial)),
        ("Not Before", found.begins.isoformat()),
        ("Not After", found.ends.isoformat()),
        ("Authority", str(found.is_authority).lower()),
        ("DNS Names", ", ".join(found.dns) or "<none>"),
        ("Addresses", ", ".join(found.addresses) or "<none>"),
        ("For", ", ".join(found.usages) or "<anything>"),
        ("Permitted Domains", ", ".join(found.domains) or "<any>"),
    ]
    click.echo(pairs(rows))


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def _authority(path: str, named_by: str) -> bytes:
    """A file of the authority, which people may not have made yet, or keep elsewhere."""
    try:
        return _read(path)
    except LepaError as error:
        hint = f"`lepa tls ca create` makes an authority, {named_by} names one that is elsewhere"
        raise LepaError(error.code, f"{error.message}; {hint}") from error


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise LepaError("not_found", f"{path} cannot be read: {error.strerror or error}") from error


def _write(certificate: Path, key: Path, pair: "Pair", what: str) -> None:
    """Write both, or neither: what is there already is never replaced."""
    for path in (certificate, key):
        if path.exists():
            raise conflict(f"{path} exists already; move it away, or work in another directory")
    try:
        descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pair.key)
        certificate.write_bytes(pair.certificate)
    except OSError as error:
        raise invalid(f"{what} cannot be written: {error.strerror or error}") from error
    click.echo(f"==> {what} is in {certificate}, its key in {key}")
