from typing import Any

import pytest
from tests.cgroup_files import v1_files, v2_files

from lepa.drivers.oci_bundle import (
    DEFAULT_CAPABILITIES,
    Bind,
    Isolation,
    Limits,
    Process,
    bundle_config,
    capabilities_for,
    capability_problems,
    cpu_shares,
    process_config,
    task_limits,
)
from lepa.drivers.protocol import TaskConfig
from lepa.model.resources import AllocatedCpuResources, AllocatedMemoryResources, AllocatedTaskResources

PROCESS = Process(args=("/bin/sh", "-c", "true"), env={"K": "v"}, cwd="/", uid=65534, gid=65534, groups=(5,))


def bundle(isolation: Isolation | None = None, limits: Limits | None = None, binds: tuple[Bind, ...] = ()) -> Any:
    return bundle_config(PROCESS, "/root", binds, isolation or Isolation(), limits or Limits(), "/lepa/x")


def namespaces(config: Any) -> set[str]:
    return {each["type"] for each in config["linux"]["namespaces"]}


def test_a_process_is_unprivileged_and_can_gain_nothing() -> None:
    config = process_config(PROCESS, ("CAP_CHOWN",))
    assert config["user"] == {"uid": 65534, "gid": 65534, "additionalGids": [5]}
    assert config["noNewPrivileges"]
    assert config["env"] == ["K=v"]
    assert all(held == ["CAP_CHOWN"] for held in config["capabilities"].values())
    assert len(config["capabilities"]) == 5


def test_namespaces_are_private_unless_the_host_is_asked_for() -> None:
    assert namespaces(bundle()) == {"mount", "uts", "pid", "ipc"}
    assert namespaces(bundle(Isolation(pid_host=True, ipc_host=True))) == {"mount", "uts"}
    joined = bundle(Isolation(network="/run/netns/x"))["linux"]["namespaces"]
    assert {"type": "network", "path": "/run/netns/x"} in joined


def test_an_ipc_namespace_of_the_host_has_no_message_queue_mount() -> None:
    targets = [mount["destination"] for mount in bundle(Isolation(ipc_host=True))["mounts"]]
    assert "/dev/mqueue" not in targets


def test_binds_come_last_and_in_order() -> None:
    binds = (Bind("/usr", "/usr", read_only=True), Bind("/data", "/data", propagation="rslave"))
    mounts = bundle(binds=binds)["mounts"][-2:]
    assert mounts[0]["options"] == ["rbind", "nosuid", "nodev", "ro", "rprivate"]
    assert mounts[1]["options"] == ["rbind", "nosuid", "nodev", "rw", "rslave"]


def test_limits_become_resources() -> None:
    resources = bundle(limits=Limits(1000, 500, 250, "0,1", 7))["linux"]["resources"]
    assert resources["memory"] == {"limit": 1000, "swap": 1000, "reservation": 500}
    unlimited = bundle(limits=Limits(memory_low_bytes=500))["linux"]["resources"]
    assert unlimited["memory"] == {"reservation": 500}
    assert resources["cpu"] == {"shares": 250, "cpus": "0,1"}
    assert resources["pids"] == {"limit": 7}
    assert resources["devices"][0] == {"allow": False, "access": "rwm"}
    assert "memory" not in bundle(limits=Limits())["linux"]["resources"]


MIB = 1024 * 1024
HARD = {"cpu_hard_limit": True}


