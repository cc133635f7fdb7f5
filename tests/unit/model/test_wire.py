"""Keys, JSON and msgpack of wire types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_job

from lepa.model import wire
from lepa.model.allocation import Allocation, TaskState
from lepa.model.errors import LepaError
from lepa.model.job import Job
from lepa.model.resources import Port
from lepa.model.volume import CSIPlugin, CSIPluginListStub


def test_attributes_have_nomads_keys() -> None:
    assert wire.go_name("job_id") == "JobID"
    assert wire.go_name("memory_mb") == "MemoryMB"
    assert wire.go_name("device_ids") == "DeviceIDs"
    assert wire.go_name("task_groups") == "TaskGroups"


def test_keys_are_taken_in_any_case_and_nulls_as_absent() -> None:
    raw = '{"id": "x", "TASKGROUPS": [{"name": "g", "tasks": null, "Count": null}], "Constraints": null, "Unknown": 1}'
    job = wire.from_json(raw, Job)
    assert (job.id, job.task_groups[0].name, job.task_groups[0].count, job.constraints) == ("x", "g", 1, ())


def test_an_exact_key_wins_over_one_in_another_case() -> None:
    assert wire.from_json('{"ID": "right", "Name": "n"}', Job).id == "right"


def test_a_drivers_config_is_left_as_it_is() -> None:
    raw = {"ID": "x", "TaskGroups": [{"Tasks": [{"Config": {"Args": None, "b": [{"C": 1}]}}]}]}
    assert wire.from_builtins(raw, Job).task_groups[0].tasks[0].config == {"Args": None, "b": [{"C": 1}]}


def test_a_wrong_type_is_refused_with_its_place() -> None:
    with pytest.raises(LepaError, match=r"Expected `int`, got `str` - at `\$.TaskGroups\[0\].Count`"):
        wire.from_json('{"TaskGroups": [{"Count": "three"}]}', Job)


@pytest.mark.parametrize("raw", [b"", b"{", b"[1,", b"\xff\xfe"])
def test_what_is_not_json_is_refused_with_a_sentence(raw: bytes) -> None:
    with pytest.raises(LepaError, match="not valid JSON"):
        wire.from_json(raw, Job)


def test_empty_fields_are_left_out_where_nomad_leaves_them_out() -> None:
    assert wire.to_json(Allocation(id="a", client_status="running")) == b'{"ID":"a","ClientStatus":"running"}'
    assert wire.to_json(Port(label="http", value=80)) == b'{"Label":"http","Value":80}'
    assert b'"State":"pending"' in wire.to_json(TaskState())


@given(st.text(max_size=20), st.integers(min_value=0, max_value=1000))
def test_json_and_msgpack_read_back(name: str, count: int) -> None:
    job = make_job(name or "x", count=count)
    assert wire.from_msgpack(wire.to_msgpack(job), Job) == job
    assert wire.from_json(wire.to_json(job), Job) == job


def test_a_row_is_shortened_to_the_fields_of_its_list_form() -> None:
    plugin = CSIPlugin(id="ebs", provider="p", version="1", nodes_healthy=2, modify_index=7)
    assert wire.shortened(plugin, CSIPluginListStub) == CSIPluginListStub(
        id="ebs", provider="p", nodes_healthy=2, modify_index=7
    )
    assert wire.shortened(plugin, CSIPluginListStub, provider="mine").provider == "mine"
