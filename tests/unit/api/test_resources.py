"""Routes of allocations, evaluations, deployments, nodes, services, tenancy, search and the operator."""

from typing import Any

import pytest
from tests.builders import make_node

from lepa.model.operator import SchedulerConfiguration
from lepa.model.tenancy import NodePool
from lepa.rpc import requests as r


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/allocation/a", "alloc not found"),
        ("/v1/evaluation/e", "eval not found"),
        ("/v1/deployment/d", "deployment not found"),
        ("/v1/node/n", "node not found"),
        ("/v1/node/pool/p", "node pool not found"),
        ("/v1/scaling/policy/p", "policy not found"),
    ],
)
async def test_what_does_not_exist_is_404_with_nomads_text(http, path: str, text: str) -> None:
    answer = await http.get(path)
    assert (answer.status, await answer.text()) == (404, text)


async def test_a_nodes_secret_is_never_shown(http, parts) -> None:
    parts.caller.answers["Node.Get"] = make_node("n1", secret_id="hush")
    shown = await (await http.get("/v1/node/n1")).json()
    assert (shown["ID"], shown["SecretID"], shown["Drain"]) == ("n1", "", False)


async def test_a_drain_may_be_set_and_cancelled(http, parts) -> None:
    parts.caller.answers["Node.Drain"] = r.NodeUpdateResponse()
    await http.put("/v1/node/n1/drain", json={"DrainSpec": {"Deadline": -1}, "Meta": {"a": "b"}})
    asked = parts.caller.last()
    assert (asked.id, asked.drain_spec.deadline, asked.meta) == ("n1", -1, {"a": "b"})
    await http.put("/v1/node/n1/drain", json={"DrainSpec": None, "MarkEligible": True})
    assert (parts.caller.last().drain_spec, parts.caller.last().mark_eligible) == (None, True)


async def test_eligibility_has_two_values(http, parts) -> None:
    parts.caller.answers["Node.Eligibility"] = r.NodeUpdateResponse()
    assert (await http.put("/v1/node/n1/eligibility", json={"Eligibility": "ineligible"})).status == 200
    answer = await http.put("/v1/node/n1/eligibility", json={"Eligibility": "maybe"})
    assert (answer.status, '"maybe"' in await answer.text()) == (400, True)


async def test_a_deployment_is_changed_by_its_own_id_only(http, parts) -> None:
    parts.caller.answers["Deployment.Promote"] = r.DeploymentUpdateResponse()
    answer = await http.put("/v1/deployment/promote/d1", json={"DeploymentID": "d1", "Groups": ["g"]})
    assert answer.status == 200
    assert (parts.caller.last().id, parts.caller.last().groups) == ("d1", ("g",))
    answer = await http.put("/v1/deployment/promote/d1", json={"DeploymentID": "d2"})
    assert (answer.status, await answer.text()) == (400, "Deployment ID does not match")
    answer = await http.put("/v1/deployment/pause/d1", json={"Pause": True})
    assert (answer.status, await answer.text()) == (400, "DeploymentID must be specified")


async def test_filter_and_status_exclude_each_other(http) -> None:
    answer = await http.get("/v1/evaluations?filter=x&status=complete")
    assert (answer.status, await answer.text()) == (
        400,
        "Filter expression cannot be used with other filter parameters",
    )


async def test_a_named_thing_has_to_fit_its_path(http, parts) -> None:
    answer = await http.put("/v1/node/pool/a", json={"Name": "b"})
    assert (answer.status, await answer.text()) == (400, "Node pool name does not match request path")
    assert (await http.put("/v1/node/pools", json={"Name": "gpu", "Description": "d"})).status == 200
    assert parts.caller.last().value == NodePool(name="gpu", description="d")
    answer = await http.put("/v1/namespaces", json={"Description": "no name"})
    assert answer.status == 400


