"""Two regions that show each other certificates: a region's servers are taken for what their certificates say.

Modules: lepa.agent.regions, lepa.agent.tls.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from tests.e2e.agents import HOST, eventually
from tests.e2e.jobs import shell_job
from tests.e2e.test_regions import of_region
from tests.e2e.test_tls import SecureAgent, check_closed, lepa, write

from lepa.kit.certificate_authority import Subject, authority, issue

NODE = {"client": {"enabled": True}, "plugin": {"raw_exec": {"config": {"enabled": True}}}}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecureAgent, SecureAgent]]:
    folder = tmp_path_factory.mktemp("regions-tls")
    pems = folder / "pems"
    pems.mkdir()
    now = datetime.now(UTC)
    ca = authority(Subject("ca"), 30, now)
    write(pems, "ca", ca)
    for name, certified in (("eu", "server.eu.nomad"), ("us", "server.us.nomad"), ("cli", "cli.nomad")):
        write(pems, name, issue(ca, certified, 30, now, dns=[certified, "localhost"], addresses=[HOST], server=True))
    with ExitStack() as ending:
        eu = SecureAgent(folder / "eu", pems, "eu", of_region("eu", enabled=True) | NODE)
        ending.callback(lambda: check_closed(eu))
        joining = of_region("us", enabled=True, retry_join=[f"{HOST}:{eu.ports['serf']}"], retry_interval="1s")
        us = SecureAgent(folder / "us", pems, "us", joining | NODE)
        ending.callback(lambda: check_closed(us))
        for agent in (eu, us):
            agent.spawn()
        for agent in (eu, us):
            eventually(lambda agent=agent: healthy(agent) and agent.get("/v1/regions") == ["eu", "us"], 60.0)
        yield eu, us


def healthy(agent: SecureAgent) -> bool:
    try:
        return agent.request("GET", "/v1/agent/health").status == 200
    except OSError:
        return False


def test_calls_between_regions_are_made_with_certificates(both: tuple[SecureAgent, SecureAgent]) -> None:
    eu, us = both
    eu.put("/v1/jobs?region=us", {"Job": shell_job("far", "echo here; sleep 1000")})
    (allocation,) = us.running("far")
    assert "far" in lepa(eu, "status", "-region", "us").stdout
    assert eu.get("/v1/jobs") == []
    words = ("alloc", "logs", "-region", "us", allocation["ID"], "main")
    eventually(lambda: lepa(eu, *words).stdout == "here\n")
    ran = lepa(eu, "alloc", "exec", "-region", "us", allocation["ID"], "echo", "inside")
    assert ran.stdout == "inside\n", ran.stderr
    us.delete("/v1/job/far?purge=true")
    eventually(lambda: us.get("/v1/jobs") == [])
