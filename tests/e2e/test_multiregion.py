"""One job over two regions, rolled out one after the other.

Modules: lepa.agent.multiregion.
"""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.agents import LEPA, Agent, eventually, running
from tests.e2e.jobs import SECOND, WAIT, shell_job
from tests.e2e.test_regions import of_region
from tests.serf_agent import HOST

FAIL = "exit 1"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Agent]]:
    folder = tmp_path_factory.mktemp("multiregion")
    with running(folder / "eu", settings=of_region("eu")) as eu:
        joining = of_region("us", retry_join=[f"{HOST}:{eu.ports['serf']}"], retry_interval="1s")
        with running(folder / "us", settings=joining) as us:
            for agent in (eu, us):
                eventually(lambda agent=agent: agent.get("/v1/regions") == ["eu", "us"])
            yield eu, us


def spread(job_id: str, script: str = WAIT, *, on_failure: str = "", auto_revert: bool = False) -> dict[str, Any]:
    update = {"MinHealthyTime": 0, "AutoRevert": auto_revert, "MaxParallel": 1, "HealthyDeadline": 20 * SECOND}
    group = {
        "Count": 0,
        "Update": update,
        "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }
    regions = [{"Name": "eu", "Count": 1}, {"Name": "us", "Count": 2, "Meta": {"where": "overseas"}}]
    block = {"Strategy": {"MaxParallel": 1, "OnFailure": on_failure}, "Regions": regions}
    return shell_job(job_id, script, group=group, Multiregion=block)


def status(agent: Agent, job_id: str) -> str:
    found = agent.get(f"/v1/job/{job_id}/deployment")
    assert found is None or found["IsMultiregion"]
    return str(found["Status"]) if found else ""


def statuses(both: tuple[Agent, Agent], job_id: str) -> tuple[str, ...]:
    return tuple(status(agent, job_id) for agent in both)


def test_regions_take_turns_and_are_done_together(both: tuple[Agent, Agent]) -> None:
    """The second region is held until the first has its allocations; the first waits until the second has, too."""
    eu, us = both
    eu.run(spread("turns", f"sleep 1; {WAIT}"))
    assert us.get("/v1/job/turns")["Meta"] == {"where": "overseas"}
    assert (eu.get("/v1/job/turns")["Region"], us.get("/v1/job/turns")["Region"]) == ("eu", "us")
    seen: list[tuple[str, ...]] = []

    def done() -> bool:
        if not seen or seen[-1] != (now := statuses(both, "turns")):
            seen.append(now if seen else statuses(both, "turns"))
        return seen[-1] == ("successful", "successful")

    eventually(done, 40.0)
    assert len(eu.running("turns")) == 1
    assert len(us.running("turns", 2)) == 2
    assert ("running", "running") not in seen
    assert any(first == "blocked" for first, _ in seen), seen
    assert any(second == "pending" for _, second in seen), seen
    assert eu.get("/v1/job/turns/versions")["Versions"][0]["Stable"]
    # One command stops it everywhere.
    stopped = subprocess.run(
        [LEPA, "job", "stop", "-detach", "-global", "-purge", "turns"],
        env=us.environment() | {"LEPA_ADDR": us.address},
        capture_output=True,
        text=True,
    )
    assert stopped.returncode == 0, stopped.stderr
    eventually(lambda: eu.get("/v1/jobs") == us.get("/v1/jobs") == [])


def test_a_region_that_fails_takes_those_after_it_along_and_they_go_back(both: tuple[Agent, Agent]) -> None:
    eu, us = both
    us.run(spread("back", auto_revert=True))
    eventually(lambda: statuses(both, "back") == ("successful", "successful"), 40.0)
    eu.run(spread("back", FAIL, auto_revert=True))

    def failed(agent: Agent) -> str:
        found = agent.get("/v1/job/back/deployments")
        return next((one["StatusDescription"] for one in found if one["Status"] == "failed"), "")

    eventually(lambda: failed(eu).startswith("Failed due to unhealthy allocations"), 40.0)
    eventually(lambda: failed(us).startswith("Failed because of an error in peer region"), 40.0)
    eventually(lambda: statuses(both, "back") == ("successful", "successful"), 40.0)
    for agent, count in ((eu, 1), (us, 2)):
        runs = agent.running("back", count)
        versions = {agent.get(f"/v1/allocation/{alloc['ID']}")["Job"]["Version"] for alloc in runs}
        assert 1 not in versions, "none runs what failed"
    eu.delete("/v1/job/back", purge="true", **{"global": "true"})
    eventually(lambda: eu.get("/v1/jobs") == us.get("/v1/jobs") == [])


def test_a_failure_may_stay_local_and_a_person_unblocks_the_rest(both: tuple[Agent, Agent]) -> None:
    eu, us = both
    script = f'test "$NOMAD_REGION" = us || exit 1; {WAIT}'
    eu.run(spread("local", script, on_failure="fail_local"))
    eventually(lambda: statuses(both, "local") == ("failed", "blocked"), 40.0)
    deployment = us.get("/v1/job/local/deployment")["ID"]
    unblocked = subprocess.run(
        [LEPA, "deployment", "unblock", "-detach", "-region", "us", deployment],
        env=eu.environment() | {"LEPA_ADDR": eu.address},
        capture_output=True,
        text=True,
    )
    assert unblocked.returncode == 0, unblocked.stdout + unblocked.stderr
    assert status(us, "local") == "successful"
    eu.delete("/v1/job/local", purge="true", **{"global": "true"})
    eventually(lambda: eu.get("/v1/jobs") == us.get("/v1/jobs") == [])


def test_nothing_is_registered_where_a_region_is_not_known(both: tuple[Agent, Agent]) -> None:
    eu, us = both
    job = spread("lost")
    job["Multiregion"]["Regions"].append({"Name": "mars"})
    answer = eu.request("PUT", "/v1/jobs", {"Job": job})
    assert answer.status == 400
    assert answer.text == (
        'multiregion: no path to region "mars"; known are eu, us. The job was registered in no region'
    )
    assert eu.get("/v1/jobs") == us.get("/v1/jobs") == []