async def test_pool_jobs_are_jobs_filtered_by_pool(http, parts) -> None:
    parts.caller.answers["Job.List"] = ()
    await http.get("/v1/node/pool/gpu/jobs?filter=Priority == 50")
    assert parts.caller.last().filter == 'NodePool == "gpu" and (Priority == 50)'
    assert (await http.get("/v1/node/pool/gpu/jobs?prefix=a")).status == 400


async def test_the_schedulers_configuration_is_read_and_checked(http, parts) -> None:
    parts.caller.answers["Operator.SchedulerConfiguration"] = SchedulerConfiguration()
    shown = await (await http.get("/v1/operator/scheduler/configuration")).json()
    assert shown["SchedulerConfig"]["SchedulerAlgorithm"] == "binpack"
    parts.caller.answers["Operator.SetSchedulerConfiguration"] = r.SchedulerConfigurationWritten(updated=True)
    await http.put("/v1/operator/scheduler/configuration?cas=3", json={"SchedulerAlgorithm": "spread"})
    asked = parts.caller.last()
    assert (asked.check_index, asked.cas, asked.configuration.scheduler_algorithm) == (True, 3, "spread")
    assert not asked.configuration.preemption_config.system_scheduler_enabled
    answer = await http.put("/v1/operator/scheduler/configuration", json={"SchedulerAlgorithm": "x"})
    assert (answer.status, await answer.text()) == (400, "invalid scheduler algorithm: x")


async def test_a_service_instance_is_removed_by_name_and_id(http, parts) -> None:
    answer = await http.delete("/v1/service/web/_nomad-task-1")
    assert (answer.status, answer.headers["X-Nomad-Index"]) == (200, "5")
    assert (parts.caller.last().service_name, parts.caller.last().id) == ("web", "_nomad-task-1")


async def test_a_search_carries_its_prefix_and_context(http, parts) -> None:
    parts.caller.answers["Search.Prefix"] = r.SearchResponse(matches={"jobs": ["web"]})
    answer = await http.post("/v1/search", json={"Prefix": "we", "Context": "jobs"})
    assert (await answer.json())["Matches"] == {"jobs": ["web"]}
    assert (parts.caller.last().prefix, parts.caller.last().context) == ("we", "jobs")


async def test_an_instance_from_outside_is_registered_under_the_names_of_the_path(parts: Any, http: Any) -> None:
    response = await http.put("/v1/service/printer/p1", json={"NodeName": "box", "NodeAddress": "10.9.9.9", "Port": 9})
    assert response.status == 200
    service = parts.caller.last().service
    assert (service.service_name, service.id, service.node_name, service.port) == ("printer", "p1", "box", 9)


async def test_evaluations_are_deleted_by_id_or_filter(http, parts) -> None:
    parts.caller.answers["Evaluation.Delete"] = r.EvaluationDeleteResponse(count=2, index=9)
    answer = await http.delete("/v1/evaluations", json={"EvalIDs": ["a", "b"]})
    assert (answer.status, (await answer.json())["Count"]) == (200, 2)
    assert parts.caller.last().eval_ids == ("a", "b")
    await http.delete("/v1/evaluations?namespace=*", json={"Filter": 'Status == "pending"'})
    assert (parts.caller.last().filter, parts.caller.last().namespace) == ('Status == "pending"', "*")


async def test_a_deployment_is_unblocked_by_its_id(http, parts) -> None:
    parts.caller.answers["Deployment.Unblock"] = r.DeploymentUpdateResponse()
    assert (await http.put("/v1/deployment/unblock/d1", json={"DeploymentID": "d1"})).status == 200
    assert parts.caller.requests[-1][0] == "Deployment.Unblock"


async def test_scaling_policies_are_chosen_by_job_and_type(http, parts) -> None:
    """B119."""
    parts.caller.answers["ScalingPolicy.List"] = ()
    await http.get("/v1/scaling/policies?job=a&type=horizontal")
    assert (parts.caller.last().job, parts.caller.last().type) == ("a", "horizontal")
