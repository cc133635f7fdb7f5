"""`lepa operator snapshot replay`: an evaluation once more, on a saved state."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_group, make_job, make_node, make_task, uuid_of
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent
from tests.world import World

from lepa.state import keys
from lepa.state.commands.evaluations import end_evaluation
from lepa.store import archive
from lepa.store.protocol import Entry, Image


def saved(world: World, path: Path) -> Path:
    """The world's state as `lepa operator snapshot save` writes it."""
    entries = []
    for job in world.snapshot.jobs():
        entries.append((keys.job_key(job.namespace, job.id), job))
        entries.append((keys.job_version_key(job.namespace, job.id, job.version), job))
    entries += [(keys.node_key(node.id), node) for node in world.snapshot.nodes()]
    entries += [(keys.eval_key(each.id), each) for each in world.snapshot.evaluations()]
    made = [
        Entry(key, keys.put(key, value).value, value.create_index, value.modify_index)  # type: ignore[attr-defined]
        for key, value in sorted(entries, key=lambda pair: pair[0])
    ]
    path.write_bytes(b"".join(archive.write(Image(world.revision, made), world.now_ns, "c", "global", "1")))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    world = World()
    world.node(make_node("one", status="ready"))
    world.job(make_job("web", count=2))
    world.job(make_job("big", groups=(make_group(tasks=(make_task(cpu=99_999),)),)))
    for number, evaluation in enumerate(list(world.snapshot.evaluations())):
        world.do(end_evaluation, replace(evaluation, status="complete"))
        world.put_eval(replace(evaluation, id=uuid_of(number), status="blocked"))
    return saved(world, tmp_path / "state.snap")


def test_what_would_be_placed_is_told_and_why(agent: FakeAgent, file: Path, lepa: Run, golden: Any) -> None:
    golden("snapshot_replay", lepa("operator", "snapshot", "replay", str(file), uuid_of(0)[:6]).out)
    done = lepa("operator", "snapshot", "replay", str(file), uuid_of(1))
    assert "the group asks for 99999 MHz of CPU; 4000 of 4000 are free" in done.out
    assert 'Dimension "cpu" exhausted on 1 nodes' in done.out
    assert agent.requests == []


def test_the_same_comes_as_json_each_time(agent: FakeAgent, file: Path, lepa: Run) -> None:
    first = lepa("operator", "snapshot", "replay", "-json", str(file), uuid_of(0))
    told = json.loads(first.out)
    assert [each["NodeID"] for each in told["Plan"]["Placed"]] == ["one", "one"]
    assert told["Explanation"]["Groups"][0]["Nodes"][0]["Verdict"] == "chosen"
    assert lepa("operator", "snapshot", "replay", "-json", str(file), uuid_of(0)).out == first.out


def test_what_is_not_there_or_not_a_snapshot_is_said(agent: FakeAgent, file: Path, lepa: Run, tmp_path: Path) -> None:
    assert "holds no evaluation" in lepa("operator", "snapshot", "replay", str(file), "ffffffff").error
    assert "Prefix matched multiple" in lepa("operator", "snapshot", "replay", str(file), "").error
    other = tmp_path / "other"
    other.write_bytes(b"not a snapshot")
    assert str(other) in lepa("operator", "snapshot", "replay", str(other), "a").error
