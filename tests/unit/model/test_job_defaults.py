"""What a job leaves unsaid."""

import re
from pathlib import Path

import pytest
from tests.unit.model.raw_jobs import made_group, made_job, made_task, raw_job

from lepa.kit.durations import HOUR, MINUTE, SECOND, format_duration
from lepa.model.job_rules import canonicalise, validate
from lepa.model.wire import to_builtins


@pytest.mark.parametrize("job_type", ["service", "batch", "system", "sysbatch"])
def test_policies_depend_on_the_type_of_the_job(job_type: str) -> None:
    group = made_group({"Type": job_type})
    assert group.restart_policy is not None
    long_lived = job_type in ("service", "system")
    expected = (2, 30 * MINUTE) if long_lived else (3, 24 * HOUR)
    assert (group.restart_policy.attempts, group.restart_policy.interval) == expected
    assert (group.update is not None) == long_lived
    assert (group.migrate is not None) == (job_type == "service")
    assert (group.reschedule_policy is not None) == (job_type in ("service", "batch"))
    assert validate(made_job({"Type": job_type})).errors == ()


def test_batch_jobs_are_rescheduled_once_a_day() -> None:
    policy = made_group({"Type": "batch"}).reschedule_policy
    assert policy is not None
    assert (policy.attempts, policy.interval, policy.delay) == (1, 24 * HOUR, 5 * SECOND)
    assert (policy.delay_function, policy.max_delay, policy.unlimited) == ("constant", 0, False)


def test_what_the_job_does_not_name_comes_from_its_surroundings() -> None:
    job = canonicalise(raw_job({"Region": "global"}), region="eu", namespace="prod", node_pool="gpu", priority=70)
    assert (job.region, job.namespace, job.node_pool, job.priority) == ("eu", "prod", "gpu", 70)
    named = canonicalise(raw_job({"Region": "us", "Namespace": "dev"}), region="eu", namespace="prod")
    assert (named.region, named.namespace) == ("us", "dev")


def test_the_stored_job_shows_stagger_and_max_parallel_and_groups_hold_the_strategy() -> None:
    job = made_job({"Update": {"MaxParallel": 3, "Canary": 1, "AutoRevert": True}}, {"Update": {"Canary": 2}})
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
    group = made_group(job, {"ReschedulePolicy": {"Delay": 20 * SECOND}, "RestartPolicy": {"Mode": "delay"}})
    assert group.reschedule_policy is not None
    assert group.restart_policy is not None
    assert group.migrate is not None
    assert (group.reschedule_policy.attempts, group.reschedule_policy.delay) == (5, 20 * SECOND)
    assert (group.restart_policy.attempts, group.restart_policy.mode) == (7, "delay")
    assert group.migrate.max_parallel == 4


def test_a_tasks_restart_block_lies_over_its_groups() -> None:
    group = made_group(group={"RestartPolicy": {"Attempts": 5, "Delay": SECOND}}, RestartPolicy={"Attempts": 0})
    policy = group.tasks[0].restart_policy
    assert policy is not None
    assert (policy.attempts, policy.delay, policy.mode) == (0, SECOND, "fail")


@pytest.mark.parametrize(("job_type", "expected"), [("service", (2, 30 * MINUTE)), ("batch", (3, 24 * HOUR))])
def test_a_mode_alone_leaves_the_attempts_as_they_are(job_type: str, expected: tuple[int, int]) -> None:
    """B020: only attempts = 0 gives one single start; mode = "fail" without attempts has the type's default ones."""
    group = {"RestartPolicy": {"Mode": "fail"}, "ReschedulePolicy": {"Attempts": 0, "Unlimited": False}}
    job = made_job({"Type": job_type}, group)
    for policy in (job.task_groups[0].restart_policy, job.task_groups[0].tasks[0].restart_policy):
        assert policy is not None
        assert (policy.attempts, policy.interval, policy.mode) == (*expected, "fail")
    assert validate(job).errors == ()


def test_count_starts_at_the_minimum_of_the_scaling_block() -> None:
    group = made_group(group={"Scaling": {"Min": 3, "Max": 9}})
    assert group.count == 3
    assert group.scaling is not None
    assert group.scaling.target == {"Namespace": "default", "Job": "web", "Group": "api"}
    explicit = made_group(group={"Count": 0, "Scaling": {"Max": 9}})
    assert explicit.scaling is not None
    assert (explicit.count, explicit.scaling.min) == (0, 0)


