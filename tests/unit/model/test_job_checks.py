"""What is wrong with a job and its groups."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_job
from tests.unit.model.raw_jobs import errors_of, made_job

from lepa.model.job import JobDependency
from lepa.model.job_checks import job_problems
from lepa.model.job_rules import validate
from lepa.model.policies import ParameterizedJobConfig


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"ID": ""}, "Missing job ID"),
        ({"ID": "a b"}, "Job ID contains a space"),
        ({"ID": "a\0"}, "Job ID contains a null character"),
        ({"Type": "srvice"}, 'Invalid job type: "srvice", must be one of service, batch, system, sysbatch'),
        ({"Type": "_core"}, "job type cannot be core"),
        ({"Priority": 101}, "job priority must be between [1, 100]"),
        ({"Priority": -1}, "job priority must be between [1, 100]"),
        ({"Datacenters": ["dc1", ""]}, "Job datacenter must be non-empty string"),
        ({"TaskGroups": []}, "Missing job task groups"),
        ({"Payload": "eA=="}, "job can't be submitted with a payload, only dispatched"),
        ({"Dispatched": True}, "job can't be submitted with 'Dispatched' set"),
        ({"Multiregion": {}}, "Multiregion: no regions; name each in a region block"),
        ({"Multiregion": {"Regions": [{"Name": ""}]}}, "Multiregion: a region without a name"),
        ({"Multiregion": {"Regions": [{"Name": "a"}, {"Name": "a"}]}}, 'Multiregion: region "a" is named twice'),
        (
            {"Multiregion": {"Regions": [{"Name": "a", "Count": -1}]}},
            'region "a": count is -1; it must not be negative',
        ),
        (
            {"Multiregion": {"Strategy": {"MaxParallel": -1}, "Regions": [{"Name": "a"}]}},
            "Multiregion: max_parallel is -1; it must not be negative",
        ),
        (
            {"Multiregion": {"Strategy": {"OnFailure": "panic"}, "Regions": [{"Name": "a"}]}},
            'Multiregion: on_failure is "panic"; it must be "", fail_all or fail_local',
        ),
    ],
)
def test_a_broken_job_is_refused(job: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors_of(job))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"Name": ""}, "Job task group 1 missing name"),
        ({"Count": -1}, "Task group api validation failed: Task group count can't be negative"),
        ({"Count": 50_001}, "total count was greater than configured job_max_count: 50001 > 50000"),
        ({"ShutdownDelay": -1}, "ShutdownDelay must be a positive value"),
        ({"Tasks": []}, "Missing tasks for task group api"),
        ({"EphemeralDisk": {"SizeMB": 100}}, "log storage (100 MB) must be less than requested disk capacity (100 MB)"),
        ({"EphemeralDisk": {"SizeMB": 5}}, "minimum DiskMB value is 10; got 5"),
        (
            {"Volumes": {"v": {"Type": "nfs"}}},
            "Task group volume validation for v failed: volume has unrecognized type",
        ),
        ({"Volumes": {"v": {"Type": "host"}}}, "volume has an empty source"),
        ({"Volumes": {"v": {"Type": "csi", "Source": "s"}}}, "CSI volumes must have an attachment mode"),
        ({"Volumes": {"v": {"Type": "host", "Source": "s", "MountOptions": {}}}}, "cannot have mount options"),
    ],
)
def test_a_broken_group_is_refused(group: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors_of(group=group))


def test_groups_and_tasks_have_names_of_their_own() -> None:
    job = made_job()
    group = job.task_groups[0]
    double = replace(group, tasks=group.tasks * 2)
    errors = validate(replace(job, task_groups=(double, group))).errors
    assert "Job task group 2 redefines 'api' from group 1" in errors
    assert "Task group api validation failed: Task 2 redefines 'server' from task 1" in errors


def test_some_things_of_a_stored_job_may_not_change() -> None:
    service, batch = made_job(), made_job({"Type": "batch"})
    periodic = made_job({"Type": "batch", "Periodic": {"Specs": ["@daily"]}})
    child = replace(batch, dispatched=True)
    assert 'cannot update job from type "batch" to "service"' in validate(service, existing=batch).errors
    assert "cannot update non-periodic job to being periodic" in validate(periodic, existing=batch).errors
    assert "cannot update periodic job to being non-periodic" in validate(batch, existing=periodic).errors
    assert "field 'Dispatched' is read-only" in validate(batch, existing=child).errors
    assert validate(service, existing=service).errors == ()


def test_what_is_odd_but_works_is_a_warning() -> None:
    network = {"Networks": [{"MBits": 10}]}
    job = made_job(
        {"Type": "service"},
        {"Update": {"MaxParallel": 2}, "MaxClientDisconnect": 5},
        Resources={"MemoryMaxMB": 600, **network},
    )
    problems = validate(job)
    assert problems.errors == ()
    assert len(problems.warnings) == 5
    assert problems.warning_text.startswith('5 warning(s):\n\n* Group "api" has warnings: Update max parallel count')
    assert not any("memory_max" in warning for warning in validate(job, memory_oversubscription=True).warnings)


def test_what_a_job_waits_for_is_checked() -> None:
    def problems(**fields: Any) -> list[str]:
        return list(job_problems(make_job(**fields), 100, 1000))

    assert problems(after=(JobDependency(job="etl"),)) == []
    assert "after 1 has no job: name the one to wait for" in problems(after=(JobDependency(),))
    assert "after 1: a job cannot wait for itself" in problems(after=(JobDependency(job="web"),))
    assert any("status is one of" in said for said in problems(after=(JobDependency(job="a", status="done"),)))
    assert any("at most 16" in said for said in problems(after=(JobDependency(job="a"),) * 17))
    assert any("service and batch" in said for said in problems(type="system", after=(JobDependency(job="a"),)))
    limits = ParameterizedJobConfig(max_running=-1)
    assert any("max_running" in said for said in problems(type="batch", parameterized_job=limits))
