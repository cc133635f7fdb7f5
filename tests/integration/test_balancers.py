"""Balancers that are not ours send requests to a job while it appears, scales, moves and goes: HAProxy by SRV records,
nginx by configuration that follows, Traefik by its Nomad and by its Consul provider."""

import http.client
import itertools
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import components
from tests.e2e.agents import HOST, LEPA, Agent, eventually, free_ports, running
from tests.integration.peers import install
from tests.integration.web_jobs import web_job

FOLLOW_S = 15.0
"""How long a balancer may take to follow a change; all of them poll."""

LEAVES_S = 6.0
"""How long an instance still answers after it left the catalog: longer than any balancer here takes to notice."""

SERVED_ROUNDS = 40
"""Requests that are looked at to see which instances answer."""

_names = itertools.count(1)


@pytest.fixture(scope="module")
def consul_port() -> int:
    return free_ports()["http"]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, consul_port: int) -> Iterator[Agent]:
    settings = {"consul_api": {"enabled": True, "port": consul_port}}
    with running(tmp_path_factory.mktemp("agent"), settings=settings) as found:
        yield found


@contextmanager
def program(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A balancer in the foreground, told to stop at the end."""
    with (folder / "balancer.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


def answered_by(port: int, host: str, path: str = "/x") -> str:
    """The allocation that answers one request through a balancer; "" when nobody does."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": host})
        response = connection.getresponse()
        text = response.read().decode()
        return text.partition(" ")[0] if response.status == 200 else ""
    except OSError:
        return ""
    finally:
        connection.close()


def answering(port: int, host: str) -> set[str]:
    """The allocations that answer now."""
    return {answered_by(port, host) for _ in range(SERVED_ROUNDS)}


def follows(agent: Agent, port: int, host: str, service: str, tags: tuple[str, ...] = ()) -> None:
    """The balancer sends requests to the instances of a service, and only to them, and none of them fails while the
    service is updated, scaled and moved."""

    def job(count: int, version: str) -> dict[str, Any]:
        return web_job(service, service, count=count, tags=tags, version=version, delay_s=LEAVES_S)

    def all_answer(count: int, other_than: Collection[str] = ()) -> set[str]:
        def wanted() -> set[str]:
            found = {alloc["ID"] for alloc in agent.running(service, count, 60.0)}
            return found if found.isdisjoint(other_than) else set()

        found = eventually(wanted, 60.0)
        eventually(lambda: answering(port, host) == found, FOLLOW_S)
        return found

    def changes() -> None:
        agent.run(job(2, "2"))
        updated = all_answer(2, other_than=first)
        agent.run(job(4, "2"))
        scaled = all_answer(4)
        assert updated < scaled
        gone = next(iter(scaled))
        agent.put(f"/v1/allocation/{gone}/stop")
        all_answer(4, other_than={gone})

    agent.run(job(2, "1"))
    first = all_answer(2)
    counts = failures_while(port, host, changes)
    assert (counts[False], counts[True] > 100) == (0, True)
    agent.purge(service)
    eventually(lambda: answering(port, host) == {""}, FOLLOW_S)


def failures_while(port: int, host: str, cause: Callable[[], object]) -> Counter[bool]:
    """How many requests succeeded and failed while something happened."""
    counts: Counter[bool] = Counter()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            counts[bool(answered_by(port, host))] += 1
            time.sleep(0.005)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        cause()
    finally:
        over.set()
        asking.join()
    return counts


def named(prefix: str) -> str:
    return f"{prefix}-{next(_names)}"


def lepa(agent: Agent, *words: str) -> str:
    return subprocess.run([LEPA, *words], env=agent.environment(), check=True, capture_output=True, text=True).stdout


# HAProxy


HAPROXY = """
global
    maxconn 1000
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    retries 3
    option redispatch
    retry-on conn-failure empty-response
frontend web
    bind {host}:{port}
    default_backend {service}
{generated}
"""


@contextmanager
def haproxy(agent: Agent, folder: Path, service: str) -> Iterator[int]:
    binary = components.require("haproxy", "haproxy")
    port = free_ports()["http"]
    generated = lepa(agent, "service", "config", "-dns", f"{HOST}:{agent.ports['dns']}", "haproxy", service)
    config = folder / "haproxy.cfg"
    config.write_text(HAPROXY.format(host=HOST, port=port, service=service, generated=generated))
    with program(folder, binary, "-db", "-f", str(config)):
        yield port


def test_haproxy_follows_by_srv_records(agent: Agent, tmp_path: Path) -> None:
    service = named("haproxy")
    with haproxy(agent, tmp_path, service) as port:
        follows(agent, port, service, service)


# nginx


NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/upstreams.conf;
    server {{
        listen {host}:{port};
        location / {{ proxy_pass http://{service}; proxy_next_upstream error timeout non_idempotent; }}
    }}
}}
"""


def test_nginx_follows_by_configuration(agent: Agent, tmp_path: Path) -> None:
    binary, service, port = components.require("nginx", "nginx"), named("nginx"), free_ports()["http"]
    config, upstreams = tmp_path / "nginx.conf", tmp_path / "upstreams.conf"
    config.write_text(NGINX.format(host=HOST, port=port, folder=tmp_path, service=service))
    words = ["service", "config", "-out", str(upstreams)]
    lepa(agent, *words, "nginx", service)
    with program(tmp_path, binary, "-c", str(config)):
        eventually(lambda: (tmp_path / "nginx.pid").exists())
        reload = f"{binary} -c {config} -s reload"
        follower = subprocess.Popen(
            [LEPA, *words, "-follow", "-run", reload, "nginx", service], env=agent.environment()
        )
        try:
            follows(agent, port, service, service)
        finally:
            follower.terminate()
            follower.wait(10)


# Traefik


@pytest.fixture(scope="module")
def traefik(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = install("traefik", tmp_path_factory.getbasetemp())
    yield folder / "bin" / "traefik"
    shutil.rmtree(folder)


@pytest.mark.parametrize("provider", ["nomad", "consulcatalog"])
def test_traefik_follows(agent: Agent, consul_port: int, traefik: Path, tmp_path: Path, provider: str) -> None:
    service, port = named(provider), free_ports()["http"]
    address = agent.address if provider == "nomad" else f"{HOST}:{consul_port}"
    tags = ("traefik.enable=true", f"traefik.http.routers.{service}.rule=Host(`{service}.test`)")
    if provider == "nomad":  # it sees no health, so a request may meet an instance that does not listen yet
        tags += (
            "traefik.http.middlewares.again.retry.attempts=3",
            f"traefik.http.routers.{service}.middlewares=again",
        )
    command = [
        str(traefik),
        f"--entrypoints.web.address={HOST}:{port}",
        f"--providers.{provider}=true",
        f"--providers.{provider}.endpoint.address={address}",
        f"--providers.{provider}.refreshInterval=1s",
        f"--providers.{provider}.exposedByDefault=false",
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
    ]
    with program(tmp_path, *command):
        follows(agent, port, f"{service}.test", service, tags)
