"""What Docker is told of a task (lepa.drivers.docker_config, lepa.drivers.docker_rules)."""

from typing import Any

import pytest

from lepa.drivers.docker_config import container_body, container_name, published_ports
from lepa.drivers.docker_rules import AllowedModes, Rules, VolumesSettings, config_problems
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedPortMapping,
    AllocatedTaskResources,
    DNSConfig,
    NetworkResource,
    Port,
)

FREE = Rules(volumes=VolumesSettings(enabled=True), allow_privileged=True, core_mhz=2000)


def make(memory_mb: int = 100, memory_max_mb: int = 0, mhz: int = 500, **changes: Any) -> TaskConfig:
    resources = AllocatedTaskResources(
        cpu=AllocatedCpuResources(cpu_shares=mhz),
        memory=AllocatedMemoryResources(memory_mb=memory_mb, memory_max_mb=memory_max_mb),
    )
    values: dict[str, Any] = {
        "id": "task-1",
        "alloc_id": "alloc",
        "task_name": "web",
        "job_id": "job",
        "resources": resources,
    }
    return TaskConfig(**values | changes)


def body(config: dict[str, Any], rules: Rules = FREE, **changes: Any) -> dict[str, Any]:
    return container_body(make(config={"image": "web:1", **config}, **changes), rules, lambda path: f"<{path}>")


def host(config: dict[str, Any], rules: Rules = FREE, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = body(config, rules, **changes)["HostConfig"]
    return found


def test_the_least_container_has_image_labels_network_and_log_limits() -> None:
    made = body({})
    assert made["Image"] == "web:1"
    assert "Cmd" not in made
    assert made["Labels"] == {"com.hashicorp.nomad.alloc_id": "alloc", "lepa.task_id": "task-1"}
    assert made["HostConfig"]["NetworkMode"] == "bridge"
    assert made["HostConfig"]["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "2", "max-size": "2m"}}
    assert container_name(make()) == "web-alloc"


def test_command_and_arguments_are_joined_and_entrypoint_is_apart() -> None:
    made = body({"command": "run", "args": ["a", "b"], "entrypoint": ["/init"], "work_dir": "/w", "tty": True})
    assert made["Cmd"] == ["run", "a", "b"]
    assert made["Entrypoint"] == ["/init"]
    assert (made["WorkingDir"], made["Tty"]) == ("/w", True)


def test_memory_is_the_limit_unless_more_is_allowed() -> None:
    assert host({})["Memory"] == 100 * 1024 * 1024
    assert "MemoryReservation" not in host({})
    for found in (host({"memory_hard_limit": 300}), host({}, memory_max_mb=300)):
        assert found["Memory"] == 300 * 1024 * 1024
        assert found["MemoryReservation"] == 100 * 1024 * 1024
    unlimited = host({"memory_hard_limit": 300}, memory_max_mb=-1)
    assert {key: value for key, value in unlimited.items() if "Memory" in key} == {"MemoryReservation": 100 << 20}


def test_a_small_cpu_share_is_raised_to_what_docker_takes() -> None:
    """Case B189."""
    assert host({}, mhz=1)["CpuShares"] == 2
    assert host({"cpu_hard_limit": True})["CpuQuota"] == 25_000
    assert "CpuQuota" not in host({})


def test_ports_are_published_for_both_protocols() -> None:
    ports = (AllocatedPortMapping(label="http", value=20000, to=80, host_ip="10.0.0.1"),)
    made = body({"ports": ["http"]}, ports=ports)
    assert made["ExposedPorts"] == {"80/tcp": {}, "80/udp": {}}
    assert made["HostConfig"]["PortBindings"]["80/tcp"] == [{"HostIp": "10.0.0.1", "HostPort": "20000"}]
    assert body({"ports": ["http"], "network_mode": "host"}, ports=ports)["ExposedPorts"] == {}


def test_the_old_port_map_takes_its_host_port_from_the_tasks_network() -> None:
    network = NetworkResource(ip="10.0.0.2", dynamic_ports=(Port(label="db", value=30000),))
    task = make(
        config={"image": "x", "port_map": [{"db": 5432}]}, resources=AllocatedTaskResources(networks=(network,))
    )
    assert published_ports(task) == {"db": 5432}
    bindings = container_body(task, FREE, str)["HostConfig"]["PortBindings"]
    assert bindings["5432/tcp"] == [{"HostIp": "10.0.0.2", "HostPort": "30000"}]


def test_a_port_without_a_label_of_the_group_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(DriverError, match="port 'nope' is not a port of the group"):
        body({"ports": ["nope"]})


def test_a_device_appears_under_its_host_path_unless_told_otherwise() -> None:
    """Case B190."""
    assert host({"devices": [{"host_path": "/dev/null"}]})["Devices"] == [
        {"PathOnHost": "/dev/null", "PathInContainer": "/dev/null", "CgroupPermissions": "rwm"}
    ]


def test_the_tasks_directories_and_volumes_are_mounted() -> None:
    found = host({"volumes": ["data:/data:ro"]}, alloc_dir="/a", local_dir="/l", secrets_dir="/s")
    assert found["Binds"] == ["/a:/alloc:rw", "/l:/local:rw", "/s:/secrets:rw", "<data>:/data:ro"]


def test_mounts_of_every_type_are_made() -> None:
    mounts = [
        {"type": "bind", "source": "x", "target": "/b", "bind_options": [{"propagation": "rshared"}]},
        {"type": "volume", "source": "v", "target": "/v", "readonly": True},
        {"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 1000}},
    ]
    bind, volume, tmpfs = host({"mount": mounts})["Mounts"]
    assert (bind["Source"], bind["BindOptions"]) == ("<x>", {"Propagation": "rshared"})
    assert (volume["Source"], volume["ReadOnly"]) == ("v", True)
    assert tmpfs["TmpfsOptions"] == {"SizeBytes": 1000, "Mode": 0}


@pytest.mark.parametrize(
    "config",
    [
        {"volumes": ["/etc:/x"]},
        {"mount": [{"type": "bind", "source": "/etc", "target": "/x"}]},
        {"volumes": ["name:/x"], "volume_driver": "nfs"},
    ],
)
def test_paths_of_the_host_need_the_operators_consent(config: dict[str, Any]) -> None:
    with pytest.raises(DriverError, match="volumes are disabled"):
        body(config, Rules())


def test_capabilities_that_are_not_allowed_are_dropped_or_refused() -> None:
    assert host({})["CapDrop"] == ["net_raw"]
    assert set(host({}, Rules(allow_caps=("chown",)))["CapDrop"]) >= {"kill", "net_raw", "setuid"}
    assert (
        "cap_add: sys_admin is not among"
        in config_problems({"image": "x", "cap_add": ["SYS_ADMIN"]}, Rules())[0].lower()
    )
    assert host({}, Rules(allow_caps=("all",))).get("CapDrop") is None


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "image must be set"),
        ({"image": "x", "imagee": 1}, "docker has no option 'imagee'"),
        ({"image": "x", "privileged": True}, "privileged is not allowed"),
        ({"image": "x", "runtime": "kata"}, "runtime 'kata'"),
        ({"image": "x", "volumes": ["a"]}, "volumes: 'a' must be"),
        ({"image": "x", "mount": [{"type": "nfs", "target": "/x"}]}, "mount: type must be"),
        ({"image": "x", "mount": [{"type": "tmpfs"}]}, "mount: target must be set"),
        ({"image": "x", "devices": [{"container_path": "/x"}]}, "devices: host_path must be set"),
    ],
)
def test_problems_name_the_option(config: dict[str, Any], problem: str) -> None:
    assert config_problems(config, Rules())[0].startswith(problem)


