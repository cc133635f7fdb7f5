"""Variables and interpolation."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task, uuid_of

from lepa.client import task_env
from lepa.client.task_env import Directories, Place
from lepa.model.allocation import AllocNetworkStatus
from lepa.model.resources import (
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
    Port,
)

PORTS = (
    AllocatedPortMapping(label="http-api", value=25000, to=80, host_ip="10.0.0.1"),
    AllocatedPortMapping(label="raw", value=25001, host_ip="10.0.0.1"),
)


def place(**changes: object) -> Place:
    task = make_task(env={"GREETING": "${NOMAD_META_who} at ${node.datacenter}", "${NOMAD_TASK_NAME}_X": "1"})
    group = make_group(tasks=(task,), meta={"who": "group", "g": "${NOMAD_DC}-x"})
    job = make_job(meta={"who": "job", "a.b": "dot"}, groups=(group,))
    resources = AllocatedResources(
        tasks={"web": AllocatedTaskResources()}, shared=AllocatedSharedResources(ports=PORTS)
    )
    alloc = make_alloc(uuid_of(1), job=job, index=3, allocated_resources=resources)
    node = replace(make_node(), meta={"rack": "r1"})
    directories = Directories("/a", "/a/local", "/a/secrets")
    return Place(node, "global", job, group, task, alloc, directories)._replace(**changes)  # type: ignore[arg-type]


def test_the_names_that_job_files_read() -> None:
    env = task_env.build(place(), {})
    assert env["NOMAD_ALLOC_ID"] == uuid_of(1)
    assert env["NOMAD_SHORT_ALLOC_ID"] == uuid_of(1)[:8]
    assert env["NOMAD_ALLOC_INDEX"] == "3"
    assert (env["NOMAD_TASK_DIR"], env["NOMAD_SECRETS_DIR"]) == ("/a/local", "/a/secrets")
    assert (env["NOMAD_DC"], env["NOMAD_REGION"], env["NOMAD_JOB_NAME"]) == ("dc1", "global", "web")
    assert "NOMAD_MEMORY_MAX_LIMIT" not in env
    assert "NOMAD_JOB_PARENT_ID" not in env


def test_ports_inside_and_outside() -> None:
    env = task_env.build(place(), {})
    assert env["NOMAD_PORT_http_api"] == "80"
    assert env["NOMAD_HOST_PORT_http_api"] == "25000"
    assert env["NOMAD_ADDR_http_api"] == "10.0.0.1:25000"
    assert env["NOMAD_PORT_raw"] == "25001"
    assert "NOMAD_ALLOC_IP_raw" not in env
    own = place(alloc=replace(place().alloc, network_status=AllocNetworkStatus(address="172.26.0.5")))
    assert task_env.build(own, {})["NOMAD_ALLOC_ADDR_http_api"] == "172.26.0.5:80"


def test_ports_of_single_tasks_carry_their_names_for_the_others() -> None:
    """Case B223."""
    network = NetworkResource(ip="10.0.0.2", dynamic_ports=(Port(label="db", value=5000),))
    resources = AllocatedResources(
        tasks={
            "web": AllocatedTaskResources(networks=(network,)),
            "my-task": AllocatedTaskResources(networks=(network,)),
        }
    )
    env = task_env.build(place(alloc=replace(place().alloc, allocated_resources=resources)), {})
    assert env["NOMAD_ADDR_db"] == "10.0.0.2:5000"
    assert env["NOMAD_ADDR_my_task_db"] == "10.0.0.2:5000"


def test_inner_meta_wins_and_may_name_variables() -> None:
    """Case B222."""
    env = task_env.build(place(), {})
    assert env["NOMAD_META_who"] == env["NOMAD_META_WHO"] == "group"
    assert env["NOMAD_META_a_b"] == "dot"
    assert env["NOMAD_META_g"] == "dc1-x"


def test_the_tasks_variables_are_interpolated_and_win_over_the_hosts() -> None:
    env = task_env.build(place(), {"GREETING": "host", "HOME": "/root", "NOMAD_DC": "other"})
    assert env["GREETING"] == "group at dc1"
    assert env["web_X"] == "1"
    assert env["HOME"] == "/root"
    assert env["NOMAD_DC"] == "dc1"


def test_the_agents_secrets_stay_with_the_agent() -> None:
    assert not {"AWS_SECRET_ACCESS_KEY", "NOMAD_TOKEN"} & set(
        task_env.build(place(), {"AWS_SECRET_ACCESS_KEY": "s", "NOMAD_TOKEN": "t"})
    )


def test_what_texts_may_name() -> None:
    where = place()
    targets = task_env.references(where, task_env.build(where, {}))
    text = "${node.unique.name} ${attr.kernel.name} ${meta.rack} ${NOMAD_DC} ${env.NOMAD_DC} ${nothing} ${ node.class }"
    assert task_env.interpolate(text, targets) == "node-1 linux r1 dc1 dc1 ${nothing} "
    assert task_env.interpolate_all({"a": ["${NOMAD_DC}", 1]}, targets) == {"a": ["dc1", 1]}


def test_a_value_is_not_looked_at_again() -> None:
    assert task_env.interpolate("${a}", {"a": "${b}", "b": "x"}) == "${b}"


def test_services_of_the_group_see_nothing_of_a_single_task() -> None:
    env = task_env.group_environment(place())
    assert "NOMAD_TASK_NAME" not in env
    assert env["NOMAD_META_who"] == "group"
    assert env["NOMAD_PORT_raw"] == "25001"
