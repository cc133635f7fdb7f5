"""Pure: who may pass: networks of clients, and passwords.

A password file has a line `name:secret` for each user, as `htpasswd` writes them. Secrets understood: `{SHA}` and
`{SSHA}` with base64 of SHA-1 (`htpasswd -s`), `{SHA256}` with base64 of SHA-256, and plain text (`htpasswd -p`). Others
never fit.
"""

import binascii
import hashlib
import hmac
from base64 import b64decode
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from lepa.ingress.route_spec import Options

Network = IPv4Network | IPv6Network
USERS_MAX = 10_000
VERDICTS_MAX = 10_000


def may_pass(address: str, options: Options) -> bool:
    """Whether a client's address is in an allowed network, if there are any, and in none that is denied."""
    if not options.allow and not options.deny:
        return True
    return _verdict(address, options.allow, options.deny)


@lru_cache(maxsize=VERDICTS_MAX)
def _verdict(address: str, allow: tuple[str, ...], deny: tuple[str, ...]) -> bool:
    try:
        client = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(client, "ipv4_mapped", None)
    client = mapped or client
    if any(_within(client, network) for network in deny):
        return False
    return not allow or any(_within(client, network) for network in allow)


def _within(client: IPv4Address | IPv6Address, network: str) -> bool:
    found = ip_network(network)
    return client.version == found.version and client in found


Passwords = Mapping[str, str]
"""Secrets by user."""


def read_passwords(text: str) -> dict[str, str]:
    """The users of a password file; lines that are none are passed over."""
    found: dict[str, str] = {}
    for line in text.splitlines()[:USERS_MAX]:
        name, colon, secret = line.strip().partition(":")
        if colon and name and not name.startswith("#"):
            found[name] = secret
    return found


def knows(passwords: Passwords, authorization: bytes) -> bool:
    """Whether an Authorization header names a user and the right password."""
    scheme, _, encoded = authorization.partition(b" ")
    if scheme.lower() != b"basic":
        return False
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except binascii.Error:
        return False
    secret = passwords.get(name.decode("utf-8", "replace"))
    return bool(colon) and secret is not None and _fits(secret, password)


def _fits(secret: str, password: bytes) -> bool:
    try:
        if secret.startswith("{SHA}"):
            return hmac.compare_digest(b64decode(secret[5:]), hashlib.sha1(password).digest())
        if secret.startswith("{SSHA}"):
            raw = b64decode(secret[6:])
            return hmac.compare_digest(raw[:20], hashlib.sha1(password + raw[20:]).digest())
        if secret.startswith("{SHA256}"):
            return hmac.compare_digest(b64decode(secret[8:]), hashlib.sha256(password).digest())
    except binascii.Error:
        return False
    return not secret.startswith(("$", "{")) and hmac.compare_digest(secret.encode(), password)
