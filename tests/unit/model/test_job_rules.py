"""Canonical form, validity and changes of jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from lepa.kit.durations import HOUR, MINUTE, SECOND
from lepa.model.errors import LepaError
from lepa.model.job import Job, JobVersionTag, TaskGroup
from lepa.model.job_rules import canonicalise, implied_constraints, spec_changed, strip_server_fields, validate
from lepa.model.policies import ReschedulePolicy, RestartPolicy, UpdateStrategy
from lepa.model.task import Task
from lepa.model.wire import to_builtins


def _raw(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    tasks = [{"Name": "server", "Driver": "raw_exec", **task}]
    return {"ID": "web", "TaskGroups": [{"Name": "api", "Tasks": tasks, **(group or {})}], **(job or {})}


def _job(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> Job:
    return canonicalise(_raw(job, group, **task))


def _group(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> TaskGroup:
    return _job(job, group, **task).task_groups[0]


def _task(**task: Any) -> Task:
    return _group(**task).tasks[0]


def _errors(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> tuple[str, ...]:
    return validate(_job(job, group, **task)).errors


# Canonical form


def test_the_smallest_job_gets_every_default() -> None:
    job = _job()
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


@pytest.mark.parametrize("job_type", ["service", "batch", "system", "sysbatch"])
def test_policies_depend_on_the_type_of_the_job(job_type: str) -> None:
    group = _group({"Type": job_type})
    assert group.restart_policy is not None
    long_lived = job_type in ("service", "system")
    expected = (2, 30 * MINUTE) if long_lived else (3, 24 * HOUR)
    assert (group.restart_policy.attempts, group.restart_policy.interval) == expected
    assert (group.update is not None) == long_lived
    assert (group.migrate is not None) == (job_type == "service")
    assert (group.reschedule_policy is not None) == (job_type in ("service", "batch"))
    assert validate(_job({"Type": job_type})).errors == ()


def test_batch_jobs_are_rescheduled_once_a_day() -> None:
    policy = _group({"Type": "batch"}).reschedule_policy
    assert policy is not None
    assert (policy.attempts, policy.interval, policy.delay) == (1, 24 * HOUR, 5 * SECOND)
    assert (policy.delay_function, policy.max_delay, policy.unlimited) == ("constant", 0, False)


def test_keys_may_be_in_any_case_and_null_means_absent() -> None:
    job = canonicalise({"id": "a", "NAME": None, "taskgroups": [{"NAME": "g", "count": None, "tasks": None}]})
    assert (job.id, job.name, job.task_groups[0].name, job.task_groups[0].count) == ("a", "a", "g", 1)


def test_what_the_job_does_not_name_comes_from_its_surroundings() -> None:
    job = canonicalise(_raw({"Region": "global"}), region="eu", namespace="prod", node_pool="gpu", priority=70)
    assert (job.region, job.namespace, job.node_pool, job.priority) == ("eu", "prod", "gpu", 70)
    named = canonicalise(_raw({"Region": "us", "Namespace": "dev"}), region="eu", namespace="prod")
    assert (named.region, named.namespace) == ("us", "dev")


def test_the_stored_job_shows_stagger_and_max_parallel_and_groups_hold_the_strategy() -> None:
    job = _job({"Update": {"MaxParallel": 3, "Canary": 1, "AutoRevert": True}}, {"Update": {"Canary": 2}})
    assert job.update is not None
    assert (job.update.max_parallel, job.update.canary, job.update.health_check) == (3, 0, "")
    group = job.task_groups[0].update
    assert group is not None
    assert (group.max_parallel, group.canary, group.auto_revert, group.health_check) == (3, 2, True, "checks")


def test_blocks_of_the_job_are_defaults_of_its_groups_field_by_field() -> None:
    job = {
        "Reschedule": {"Attempts": 5, "Delay": 10 * SECOND},
        "Restart": {"Attempts": 7},
        "migrate": {"MaxParallel": 4},
    }
    group = _group(job, {"ReschedulePolicy": {"Delay": 20 * SECOND}, "RestartPolicy": {"Mode": "delay"}})
    assert group.reschedule_policy is not None
    assert group.restart_policy is not None
    assert group.migrate is not None
    assert (group.reschedule_policy.attempts, group.reschedule_policy.delay) == (5, 20 * SECOND)
    assert (group.restart_policy.attempts, group.restart_policy.mode) == (7, "delay")
    assert group.migrate.max_parallel == 4


def test_a_tasks_restart_block_lies_over_its_groups() -> None:
    group = _group(group={"RestartPolicy": {"Attempts": 5, "Delay": SECOND}}, RestartPolicy={"Attempts": 0})
    policy = group.tasks[0].restart_policy
    assert policy is not None
    assert (policy.attempts, policy.delay, policy.mode) == (0, SECOND, "fail")


def test_count_starts_at_the_minimum_of_the_scaling_block() -> None:
    group = _group(group={"Scaling": {"Min": 3, "Max": 9}})
    assert group.count == 3
    assert group.scaling is not None
    assert group.scaling.target == {"Namespace": "default", "Job": "web", "Group": "api"}
    explicit = _group(group={"Count": 0, "Scaling": {"Max": 9}})
    assert explicit.scaling is not None
    assert (explicit.count, explicit.scaling.min) == (0, 0)


def test_a_scaling_target_is_in_the_namespace_of_the_request() -> None:
    job = canonicalise(_raw(group={"Scaling": {"Max": 2}}), namespace="x")
    assert job.task_groups[0].scaling is not None
    assert job.task_groups[0].scaling.target["Namespace"] == "x"


def test_no_megahertz_are_asked_for_beside_whole_cores() -> None:
    assert _task(Resources={"Cores": 2}).resources.cpu == 0
    assert _task(Resources={"Cores": 2, "CPU": 50}).resources.cpu == 50


def test_services_are_named_after_where_they_stand() -> None:
    group = _group(group={"Services": [{}]}, Services=[{}, {"Name": "${JOB}-${TASKGROUP}.${TASK}-${BASE}-${meta.x}"}])
    assert group.services[0].name == "web-api"
    assert [service.name for service in group.tasks[0].services] == [
        "web-api-server",
        "web-api.server-web-api-server-${meta.x}",
    ]
    assert [service.task_name for service in group.tasks[0].services] == ["server", "server"]
    assert group.services[0].task_name == ""


def test_checks_take_their_name_and_restart_rule_from_the_service() -> None:
    service = {
        "Name": "db",
        "OnUpdate": "ignore",
        "CheckRestart": {"Limit": 3},
        "Checks": [{"Type": "tcp"}, {"Name": "mine", "CheckRestart": {"Grace": 5, "Limit": 1}}],
    }
    first, second = _task(Services=[service]).services[0].checks
    assert (first.name, first.on_update) == ('service: "db" check', "ignore")
    assert first.check_restart is not None
    assert (first.check_restart.limit, first.check_restart.grace) == (3, SECOND)
    assert second.check_restart is not None
    assert (second.name, second.check_restart.limit, second.check_restart.grace) == ("mine", 1, 5)


def test_ports_with_a_number_are_reserved_and_all_are_on_a_host_network() -> None:
    network = {"DynamicPorts": [{"Label": "http"}, {"Label": "dns", "Value": 53, "HostNetwork": "public"}]}
    group = _group(group={"Networks": [network]})
    (port,), (static,) = group.networks[0].dynamic_ports, group.networks[0].reserved_ports
    assert (port.label, port.host_network) == ("http", "default")
    assert (static.label, static.value, static.host_network) == ("dns", 53, "public")


def test_artifacts_templates_and_vault_get_what_depends_on_their_mode() -> None:
    task = _task(
        Artifacts=[{"GetterSource": "https://x.example/a/b.zip?v=1", "GetterMode": "file"}, {"GetterSource": "x"}],
        Templates=[{"ChangeMode": "signal"}, {"ChangeMode": "signal", "ChangeSignal": "sigusr1"}, {}],
        Vault={"Policies": ["a"]},
    )
    assert [artifact.relative_dest for artifact in task.artifacts] == ["local/b.zip", "local/"]
    assert [template.change_signal for template in task.templates] == ["SIGHUP", "SIGUSR1", ""]
    assert task.templates[2].change_mode == "restart"
    assert task.vault is not None
    assert (task.vault.change_signal, task.vault.cluster) == ("SIGHUP", "default")


def test_the_identity_called_default_is_the_tasks_own() -> None:
    task = _task(Identities=[{"Env": True}, {"Name": "aws", "Audience": ["sts"]}])
    assert task.identity is not None
    assert (task.identity.name, task.identity.env, task.identity.audience) == ("default", True, ("nomadproject.io",))
    assert [identity.name for identity in task.identities] == ["aws"]


def test_opaque_blocks_keep_their_keys_and_nulls() -> None:
    task = _task(Config={"image": "x", "Ports": [1, None], "nested": {"a": None}}, Env={"lower_Case": "1"})
    assert task.config == {"image": "x", "Ports": [1, None], "nested": {"a": None}}
    assert task.env == {"lower_Case": "1"}


@pytest.mark.parametrize("job_type", ["service", "batch", "system", "sysbatch"])
def test_a_job_read_back_and_submitted_again_is_unchanged(job_type: str) -> None:
    extra: dict[str, Any] = {"Update": {"MaxParallel": 2, "Canary": 1}} if job_type == "service" else {}
    job = _job(
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


# Changes


def test_what_the_server_writes_is_no_change() -> None:
    job = _job(group={"Scaling": {"Max": 3}})
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
    assert spec_changed(_job(), replace(_job(), **change))


# Validity


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
        (
            {"Constraints": [{"LTarget": "${node.class}", "Operand": "~~", "RTarget": "x"}]},
            'Unknown constraint type "~~"',
        ),
        ({"Type": "system", "Affinities": [{"LTarget": "a", "RTarget": "b"}]}, "System jobs may not have an affinity"),
        ({"Type": "system", "Spreads": [{"Attribute": "a"}]}, "System jobs may not have a spread block"),
        ({"Periodic": {"Specs": ["@daily"]}}, 'Periodic can only be used with "batch" or "sysbatch" scheduler'),
        ({"ParameterizedJob": {}}, 'Parameterized job can only be used with "batch" or "sysbatch" scheduler'),
        ({"Multiregion": {}}, "Multiregion jobs are not supported"),
    ],
)
def test_a_broken_job_is_refused(job: dict[str, Any], message: str) -> None:
    assert any(message in error for error in _errors(job))


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
        ({"MaxRunDuration": 5}, 'Job type "service" does not allow max_run_duration'),
        ({"Disconnect": {"LostAfter": 5, "StopOnClientAfter": 5}}, "cannot be configured with both lost_after and"),
        ({"Scaling": {"Min": 1}}, "maximum count must be specified and non-negative"),
        ({"Scaling": {"Min": 5, "Max": 2}}, "maximum count must not be less than minimum count"),
        ({"Count": 4, "Scaling": {"Min": 1, "Max": 2}}, "task group count must not be greater than maximum count"),
        ({"RestartPolicy": {"Mode": "x"}}, 'Unsupported restart mode: "x"'),
        ({"RestartPolicy": {"Mode": "delay", "Attempts": 0}}, 'Restart policy "delay" with 0 attempts is ambiguous'),
        ({"RestartPolicy": {"Interval": 0, "Attempts": 1}}, "Interval can not be less than 5s (got 0s)"),
        (
            {"RestartPolicy": {"Attempts": 9, "Interval": MINUTE}},
            "Nomad can't restart the TaskGroup 9 times in an interval of 1m0s with a delay of 15s",
        ),
        ({"ReschedulePolicy": {"Delay": 1}}, "Delay cannot be less than 5s (got 1ns)"),
        ({"ReschedulePolicy": {"DelayFunction": "x"}}, 'Invalid delay function "x", must be one of [constant, '),
        ({"ReschedulePolicy": {"Attempts": 2, "Interval": HOUR}}, "Unlimited = true is ambiguous"),
        ({"Update": {"MaxParallel": -1}}, "Max parallel can not be less than zero: -1 < 0"),
        ({"Update": {"AutoPromote": True}}, "Auto Promote requires a Canary count greater than zero"),
        ({"Update": {"Stagger": 0}}, "Stagger must be greater than zero: 0s"),
        ({"Update": {"HealthyDeadline": HOUR}}, "Healthy deadline must be less than progress deadline: 1h0m0s > 10m0s"),
        (
            {"Volumes": {"v": {"Type": "nfs"}}},
            "Task group volume validation for v failed: volume has unrecognized type",
        ),
        ({"Volumes": {"v": {"Type": "host"}}}, "volume has an empty source"),
        ({"Volumes": {"v": {"Type": "csi", "Source": "s"}}}, "CSI volumes must have an attachment mode"),
        ({"Volumes": {"v": {"Type": "host", "Source": "s", "MountOptions": {}}}}, "cannot have mount options"),
        ({"Networks": [{"DynamicPorts": [{"Label": "a"}, {"Label": "a"}]}]}, "Port label a already in use by"),
        (
            {"Networks": [{"ReservedPorts": [{"Label": "a", "Value": 80}, {"Label": "b", "Value": 80}]}]},
            "Static port 80 already reserved by taskgroup network:api:a",
        ),
        ({"Networks": [{"ReservedPorts": [{"Label": "a", "Value": 70000}]}]}, "Port a (70000) cannot be greater than"),
        ({"Networks": [{"DynamicPorts": [{"Label": "a", "To": -2}]}]}, 'Port "a" cannot be mapped to negative value'),
        ({"Networks": [{"Mode": "bridge", "Hostname": "a_b"}]}, "Hostname is not a valid DNS name"),
    ],
)
def test_a_broken_group_is_refused(group: dict[str, Any], message: str) -> None:
    assert any(message in error for error in _errors(group=group))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"Name": ""}, "Missing task name"),
        ({"Name": "a/b"}, "Task name cannot include slashes"),
        ({"Name": "alloc"}, 'Task cannot be named "alloc"'),
        ({"Driver": ""}, "Missing task driver"),
        ({"KillTimeout": -1}, "KillTimeout must be a positive value"),
        ({"Resources": {"CPU": 100, "Cores": 1}}, "Task can only ask for 'cpu' or 'cores' resource, not both."),
        ({"Resources": {"CPU": 0}}, "minimum CPU value is 1; got 0"),
        ({"Resources": {"MemoryMaxMB": 5}}, "MemoryMaxMB value (5) should be larger than MemoryMB value (300)"),
        ({"Lifecycle": {"Hook": "before"}}, "invalid hook: before"),
        ({"Lifecycle": {"Sidecar": True}}, "no lifecycle hook provided"),
        ({"Lifecycle": {"Hook": "prestart"}}, "Task group api must have at least one main task"),
        ({"VolumeMounts": [{"Volume": "v", "Destination": "/x"}]}, "Volume Mount (0) references undefined volume v"),
        ({"Templates": [{"DestPath": "x"}]}, "Must specify a source path or have an embedded template"),
        ({"Templates": [{"EmbeddedTmpl": "x"}]}, "Must specify a destination for the template"),
        ({"Templates": [{"EmbeddedTmpl": "x", "DestPath": "../../x"}]}, "destination escapes allocation directory"),
        ({"Templates": [{"EmbeddedTmpl": "x", "DestPath": "x"}] * 2}, "Template 2 has same destination as 1"),
        (
            {"Templates": [{"EmbeddedTmpl": "x", "DestPath": "x", "Envvars": True, "ChangeMode": "signal"}]},
            "cannot use signals with env var templates",
        ),
        (
            {"Templates": [{"EmbeddedTmpl": "x", "DestPath": "x", "ChangeMode": "script"}]},
            "must specify change script configuration value when change mode is script",
        ),
        ({"Artifacts": [{}]}, "source must be specified"),
        ({"Artifacts": [{"GetterSource": "x", "RelativeDest": "../../../etc"}]}, "escapes allocation directory"),
        ({"Artifacts": [{"GetterSource": "x", "GetterOptions": {"checksum": "md5:1"}}]}, "expected 32 hex digits"),
        ({"Constraints": [{"Operand": "distinct_hosts"}]}, "disallowed Operand at task level"),
        ({"Constraints": [{"LTarget": "a", "Operand": "regexp", "RTarget": "("}]}, "failed to compile"),
        ({"Services": [{"Name": "a b"}]}, "Service name must be valid per RFC 1123"),
        ({"Services": [{"Provider": "x"}]}, 'Service provider must be "consul", or "nomad"; not "x"'),
        ({"Services": [{"PortLabel": "1"}, {"PortLabel": "1"}]}, "Services are not unique: server->web-api-server:1"),
        ({"Services": [{"PortLabel": "gone"}]}, 'port label "gone" does not exist'),
        ({"Services": [{"Checks": [{"Type": "tcp"}]}]}, "interval (0s) cannot be lower than 1s"),
        ({"Services": [{"Checks": [{"Type": "tcp"}]}]}, "check requires a port but neither check nor service"),
        ({"Services": [{"Provider": "nomad", "Checks": [{"Type": "grpc"}]}]}, 'invalid check type ("grpc"), must be'),
        ({"Services": [{"Provider": "nomad"}, {"Name": "b"}]}, "Multiple service providers used"),
        ({"Actions": [{"Name": "a b", "Command": "x"}]}, 'Action name "a b" must be'),
        ({"DispatchPayload": {"File": "../../x"}}, "escapes allocation directory"),
    ],
)
def test_a_broken_task_is_refused_with_its_group_and_name(task: dict[str, Any], message: str) -> None:
    assert any(message in error and error.startswith("Task group api validation failed: ") for error in _errors(**task))


def test_everything_wrong_is_told_at_once() -> None:
    problems = validate(_job({"Type": "x", "Priority": 500}, {"Count": -1}, Driver=""))
    assert len(problems.errors) == 4
    assert problems.error_text.startswith('4 errors occurred:\n\t* Invalid job type: "x"')
    assert "\n\t* Task group api validation failed: Task server validation failed: Missing task driver\n" in (
        problems.error_text
    )


def test_groups_and_tasks_have_names_of_their_own() -> None:
    job = _job()
    group = job.task_groups[0]
    double = replace(group, tasks=group.tasks * 2)
    errors = validate(replace(job, task_groups=(double, group))).errors
    assert "Job task group 2 redefines 'api' from group 1" in errors
    assert "Task group api validation failed: Task 2 redefines 'server' from task 1" in errors


def test_names_that_are_known_only_on_the_node_are_accepted() -> None:
    """B108: names made of run-time variables may be equal as texts."""
    services = [{"Name": "${NOMAD_JOB_NAME}-${NOMAD_TASK_NAME}", "PortLabel": "${meta.port}"}]
    assert _errors(Services=services) == ()


def test_one_static_port_on_two_host_networks_is_accepted() -> None:
    """B057."""
    ports = [{"Label": name, "Value": 80, "HostNetwork": name} for name in ("net1", "net2")]
    assert _errors(group={"Networks": [{"ReservedPorts": ports}]}) == ()


def test_no_restart_at_all_needs_no_interval() -> None:
    assert _errors(group={"RestartPolicy": {"Attempts": 0, "Interval": 0}}) == ()


@pytest.mark.parametrize(
    ("periodic", "message"),
    [
        ({}, "Must specify a spec"),
        ({"Spec": "@daily", "Specs": ["@daily"]}, "Only cron or crons may be used"),
        ({"Specs": ["61 * * * *"]}, 'Invalid cron spec "61 * * * *": minute 61 is not within 0-59'),
        ({"Specs": ["@daily"], "TimeZone": "Mars/Phobos"}, 'Invalid time zone "Mars/Phobos": '),
        ({"Specs": ["@daily"], "TimeZone": "../../etc/passwd"}, 'Invalid time zone "../../etc/passwd": '),
        ({"Specs": ["@daily"], "SpecType": "moon"}, 'Unknown periodic specification type "moon"'),
    ],
)
def test_a_broken_periodic_block_is_refused(periodic: dict[str, Any], message: str) -> None:
    errors = _errors({"Type": "batch", "Periodic": periodic})
    assert any(error.startswith(message) for error in errors)


def test_periodic_blocks_that_work_are_accepted() -> None:
    for periodic in ({"Specs": ["@daily", "0 0 L * *"], "TimeZone": "Europe/Berlin"}, {"Enabled": False}):
        assert _errors({"Type": "batch", "Periodic": periodic}) == ()


def test_batch_jobs_have_no_deployments() -> None:
    errors = _errors({"Type": "batch"}, {"Update": {"MaxParallel": 1}, "Migrate": {}})
    assert [error.rpartition(": ")[2] for error in errors] == [
        'Job type "batch" does not allow update block',
        'Job type "batch" does not allow migrate block',
    ]


def test_system_jobs_run_once_a_node_and_are_not_rescheduled() -> None:
    errors = _errors({"Type": "system"}, {"Count": 2, "ReschedulePolicy": {"Attempts": 1}, "Scaling": {"Max": 3}})
    assert any("Count cannot exceed 1 with system scheduler" in error for error in errors)
    assert any("System or sysbatch jobs should not have a reschedule policy" in error for error in errors)
    assert any("Task groups with job type system do not support scaling blocks" in error for error in errors)


def test_some_things_of_a_stored_job_may_not_change() -> None:
    service, batch = _job(), _job({"Type": "batch"})
    periodic = _job({"Type": "batch", "Periodic": {"Specs": ["@daily"]}})
    child = replace(batch, dispatched=True)
    assert 'cannot update job from type "batch" to "service"' in validate(service, existing=batch).errors
    assert "cannot update non-periodic job to being periodic" in validate(periodic, existing=batch).errors
    assert "cannot update periodic job to being non-periodic" in validate(batch, existing=periodic).errors
    assert "field 'Dispatched' is read-only" in validate(batch, existing=child).errors
    assert validate(service, existing=service).errors == ()


def test_what_is_odd_but_works_is_a_warning() -> None:
    network = {"Networks": [{"MBits": 10}]}
    job = _job(
        {"Type": "service"},
        {"Update": {"MaxParallel": 2}, "MaxClientDisconnect": 5},
        Resources={"MemoryMaxMB": 600, **network},
    )
    problems = validate(job)
    assert problems.errors == ()
    assert len(problems.warnings) == 5
    assert problems.warning_text.startswith('5 warning(s):\n\n* Group "api" has warnings: Update max parallel count')
    assert not any("memory_max" in warning for warning in validate(job, memory_oversubscription=True).warnings)


def test_disk_asked_for_by_a_task_is_ignored_with_a_warning() -> None:
    """Nomad's own end-to-end jobs still ask for it."""
    problems = validate(_job(Resources={"DiskMB": 5}))
    assert problems.errors == ()
    assert "Task can't ask for disk resources" in problems.warnings[0]


def test_the_servers_limits_are_arguments() -> None:
    job = _job({"Priority": 200}, {"Count": 20})
    assert validate(job, max_priority=32766).errors == ()
    assert "total count was greater than configured job_max_count: 20 > 10" in validate(job, max_count=10).errors


# Implied constraints


def test_blocks_imply_constraints_on_their_groups() -> None:
    job = _job(
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
    job = _job(group={"Constraints": [own]}, KillSignal="SIGUSR1")
    assert implied_constraints(job) == job


def test_implied_constraints_are_added_once() -> None:
    job = implied_constraints(_job(KillSignal="SIGUSR1"))
    assert implied_constraints(job) == job
