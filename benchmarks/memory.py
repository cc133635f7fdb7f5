"""What does a snapshot of 100,000 allocations take: memory, and time to read it when a server starts?

1,000 jobs on 1,000 nodes, an evaluation a batch, each allocation with a port, five scored nodes, one task with three
events, health.

`memory.100k_allocs_mb`: growth of the resident set of a fresh process that reduces them, 128 a batch as plans arrive.
Expected <= 1,000 MB. Beside: the same allocations as stored (msgpack), in MB.
`state.load.100k_allocs_s`: from the entries of a store to a snapshot, without collections, as a server does. Expected
<= 4.5 s. Beside: decoding the same values and nothing else.
"""

import gc
import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import msgspec

from benchmarks.harness import Figure
from lepa.model.allocation import Allocation, AllocDeploymentStatus, TaskEvent, TaskState
from lepa.model.evaluation import AllocMetric, NodeScoreMeta
from lepa.model.resources import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedPortMapping,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    NetworkResource,
    Port,
)
from lepa.state import keys
from lepa.state.reducer import load, reduce
from lepa.state.snapshot import empty_snapshot
from lepa.store.protocol import Change, Entry, Put, Read

FIGURES = ("memory.100k_allocs_mb", "state.load.100k_allocs_s")
ALLOCATIONS = 100_000
BATCH = 128
EVENTS = (
    ("Received", "Task received by client"),
    ("Task Setup", "Building Task Directory"),
    ("Started", "Task started by client"),
)
SCORES = ("binpack", "job-anti-affinity", "node-affinity", "node-reschedule-penalty", "allocation-spread")


def run() -> list[Figure]:
    """Each measured in a process of its own."""
    grown, stored = _measured("memory")
    loaded, decoded = _measured("load")
    return [
        Figure(FIGURES[0], grown, "MB", stored, "as msgpack"),
        Figure(FIGURES[1], loaded, "s", decoded, "decoding alone"),
    ]


def _measured(what: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.memory", what]
    value, beside = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return value, beside


def measure_memory() -> tuple[float, float]:
    """Megabytes by which this process grows, and megabytes of what it decoded."""
    snapshot, stored = empty_snapshot(), 0
    before = _resident_mb()
    for revision, puts in _batches():
        snapshot = reduce(snapshot, [Change(put.key, put.value, revision, revision) for put in puts]).snapshot
        stored += sum(len(put.value) for put in puts)
    assert len(snapshot.tables["allocs"]) == ALLOCATIONS
    return _resident_mb() - before, stored / 1e6


def measure_load() -> tuple[float, float]:
    """Seconds of a load, and of decoding alone."""
    entries = sorted(Entry(put.key, put.value, revision, revision) for revision, puts in _batches() for put in puts)
    decoder = msgspec.msgpack.Decoder(Allocation)
    gc.freeze()
    gc.disable()
    started = time.perf_counter()
    snapshot = load(Read(entries[-1].modified, entries))
    loaded = time.perf_counter()
    decoded = [decoder.decode(entry.value) for entry in entries]
    ended = time.perf_counter()
    assert len(snapshot.tables["allocs"]) == len(decoded) == ALLOCATIONS
    return loaded - started, ended - loaded


def _batches() -> Iterator[tuple[int, list[Put]]]:
    """Revisions and what they write."""
    chance = random.Random(1)
    nodes = _node_ids(chance)
    for start in range(0, ALLOCATIONS, BATCH):
        evaluation = _uuid(chance)
        numbers = range(start, min(start + BATCH, ALLOCATIONS))
        rows = [_allocation(number, evaluation, nodes, chance) for number in numbers]
        yield start // BATCH + 1, [keys.put(keys.alloc_key(row.id), row) for row in rows]


def _node_ids(chance: random.Random) -> list[str]:
    return [_uuid(chance) for _ in range(1_000)]


def _allocation(number: int, evaluation: str, nodes: list[str], chance: random.Random) -> Allocation:
    job, node, port = f"job-{number % 1_000}", chance.choice(nodes), 20_000 + number % 10_000
    events = tuple(
        TaskEvent(type=kind, time=1_770_000_000_000_000_000 + number, display_message=text, details={"message": text})
        for kind, text in EVENTS
    )
    scored = tuple(
        NodeScoreMeta(
            node_id=chance.choice(nodes),
            scores=dict.fromkeys(SCORES, 0.0) | {"binpack": chance.random()},
            norm_score=chance.random(),
        )
        for _ in range(5)
    )
    return Allocation(
        id=_uuid(chance),
        namespace="default",
        eval_id=evaluation,
        name=f"{job}.web[{number // 1_000}]",
        node_id=node,
        node_name=f"node-{node[:8]}",
        job_id=job,
        task_group="web",
        allocated_resources=AllocatedResources(
            tasks={
                "web": AllocatedTaskResources(
                    cpu=AllocatedCpuResources(cpu_shares=100), memory=AllocatedMemoryResources(memory_mb=128)
                )
            },
            task_lifecycles={"web": None},
            shared=AllocatedSharedResources(
                disk_mb=300,
                networks=(
                    NetworkResource(mode="host", ip="10.0.0.1", dynamic_ports=(Port(label="http", value=port),)),
                ),
                ports=(AllocatedPortMapping(label="http", value=port, host_ip="10.0.0.1"),),
            ),
        ),
        metrics=AllocMetric(
            nodes_evaluated=1_000,
            nodes_in_pool=1_000,
            node_pool="default",
            nodes_available={"dc1": 1_000},
            score_meta_data=scored,
        ),
        desired_status="run",
        client_status="running",
        client_description="Tasks are running",
        task_states={"web": TaskState(state="running", started_at="2026-02-02T02:40:00.123456789Z", events=events)},
        deployment_id=evaluation,
        deployment_status=AllocDeploymentStatus(healthy=True, timestamp="2026-02-02T02:40:10.123456789Z"),
        create_time=1_770_000_000_000_000_000 + number,
        modify_time=1_770_000_000_000_000_000 + number,
    )


def _uuid(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _resident_mb() -> float:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1_024 / 1e6


if __name__ == "__main__":
    json.dump(measure_load() if sys.argv[1] == "load" else measure_memory(), sys.stdout)
