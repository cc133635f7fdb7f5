"""Pure: what one tag of a service asks of the ingress, in words that Fabio's and Traefik's tags share.

A tag is read into a `RouteSpec`; what cannot be read, or is read and not followed, becomes a `Notice` that operators
see in the log and in `lepa ingress routes`. Nothing in a tag is ever fatal: other tags and services stay as they are.
"""

from enum import StrEnum
from typing import Literal

import msgspec

ROUTES_MAX_PER_SERVICE = 10_000
"""Routes that one instance may ask for; further tags are noted and left out."""


class Kind(StrEnum):
    """Where a route applies."""

    HTTP = "http"
    GRPC = "grpc"
    """HTTP/2 connections, each handed whole to one target."""
    TCP = "tcp"
    """Connections to a port."""
    SNI = "tcp+sni"
    """TLS connections, by the name their first message asks for, passed on as they are."""


Side = Literal["", "http", "https"]
"""Which clients a route is for: all, those without TLS, those with it."""


class Redirect(msgspec.Struct, frozen=True):
    """An answer instead of a target. url: `$host` and `$path` stand for those of the request."""

    code: int
    url: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to a request on its way to a target.

    port: of the target instead of the service's own. tls: speak TLS to the target. strip: prefixes, the first that fits
    is removed. host: sent upstream, "dst" for the target's own address, "" for the client's. weight: fixed share of the
    route, None for an even part of the rest. auth: name of a set of passwords. allow, deny: networks of clients.
    proxy_protocol: 0 for none, else the version sent first. keep: connections stay when the target leaves the table.
    first: all connections go to one instance.
    """

    port: int = 0
    tls: bool = False
    tls_verify: bool = True
    tls_name: str = ""
    strip: tuple[str, ...] = ()
    prepend: str = ""
    host: str = ""
    weight: float | None = None
    redirect: Redirect | None = None
    register: str = ""
    auth: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    proxy_protocol: int = 0
    keep: bool = False
    first: bool = False

    @property
    def is_guarded(self) -> bool:
        """Whether something is to be checked or answered before a target is asked."""
        return bool(self.redirect or self.auth or self.allow or self.deny)


PLAIN = Options()


class RouteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One route that a tag asks for.

    host: lower-case, may hold wildcards, may end in `:port`; "" for any. path: "" where paths do not matter. exact: the
    path alone, not what is below it. port, address: of a TCP listener; address "" is the ingress's own.
    """

    kind: Kind = Kind.HTTP
    host: str = ""
    path: str = ""
    exact: bool = False
    port: int = 0
    address: str = ""
    side: Side = ""
    options: Options = PLAIN


class Notice(msgspec.Struct, frozen=True, order=True):
    """A tag that is not followed, or not wholly."""

    service: str
    tag: str
    problem: str


class Reading(msgspec.Struct, frozen=True):
    """What the tags of an instance ask for."""

    specs: tuple[RouteSpec, ...] = ()
    notices: tuple[Notice, ...] = ()
