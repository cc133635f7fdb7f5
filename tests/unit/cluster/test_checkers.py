"""Each checker of a cluster is silent when all is well, and tells each planted violation."""

from typing import Any

import pytest
from tests.cluster import checkers as c


def alloc(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "ID": f"alloc-{number}",
        "Name": f"web.main[{number}]",
        "JobID": "web",
        "TaskGroup": "main",
        "NodeID": "n1",
        "NodeName": "one",
        "DesiredStatus": "run",
        "ClientStatus": "running",
        "AllocatedResources": {
            "Tasks": {"main": {"Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 100}}},
            "Shared": {"Ports": [{"Label": "http", "Value": 20_000 + number}]},
        },
        "TaskStates": {"main": {"Restarts": 0}},
        **fields,
    }


JOB = {"ID": "web", "Type": "service", "Stop": False, "TaskGroups": [{"Name": "main", "Count": 2}]}
NODE = {"ID": "n1", "Name": "one", "NodeResources": {"Cpu": {"CpuShares": 200}, "Memory": {"MemoryMB": 200}}}
EVENT = {"Topic": "Job", "Key": "web", "Index": 5, "Type": "JobRegistered"}


@pytest.mark.parametrize(
    ("well", "wrong", "said"),
    [
        pytest.param(
            c.lost_writes(["a", "b"], ["b", "a", "c"]), c.lost_writes(["a", "b"], ["b"]), "a was ack", id="V1"
        ),
        pytest.param(
            c.indexes_went_back({"s1 /v1/jobs": [1, 1, 2], "s2 /v1/jobs": [1]}),
            c.indexes_went_back({"s1 /v1/jobs": [1, 3, 2]}),
            "index 2 after 3",
            id="V2-index",
        ),
        pytest.param(
            c.missed_changes([1, 2, 3], [1, 3]), c.missed_changes([1, 2, 3], [1, 2]), "3 was written", id="V2-last"
        ),
        pytest.param(c.missed_changes([], []), c.missed_changes([1, 2], [2, 1, 2]), "1 was read after 2", id="V2-back"),
        pytest.param(
            c.honoured_twice([("r", 1), ("r", 2), ("q", 1)], {"t": ["a", "a"]}),
            c.honoured_twice([("r", 1), ("r", 1)], {}),
            "honoured 2 times",
            id="V4-cas",
        ),
        pytest.param(c.honoured_twice([], {}), c.honoured_twice([], {"t": ["a", "b"]}), "token t made", id="V4-token"),
        pytest.param(
            c.wrong_counts([JOB], [alloc(0), alloc(1), alloc(1, ClientStatus="lost")]),
            c.wrong_counts([JOB], [alloc(0)]),
            "found ['web.main[0]']",
            id="V5-lost",
        ),
        pytest.param(
            c.wrong_counts([{**JOB, "Stop": True}], [alloc(0, DesiredStatus="stop")]),
            c.wrong_counts([JOB], [alloc(0), alloc(1), alloc(1)]),
            "web.main[1]', 'web.main[1]",
            id="V5-doubled",
        ),
        pytest.param(
            c.wrong_counts([], []),
            c.wrong_counts([{**JOB, "Stop": True}], [alloc(0)]),
            "it is stopped",
            id="V5-stopped",
        ),
        pytest.param(
            c.overused([NODE], [alloc(0), alloc(1), alloc(2, ClientStatus="complete")]),
            c.overused([NODE], [alloc(0), alloc(1), alloc(2)]),
            "300 MHz given of 200",
            id="V6-cpu",
        ),
        pytest.param(
            c.overused([NODE], []),
            c.overused(
                [{**NODE, "NodeResources": {"Cpu": {"CpuShares": 900}, "Memory": {"MemoryMB": 100}}}],
                [alloc(0), alloc(1)],
            ),
            "200 MiB given of 100",
            id="V6-memory",
        ),
        pytest.param(
            c.overused([NODE], [alloc(0), alloc(1)]),
            c.overused([NODE], [alloc(0), alloc(0, ID="other")]),
            "port 20000 given 2 times",
            id="V6-port",
        ),
        pytest.param(
            c.strays([alloc(0), alloc(1, ClientStatus="complete")], [("one", "alloc-0")]),
            c.strays([alloc(0)], []),
            "has no task on one",
            id="V7-missing",
        ),
        pytest.param(
            c.strays([], []),
            c.strays([alloc(0)], [("one", "alloc-0"), ("two", "alloc-0")]),
            "runs on two",
            id="V7-double",
        ),
        pytest.param(
            c.ran_again({"a": ["pending", "running", "complete"], "b": ["running", "unknown", "running"]}),
            c.ran_again({"a": ["running", "complete", "running"]}),
            "was complete and then running",
            id="V8-again",
        ),
        pytest.param(
            c.too_many_restarts([alloc(0)], 0),
            c.too_many_restarts([alloc(0, TaskStates={"main": {"Restarts": 3}})], 2),
            "restarted 3 times of 2",
            id="V8-restarts",
        ),
        pytest.param(
            c.wrong_stream([EVENT, {**EVENT, "Index": 6}], {("Job", "web"): 6}),
            c.wrong_stream([EVENT, EVENT], {("Job", "web"): 5}),
            "came 2 times",
            id="V9-twice",
        ),
        pytest.param(
            c.wrong_stream([], {}),
            c.wrong_stream([{**EVENT, "Index": 6}, EVENT], {}),
            "index 5 after 6",
            id="V9-order",
        ),
        pytest.param(
            c.wrong_stream([EVENT], {("Job", "web"): 5}),
            c.wrong_stream([EVENT], {("Job", "web"): 6}),
            "its last event was 5",
            id="V9-missed",
        ),
        pytest.param(
            c.leaked_secrets(["swordfish"], [("log", b"wrote load"), ("disk", b"sword")]),
            c.leaked_secrets(["other", "swordfish"], [("log", b"wrote swordfish")]),
            "log shows the secret swordfish",
            id="V10",
        ),
        pytest.param(
            c.leaks({"s1": {"threads": 4, "mounts": 1}}, {"s1": {"threads": 6, "mounts": 1}, "s2": {}}, {"threads": 2}),
            c.leaks({"s1": {"threads": 4, "mounts": 1}}, {"s1": {"threads": 7, "mounts": 1}}, {"threads": 2}),
            "s1: 7 threads, 4 before",
            id="V11-grown",
        ),
        pytest.param(
            c.leaks({"s1": {"mounts": 1}}, {"s1": {"mounts": 0}}, {}),
            c.leaks({"s1": {}}, {"s1": {"network namespaces": 1}}, {}),
            "1 network namespaces, 0 before",
            id="V11-new",
        ),
        pytest.param(
            c.different_states({"s1": {"jobs": [JOB, {"ID": "b"}]}, "s2": {"jobs": [{"ID": "b"}, JOB]}}),
            c.different_states({"s1": {"jobs": [{"ID": "b"}]}, "s2": {"jobs": [{"ID": "c"}]}}),
            'jobs: only s2 has {"ID": "c"}',
            id="V12",
        ),
    ],
)
def test_a_violation_is_told_and_only_a_violation(well: list[str], wrong: list[str], said: str) -> None:
    assert well == []
    assert said in "; ".join(wrong)


def test_a_state_has_the_same_hash_whatever_the_order_of_its_lists() -> None:
    jobs = [{"ID": "a", "Index": 1}, {"ID": "b", "Index": 2}]
    assert c.state_hash({"jobs": jobs}) == c.state_hash({"jobs": jobs[::-1]})
    assert c.state_hash({"jobs": jobs}) != c.state_hash({"jobs": jobs[:1]})
    assert c.state_hash({"jobs": jobs}) != c.state_hash({"jobs": [{"ID": "a", "Index": 1}, {"ID": "b", "Index": 3}]})
