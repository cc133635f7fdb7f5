"""python-nomad, the client that people have: it registers, reads, plans and stops a job, and reads its logs."""

from collections.abc import Iterator
from typing import Any

import nomad
import pytest
from tests.e2e.agents import HOST, Agent, eventually, running
from tests.e2e.jobs import WAIT, shell_job


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("python-nomad")) as made:
        yield made


@pytest.fixture
def client(agent: Agent) -> nomad.Nomad:
    return nomad.Nomad(host=HOST, port=agent.ports["http"], timeout=10)


@pytest.fixture
def alloc(client: nomad.Nomad) -> Iterator[Any]:
    """A running allocation of the job "talk"; the job is gone afterwards."""
    client.job.register_job("talk", {"Job": shell_job("talk", "echo hello; echo oops >&2; " + WAIT)})
    yield eventually(lambda: _running(client, "talk"))
    client.job.deregister_job("talk", purge=True)


def _running(client: nomad.Nomad, job_id: str) -> Any:
    return next((one for one in client.job.get_allocations(job_id) if one["ClientStatus"] == "running"), None)


def test_job_is_registered_read_planned_and_stopped(client: nomad.Nomad) -> None:
    job = shell_job("walk", count=2)
    assert "walk" not in client.jobs
    with pytest.raises(nomad.api.exceptions.URLNotFoundNomadException):
        client.job.get_job("walk")
    plan = client.job.plan_job("walk", {"Job": job}, diff=True)
    assert plan["Annotations"]["DesiredTGUpdates"]["main"]["Place"] == 2
    answer = client.job.register_job("walk", {"Job": job})
    evaluation = eventually(lambda: _done(client, answer["EvalID"]))
    assert evaluation["JobID"] == "walk"
    assert "walk" in client.jobs
    assert client.job["walk"]["TaskGroups"][0]["Count"] == 2
    assert [version["Version"] for version in client.job.get_versions("walk")["Versions"]] == [0]
    eventually(lambda: client.job.get_summary("walk")["Summary"]["main"]["Running"] == 2)
    assert {one["JobID"] for one in client.job.get_allocations("walk")} == {"walk"}
    assert client.job.get_evaluations("walk")[0]["ID"] == answer["EvalID"]
    assert client.job.get_deployment("walk")["JobID"] == "walk"
    client.job.deregister_job("walk")
    eventually(lambda: client.job.get_job("walk")["Status"] == "dead")
    assert client.job.get_job("walk")["Stop"] is True
    client.job.deregister_job("walk", purge=True)
    assert "walk" not in client.jobs


def _done(client: nomad.Nomad, eval_id: str) -> Any:
    evaluation = client.evaluation.get_evaluation(eval_id)
    return evaluation if evaluation["Status"] == "complete" else None


def test_job_file_is_parsed_and_validated(client: nomad.Nomad) -> None:
    text = 'job "parsed" {\n  group "g" {\n    task "t" {\n      driver = "raw_exec"\n    }\n  }\n}\n'
    job = client.jobs.parse(text)
    assert (job["ID"], job["TaskGroups"][0]["Tasks"][0]["Driver"]) == ("parsed", "raw_exec")
    assert client.validate.validate_job({"Job": job}).status_code == 200
    with pytest.raises(nomad.api.exceptions.BadRequestNomadException) as refused:
        client.jobs.parse('job "parsed" {')
    assert "input.hcl:1," in refused.value.nomad_resp.text


def test_a_job_is_brought_about_as_ansibles_module_does(client: nomad.Nomad) -> None:
    """community.general.nomad_job: plan for a difference, register under `job`, start again what was stopped."""
    task = 'driver = "raw_exec"\n config {\n command = "sleep"\n args = ["600"]\n }\n'
    body = {"job": client.jobs.parse(f'job "play" {{\n group "g" {{\n task "t" {{\n {task} }}\n }}\n }}\n')}
    assert client.job.plan_job("play", body, diff=True)["Diff"]["Type"] == "Added"
    client.jobs.register_job(body)
    eventually(lambda: client.job.get_job("play")["Status"] == "running")
    assert client.job.plan_job("play", body, diff=True)["Diff"]["Type"] == "None"
    assert "play" in [client.job.get_job(job["ID"])["ID"] for job in client.jobs.get_jobs()]
    client.job.deregister_job("play")
    eventually(lambda: client.job.get_job("play")["Status"] == "dead")
    client.jobs.register_job({"job": client.job.get_job("play") | {"Status": "running", "Stop": False}})
    eventually(lambda: client.job.get_job("play")["Status"] == "running")
    client.job.deregister_job("play", purge=True)


