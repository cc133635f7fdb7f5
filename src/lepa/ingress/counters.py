"""Pure: what the ingress counts, and the same in Prometheus's text format.

Written by the loop's thread only; another thread that reads sees figures that may be one request old.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SERVICES_MAX = 10_000
"""Services that are counted apart; further ones are counted as one, named ""."""


class ServiceCounters:
    """One service: requests by class of status, the time they took, bytes, connections that failed."""

    __slots__ = ("buckets", "classes", "failed", "received", "seconds", "sent")

    def __init__(self) -> None:
        self.classes = [0] * 6
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0
        self.received = 0
        self.sent = 0
        self.failed = 0

    def served(self, status: int, seconds: float, received: int, sent: int) -> None:
        """A request is over. status: 499 when the client went away. received, sent: bytes of body and answer."""
        self.classes[status // 100 if status < 600 else 5] += 1
        self.seconds += seconds
        self.received += received
        self.sent += sent
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1


class Counters:
    """Everything that is counted since the start."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self.services: dict[str, ServiceCounters] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count something of TOTALS."""
        self.totals[name] += count

    def of(self, service: str) -> ServiceCounters:
        """The counters of a service."""
        found = self.services.get(service)
        if found is None:
            name = service if len(self.services) < SERVICES_MAX else ""
            found = self.services.setdefault(name, ServiceCounters())
        return found

    def exposition(self, gauges: Mapping[str, float]) -> str:
        """Everything in Prometheus's text format. gauges: what is so now."""
        lines = [line for name, text in TOTALS.items() for line in _series(name, "counter", text, self.totals[name])]
        for name, value in gauges.items():
            lines += _series(name, "gauge", GAUGES[name], value)
        services = sorted(self.services.items())
        lines += _header("requests_total", "counter", "Requests by service and class of status.")
        lines += [
            f'lepa_ingress_requests_total{{service="{_quoted(name)}",code="{number}xx"}} {count}'
            for name, found in services
            for number, count in enumerate(found.classes)
            if count
        ]
        for field, text in FIELDS.items():
            lines += _header(field, "counter", text)
            attribute = field.removesuffix("_bytes_total").removesuffix("_connects_total")
            lines += [
                f'lepa_ingress_{field}{{service="{_quoted(name)}"}} {getattr(found, attribute)}'
                for name, found in services
            ]
        lines += _header("request_seconds", "histogram", "How long requests took, from head to last byte.")
        for name, found in services:
            lines += _histogram(_quoted(name), found)
        return "\n".join(lines) + "\n"


TOTALS = {
    "connections_total": "Connections accepted.",
    "no_route_total": "Requests and connections without a route.",
    "no_target_total": "Requests and connections whose route has no healthy instance, or none that answers.",
    "denied_total": "Requests and connections refused by access rules.",
    "bad_requests_total": "Requests that were malformed, too large or too slow.",
    "retries_total": "Attempts with another instance after one refused.",
    "tcp_connections_total": "TCP connections carried to a target.",
    "tcp_bytes_total": "Bytes carried for TCP connections.",
    "tcp_aborted_total": "TCP connections that ended with a reset.",
    "websockets_total": "Connections that changed their protocol.",
    "left_total": "TCP connections ended because their target left.",
}
GAUGES = {
    "routes": "Routes in the table.",
    "notices": "Tags that are not followed, or not wholly.",
    "open_connections": "Connections open now.",
    "idle_upstreams": "Connections to targets that wait for a request.",
    "targets_out": "Targets that are left out because they refused.",
    "bugs": "Connections ended by a bug.",
}
FIELDS = {
    "failed_connects_total": "Connections that a service's instances refused or broke.",
    "received_bytes_total": "Bytes of request bodies.",
    "sent_bytes_total": "Bytes of answers.",
}


def _header(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP lepa_ingress_{name} {text}", f"# TYPE lepa_ingress_{name} {kind}"]


def _series(name: str, kind: str, text: str, value: float) -> list[str]:
    return [
        *_header(name, kind, text),
        f"lepa_ingress_{name} {value}",
    ]


def _histogram(service: str, found: ServiceCounters) -> Iterator[str]:
    total = 0
    for bound, count in zip((*BUCKETS_S, "+Inf"), found.buckets, strict=True):
        total += count
        yield f'lepa_ingress_request_seconds_bucket{{service="{service}",le="{bound}"}} {total}'
    yield f'lepa_ingress_request_seconds_sum{{service="{service}"}} {found.seconds:.6f}'
    yield f'lepa_ingress_request_seconds_count{{service="{service}"}} {total}'


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