def test_extra_labels_follow_the_operators_patterns() -> None:
    labels = body({"labels": [{"mine": "1"}]}, Rules(extra_labels=("job*",)), job_name="Job")["Labels"]
    assert labels["com.hashicorp.nomad.job_id"] == "job"
    assert labels["com.hashicorp.nomad.job_name"] == "Job"
    assert "com.hashicorp.nomad.namespace" not in labels
    assert labels["mine"] == "1"


def test_the_rest_is_passed_on() -> None:
    found = host(
        {
            "ulimit": {"nofile": "10:20", "nproc": "5"},
            "sysctl": {"net.core.somaxconn": "1"},
            "init": True,
            "shm_size": 5,
            "pids_limit": 9,
            "extra_hosts": ["a:1.2.3.4"],
            "logging": {"type": "local", "config": [{"max-size": "1m"}]},
        },
        dns=DNSConfig(servers=("10.0.0.3",)),
    )
    assert found["Ulimits"][0] == {"Name": "nofile", "Soft": 10, "Hard": 20}
    assert found["Ulimits"][1] == {"Name": "nproc", "Soft": 5, "Hard": 5}
    assert found["Dns"] == ["10.0.0.3"]
    assert found["LogConfig"] == {"Type": "local", "Config": {"max-size": "1m"}}
    assert (found["Init"], found["ShmSize"], found["PidsLimit"]) == (True, 5, 9)


def test_modes_that_share_with_the_host_need_the_operators_consent() -> None:
    guarded = Rules()
    for option in ("pid_mode", "ipc_mode", "userns_mode", "uts_mode"):
        said = config_problems({"image": "i", option: "host"}, guarded)
        assert "needs allow_privileged" in said[0]
        assert config_problems({"image": "i", option: "host"}, FREE) == []
    assert config_problems({"image": "i", "pid_mode": "container:x"}, guarded) != []
    assert config_problems({"image": "i", "ipc_mode": "private"}, guarded) == []
    listed = Rules(allowed_modes=AllowedModes(pid=("host",), ipc=("none",)))
    assert config_problems({"image": "i", "pid_mode": "host"}, listed) == []
    assert "allowed_modes.ipc" in config_problems({"image": "i", "ipc_mode": "shareable"}, listed)[0]


def test_limits_of_processes_must_be_numbers() -> None:
    assert config_problems({"image": "i", "ulimit": [{"nofile": "1024:2048", "nproc": "5"}]}, FREE) == []
    assert "ulimit: nofile" in config_problems({"image": "i", "ulimit": [{"nofile": "many"}]}, FREE)[0]


def test_in_the_groups_network_ports_and_names_are_the_groups() -> None:
    made = container_body(
        make(config={"image": "i", "ports": ["http"], "dns_servers": ["1.1.1.1"], "hostname": "h"}),
        FREE,
        lambda path: path,
        joined="container:x",
    )
    assert made["HostConfig"]["NetworkMode"] == "container:x"
    assert not {"Dns", "ExtraHosts"} & set(made["HostConfig"])
    assert "Hostname" not in made
    assert "NetworkingConfig" not in made
