"""What was reported of services and checks elsewhere, on a real agent. Ids name the reports that are followed; c51 is
about reading services over HTTP."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.query
import dns.rcode
import pytest
from tests.e2e.agents import HOST, Agent, eventually, running
from tests.e2e.jobs import SECOND, quick_update, shell_job
from tests.integration.web_jobs import web_job


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("agent")) as found:
        yield found


def service(name: str, **fields: Any) -> dict[str, Any]:
    return {"Name": name, "Provider": "nomad", **fields}


def looked_up(agent: Agent, name: str, rtype: str = "A") -> list[Any]:
    """Records of a name; [] when there is no such name."""
    answer = dns.query.udp(dns.message.make_query(name, rtype), HOST, 5, agent.ports["dns"])
    assert answer.rcode() in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}
    return [row for found in answer.answer for row in found]


def healthy(alloc: Any) -> bool:
    return bool((alloc.get("DeploymentStatus") or {}).get("Healthy"))


def test_b213_a_service_is_registered_once_however_often_its_task_restarts(agent: Agent) -> None:
    """B213."""
    restarts = {"Attempts": 100, "Interval": 3600 * SECOND, "Delay": 1, "Mode": "fail"}
    job = shell_job("restarts", task={"Services": [service("restarted")]}, group={"RestartPolicy": restarts})
    agent.run(job)
    (alloc,) = agent.running("restarts")
    done = 0
    while done < 50:  # one that comes while the task is down is refused
        done += agent.request("PUT", f"/v1/client/allocation/{alloc['ID']}/restart", {}).status == 200
    agent.alloc_until(alloc["ID"], lambda now: now["TaskStates"]["main"]["State"] == "running")
    eventually(lambda: len(agent.get("/v1/service/restarted")) == 1)
    agent.purge("restarts")
    eventually(lambda: agent.get("/v1/service/restarted") == [])


def test_b216_a_service_may_have_no_port(agent: Agent) -> None:
    """B216."""
    agent.run(shell_job("portless", group={"Services": [service("portless")]}))
    (instance,) = eventually(lambda: agent.get("/v1/service/portless"))
    assert instance["Port"] == 0
    agent.purge("portless")


def test_b217_tags_are_interpolated_again_when_a_job_changes(agent: Agent) -> None:
    """B217."""

    def job(version: str) -> dict[str, Any]:
        tagged = service("tagged", Tags=["v-${NOMAD_META_v}"])
        return shell_job("tagged", task={"Services": [tagged], "Meta": {"v": version}})

    agent.run(job("1"))
    eventually(lambda: [each["Tags"] for each in agent.get("/v1/service/tagged")] == [["v-1"]])
    agent.run(job("2"))
    eventually(lambda: [each["Tags"] for each in agent.get("/v1/service/tagged")] == [["v-2"]])
    agent.purge("tagged")


def test_b219_an_allocation_is_not_healthy_before_its_check_has_passed(agent: Agent, tmp_path: Path) -> None:
    """B219."""
    job = web_job("late", "late")
    task = job["TaskGroups"][0]["Tasks"][0]
    gate, python = tmp_path / "open", task["Config"]["command"]
    script = f'while [ ! -e {gate} ]; do sleep 0.05; done; exec "$0" "$@"'
    task["Config"] = {"command": "/bin/sh", "args": ["-c", script, python, *task["Config"]["args"]]}
    agent.run(job | {"Update": quick_update(HealthCheck="checks", HealthyDeadline=50 * SECOND)})
    (alloc,) = agent.running("late")
    (instance,) = eventually(lambda: agent.get("/v1/service/late"))
    assert instance["Status"] == "critical"
    checks = agent.get(f"/v1/client/allocation/{alloc['ID']}/checks")
    assert {check["Status"] for check in checks.values()} <= {"pending", "failure"}
    assert not healthy(agent.get(f"/v1/allocation/{alloc['ID']}"))
    assert looked_up(agent, "late.service.consul") == []
    gate.touch()
    agent.alloc_until(alloc["ID"], healthy)
    assert agent.get("/v1/service/late")[0]["Status"] == "passing"
    (found,) = eventually(lambda: looked_up(agent, "late.service.consul", "SRV"))
    assert found.port == instance["Port"]
    assert [row.address for row in looked_up(agent, found.target.to_text())] == [HOST]
    agent.purge("late")


def test_b214_services_of_what_died_during_an_outage_are_removed(tmp_path: Path) -> None:
    with running(tmp_path / "agent", dev=False) as agent:
        restarts = {"Attempts": 0, "Interval": 60 * SECOND, "Delay": 1, "Mode": "fail"}
        script = f"echo $$ > {tmp_path}/pid; trap 'exit 0' TERM; while :; do sleep 0.05; done"
        never = {"Attempts": 0, "Unlimited": False}
        agent.run(
            shell_job(
                "dies",
                script,
                group={"Services": [service("dies")], "RestartPolicy": restarts, "ReschedulePolicy": never},
            )
        )
        eventually(lambda: agent.get("/v1/service/dies"))
        pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
        agent.kill9()
        os.kill(pid, signal.SIGKILL)
        agent.start()
        eventually(lambda: agent.get("/v1/service/dies") == [])
        agent.purge("dies")


def test_c51_services_are_listed_by_namespace_and_found_by_tag(agent: Agent) -> None:
    agent.put("/v1/namespace", {"Name": "other"})
    agent.run(
        shell_job("mine", group={"Services": [service("mine", Tags=["x"]), service("mine", Tags=["y"], PortLabel="1")]})
    )
    agent.run(shell_job("theirs", group={"Services": [service("theirs")]}, Namespace="other"))

    def listed(namespace: str) -> dict[str, list[str]]:
        return {
            f"{group['Namespace']}/{each['ServiceName']}": each["Tags"]
            for group in agent.get("/v1/services", namespace=namespace)
            for each in group["Services"]
        }

    eventually(lambda: listed("*") == {"default/mine": ["x", "y"], "other/theirs": []})
    assert listed("other") == {"other/theirs": []}
    assert [each["Tags"] for each in agent.get("/v1/service/mine", filter='Tags contains "y"')] == [["y"]]
    first = agent.request("GET", "/v1/service/mine", query={"per_page": 1})
    rest = agent.get("/v1/service/mine", next_token=first.headers["x-nomad-nexttoken"])
    assert {each["Tags"][0] for each in (*first.json, *rest)} == {"x", "y"}
    agent.purge("mine")
    agent.delete("/v1/job/theirs", namespace="other", purge="true")
    eventually(lambda: listed("*") == {})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/v1/services", 405),
        ("POST", "/v1/service/x", 405),
        ("DELETE", "/v1/service/x/none", 404),
        ("GET", "/v1/service/x?choose=2", 400),
        ("GET", "/v1/service/x?filter=((", 400),
    ],
)
def test_c51_what_is_refused(agent: Agent, method: str, path: str, status: int) -> None:
    assert agent.request(method, path).status == status


def test_instances_can_be_filtered_to_healthy_ones(agent: Agent) -> None:
    check = {"Type": "tcp", "PortLabel": "1", "Interval": SECOND, "Timeout": SECOND}
    services = [service("half", PortLabel="2"), service("half", PortLabel="3", Checks=[check])]
    agent.run(shell_job("half", group={"Services": services}))
    eventually(lambda: len(agent.get("/v1/service/half")) == 2)
    (healthy_one,) = agent.get("/v1/service/half", filter='Status != "critical"')
    assert healthy_one["Port"] == 2
    agent.purge("half")