@pytest.mark.parametrize(
    ("cpu", "memory", "config", "v1", "v2"),
    [
        pytest.param(
            {"cpu_shares": 500},
            {"memory_mb": 64},
            {},
            {
                "cpu.shares": "500",
                "memory.limit_in_bytes": str(64 * MIB),
                "memory.memsw.limit_in_bytes": str(64 * MIB),
                "cpuset.cpus": "2,3",
                "pids.max": "100",
            },
            {
                "cpu.weight": "19",
                "memory.max": str(64 * MIB),
                "memory.swap.max": "0",
                "cpuset.cpus": "2,3",
                "pids.max": "100",
            },
            id="the least",
        ),
        pytest.param(
            {"cpu_shares": 1_000},
            {"memory_mb": 64, "memory_max_mb": 256},
            HARD | {"pids_limit": 10},
            {
                "cpu.shares": "1000",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "50000",
                "memory.limit_in_bytes": str(256 * MIB),
                "memory.memsw.limit_in_bytes": str(256 * MIB),
                "memory.soft_limit_in_bytes": str(64 * MIB),
                "cpuset.cpus": "2,3",
                "pids.max": "10",
            },
            {
                "cpu.weight": "39",
                "cpu.max": "50000 100000",
                "memory.max": str(256 * MIB),
                "memory.swap.max": "0",
                "memory.low": str(64 * MIB),
                "cpuset.cpus": "2,3",
                "pids.max": "10",
            },
            id="everything",
        ),
        pytest.param(
            {"cpu_shares": 1},
            {"memory_mb": 64, "memory_max_mb": 32},
            HARD | {"pids_limit": 10_000},
            {
                "cpu.shares": "2",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "1000",
                "memory.limit_in_bytes": str(64 * MIB),
                "memory.memsw.limit_in_bytes": str(64 * MIB),
                "cpuset.cpus": "2,3",
                "pids.max": "100",
            },
            {
                "cpu.weight": "1",
                "cpu.max": "1000 100000",
                "memory.max": str(64 * MIB),
                "memory.swap.max": "0",
                "cpuset.cpus": "2,3",
                "pids.max": "100",
            },
            id="at the limits",
        ),
        pytest.param(
            {"cpu_shares": 10**9},
            {},
            {},
            {"cpu.shares": "262144", "cpuset.cpus": "2,3", "pids.max": "100"},
            {"cpu.weight": "10000", "cpuset.cpus": "2,3", "pids.max": "100"},
            id="no memory, all CPU",
        ),
    ],
)
def test_limits_of_a_job_are_these_files_in_either_hierarchy(
    cpu: Any, memory: Any, config: Any, v1: dict[str, str], v2: dict[str, str]
) -> None:
    """As the runtimes convert: crun(1) for v2, the runtime-spec for v1."""
    asked = AllocatedTaskResources(cpu=AllocatedCpuResources(**cpu), memory=AllocatedMemoryResources(**memory))
    task = TaskConfig(id="t", alloc_id="a", config=config, resources=asked)
    resources = bundle(limits=task_limits(task, 100, 2_000.0, "2,3"))["linux"]["resources"]
    assert v1_files(resources) == v1
    assert v2_files(resources) == v2


def test_shares_stay_within_what_the_kernel_takes() -> None:
    assert [cpu_shares(mhz) for mhz in (0, 1, 500, 10**9)] == [2, 2, 500, 262_144]


def test_dangerous_calls_are_refused_unless_the_filter_is_off() -> None:
    refused = bundle()["linux"]["seccomp"]["syscalls"][0]["names"]
    assert {"mount", "bpf", "init_module", "unshare", "ptrace"} <= set(refused)
    assert "seccomp" not in bundle(Isolation(seccomp=False))["linux"]


@pytest.mark.parametrize(
    ("uid", "add", "drop", "held"),
    [
        (65534, (), (), {"CAP_NET_BIND_SERVICE"}),
        (65534, ("chown",), ("net_bind_service",), {"CAP_CHOWN"}),
        (0, (), (), set(DEFAULT_CAPABILITIES)),
        (0, (), ("all",), set()),
        (0, ("CAP_KILL",), ("ALL",), {"CAP_KILL"}),
        (65534, ("all",), ("kill",), set(DEFAULT_CAPABILITIES) - {"CAP_KILL"}),
    ],
)
def test_capabilities_follow_user_job_and_operator(
    uid: int, add: tuple[str, ...], drop: tuple[str, ...], held: set[str]
) -> None:
    assert set(capabilities_for(uid, add, drop, DEFAULT_CAPABILITIES)) == held


def test_a_capability_that_is_not_allowed_is_named() -> None:
    assert capability_problems(("net_raw", "chown", "all"), ("CHOWN",)) == [
        "cap_add: net_raw is not among the capabilities allowed on this node (allow_caps)"
    ]
    assert capabilities_for(0, (), (), ("chown",)) == ("CAP_CHOWN",)
