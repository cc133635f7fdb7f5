"""Who knows where the parts of a serving cluster listen: DNS providers, a memory before them, load balancers.

A provider answers one question: at which hosts and ports does a service listen (an SRV look-up, whatever its wire)? The
`Locator` before it keeps answers for their TTL, keeps "nobody" for a moment, goes on with the old answer while the
provider is away, and orders records by priority and weight (RFC 2782). Another provider is a class with one method and
one row in `PROVIDERS`; nothing else changes.

    dns://127.0.0.1:8600/consul       any RFC 2782 server: SRV of NAME.service.consul
    nomad://127.0.0.1:4646            the service API of lepa or HashiCorp Nomad; token and namespace from NOMAD_*
    static://127.0.0.1:1338           always this address, whatever the name
    static://mgmt=a:1,rpc=b:2,rpc=c:3   always these, by name

Everything here blocks and is meant for threads and for people's programs.
"""

import contextlib
import json
import os
import random
import socket
import struct
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from lepa.model.errors import LepaError, invalid, not_found
from lepa.serving.addresses import Address, Located, ordered, parse_address
from lepa.serving.srv_query import (
    AAAA,
    RCODE_NO_SUCH_NAME,
    RCODE_OK,
    RCODE_REFUSED,
    SRV,
    A,
    DnsAnswer,
    decode_answer,
    encode_question,
)

ANSWER_TIMEOUT_S = 2.0
ATTEMPTS = 2
NEGATIVE_TTL_S = 1.0
TTL_MIN_S = 1.0
TTL_MAX_S = 300.0
SERVICE_API_TTL_S = 2.0
"""The service API states no lifetime; its answers are kept this long."""
LOST_S = 5.0
"""An address where nobody answered is tried last for this long."""
NAMES_MAX = 10_000
"""Services one locator remembers."""
_DATAGRAM_MAX = 65_535


class Resolution(NamedTuple):
    """What a provider knows of a service now; no places: nobody offers it (yet)."""

    places: tuple[Located, ...]
    ttl_s: float


class DnsProvider(Protocol):
    """Knows where services listen."""

    def resolve(self, service: str) -> Resolution:
        """The places of a service. Raises LepaError(timeout) when the provider itself cannot be asked."""


# Providers


class StaticProvider:
    """Always the same places. addresses: of a name that is not in `named`."""

    def __init__(self, addresses: Sequence[Address], named: Mapping[str, Sequence[Address]] | None = None) -> None:
        self._places = tuple(map(Located, addresses))
        self._named = {name: tuple(map(Located, places)) for name, places in (named or {}).items()}

    def resolve(self, service: str) -> Resolution:
        return Resolution(self._named.get(service, self._places), TTL_MAX_S)


