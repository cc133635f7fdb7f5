"""Figures of a node and of its allocations under Nomad's names."""

from msgspec.structs import replace
from tests.builders import make_alloc, make_node, make_task_state

from lepa.client.figures import Placed, allocation_figures, happenings, node_figures
from lepa.model.allocation import DesiredTransition, TaskEvent
from lepa.model.stats import (
    AllocResourceUsage,
    DiskStats,
    HostCPUStats,
    HostMemoryStats,
    HostStats,
    MemoryStats,
    ResourceUsage,
    TaskCPUStats,
    TaskResourceUsage,
)

NODE = make_node("n1", cpu=1_000, memory_mb=1_000)


def test_a_node_tells_what_is_given_away_and_what_is_left() -> None:
    moving = make_alloc("m", desired_transition=DesiredTransition(migrate=True))
    placed = [Placed(make_alloc("a"), "running"), Placed(make_alloc("b"), "complete"), Placed(moving, "running")]
    found = {name: value for name, value, _ in node_figures(NODE, placed, None)}
    assert found["nomad.client.allocations.running"] == 2
    assert found["nomad.client.allocations.terminal"] == 1
    assert found["nomad.client.allocations.migrating"] == 1
    assert (found["nomad.client.allocated.cpu"], found["nomad.client.unallocated.cpu"]) == (200, 800)
    assert found["nomad.client.allocated.memory"] == 256
    assert not any(name.startswith("nomad.client.host") for name in found)
    (_, _, labels) = next(iter(node_figures(NODE, (), None)))
    assert (labels["node_id"], labels["datacenter"], labels["node_class"]) == ("n1", "dc1", "none")


def test_the_hosts_use_is_told_when_it_was_measured() -> None:
    stats = HostStats(
        memory=HostMemoryStats(total=4, available=3, used=1, free=2),
        cpu=(HostCPUStats(cpu="cpu0", user=5.0, idle=90.0, total_percent=10.0),),
        disk_stats=(DiskStats(device="/dev/x", size=10, used=4, used_percent=40.0),),
        uptime=7,
    )
    found = {
        (name, labels.get("cpu") or labels.get("disk")): value for name, value, labels in node_figures(NODE, (), stats)
    }
    assert found["nomad.client.host.memory.used", None] == 1
    assert found["nomad.client.host.cpu.idle", "cpu0"] == 90.0
    assert found["nomad.client.host.disk.used_percent", "/dev/x"] == 40.0
    assert found["nomad.client.uptime", None] == 7


def test_tasks_tell_what_they_have_and_use() -> None:
    use = ResourceUsage(memory_stats=MemoryStats(rss=5, usage=9), cpu_stats=TaskCPUStats(percent=2.5, total_ticks=25.0))
    usage = AllocResourceUsage(tasks={"web": TaskResourceUsage(resource_usage=use)})
    rows = list(allocation_figures(NODE, make_alloc("a"), usage))
    found = {name: value for name, value, _ in rows}
    assert found["nomad.client.allocs.cpu.allocated"] == 100
    assert found["nomad.client.allocs.cpu.total_ticks"] == 25.0
    assert found["nomad.client.allocs.memory.allocated"] == 128 * 1024 * 1024
    assert (found["nomad.client.allocs.memory.rss"], found["nomad.client.allocs.memory.usage"]) == (5, 9)
    labels = rows[0][2]
    assert (labels["alloc_id"], labels["task"], labels["task_group"], labels["exported_job"]) == (
        "a",
        "web",
        "web",
        "web",
    )


def test_reports_move_counters_once() -> None:
    def moved(before, after):  # type: ignore[no-untyped-def]
        return [name.rpartition(".")[2] for name, _ in happenings(NODE, before, after)]

    waiting = make_alloc("a", task_states={"web": make_task_state(state="pending")})
    running = replace(waiting, task_states={"web": make_task_state()})
    assert moved(None, waiting) == ["start"]
    assert moved(waiting, running) == ["running"]
    assert moved(running, running) == []
    again = replace(running, task_states={"web": make_task_state(restarts=2)})
    assert moved(running, again) == ["restart", "restart"]
    killed = TaskEvent(type="Terminated", time=5, details={"oom_killed": "true"})
    failed = replace(running, task_states={"web": make_task_state(state="dead", failed=True, events=(killed,))})
    assert moved(running, failed) == ["failed", "oom_killed"]
    done = replace(running, task_states={"web": make_task_state(state="dead")})
    assert moved(running, done) == ["complete"]