def test_a_scaling_target_is_in_the_namespace_of_the_request() -> None:
    job = canonicalise(raw_job(group={"Scaling": {"Max": 2}}), namespace="x")
    assert job.task_groups[0].scaling is not None
    assert job.task_groups[0].scaling.target["Namespace"] == "x"


def test_no_megahertz_are_asked_for_beside_whole_cores() -> None:
    assert made_task(Resources={"Cores": 2}).resources.cpu == 0
    assert made_task(Resources={"Cores": 2, "CPU": 50}).resources.cpu == 50


def test_services_are_named_after_where_they_stand() -> None:
    group = made_group(
        group={"Services": [{}]}, Services=[{}, {"Name": "${JOB}-${TASKGROUP}.${TASK}-${BASE}-${meta.x}"}]
    )
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
    first, second = made_task(Services=[service]).services[0].checks
    assert (first.name, first.on_update) == ('service: "db" check', "ignore")
    assert first.check_restart is not None
    assert (first.check_restart.limit, first.check_restart.grace) == (3, SECOND)
    assert second.check_restart is not None
    assert (second.name, second.check_restart.limit, second.check_restart.grace) == ("mine", 1, 5)


def test_ports_with_a_number_are_reserved_and_all_are_on_a_host_network() -> None:
    network = {"DynamicPorts": [{"Label": "http"}, {"Label": "dns", "Value": 53, "HostNetwork": "public"}]}
    group = made_group(group={"Networks": [network]})
    (port,), (static,) = group.networks[0].dynamic_ports, group.networks[0].reserved_ports
    assert (port.label, port.host_network) == ("http", "default")
    assert (static.label, static.value, static.host_network) == ("dns", 53, "public")


def test_artifacts_templates_and_vault_get_what_depends_on_their_mode() -> None:
    task = made_task(
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
    task = made_task(Identities=[{"Env": True}, {"Name": "aws", "Audience": ["sts"]}])
    assert task.identity is not None
    assert (task.identity.name, task.identity.env, task.identity.audience) == ("default", True, ("nomadproject.io",))
    assert [identity.name for identity in task.identities] == ["aws"]


def test_opaque_blocks_keep_their_keys_and_nulls() -> None:
    task = made_task(Config={"image": "x", "Ports": [1, None], "nested": {"a": None}}, Env={"lower_Case": "1"})
    assert task.config == {"image": "x", "Ports": [1, None], "nested": {"a": None}}
    assert task.env == {"lower_Case": "1"}


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-defaults.md"
JOB_TYPES = ("service", "system", "batch", "sysbatch")
EVERY_BLOCK = {
    "job": {"Periodic": {}, "ParameterizedJob": {}},
    "group": {
        "Disconnect": {},
        "Scaling": {},
        "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
        "Volumes": {"v": {}},
    },
    "task": {
        "Resources": {"Devices": [{}]},
        "Artifacts": [{}],
        "Templates": [{"ChangeScript": {}}],
        "VolumeMounts": [{}],
        "Vault": {},
        "Services": [{"Checks": [{"CheckRestart": {}}]}],
        "Constraints": [{}],
        "Affinities": [{}],
    },
}
DURATIONS = re.compile(
    r"(Stagger|Time|Deadline|Interval|Delay|Timeout|Splay|Grace|LostAfter)$",
)


def _default(path: str, job_type: str) -> str:
    """What the page should say: durations as texts, lists with commas, `-` for what is absent."""
    found = to_builtins(made_job({"Type": job_type, **EVERY_BLOCK["job"]}, EVERY_BLOCK["group"], **EVERY_BLOCK["task"]))
    group = found["TaskGroups"][0]
    place, _, rest = path.partition(".")
    roots = {"group": group, "task": group["Tasks"][0]}
    value = roots.get(place, found)
    for key in (rest if place in roots else path).split("."):
        if value is not None:
            value = value[int(key) if key.isdigit() else key]
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if DURATIONS.search(path) else str(value)


def test_the_page_of_defaults_tells_the_truth() -> None:
    """A row has one default for all types of jobs, or one for each."""
    rows = re.findall(r"(?m)^\| `(\S+)` \| (.+) \|$", PAGE.read_text())
    assert len(rows) > 80
    for path, cells in rows:
        told = [cell.strip("` ") for cell in cells.split("|")]
        assert (path, told * (4 // len(told))) == (path, [_default(path, job_type) for job_type in JOB_TYPES])
