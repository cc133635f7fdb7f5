"""What must never happen, as functions over what the API and the machines tell. Each answers with what is wrong.

The numbers are those of the list of invariants in docs/explanation/server.md. Nothing here asks anything: a scenario
collects (tests.cluster.load, tests.cluster.region) and these judge, so that each of them is tried on planted violations
in tests/unit/cluster.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

LIVE = ("pending", "running")
TERMINAL = ("complete", "failed", "lost")

Json = Mapping[str, Any]


def lost_writes(acknowledged: Iterable[str], found: Iterable[str]) -> list[str]:
    """V1: what was acknowledged is there."""
    return [f"{one} was acknowledged and is not there" for one in sorted(set(acknowledged) - set(found))]


def indexes_went_back(seen: Mapping[str, Sequence[int]]) -> list[str]:
    """V2: X-Nomad-Index never falls. seen: the indexes of a path's answers in order, by connection and path."""
    return [
        f"{name}: index {after} after {before}"
        for name, indexes in seen.items()
        for before, after in itertools.pairwise(indexes)
        if after < before
    ]


def missed_changes(written: Sequence[int], seen: Sequence[int]) -> list[str]:
    """V2: who follows with blocking reads sees every number that a writer counts up to, or a later one, in order.

    written: numbers acknowledged to the one writer, in order. seen: numbers that the follower read.
    """
    found = [f"number {after} was read after {before}" for before, after in itertools.pairwise(seen) if after < before]
    if written and (not seen or seen[-1] < written[-1]):
        found.append(f"number {written[-1]} was written, and the last that was read is {seen[-1] if seen else 'none'}")
    return found


def honoured_twice(successes: Iterable[tuple[str, int]], children: Mapping[str, Iterable[str]]) -> list[str]:
    """V4: a check-and-set index is honoured once for each key, and a dispatch token makes one child.

    successes: (key, index that was compared). children: ids of dispatched jobs by token.
    """
    times = Counter(successes)
    found = [f"{key}: index {index} was honoured {count} times" for (key, index), count in times.items() if count > 1]
    return found + [f"token {token} made {sorted(set(ids))}" for token, ids in children.items() if len(set(ids)) > 1]


def wrong_counts(jobs: Iterable[Json], allocations: Iterable[Json]) -> list[str]:
    """V5: live allocations of each group of a service are as many as it says, named [0..n) once each."""
    live: dict[tuple[str, str], list[str]] = {}
    for alloc in allocations:
        if alloc["DesiredStatus"] == "run" and alloc["ClientStatus"] in LIVE:
            live.setdefault((alloc["JobID"], alloc["TaskGroup"]), []).append(alloc["Name"])
    wanted = {
        (job["ID"], group["Name"]): [f"{job['ID']}.{group['Name']}[{number}]" for number in range(group["Count"])]
        for job in jobs
        if job["Type"] == "service" and not job["Stop"]
        for group in job["TaskGroups"]
    }
    found = [
        f"{job_id}: wanted {sorted(names)}, found {sorted(live.get((job_id, group), []))}"
        for (job_id, group), names in wanted.items()
        if sorted(names) != sorted(live.get((job_id, group), []))
    ]
    ended = {job["ID"] for job in jobs if job["Stop"]}
    return found + [
        f"{job_id}: it is stopped and {names} live" for (job_id, _), names in live.items() if job_id in ended
    ]


def overused(nodes: Iterable[Json], allocations: Iterable[Json]) -> list[str]:
    """V6: no node gives more CPU or memory than it has, and no port twice."""
    used: dict[str, list[Json]] = {}
    for alloc in allocations:
        if alloc["DesiredStatus"] == "run" and alloc["ClientStatus"] in LIVE:
            used.setdefault(alloc["NodeID"], []).append(alloc["AllocatedResources"] or {})
    found: list[str] = []
    for node in nodes:
        given = used.get(node["ID"], [])
        tasks = [task for one in given for task in (one.get("Tasks") or {}).values()]
        cpu = sum(task["Cpu"]["CpuShares"] for task in tasks)
        memory = sum(task["Memory"]["MemoryMB"] for task in tasks)
        has = node["NodeResources"]
        if cpu > has["Cpu"]["CpuShares"]:
            found.append(f"{node['Name']}: {cpu} MHz given of {has['Cpu']['CpuShares']}")
        if memory > has["Memory"]["MemoryMB"]:
            found.append(f"{node['Name']}: {memory} MiB given of {has['Memory']['MemoryMB']}")
        ports = Counter(port["Value"] for one in given for port in (one.get("Shared") or {}).get("Ports") or ())
        found += [f"{node['Name']}: port {port} given {times} times" for port, times in ports.items() if times > 1]
    return found