def test_logs_and_files_of_a_task_are_read(client: nomad.Nomad, alloc: Any) -> None:
    """B166."""
    eventually(lambda: client.client.stream_logs.stream(alloc["ID"], "main", "stdout", plain=True))
    assert client.client.stream_logs.stream(alloc["ID"], "main", "stdout", plain=True) == "hello\n"
    assert client.client.stream_logs.stream(alloc["ID"], "main", "stderr", plain=True) == "oops\n"
    tail = client.client.stream_logs.stream(alloc["ID"], "main", "stdout", offset=3, origin="end", plain=True)
    assert tail == "lo\n"
    path = "alloc/logs/main.stdout.0"
    assert client.client.cat.read_file(alloc["ID"], path) == "hello\n"
    assert client.client.read_at.read_file_offset(alloc["ID"], 1, 3, path) == "ell"
    assert client.client.stat.stat_file(alloc["ID"], path)["Size"] == 6
    names = {entry["Name"] for entry in client.client.ls.list_files(alloc["ID"], "/alloc/logs")}
    assert names >= {"main.stdout.0", "main.stderr.0"}


def test_allocation_is_read_restarted_and_stopped(client: nomad.Nomad, alloc: Any) -> None:
    found = client.allocation.get_allocation(alloc["ID"])
    assert (found["Job"]["ID"], found["TaskStates"]["main"]["State"]) == ("talk", "running")
    assert alloc["ID"] in [one["ID"] for one in client.allocations.get_allocations(prefix=alloc["ID"][:7])]
    client.client.allocation.restart_allocation(alloc["ID"])
    eventually(lambda: client.allocation[alloc["ID"]]["TaskStates"]["main"]["Restarts"] == 1)
    eventually(lambda: client.allocation[alloc["ID"]]["TaskStates"]["main"]["State"] == "running")
    client.allocation.stop_allocation(alloc["ID"])
    eventually(lambda: client.allocation[alloc["ID"]]["ClientStatus"] == "complete")


def test_a_call_may_name_its_own_namespace(client: nomad.Nomad, agent: Agent) -> None:
    """B164."""
    client.namespace.create_namespace({"Name": "apart", "Description": "for one test"})
    apart = nomad.Nomad(host=HOST, port=agent.ports["http"], namespace="apart")
    apart.job.register_job("alone", {"Job": shell_job("alone", count=0, Namespace="apart")})
    assert "alone" not in client.jobs
    assert client.job.get_job("alone", namespace="apart")["Namespace"] == "apart"
    assert [job["ID"] for job in client.jobs.get_jobs(namespace="*")] == ["alone"]
    apart.job.deregister_job("alone", purge=True)


def test_agent_and_cluster_are_described(client: nomad.Nomad, agent: Agent) -> None:
    assert client.agent.get_members()["Members"][0]["Status"] == "alive"
    assert client.agent.get_agent()["member"]["Tags"]["role"] == "nomad"
    assert client.agent.get_servers() == [f"{HOST}:{agent.ports['rpc']}"]
    assert client.status.leader.get_leader() == f"{HOST}:{agent.ports['rpc']}"
    assert client.regions.get_regions() == ["global"]
    (node,) = client.nodes.get_nodes()
    assert client.node.get_node(node["ID"])["Status"] == "ready"
    assert client.system.initiate_garbage_collection()
    assert client.metrics.get_metrics()["Gauges"]
    assert client.search.search("ta", "jobs")["Matches"]["jobs"] == []
    assert client.operator.get_configuration()["Servers"][0]["Leader"] is True
    assert client.scaling.get_scaling_policies() == []
