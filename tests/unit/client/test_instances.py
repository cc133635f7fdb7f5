"""Instances of services: address, port, tags, checks."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task, uuid_of

from lepa.client import instances
from lepa.client.instances import Source
from lepa.drivers.protocol import TaskNetwork
from lepa.model.allocation import AllocDeploymentStatus, AllocNetworkStatus
from lepa.model.resources import (
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
    Port,
)
from lepa.model.service import Service, ServiceCheck, ServiceWeights

PORT = AllocatedPortMapping(label="http", value=25000, to=80, host_ip="10.0.0.1")


def source(*services: Service, **changes: object) -> Source:
    task = make_task(services=services)
    job = make_job(groups=(make_group(tasks=(task,), services=services),))
    resources = AllocatedResources(shared=AllocatedSharedResources(ports=(PORT,)))
    alloc = make_alloc(uuid_of(1), job=job, allocated_resources=resources)
    node = make_node(attributes={"unique.network.ip-address": "10.0.0.9"})
    return Source(node, job, job.task_groups[0], alloc, {"NOMAD_META_v": "2"})._replace(**changes)  # type: ignore[arg-type]


def test_a_service_has_the_hosts_address_and_port() -> None:
    service = Service(
        name="web-${NOMAD_META_v}", port_label="http", tags=("v${NOMAD_META_v}",), weights=ServiceWeights(passing=5)
    )
    found = source(service)
    (instance,) = instances.of_task(found, found.group.tasks[0])
    one = instance.registration
    assert (one.service_name, one.address, one.port, one.tags, one.weight) == ("web-2", "10.0.0.1", 25000, ("v2",), 5)
    assert one.id == f"_nomad-task-{uuid_of(1)}-web-web-2-http"
    (of_group,) = instances.of_group(found)
    assert "group-web" in of_group.registration.id


def test_a_service_without_a_port_has_port_0() -> None:
    (instance,) = instances.of_group(source(Service(name="web")))
    assert (instance.registration.address, instance.registration.port) == ("10.0.0.9", 0)


def test_address_modes() -> None:
    found = source()
    assert instances.resolve(found, "http", "auto") == ("10.0.0.1", 25000)
    assert instances.resolve(found, "8080", "host") == ("10.0.0.9", 8080)
    own = found._replace(alloc=replace(found.alloc, network_status=AllocNetworkStatus(address="172.1.1.1")))
    assert instances.resolve(own, "http", "alloc") == ("172.1.1.1", 80)
    assert instances.resolve(own, "99", "alloc") == ("172.1.1.1", 99)
    assert instances.resolve(own, "http", "alloc_ipv6") == ("10.0.0.1", 25000)
    both = AllocNetworkStatus(address="172.1.1.1", address_ipv6="fd00::1")
    six = found._replace(alloc=replace(found.alloc, network_status=both))
    assert instances.resolve(six, "http", "alloc_ipv6") == ("fd00::1", 80)
    driven = found._replace(network=TaskNetwork(ip="172.2.2.2", port_map={"db": 5432}))
    assert instances.resolve(driven, "http", "driver") == ("172.2.2.2", 80)
    assert instances.resolve(driven, "db", "driver") == ("172.2.2.2", 5432)


def test_canaries_have_tags_of_their_own() -> None:
    service = Service(name="web", tags=("live",), canary_tags=("canary",))
    found = source(service)
    canary = found._replace(alloc=replace(found.alloc, deployment_status=AllocDeploymentStatus(canary=True)))
    assert instances.of_group(found)[0].registration.tags == ("live",)
    assert instances.of_group(canary)[0].registration.tags == ("canary",)


def test_checks_are_interpolated_and_the_service_starts_with_their_worst_status() -> None:
    checks = (
        ServiceCheck(
            type="http", path="/${NOMAD_META_v}", header={"X": ("${NOMAD_META_v}",)}, initial_status="passing"
        ),
        ServiceCheck(type="tcp", port_label="8081"),
    )
    (instance,) = instances.of_group(source(Service(name="web", port_label="http", checks=checks)))
    first, second = instance.checks
    assert (first.spec.path, first.spec.header, first.port) == ("/2", {"X": ("2",)}, 25000)
    assert (second.address, second.port) == ("10.0.0.9", 8081)
    assert instance.registration.status == "critical"
    assert instances.worst(["passing", "warning"]) == "warning"
    assert instances.worst([]) == "passing"


def test_meta_and_weights_are_told_and_canaries_have_their_own() -> None:
    service = Service(
        name="web",
        meta={"v": "${attr.unknown}"},
        canary_meta={"v": "new"},
        weights=ServiceWeights(passing=5, warning=2),
        provider="nomad",
        checks=(ServiceCheck(type="tcp"),),
    )
    job = make_job(groups=(make_group(services=(service,)),))
    (found,) = instances.of_group(Source(make_node(), job, job.task_groups[0], make_alloc("a", job=job), {}))
    assert (found.registration.weight, found.registration.warning_weight) == (5, 2)
    assert (list(found.registration.meta), found.checks[0].native) == (["v"], True)
    canary = make_alloc("b", job=job, deployment_status=AllocDeploymentStatus(canary=True))
    (found,) = instances.of_group(Source(make_node(), job, job.task_groups[0], canary, {}))
    assert found.registration.meta == {"v": "new"}


def test_ports_of_a_tasks_own_network_are_found_as_older_job_files_give_them() -> None:
    found = source(Service(name="web", port_label="rpc", checks=(ServiceCheck(type="tcp"),)))
    network = NetworkResource(ip="10.0.0.7", dynamic_ports=(Port(label="rpc", value=26000, to=7000),))
    tasks = {"web": AllocatedTaskResources(networks=(network,))}
    own = found._replace(alloc=replace(found.alloc, allocated_resources=AllocatedResources(tasks=tasks)))
    (instance,) = instances.of_task(own, own.group.tasks[0])
    assert (instance.registration.address, instance.registration.port) == ("10.0.0.7", 26000)
    assert (instance.checks[0].address, instance.checks[0].port) == ("10.0.0.7", 26000)


def test_c53_an_own_address_is_registered_and_checked_with_the_labels_port() -> None:
    checks = (ServiceCheck(type="tcp"), ServiceCheck(type="tcp", address_mode="host"))
    service = Service(name="web", port_label="http", address="web-${NOMAD_META_v}.example.com", checks=checks)
    (instance,) = instances.of_group(source(service))
    assert (instance.registration.address, instance.registration.port) == ("web-2.example.com", 25000)
    assert [(check.address, check.port) for check in instance.checks] == [
        ("web-2.example.com", 25000),
        ("10.0.0.1", 25000),
    ]


def test_c53_a_label_may_be_made_of_variables_and_must_be_a_port_or_a_number() -> None:
    checks = (ServiceCheck(type="tcp", port_label="${NOMAD_META_v}"), ServiceCheck(type="tcp", port_label="gone"))
    named = Service(name="web", port_label="${meta.port}", checks=checks)
    found = source(named, Service(name="driven", port_label="gone", address_mode="driver"))
    knowing = found._replace(node=make_node(attributes=found.node.attributes, meta={"port": "http"}))
    (instance, _) = instances.of_group(knowing)
    assert (instance.registration.port, instance.registration.id[-8:]) == (25000, "web-http")
    assert instance.checks[0].port == 2
    task = knowing.group.tasks[0]
    problem = 'service "web": port "gone" is "gone" here, which is no port'
    assert instances.unknown_ports(knowing, task) == [problem, problem]
    assert len(instances.unknown_ports(found, task)) == 4