def strays(allocations: Iterable[Json], tasks: Iterable[tuple[str, str]]) -> list[str]:
    """V7: a task runs exactly where an allocation says that it does. tasks: (node name, allocation id) as machines
    show them."""
    runs = set(tasks)
    known = {
        alloc["ID"]: f"{alloc['Name']}: {alloc['DesiredStatus']}, {alloc['ClientStatus']} on {alloc['NodeName']}"
        for alloc in allocations
    }
    wanted = {
        (alloc["NodeName"], alloc["ID"])
        for alloc in allocations
        if alloc["DesiredStatus"] == "run" and alloc["ClientStatus"] == "running"
    }
    found = [f"allocation {alloc_id} has no task on {node}" for node, alloc_id in sorted(wanted - runs)]
    return found + [
        f"a task of allocation {alloc_id} ({known.get(alloc_id, 'forgotten')}) runs on {node}"
        for node, alloc_id in sorted(runs - wanted)
    ]


def ran_again(history: Mapping[str, Sequence[str]]) -> list[str]:
    """V8: what has ended does not begin again. history: client statuses of an allocation as they were seen."""
    return [
        f"allocation {alloc_id} was {before} and then {after}"
        for alloc_id, statuses in history.items()
        for before, after in itertools.pairwise(statuses)
        if before in ("complete", "failed") and after in LIVE
    ]


def too_many_restarts(allocations: Iterable[Json], attempts: int) -> list[str]:
    """V8: no task was restarted more often than its policy says."""
    return [
        f"task {task} of {alloc['ID']} was restarted {state['Restarts']} times of {attempts}"
        for alloc in allocations
        for task, state in (alloc["TaskStates"] or {}).items()
        if state["Restarts"] > attempts
    ]


def wrong_stream(events: Sequence[Json], present: Mapping[tuple[str, str], int]) -> list[str]:
    """V9: every change comes once, in index order for each topic, and the last of each object is its present state.

    events: {"Topic", "Key", "Index", "Type"} as they came. present: modify index of each object by topic and key.
    """
    found: list[str] = []
    last: dict[str, int] = {}
    for event in events:
        topic, index = event["Topic"], event["Index"]
        if index < last.get(topic, 0):
            found.append(f"{topic} {event['Key']}: index {index} after {last[topic]}")
        last[topic] = index
    times = Counter((event["Topic"], event["Key"], event["Index"], event["Type"]) for event in events)
    found += [
        f"{topic} {key} at {index}: {kind} came {n} times" for (topic, key, index, kind), n in times.items() if n > 1
    ]
    newest = {(event["Topic"], event["Key"]): event["Index"] for event in events}
    found += [
        f"{topic} {key} is at {index}, and its last event was {newest.get((topic, key), 'none')}"
        for (topic, key), index in present.items()
        if newest.get((topic, key), -1) < index
    ]
    return found


def leaked_secrets(secrets: Iterable[str], places: Iterable[tuple[str, bytes]]) -> list[str]:
    """V10: a secret is found nowhere but in its place. places: what can be read elsewhere, by a name for people."""
    marks = [(secret, secret.encode()) for secret in secrets]
    return [f"{place} shows the secret {secret}" for place, text in places for secret, mark in marks if mark in text]


def leaks(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]], spare: Mapping[str, int]
) -> list[str]:
    """V11: what an agent holds at rest is what it held at rest before.

    before, after: counts by kind, by whose they are. spare: by how much a kind may grow, as pools of threads and of
    connections do; a kind that is not named may not grow.
    """
    return [
        f"{name}: {count} {kind}, {before[name].get(kind, 0)} before"
        for name, counts in after.items()
        if name in before
        for kind, count in counts.items()
        if count > before[name].get(kind, 0) + spare.get(kind, 0)
    ]


def different_states(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """V12: at rest all servers, and a server before and after its restart, have the same state.

    states: lists by table, by the name of whose they are.
    """
    if len({state_hash(state) for state in states.values()}) < 2:
        return []
    found = []
    (first, one), *others = states.items()
    for name, other in others:
        for table in one:
            mine, theirs = ({json.dumps(row, sort_keys=True) for row in state[table]} for state in (one, other))
            found += [f"{table}: only {first} has {row}" for row in sorted(mine - theirs)[:2]]
            found += [f"{table}: only {name} has {row}" for row in sorted(theirs - mine)[:2]]
    return found


def state_hash(tables: Mapping[str, Any]) -> str:
    """A name for what a server's lists hold, whatever their order."""
    rows = {table: sorted(json.dumps(row, sort_keys=True) for row in listed) for table, listed in tables.items()}
    return sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
