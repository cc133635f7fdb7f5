"""How soon does a check's result reach those who read names, and how many reads does Consul's API answer?

A service registered through Consul's API has a ttl check; its owner lets it pass and fail in turns. Measured is the
time from that request until a blocking query of `health/service?passing` of the same agent returns, and until DNS says
the same, on that agent and on a second one that follows the first. Reads are of `health/service` with 100 instances,
one after another over one connection; beside stands the same of lepa's own `/v1/service/NAME`.

Expected on two cores: `consul.check_to_health_ms` and `consul.check_to_dns_ms` below 100, `consul.check_to_dns_far_ms`
below 1,000; `consul.health_100` 100 a second or more. Measured beside other work: 4, 5, 10 and 540 at a load of 2; 11,
14, 14 and 310 at a load of 7.
"""

import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from statistics import median
from typing import Any

import dns.message
import dns.query
import dns.rcode

from benchmarks._agent import HOST, Agent, development_agent
from benchmarks.harness import Figure

CHANGES = 30
INSTANCES = 100
READ_S = 2.0
CONSUL_PORT = 18_599


def run() -> list[Figure]:
    """Every figure about Consul's API."""
    with development_agent(consul_api={"enabled": True, "port": CONSUL_PORT}) as agent:
        consul = HTTPConnection(HOST, CONSUL_PORT, timeout=60)
        _ask(consul, "PUT", "/v1/agent/service/register", {"Name": "told", "Check": {"TTL": "1h", "CheckID": "told"}})
        health = median(_until_health(consul, passes=number % 2 == 0) for number in range(CHANGES))
        names = median(_until_dns(agent, consul, passes=number % 2 == 0) for number in range(CHANGES))
        leader, _ = agent.request("GET", "/v1/status/leader")
        with development_agent(name="second", server={"enabled": False}, client={"servers": [leader]}) as second:
            far = median(_until_dns(second, consul, passes=number % 2 == 0) for number in range(CHANGES))
        for number in range(INSTANCES):
            body = {"Name": "many", "ID": f"many-{number}", "Port": 8000 + number, "Tags": ["a", "b"]}
            _ask(consul, "PUT", "/v1/agent/service/register", body)
        ours = _rate(lambda: _ask(consul, "GET", "/v1/health/service/many?passing"))
        plain = _rate(lambda: agent.request("GET", "/v1/service/many"))
    return [
        Figure("consul.check_to_health_ms", health * 1e3, "ms"),
        Figure("consul.check_to_dns_ms", names * 1e3, "ms"),
        Figure("consul.check_to_dns_far_ms", far * 1e3, "ms"),
        Figure("consul.health_100", ours, "reads/s", plain, "/v1/service/NAME"),
    ]


def _ask(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[Any, int]:
    connection.request(method, path, None if body is None else json.dumps(body))
    response = connection.getresponse()
    raw = response.read()
    assert response.status == 200, f"{method} {path}: {response.status} {raw.decode()}"
    return json.loads(raw) if raw else None, int(response.headers.get("X-Consul-Index", 0))


def _tell(consul: HTTPConnection, *, passes: bool) -> None:
    _ask(consul, "PUT", f"/v1/agent/check/{'pass' if passes else 'fail'}/told")


def _until_health(consul: HTTPConnection, *, passes: bool) -> float:
    """Seconds until a reader that waits has the new status."""
    reader = HTTPConnection(HOST, CONSUL_PORT, timeout=60)
    _, index = _ask(reader, "GET", "/v1/health/service/told?passing")
    ended: list[float] = []

    def wait() -> None:
        shown, _ = _ask(reader, "GET", f"/v1/health/service/told?passing&index={index}&wait=30s")
        assert bool(shown) == passes
        ended.append(time.perf_counter())

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    began = time.perf_counter()
    _tell(consul, passes=passes)
    waiting.join()
    reader.close()
    return ended[0] - began


def _until_dns(agent: Agent, consul: HTTPConnection, *, passes: bool) -> float:
    """Seconds until DNS says so."""
    question = dns.message.make_query("told.service.consul", "A")
    wanted = dns.rcode.NOERROR if passes else dns.rcode.NXDOMAIN
    began = time.perf_counter()
    _tell(consul, passes=passes)
    while dns.query.udp(question, HOST, port=agent.dns_port, timeout=5).rcode() != wanted:
        time.sleep(0.001)
    return time.perf_counter() - began


def _rate(ask: Callable[[], object]) -> float:
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < READ_S:
        ask()
        count += 1
    return count / passed
