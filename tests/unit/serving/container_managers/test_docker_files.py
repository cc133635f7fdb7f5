"""lepa.serving.container_managers.docker_files"""

import msgspec
import pytest

from lepa.serving.container_managers.docker_files import (
    PLAN_LABEL,
    ContainerResources,
    DockerPlan,
    archive_model,
    image_model,
    management_container,
    query_container,
)
from lepa.serving.container_managers.protocol import THREADS, StartOptions

PLAN = DockerPlan(
    "c",
    "shop/lepa:1",
    volumes=("/usr:/usr:ro",),
    model=ContainerResources(cpus=0.5),
    models={"big": ContainerResources(cpus=4, memory_mb=8000)},
)
FRONTENDS = ["lepa-c-query-0", "lepa-c-query-1"]


def variables(body: dict[str, list[str]]) -> dict[str, str]:
    return dict(each.split("=", 1) for each in body["Env"])


def test_the_management_frontend_keeps_its_registry_and_tells_the_plan() -> None:
    body = management_container(PLAN, 0)
    assert body["HostConfig"]["Binds"] == ["/usr:/usr:ro", "lepa-c-registry:/data"]
    assert body["HostConfig"]["PortBindings"] == {"1338/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}
    assert msgspec.json.decode(body["Labels"][PLAN_LABEL], type=DockerPlan) == PLAN


def test_query_frontends_follow_it_by_name_and_have_ports_of_the_host() -> None:
    body = query_container(PLAN, StartOptions(cache_size=5), 1, 1338)
    assert body["Cmd"][-4:] == ["--cache-bytes", "5", "--management", "lepa-c-management:1338"]
    assert body["HostConfig"]["PortBindings"]["1337/tcp"][0]["HostPort"] == "1338"
    assert "7000/tcp" not in body["HostConfig"]["PortBindings"]


def test_a_published_model_runs_as_nobody_and_serves_every_frontend() -> None:
    body = archive_model(PLAN, "big", "2", "doubles", "archive:big:2:abc", 0, FRONTENDS)
    assert (body["User"], body["HostConfig"]["CapDrop"]) == ("65534:65534", ["ALL"])
    assert (body["HostConfig"]["NanoCpus"], body["HostConfig"]["Memory"]) == (4_000_000_000, 8000 << 20)
    assert variables(body)["LEPA_DISCOVERY"] == (
        "static://query=lepa-c-query-0:7000,query=lepa-c-query-1:7000,management=lepa-c-management:1338"
    )
    assert body["Labels"]["ai.clipper.model_container.label"] == "big_2"


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        (ContainerResources(), None),
        (ContainerResources(cpus=0.5), "1"),
        (ContainerResources(cpus=2.5), "2"),
        (ContainerResources(cpus=2, threads=1), "1"),
        (ContainerResources(threads=3), "3"),
    ],
)
def test_a_model_computes_with_as_many_threads_as_it_has_processors(
    resources: ContainerResources, threads: str | None
) -> None:
    plan = DockerPlan("c", "shop/lepa:1", model=resources)
    for body in (
        image_model(plan, "m", "1", "ints", "shop/model", 0, FRONTENDS),
        archive_model(plan, "m", "1", "ints", "archive:m:1:a", 0, FRONTENDS),
    ):
        assert {variables(body).get(name) for name in THREADS} == {threads}


def test_an_image_of_ones_own_is_run_as_it_is_and_told_one_frontend() -> None:
    bodies = [image_model(PLAN, "m", "1", "ints", "shop/model", number, FRONTENDS) for number in range(3)]
    assert [variables(body)["CLIPPER_IP"] for body in bodies] == [*FRONTENDS, FRONTENDS[0]]
    assert "Cmd" not in bodies[0]
    assert (bodies[0]["Image"], bodies[0]["HostConfig"]["NanoCpus"]) == ("shop/model", 500_000_000)
