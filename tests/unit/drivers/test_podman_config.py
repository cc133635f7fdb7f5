"""What Podman is told of a task."""

from typing import Any

import pytest

from lepa.drivers.docker_rules import VolumesSettings
from lepa.drivers.podman_config import (
    HostLimits,
    PodmanSettings,
    config_problems,
    container_spec,
    image_name,
    size_bytes,
)
from lepa.drivers.protocol import DeviceNode, DriverError, Mount, TaskConfig
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedPortMapping,
    AllocatedTaskResources,
    DNSConfig,
)

FREE = PodmanSettings(volumes=VolumesSettings(enabled=True), allow_privileged=True)


def spec(config: dict[str, Any], settings: PodmanSettings = FREE, **changes: Any) -> dict[str, Any]:
    resources = AllocatedTaskResources(
        cpu=AllocatedCpuResources(cpu_shares=500), memory=AllocatedMemoryResources(memory_mb=100)
    )
    values = {"id": "id", "alloc_id": "alloc", "task_name": "web", "resources": resources, "config": config} | changes
    return container_spec(TaskConfig(**values), "web-alloc", "i", settings, HostLimits(2000, 9, 8), lambda path: path)


def test_the_least_container() -> None:
    made = spec({})
    assert made["labels"] == {"com.hashicorp.nomad.alloc_id": "alloc", "lepa.task_id": "id"}
    assert made["netns"] == {"nsmode": "bridge", "value": ""}
    assert made["resource_limits"]["memory"] == {"limit": 100 << 20, "swap": 100 << 20}
    assert made["resource_limits"]["cpu"] == {"shares": 500}
    assert made["r_limits"] == [
        {"type": "nofile", "soft": 9, "hard": 9},
        {"type": "nproc", "soft": 8, "hard": 8},
    ]
    assert made["log_configuration"]["driver"] == "k8s-file"
    assert made["cap_drop"] == ["CAP_NET_RAW"]
    assert "command" not in made


def test_networks() -> None:
    assert spec({"network_mode": "host"})["netns"]["nsmode"] == "host"
    assert spec({"network_mode": "task:pod"})["netns"] == {"nsmode": "container", "value": "pod-alloc"}
    assert spec({"network_mode": "container:x"})["netns"] == {"nsmode": "container", "value": "x"}
    assert spec({}, network_namespace="/run/netns/g")["netns"] == {"nsmode": "path", "value": "/run/netns/g"}
    with pytest.raises(DriverError, match="network_mode 'odd'"):
        spec({"network_mode": "odd"})
    port = AllocatedPortMapping(label="http", value=2000, to=80, host_ip="10.0.0.1")
    made = spec({"ports": ["http"]}, ports=(port,), dns=DNSConfig(("1.1.1.1",), ("x",)))
    assert made["portmappings"] == [
        {"host_ip": "10.0.0.1", "host_port": 2000, "container_port": 80, "protocol": "tcp,udp"}
    ]
    assert (made["dns_server"], made["dns_search"]) == (["1.1.1.1"], ["x"])


def test_files_and_devices() -> None:
    made = spec(
        {"volumes": ["/srv:/data:ro,noexec"], "tmpfs": ["/var", "/run:size=1m"], "devices": ["/dev/fuse"]},
        alloc_dir="/a",
        mounts=(Mount(host_path="/v", task_path="/w", read_only=True),),
        devices=(DeviceNode("/dev/x0", "/dev/x", "r"),),
    )
    assert [(each["source"], each["destination"], each["options"]) for each in made["mounts"]] == [
        ("/a", "/alloc", ["rbind", "rw"]),
        ("/srv", "/data", ["rbind", "ro", "noexec"]),
        ("/v", "/w", ["rbind", "ro", "rprivate"]),
        ("tmpfs", "/var", ["rw", "nosuid", "nodev"]),
        ("tmpfs", "/run", ["size=1m"]),
    ]
    assert made["devices"] == [{"path": "/dev/fuse"}, {"path": "/dev/x0:/dev/x:r"}]
    with pytest.raises(DriverError, match="volumes are disabled"):
        spec({"volumes": ["/srv:/data"]}, PodmanSettings())


def test_limits_and_rights() -> None:
    made = spec(
        {
            "memory_swap": "180m",
            "memory_swappiness": 60,
            "memory_reservation": "50m",
            "cpu_hard_limit": True,
            "pids_limit": 5,
            "ulimit": [{"nofile": "1:2"}],
            "cap_add": ["net_raw"],
            "cap_drop": ["chown"],
            "userns": "keep-id:uid=1",
            "logging": [{"driver": "journald", "options": [{"tag": "x"}]}],
            "shm_size": "1m",
        },
        PodmanSettings(allow_privileged=True, allow_caps=("all",)),
    )
    memory = {"limit": 100 << 20, "swap": 180 << 20, "reservation": 50 << 20, "swappiness": 60}
    assert made["resource_limits"]["memory"] == memory
    assert made["resource_limits"]["cpu"] == {"shares": 500, "period": 100_000, "quota": 25_000}
    assert made["resource_limits"]["pids"] == {"limit": 5}
    assert made["r_limits"][0] == {"type": "nofile", "soft": 1, "hard": 2}
    assert (made["cap_add"], made["cap_drop"]) == (["CAP_NET_RAW"], ["CAP_CHOWN"])
    assert made["userns"] == {"nsmode": "keep-id", "value": "uid=1"}
    assert made["log_configuration"] == {"driver": "journald", "options": {"tag": "x"}}
    assert made["shm_size"] == 1 << 20


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "image must be set"),
        ({"image": "i", "privileged": True}, "allow_privileged"),
        ({"image": "i", "devices": ["/dev/kmsg"]}, "allow_privileged"),
        ({"image": "i", "userns": "host"}, "allow_privileged"),
        ({"image": "i", "cap_add": ["sys_admin"]}, "allow_caps"),
        ({"image": "i", "memory_swap": "much"}, "memory_swap must be a size"),
        ({"image": "i", "volumes": ["/a"]}, "volumes"),
        ({"image": "i", "image_pull_timeout": "soon"}, "image_pull_timeout"),
        ({"image": "i", "work_dir": "/"}, "podman has no option 'work_dir'"),
    ],
)
def test_problems_name_the_option(config: dict[str, Any], said: str) -> None:
    assert said in "; ".join(config_problems(config, PodmanSettings()))


def test_names_and_sizes() -> None:
    assert image_name("docker://redis:7") == "redis:7"
    assert (size_bytes("2k"), size_bytes("3"), size_bytes("-1"), size_bytes("1gb")) == (2048, 3, -1, 1 << 30)
    assert size_bytes("") is None
