"""What a job becomes when it is taken in, and what counts as a change."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.model.raw_jobs import made_job

from lepa.kit.durations import SECOND
from lepa.model.errors import LepaError
from lepa.model.job import JobVersionTag
from lepa.model.job_rules import canonicalise, implied_constraints, spec_changed, strip_server_fields, validate
from lepa.model.policies import ReschedulePolicy, RestartPolicy, UpdateStrategy
from lepa.model.wire import to_builtins


def test_the_smallest_job_gets_every_default() -> None:
    job = made_job()
    assert (job.name, job.type, job.priority, job.region, job.namespace) == ("web", "service", 50, "global", "default")
    assert (job.datacenters, job.node_pool) == (("*",), "default")
    group = job.task_groups[0]
    assert group.count == 1
    assert group.restart_policy == RestartPolicy()
    assert group.reschedule_policy == ReschedulePolicy()
    assert group.update == UpdateStrategy()
    assert group.migrate is not None
    assert group.ephemeral_disk.size_mb == 300
    task = group.tasks[0]
    assert (task.resources.cpu, task.resources.memory_mb, task.kill_timeout) == (100, 300, 5 * SECOND)
    assert task.restart_policy == group.restart_policy
    assert task.identity is not None
    assert (task.identity.name, task.identity.audience) == ("default", ("nomadproject.io",))
    assert validate(job) == ((), ())


def test_keys_may_be_in_any_case_and_null_means_absent() -> None:
    job = canonicalise({"id": "a", "NAME": None, "taskgroups": [{"NAME": "g", "count": None, "tasks": None}]})
    assert (job.id, job.name, job.task_groups[0].name, job.task_groups[0].count) == ("a", "a", "g", 1)


@pytest.mark.parametrize("job_type", ["service", "batch", "system", "sysbatch"])
def test_a_job_read_back_and_submitted_again_is_unchanged(job_type: str) -> None:
    extra: dict[str, Any] = {"Update": {"MaxParallel": 2, "Canary": 1}} if job_type == "service" else {}
    job = made_job(
        {"Type": job_type, **extra},
        {"Networks": [{"DynamicPorts": [{"Label": "a"}]}], "Volumes": {"v": {"Type": "host", "Source": "s"}}},
        Services=[{"PortLabel": "a", "Checks": [{"Type": "tcp"}]}],
    )
    again = canonicalise(to_builtins(job))
    assert again == job
    assert not spec_changed(job, again)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"TaskGroups": {}}, "Job.TaskGroups: expected `array`, got `object`"),
        ({"TaskGroups": [1]}, "Job.TaskGroups[0]: expected `object`, got `int`"),
        ({"TaskGroups": [{"Count": "x"}]}, "Job.TaskGroups[0].Count: expected `int`, got `str`"),
        ({"TaskGroups": [{"Tasks": [{"Env": {"A": 1}}]}]}, "Job.TaskGroups[0].Tasks[0].Env[...]: expected `str`"),
        ({"Type": 4}, "Job.Type: expected `str`, got `int`"),
        ({"Periodic": "x"}, "Job.Periodic: expected `object | null`, got `str`"),
        ({"reschedule": 3}, "Job.Reschedule: expected `object`, got `int`"),
        ({"Restart": {"Attempts": []}}, "Job.Restart.Attempts: expected `int`, got `array`"),
        ({"Payload": "%%%"}, "Job.Payload: "),
    ],
)
def test_a_wrong_type_is_refused_with_the_name_of_its_field(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(LepaError) as raised:
        canonicalise(raw)
    assert raised.value.code == "invalid"
    assert raised.value.message.startswith(message)


def test_what_the_server_writes_is_no_change() -> None:
    job = made_job(group={"Scaling": {"Max": 3}})
    scaling = job.task_groups[0].scaling
    assert scaling is not None
    group = replace(job.task_groups[0], scaling=replace(scaling, id="abc", modify_index=7))
    stored = replace(
        job,
        task_groups=(group,),
        version=4,
        status="running",
        stable=True,
        submit_time=9,
        create_index=1,
        modify_index=2,
        job_modify_index=2,
        nomad_token_id="t",
        version_tag=JobVersionTag(name="golden"),
    )
    assert not spec_changed(stored, job)
    assert strip_server_fields(stored) == job


@pytest.mark.parametrize("change", [{"stop": True}, {"meta": {"a": "b"}}, {"priority": 60}, {"datacenters": ("dc1",)}])
def test_what_the_author_writes_is_a_change(change: dict[str, Any]) -> None:
    assert spec_changed(made_job(), replace(made_job(), **change))


def test_everything_wrong_is_told_at_once() -> None:
    problems = validate(made_job({"Type": "x", "Priority": 500}, {"Count": -1}, Driver=""))
    assert len(problems.errors) == 4
    assert problems.error_text.startswith('4 errors occurred:\n\t* Invalid job type: "x"')
    assert "\n\t* Task group api validation failed: Task server validation failed: Missing task driver\n" in (
        problems.error_text
    )


def test_the_servers_limits_are_arguments() -> None:
    job = made_job({"Priority": 200}, {"Count": 20})
    assert validate(job, max_priority=32766).errors == ()
    assert "total count was greater than configured job_max_count: 20 > 10" in validate(job, max_count=10).errors


def test_blocks_imply_constraints_on_their_groups() -> None:
    job = made_job(
        group={"Networks": [{"Mode": "bridge"}]},
        Services=[{"Provider": "nomad", "PortLabel": "1", "Checks": [{"Type": "tcp"}]}],
        KillSignal="SIGUSR1",
        Templates=[{"ChangeMode": "signal"}],
        Vault={},
    )
    found = {c.ltarget: (c.operand, c.rtarget) for c in implied_constraints(job).task_groups[0].constraints}
    assert found["${attr.nomad.service_discovery}"] == ("=", "true")
    assert found["${attr.nomad.version}"] == ("semver", ">= 1.4.0")
    assert found["${attr.plugins.cni.version.host-local}"] == ("semver", ">= 0.4.0")
    assert found["${attr.os.signals}"] == ("set_contains", "SIGHUP,SIGUSR1")
    assert found["${attr.vault.version}"] == ("semver", ">= 0.6.1")
    assert len(found) == 9


def test_an_authors_own_constraint_on_the_attribute_wins() -> None:
    own = {"LTarget": "${attr.os.signals}", "Operand": "is_set"}
    job = made_job(group={"Constraints": [own]}, KillSignal="SIGUSR1")
    assert implied_constraints(job) == job


def test_implied_constraints_are_added_once() -> None:
    job = implied_constraints(made_job(KillSignal="SIGUSR1"))
    assert implied_constraints(job) == job
