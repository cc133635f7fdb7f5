"""Pure: the settings of an ingress, as one value that travels from the agent's configuration to its process."""

from typing import Literal

import msgspec

from lepa.ingress.picker import Strategy
from lepa.ingress.routes import Matcher, Rules, StaticListener
from lepa.model.errors import invalid

ListenerKind = Literal["http", "https", "tcp", "tcp+sni"]


class Listener(msgspec.Struct, frozen=True):
    """A port that is listened on. port 0 takes any free one."""

    kind: ListenerKind
    address: str
    port: int


class IngressSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ingress. Ports: 0 for none. Times are seconds.

    address: what ports listen on. ui: port of `/api/routes`, `/health` and metrics, on ui_address. tcp:
    "[address:]port=[namespace/]service". sni: port for TLS connections that are passed on by name. dynamic: open the
    ports that tags name. certificates: PEM files with chain and key, or folders of them; the first is the default.
    redirect_https: answer plain requests with the same place on the TLS port. no_route_status: of requests without
    route. proxy_protocol: clients are balancers that send the PROXY header, on every port. entrypoints: what names of
    Traefik's entry points stand for: "http", "https" or a TCP port. auth: password files by scheme. access_log: "-" for
    standard output, or a file. close_on_leave: end TCP connections whose target is no longer registered.
    connect_s: for a target to accept. head_s: for a client to send a whole head. idle_s: for the next request, and for
    a client to go on with a body or to take an answer. response_s: for a target to go on with its answer. drain_s: for
    what is under way when told to stop.
    """

    address: str = "0.0.0.0"
    ui_address: str = "127.0.0.1"
    http: int = 9999
    https: int = 0
    ui: int = 9998
    sni: int = 0
    tcp: tuple[str, ...] = ()
    dynamic: bool = True
    certificates: tuple[str, ...] = ()
    redirect_https: bool = False
    tag_prefix: str = "urlprefix-"
    matcher: Matcher = "prefix"
    strategy: Strategy = "rr"
    no_route_status: int = 404
    proxy_protocol: bool = False
    entrypoints: dict[str, str] = {}
    auth: dict[str, str] = {}
    access_log: str = ""
    access_format: str = "common"
    close_on_leave: bool = True
    connect_s: float = 5.0
    head_s: float = 10.0
    idle_s: float = 60.0
    response_s: float = 660.0
    drain_s: float = 5.0
    connections_max: int = 10_000

    def listeners(self) -> tuple[Listener, ...]:
        """The ports that are open whatever tags say."""
        wanted: tuple[tuple[ListenerKind, int], ...] = (
            ("http", self.http),
            ("https", self.https),
            ("tcp+sni", self.sni),
        )
        return tuple(Listener(kind, self.address, port) for kind, port in wanted if port)

    def rules(self) -> Rules:
        """How tags become routes. Raises LepaError(invalid)."""
        entrypoints = dict(Rules().entrypoints) | self.entrypoints
        return Rules(
            prefix=self.tag_prefix,
            matcher=self.matcher,
            static=tuple(static_listener(text) for text in self.tcp),
            entrypoints=tuple(sorted(entrypoints.items())),
        )


def static_listener(text: str) -> StaticListener:
    """`7000=web`, `10.0.0.1:7000=team/web`. Raises LepaError(invalid)."""
    place, equals, service = (part.strip() for part in text.partition("="))
    address, _, port = place.rpartition(":")
    namespace, slash, name = service.partition("/")
    if not (equals and service and port.isdecimal() and 0 < int(port) < 65_536):
        raise invalid(f'ingress: tcp: "{text}" is not of the form "7000=service" or "address:7000=namespace/service"')
    return StaticListener(
        port=int(port),
        service=name if slash else service,
        namespace=namespace if slash else "default",
        address=address.strip("[]"),
    )