class SrvDnsProvider:
    """Any DNS server that answers SRV queries: lepa's, Consul's, a plain zone. Asks NAME.service.DOMAIN; a truncated
    answer is asked for again over TCP; targets without an address in the answer are asked for one by one, and of this
    machine's resolver where the server knows nothing of them: they may be names of another domain."""

    def __init__(self, server: Address, domain: str = "consul", label: str = "service") -> None:
        self._server = server
        self._suffix = ".".join(part for part in (label, domain) if part)
        self._random = random.SystemRandom()

    def resolve(self, service: str) -> Resolution:
        answer = self._ask(f"{service}.{self._suffix}", SRV)
        places = [
            Located(Address(host, record.port), record.priority, record.weight)
            for record in answer.services
            for host in dict.fromkeys(answer.hosts.get(record.target) or self._hosts(record.target))
        ]
        return Resolution(tuple(places), float(answer.ttl_s))

    def _hosts(self, name: str) -> list[str]:
        for kind in (A, AAAA):
            answer = self._ask(name, kind, (RCODE_OK, RCODE_NO_SUCH_NAME, RCODE_REFUSED))
            if hosts := [host for found in answer.hosts.values() for host in found]:
                return hosts
        with contextlib.suppress(OSError, UnicodeError):
            return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
        return []

    def _ask(self, name: str, kind: int, told: Sequence[int] = (RCODE_OK, RCODE_NO_SUCH_NAME)) -> DnsAnswer:
        """The answer about a name. told: response codes that are one."""
        message_id = self._random.getrandbits(16)
        question = encode_question(message_id, name, kind)
        failure: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                answer = decode_answer(self._over_udp(question), message_id)
                if answer.truncated:
                    answer = decode_answer(self._over_tcp(question), message_id)
            except (OSError, ValueError) as error:
                failure = error
                continue
            if answer.rcode in told:
                return answer
            failure = OSError(f"response code {answer.rcode}")
        raise LepaError("timeout", f"DNS server {self._server} gave no answer about {name}: {failure}") from failure

    def _over_udp(self, question: bytes) -> bytes:
        family = socket.AF_INET6 if ":" in self._server.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            udp.settimeout(ANSWER_TIMEOUT_S)
            udp.connect(self._server)
            udp.send(question)
            return udp.recv(_DATAGRAM_MAX)

    def _over_tcp(self, question: bytes) -> bytes:
        with socket.create_connection(self._server, ANSWER_TIMEOUT_S) as tcp, tcp.makefile("rb") as answer:
            tcp.sendall(struct.pack(">H", len(question)) + question)
            return answer.read(struct.unpack(">H", answer.read(2))[0])


class NomadServiceProvider:
    """The service API of lepa or HashiCorp Nomad: GET /v1/service/NAME. Instances that lepa knows to be ill are left
    out; Nomad does not tell."""

    def __init__(self, api: Address, namespace: str = "", token: str = "") -> None:
        self._api = api
        self._namespace = namespace
        self._token = token

    def resolve(self, service: str) -> Resolution:
        query = f"?namespace={urllib.parse.quote(self._namespace)}" if self._namespace else ""
        url = f"http://{self._api}/v1/service/{urllib.parse.quote(service)}{query}"
        request = urllib.request.Request(url, headers={"X-Nomad-Token": self._token} if self._token else {})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as response:
                found = json.load(response)
            well = [one for one in found if one.get("Status") != "critical"]
            places = tuple(Located(Address(one["Address"], int(one["Port"]))) for one in well)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise LepaError("timeout", f"{self._api} gave no answer about service {service}: {error}") from error
        return Resolution(places, SERVICE_API_TTL_S)


def _dns(url: urllib.parse.SplitResult) -> DnsProvider:
    return SrvDnsProvider(parse_address(url.netloc), url.path.strip("/") or "consul")


def _nomad(url: urllib.parse.SplitResult) -> DnsProvider:
    namespace, token = os.environ.get("NOMAD_NAMESPACE", ""), os.environ.get("NOMAD_TOKEN", "")
    return NomadServiceProvider(parse_address(url.netloc), namespace, token)


def _static(url: urllib.parse.SplitResult) -> DnsProvider:
    named: dict[str, list[Address]] = {}
    for part in url.netloc.split(","):
        name, _, address = part.rpartition("=")
        named.setdefault(name, []).append(parse_address(address))
    return StaticProvider(named.pop("", []), named)


PROVIDERS: dict[str, Callable[[urllib.parse.SplitResult], DnsProvider]] = {
    "dns": _dns,
    "nomad": _nomad,
    "static": _static,
}


def dns_provider(text: str) -> DnsProvider:
    """The provider that a URL names; see the module. Raises LepaError(invalid)."""
    url = urllib.parse.urlsplit(text)
    if (factory := PROVIDERS.get(url.scheme)) is None:
        raise invalid(f'"{text}" names no way to find services; known are {", ".join(f"{p}://" for p in PROVIDERS)}')
    return factory(url)


# Looking up


