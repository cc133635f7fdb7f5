"""What must hold in a snapshot, always or at rest. Each function answers with what is wrong.

The numbers are those of the list of invariants in docs/explanation/server.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from lepa.model.allocation import Allocation
from lepa.state.reducer import RowChange
from lepa.state.snapshot import Snapshot

LIVE = ("pending", "running", "unknown")
ENDED = ("complete", "failed")


def lives(alloc: Allocation) -> bool:
    """Whether an allocation takes room."""
    return alloc.client_status in LIVE and (alloc.desired_status == "run" or alloc.client_status == "running")


def wrong_change(change: RowChange) -> list[str]:
    """V8: what has ended does not begin again; versions of a job never fall."""
    before, after = change.before, change.after
    if before is None or after is None:
        return []
    if change.table == "allocs" and before.client_status in ENDED and after.client_status not in ENDED:
        return [f"V8: allocation {after.id} was {before.client_status} and then {after.client_status}"]
    if change.table == "jobs" and after.version < before.version:
        return [f"V8: job {after.id} was at version {before.version} and then at {after.version}"]
    return []


def wrong_read(before: tuple[int, int], after: tuple[int, int]) -> list[str]:
    """V2: what one caller reads one after the other never goes back. before, after: index and number of an answer."""
    (index, number), (next_index, next_number) = before, after
    found = [f"V2: index {next_index} was read after {index}"] if next_index < index else []
    return found + ([f"V2: number {next_number} was read after {number}"] if next_number < number else [])


def missed(written: int, read: int) -> list[str]:
    """V2, at rest: who follows with blocking reads has the last number. written: what was acknowledged last."""
    return [f"V2: {written} was written, and who follows last read {read}"] if read < written else []


def overused(snapshot: Snapshot, node_ids: Iterable[str]) -> list[str]:
    """V6: no node gives more CPU or memory than it has, and no port twice."""
    found: list[str] = []
    for node_id in node_ids:
        node = snapshot.node(node_id)
        if node is None or node.node_resources is None:
            continue
        cpu = memory = 0
        ports: Counter[int] = Counter()
        for alloc in snapshot.node_allocations(node_id):
            if alloc.client_status not in LIVE or alloc.allocated_resources is None:
                continue
            # What is being stopped gives its room away at once, but nobody else's socket fits on its ports.
            for task in alloc.allocated_resources.tasks.values() if alloc.desired_status == "run" else ():
                cpu += task.cpu.cpu_shares
                memory += task.memory.memory_mb
            ports.update(port.value for port in alloc.allocated_resources.shared.ports)
        if cpu > node.node_resources.cpu.cpu_shares or memory > node.node_resources.memory.memory_mb:
            found.append(f"V6: node {node_id} gives {cpu} MHz and {memory} MiB")
        found += [f"V6: node {node_id} gives port {port} {times} times" for port, times in ports.items() if times > 1]
    return found


def wrong_counts(snapshot: Snapshot) -> list[str]:
    """V5, at rest: live allocations of each group of a service are as many as it says, named [0..n) once each.

    All are of the newest version, unless its deployment has failed.
    """
    found: list[str] = []
    for job in snapshot.jobs():
        live = [alloc for alloc in snapshot.job_allocations(job.namespace, job.id) if lives(alloc)]
        if job.stop:
            found += [f"V5: {job.id} is stopped and {alloc.name} lives" for alloc in live]
        elif job.type == "service":
            for group in job.task_groups:
                names = sorted(alloc.name for alloc in live if alloc.task_group == group.name)
                wanted = sorted(f"{job.id}.{group.name}[{number}]" for number in range(group.count))
                if names != wanted:
                    found.append(f"V5: {job.id} wants {wanted}, has {names}")
                rolled = snapshot.latest_deployment(job.namespace, job.id)
                old = [alloc.name for alloc in live if alloc.job_version != job.version]
                if old and rolled is not None and rolled.status == "successful":
                    found.append(f"V5: {job.id} is at version {job.version}, and {sorted(old)} are older")
    return found


def unfinished(snapshot: Snapshot) -> list[str]:
    """At rest no evaluation is pending, and no allocation lives on a node that is down."""
    found = [
        f"evaluation {one.id} of {one.job_id} is still pending"
        for one in snapshot.evaluations()
        if one.status == "pending" and not one.wait_until and not one.wait
    ]
    for node in snapshot.nodes():
        if node.status == "down":
            found += [
                f"{alloc.name} {alloc.id} lives on {node.id}, which is down"
                for alloc in snapshot.node_allocations(node.id)
                if lives(alloc)
            ]
    return found


def strays(snapshot: Snapshot, running: Mapping[str, Iterable[str]]) -> list[str]:
    """V7, at rest: a node runs what the state says that it runs. running: allocation ids by node."""
    found: list[str] = []
    for node_id, ids in running.items():
        wanted = {alloc.id for alloc in snapshot.node_allocations(node_id) if lives(alloc)}
        found += [f"V7: {one} should run on {node_id}" for one in sorted(wanted - set(ids))]
        found += [f"V7: {one} runs on {node_id} and should not" for one in sorted(set(ids) - wanted)]
    return found


def lost(snapshot: Snapshot, registered: Mapping[str, int], children: Mapping[str, str]) -> list[str]:
    """V1, V4: acknowledged jobs and dispatches are there; a token has one child.

    registered: modify index of each acknowledged job. children: id of the child by token.
    """
    found: list[str] = []
    for job_id, index in registered.items():
        job = snapshot.job("default", job_id)
        if job is None or job.job_modify_index < index:
            found.append(f"V1: {job_id} was acknowledged at {index} and is at {job.job_modify_index if job else None}")
    tokens = Counter(job.dispatch_idempotency_token for job in snapshot.jobs() if job.dispatch_idempotency_token)
    found += [f"V4: token {token} made {times} children" for token, times in tokens.items() if times > 1]
    found += [
        f"V1: child {child} was acknowledged and is not there"
        for child in children.values()
        if snapshot.job("default", child) is None
    ]
    return found


def not_ready(snapshot: Snapshot, alive: Iterable[str]) -> list[str]:
    """At rest every node that lives is ready."""
    nodes = {node_id: snapshot.node(node_id) for node_id in alive}
    return [f"{node_id} lives and is {node.status if node else 'unknown'}" for node_id, node in nodes.items()
            if node is None or node.status != "ready"]  # fmt: skip


def gone(snapshot: Snapshot, alive: Iterable[str]) -> list[str]:
    """At rest a node that is gone for good is down."""
    there = set(alive)
    return [f"{node.id} is gone and is {node.status}" for node in snapshot.nodes()
            if node.id not in there and node.status != "down"]  # fmt: skip
