"""lepa.serving.container_managers.job_files: the orchestrator's own rules take the jobs, without a warning."""

from typing import Any

import pytest
from msgspec.structs import replace

from lepa.model.job_rules import canonicalise, validate
from lepa.serving.container_managers.job_files import (
    CLUSTER_META,
    ClusterPlan,
    PartResources,
    autoscaler_job,
    management_job,
    model_job,
    query_frontend_job,
)
from lepa.serving.container_managers.protocol import THREADS, StartOptions

PLAN = ClusterPlan(
    cluster_name="c",
    python="/usr/bin/python3",
    discovery="dns://127.0.0.1:8600/consul",
    query_frontend=PartResources(cpu=1000, memory_mb=512, ports={"http": 1337}),
    models={"big": PartResources(cpu=4000, memory_mb=8000)},
)
RPC = {"LEPA_RPC_SERVICE": PLAN.rpc_service}


def jobs() -> list[dict[str, Any]]:
    options = StartOptions(num_frontend_replicas=2)
    return [
        management_job(PLAN),
        query_frontend_job(PLAN, options, ("urlprefix-/",), ()),
        model_job(PLAN, "big", "1", "doubles", "archive:big:1:ab", 3, RPC),
        autoscaler_job(PLAN, "127.0.0.1:4646", "secret"),
    ]


@pytest.mark.parametrize("job", jobs(), ids=lambda job: job["ID"])
def test_a_job_is_valid(job: dict[str, Any]) -> None:
    found = validate(canonicalise(job))
    assert [str(problem) for problem in found.errors] == []


def test_everything_of_a_cluster_is_found_by_its_prefix_and_meta() -> None:
    assert [job["ID"] for job in jobs()] == [
        "clipper-c-mgmt",
        "clipper-c-query-frontend",
        "clipper-c-model-big-1",
        "clipper-c-autoscaler",
    ]
    assert {job["Meta"][CLUSTER_META] for job in jobs()} == {"c"}


def test_services_have_the_names_that_others_look_up() -> None:
    named = [service["Name"] for job in jobs() for service in job["TaskGroups"][0]["Services"]]
    assert named == [PLAN.management_service, PLAN.query_service, PLAN.rpc_service]


def test_resources_ports_and_counts_are_the_plan() -> None:
    management, query, model, _ = (job["TaskGroups"][0] for job in jobs())
    assert (management["Count"], query["Count"], model["Count"]) == (1, 2, 3)
    assert query["Networks"][0] == {
        "Mode": "host",
        "DynamicPorts": [{"Label": "rpc"}],
        "ReservedPorts": [{"Label": "http", "Value": 1337}],
    }
    assert query["Tasks"][0]["Resources"] == {"CPU": 1000, "MemoryMB": 512}
    assert model["Tasks"][0]["Resources"] == {"CPU": 4000, "MemoryMB": 8000}
    assert "Networks" not in model


def test_a_model_is_told_who_it_is_and_where_to_go() -> None:
    environment = model_job(PLAN, "m", "2", "ints", "archive:m:2:ab", 1, RPC)["TaskGroups"][0]["Tasks"][0]["Env"]
    assert {name: value for name, value in environment.items() if name not in THREADS} == {
        "CLIPPER_MODEL_NAME": "m",
        "CLIPPER_MODEL_VERSION": "2",
        "CLIPPER_INPUT_TYPE": "ints",
        "CLIPPER_MODEL_PATH": "${NOMAD_TASK_DIR}/model",
        "LEPA_MODEL_IMAGE": "archive:m:2:ab",
        "LEPA_DISCOVERY": "dns://127.0.0.1:8600/consul",
        "LEPA_MANAGEMENT_SERVICE": "clipper-c-mgmt-http",
        "LEPA_RPC_SERVICE": "clipper-c-query-frontend-rpc",
    }


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        (PartResources(cpu=100), "1"),
        (PartResources(cpu=7_500), "3"),
        (PartResources(cpu=100, threads=4), "4"),
    ],
)
def test_a_model_computes_with_as_many_threads_as_its_cpu_is_worth(resources: PartResources, threads: str) -> None:
    job = model_job(replace(PLAN, model=resources, models={}), "m", "2", "ints", "archive:m:2:ab", 1, RPC)
    environment = job["TaskGroups"][0]["Tasks"][0]["Env"]
    assert {environment[name] for name in THREADS} == {threads}


def test_grpc_is_a_port_and_a_service_of_its_own_where_it_is_wanted() -> None:
    plan = ClusterPlan("c", "python", "nomad://127.0.0.1:4646", grpc=True)
    (group,) = query_frontend_job(plan, StartOptions(), (), ())["TaskGroups"]
    assert [port["Label"] for port in group["Networks"][0]["DynamicPorts"]] == ["http", "rpc", "grpc"]
    assert group["Services"][-1]["Name"] == "clipper-c-query-frontend-grpc"
    assert group["Tasks"][0]["Config"]["args"][-2:] == ["--grpc-port", "${NOMAD_PORT_grpc}"]