class Locator:
    """Looks services up through a provider, with memory. May be used by several threads."""

    def __init__(self, provider: DnsProvider, clock: Callable[[], float] = time.monotonic) -> None:
        self._provider = provider
        self._clock = clock
        self._uniform = random.uniform
        self._known: dict[str, tuple[float, tuple[Located, ...]]] = {}
        self._lost: dict[Address, float] = {}
        self._lock = threading.Lock()

    def locate(self, service: str) -> list[Address]:
        """All addresses of a service, best first, those that were lost lately last; empty when nobody offers it. Raises
        LepaError(timeout) when the provider is away and nothing is remembered."""
        now = self._clock()
        with self._lock:
            until, places = self._known.get(service, (0.0, ()))
        if now >= until:
            places = self._ask(service, places, now)
        with self._lock:
            lost = {address for address, until in self._lost.items() if now < until}
        return sorted(ordered(places, self._uniform), key=lost.__contains__)

    def _ask(self, service: str, old: tuple[Located, ...], now: float) -> tuple[Located, ...]:
        try:
            places, ttl_s = self._provider.resolve(service)
        except LepaError:
            if not old:
                raise
            places, ttl_s = old, NEGATIVE_TTL_S
        ttl_s = min(max(ttl_s, TTL_MIN_S), TTL_MAX_S) if places else NEGATIVE_TTL_S
        with self._lock:
            if len(self._known) >= NAMES_MAX:
                self._known.clear()
            self._known[service] = (now + ttl_s, places)
        return places

    def first(self, service: str) -> Address:
        """The best address. Raises LepaError(not_found) when nobody offers the service."""
        addresses = self.locate(service)
        if not addresses:
            raise not_found(f"nobody offers the service {service}")
        return addresses[0]

    def forget(self, service: str) -> None:
        """Ask again next time: an address did not answer."""
        with self._lock:
            self._known.pop(service, None)

    def lost(self, service: str, address: Address) -> None:
        """Nobody answered there: look the service up again, and try its other addresses first for a while."""
        with self._lock:
            self._known.pop(service, None)
            if len(self._lost) >= NAMES_MAX:
                self._lost.clear()
            self._lost[address] = self._clock() + LOST_S


# Load balancers


class LoadBalancer(Protocol):
    """A stable place before query frontends, whose addresses change. None: go to the frontend itself."""

    def http(self) -> Address | None:
        """Where predictions are asked."""

    def rpc(self) -> Address | None:
        """Where model containers connect."""

    def path(self, cluster: str) -> str:
        """What stands before `/{app}/predict` in the URLs that callers use; "" for nothing."""

    def tags(self, part: str, cluster: str) -> tuple[str, ...]:
        """Tags of the service of a part ("http" or "rpc") by which the balancer finds it."""


class Direct:
    """No load balancer: everybody follows the DNS provider."""

    def http(self) -> Address | None:
        return None

    def rpc(self) -> Address | None:
        return None

    def path(self, cluster: str) -> str:
        return ""

    def tags(self, part: str, cluster: str) -> tuple[str, ...]:
        return ()


class Fabio:
    """Fabio, or lepa's ingress that reads the same tags: HTTP under a path prefix, TCP on a port of its own.

    prefix: "" is `/clipper-{cluster}`, so that clusters do not meet; "/" hands everything that comes to one cluster.
    The TCP port tells nothing about who is wanted: each cluster needs one of its own.
    """

    def __init__(self, host: str, http_port: int = 9999, rpc_port: int = 7000, prefix: str = "") -> None:
        self._host = host
        self._http_port = http_port
        self._rpc_port = rpc_port
        self._prefix = prefix

    def http(self) -> Address | None:
        return Address(self._host, self._http_port)

    def rpc(self) -> Address | None:
        return Address(self._host, self._rpc_port)

    def path(self, cluster: str) -> str:
        return (self._prefix or f"/clipper-{cluster}").rstrip("/")

    def tags(self, part: str, cluster: str) -> tuple[str, ...]:
        if part == "rpc":
            return (f"urlprefix-:{self._rpc_port} proto=tcp",)
        path = self.path(cluster)
        return (f"urlprefix-{path}/ strip={path}",) if path else ("urlprefix-/",)
