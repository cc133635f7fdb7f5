"""What changed between two versions of a job."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from lepa.model.job import Job
from lepa.model.job_diff import FieldDiff, JobDiff, ObjectDiff, TaskDiff, TaskGroupDiff, annotate, diff_jobs
from lepa.model.job_rules import canonicalise
from lepa.model.plan import DesiredUpdates
from lepa.model.wire import to_builtins

RAW: dict[str, Any] = {
    "ID": "web",
    "Meta": {"owner": "ann"},
    "TaskGroups": [
        {
            "Name": "api",
            "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
            "Services": [{"Name": "s", "PortLabel": "http", "Tags": ["a", "b"]}],
            "Tasks": [
                {
                    "Name": "server",
                    "Driver": "docker",
                    "Config": {"image": "x:1", "args": ["a", "b"], "auth": [{"user": "me"}]},
                    "Env": {"A": "1"},
                    "Constraints": [{"LTarget": "${attr.kernel.name}", "RTarget": "linux"}],
                }
            ],
        }
    ],
}
JOB = canonicalise(RAW)


def _changed(change: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]) -> Job:
    raw = copy.deepcopy(RAW)
    group = raw["TaskGroups"][0]
    change(raw, group, group["Tasks"][0])
    return canonicalise(raw)


def _edited(change: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]) -> JobDiff:
    diff = diff_jobs(JOB, _changed(change), False)
    assert diff.type == "Edited"
    return diff


def _group(diff: JobDiff) -> TaskGroupDiff:
    (group,) = diff.task_groups
    return group


def _task(diff: JobDiff) -> TaskDiff:
    (task,) = _group(diff).tasks
    return task


def _shown(fields: tuple[FieldDiff, ...]) -> list[tuple[str, str, str, str]]:
    return [(field.type, field.name, field.old, field.new) for field in fields]


def test_a_job_is_no_different_from_itself() -> None:
    assert diff_jobs(JOB, JOB, False) == JobDiff(type="None", id="web")


def test_what_the_server_writes_is_not_shown() -> None:
    """B122: token, indexes, versions and times never make a difference."""
    stored = replace(JOB, version=3, modify_index=9, job_modify_index=9, submit_time=5, nomad_token_id="t", stable=True)
    assert diff_jobs(stored, JOB, False) == JobDiff(type="None", id="web")


def test_a_new_job_is_added_with_all_it_says() -> None:
    diff = diff_jobs(None, JOB, True)
    assert (diff.type, diff.id) == ("Added", "web")
    assert ("Added", "Meta[owner]", "", "ann") in _shown(diff.fields)
    assert {part.name for part in diff.objects} == {"Datacenters", "Update"}
    group = _group(diff)
    assert (group.type, group.name) == ("Added", "api")
    names = {part.name for part in group.objects}
    assert {"RestartPolicy", "ReschedulePolicy", "EphemeralDisk", "Update", "Network", "Service"} <= names
    (task,) = group.tasks
    assert ("Added", "Driver", "", "docker") in _shown(task.fields)
    assert all(field.new for field in task.fields)


def test_a_removed_job_is_deleted() -> None:
    diff = diff_jobs(JOB, None, False)
    assert {diff.type, _group(diff).type, _task(diff).type} == {"Deleted"}
    assert all(field.type == "Deleted" for field in diff.fields)


def test_only_what_changed_is_shown() -> None:
    diff = _edited(lambda job, group, task: task["Config"].update(image="x:2"))
    assert diff.fields == diff.objects == ()
    assert _group(diff).fields == _group(diff).objects == ()
    (config,) = _task(diff).objects
    assert config == ObjectDiff(
        type="Edited", name="Config", fields=(FieldDiff(type="Edited", name="image", old="x:1", new="x:2"),)
    )


def test_context_shows_what_stays_the_same() -> None:
    diff = diff_jobs(JOB, _changed(lambda job, group, task: job.update(Priority=60)), True)
    assert ("Edited", "Priority", "50", "60") in _shown(diff.fields)
    assert ("None", "Name", "web", "web") in _shown(diff.fields)
    assert (_group(diff).type, _task(diff).type) == ("None", "None")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda env: env.update(B="2"), [("Added", "Env[B]", "", "2")]),
        (lambda env: env.update(B=""), [("Added", "Env[B]", "", "")]),
        (lambda env: env.clear(), [("Deleted", "Env[A]", "1", "")]),
        (lambda env: env.update(A="9"), [("Edited", "Env[A]", "1", "9")]),
    ],
)
def test_entries_of_text_maps_are_fields(change: Callable[[Any], Any], expected: list[tuple[str, ...]]) -> None:
    assert _shown(_task(_edited(lambda job, group, task: change(task["Env"]))).fields) == expected


def test_driver_configuration_is_shown_leaf_by_leaf() -> None:
    diff = _edited(lambda job, group, task: task["Config"].update(args=["a", "c", "d"], auth=[{"user": "you"}]))
    assert _shown(_task(diff).objects[0].fields) == [
        ("Edited", "args[1]", "b", "c"),
        ("Added", "args[2]", "", "d"),
        ("Edited", "auth[0][user]", "me", "you"),
    ]


def test_ports_and_services_of_a_group_are_shown() -> None:
    """B125."""

    def change(job: dict[str, Any], group: dict[str, Any], task: dict[str, Any]) -> None:
        group["Networks"][0]["DynamicPorts"][0]["To"] = 80
        group["Services"][0]["Tags"] = ["b", "c"]

    network, service = _group(_edited(change)).objects
    assert (network.name, network.objects[0].name) == ("Network", "Dynamic Port")
    assert _shown(network.objects[0].fields) == [("Edited", "To", "0", "80")]
    assert (service.name, service.objects[0].name) == ("Service", "Tags")
    assert _shown(service.objects[0].fields) == [("Added", "Tags", "", "c"), ("Deleted", "Tags", "a", "")]


def test_a_changed_constraint_is_another_one() -> None:
    diff = _edited(lambda job, group, task: task["Constraints"][0].update(RTarget="darwin"))
    assert sorted((part.type, part.name) for part in _task(diff).objects) == [
        ("Added", "Constraint"),
        ("Deleted", "Constraint"),
    ]


def test_the_order_of_constraints_is_no_difference_but_the_order_of_arguments_is() -> None:
    both = [{"LTarget": "a", "RTarget": "b"}, {"LTarget": "c", "RTarget": "d"}]
    one = _changed(lambda job, group, task: job.update(Constraints=both))
    other = _changed(lambda job, group, task: job.update(Constraints=both[::-1]))
    assert diff_jobs(one, other, False).type == "None"
    template = {"EmbeddedTmpl": "x", "DestPath": "x", "ChangeMode": "script"}
    one = _changed(lambda job, group, task: task.update(Templates=[{**template, "ChangeScript": {"Args": ["1", "2"]}}]))
    other = _changed(
        lambda job, group, task: task.update(Templates=[{**template, "ChangeScript": {"Args": ["2", "1"]}}])
    )
    arguments = _task(diff_jobs(one, other, False)).objects[0].objects[0].objects[0]
    assert _shown(arguments.fields) == [("Edited", "Args[0]", "1", "2"), ("Edited", "Args[1]", "2", "1")]


def test_a_change_beside_a_scaling_block_is_shown() -> None:
    """B117."""

    def scaled(job: dict[str, Any], group: dict[str, Any], task: dict[str, Any]) -> None:
        group["Scaling"] = {"Min": 1, "Max": 3}

    def changed(job: dict[str, Any], group: dict[str, Any], task: dict[str, Any]) -> None:
        scaled(job, group, task)
        task["Config"]["image"] = "x:2"

    assert _task(diff_jobs(_changed(scaled), _changed(changed), False)).type == "Edited"


def test_groups_and_tasks_come_and_go_by_name() -> None:
    def change(job: dict[str, Any], group: dict[str, Any], task: dict[str, Any]) -> None:
        task["Name"] = "worker"
        job["TaskGroups"].append({"Name": "cache", "Tasks": [{"Name": "redis", "Driver": "docker"}]})

    api, cache = _edited(change).task_groups
    assert [(group.type, group.name) for group in (api, cache)] == [("Edited", "api"), ("Added", "cache")]
    assert [(task.type, task.name) for task in api.tasks] == [("Deleted", "server"), ("Added", "worker")]


def test_jobs_with_different_ids_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different ids"):
        diff_jobs(JOB, replace(JOB, id="other"), False)


@pytest.mark.parametrize(("count", "annotation"), [(3, "forces create"), (0, "forces destroy")])
def test_a_changed_count_says_what_it_forces(count: int, annotation: str) -> None:
    diff = annotate(_edited(lambda job, group, task: group.update(Count=count)), {})
    assert [field.annotations for field in _group(diff).fields] == [(annotation,)]


@pytest.mark.parametrize(
    ("change", "annotation"),
    [
        (lambda task: task["Config"].update(image="x:2"), "forces create/destroy update"),
        (lambda task: task.update(User="nobody"), "forces create/destroy update"),
        (lambda task: task.update(KillTimeout=9), "forces in-place update"),
        (lambda task: task.update(LogConfig={"MaxFiles": 3}), "forces in-place update"),
        (lambda task: task.update(Services=[{"Name": "x"}]), "forces in-place update"),
        (lambda task: task.update(Affinities=[{"LTarget": "a", "RTarget": "b"}]), "forces in-place update"),
        (lambda task: task.update(Services=[{"Name": "x"}], User="nobody"), "forces create/destroy update"),
        (lambda task: task.update(Name="other"), "forces create/destroy update"),
    ],
)
def test_a_changed_task_says_what_it_forces(change: Callable[[Any], Any], annotation: str) -> None:
    diff = annotate(_edited(lambda job, group, task: change(task)), {})
    assert {task.annotations for task in _group(diff).tasks} == {(annotation,)}


def test_a_receiver_of_output_is_shown_by_its_name() -> None:
    """It is lepa's own, and no key of jobs that have none."""
    assert "Ship" not in to_builtins(JOB)["TaskGroups"][0]["Tasks"][0]["LogConfig"]
    ship = {"Name": "team", "Type": "syslog", "Address": "udp://a:1", "Labels": {"release": "7"}}
    diff = _edited(lambda job, group, task: task.update(LogConfig={"Ship": [ship]}))
    (logs,) = _task(diff).objects
    (shown,) = logs.objects
    assert (logs.name, shown.name, shown.type) == ("LogConfig", "Ship", "Added")
    assert ("Labels[release]", "7") in [(field.name, field.new) for field in shown.fields]


def test_tasks_of_new_and_removed_groups_are_created_and_destroyed() -> None:
    assert _task(annotate(diff_jobs(None, JOB, True), {})).annotations == ("forces create",)
    assert _task(annotate(diff_jobs(JOB, None, True), {})).annotations == ("forces destroy",)


def test_groups_count_what_will_be_done_to_their_allocations() -> None:
    updates = {"api": DesiredUpdates(place=2, stop=1, in_place_update=3, destructive_update=4, ignore=5, migrate=0)}
    assert _group(annotate(diff_jobs(JOB, JOB, True), updates)).updates == {
        "ignore": 5,
        "create": 2,
        "destroy": 1,
        "in-place update": 3,
        "create/destroy update": 4,
    }
