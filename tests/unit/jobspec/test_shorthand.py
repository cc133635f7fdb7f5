"""lepa.jobspec.shorthand, and the tables that use it: lepa.jobspec.resource_blocks and lepa.jobspec.task_blocks."""

from typing import Any

import pytest

from lepa.jobspec import Parsed, parse


def read(body: str) -> Parsed:
    return parse(f'job "j" {{\n{body}\n}}\n', filename="j")


def job(body: str) -> dict[str, Any]:
    found = read(body)
    assert found.job is not None, found.message
    return found.job


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('attribute = "${a}"\n value = "x"', {"LTarget": "${a}", "RTarget": "x", "Operand": "="}),
        ('attribute = a.b\n operator = "is_set"', {"LTarget": "${a.b}", "Operand": "is_set"}),
        ('attribute = "a"\n version = ">= 1"', {"LTarget": "a", "RTarget": ">= 1", "Operand": "version"}),
        ('attribute = "a"\n semver = "1"', {"LTarget": "a", "RTarget": "1", "Operand": "semver"}),
        ('attribute = "a"\n regexp = "x+"', {"LTarget": "a", "RTarget": "x+", "Operand": "regexp"}),
        ('attribute = "a"\n set_contains = "x"', {"LTarget": "a", "RTarget": "x", "Operand": "set_contains"}),
        ("distinct_hosts = true", {"RTarget": "true", "Operand": "distinct_hosts"}),
        ("distinct_hosts = false", {"RTarget": "false", "Operand": "distinct_hosts"}),
        (
            'distinct_property = "${meta.rack}"\n value = 3',
            {"LTarget": "${meta.rack}", "RTarget": "3", "Operand": "distinct_property"},
        ),
    ],
)
def test_constraint(body: str, expected: dict[str, str]) -> None:
    assert job(f"constraint {{\n {body}\n}}")["Constraints"] == [expected]


def test_affinity() -> None:
    body = 'affinity {\n attribute = "a"\n set_contains_any = "x,y"\n weight = -50\n}'
    assert job(body)["Affinities"] == [{"LTarget": "a", "Weight": -50, "Operand": "set_contains_any", "RTarget": "x,y"}]


def test_two_operators_in_a_constraint_are_refused() -> None:
    found = read('constraint {\n version = "1"\n regexp = "x"\n}')
    assert "Only one of version, regexp can be used in a block." in found.message
    assert "Ambiguous operator" in read('constraint {\n version = "1"\n operator = "="\n}').message


def test_ports_with_a_static_number_are_reserved() -> None:
    ports = 'port "a" { static = 80 }\n port "b" { to = 5 }\n port "c" { static = "81" }\n port "d" {}'
    network = job(f'group "g" {{\n network {{\n mode = "bridge"\n {ports}\n }}\n}}')["TaskGroups"][0]["Networks"][0]
    assert network == {
        "Mode": "bridge",
        "ReservedPorts": [{"Label": "a", "Value": 80}, {"Label": "c", "Value": 81}],
        "DynamicPorts": [{"Label": "b", "To": 5}, {"Label": "d"}],
    }


def test_port_labels_are_unique_whatever_their_case_and_not_empty() -> None:
    assert (
        'Port label "HTTP" is already in use by "http".'
        in read('group "g" {\n network {\n port "http" {}\n port "HTTP" {}\n }\n}').message
    )
    assert "Invalid port label" in read('group "g" {\n network {\n port "" {}\n }\n}').message


def test_scaling_of_groups_and_tasks() -> None:
    policies = 'scaling {\n max = 3\n policy { a = 1 }\n }\n task "t" {\n scaling "cpu" { max = 9 }\n }'
    group = job(f'group "g" {{\n {policies}\n}}')["TaskGroups"][0]
    assert group["Scaling"] == {"Max": 3, "Policy": {"a": 1}, "Type": "horizontal"}
    assert group["Tasks"][0]["ScalingPolicies"] == [{"Max": 9, "Type": "vertical_cpu"}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('scaling "disk" {}', 'must be "cpu" or "mem", not "disk"'),
        ('scaling "cpu" {\n type = "vertical_mem"\n}', 'has the type "vertical_cpu"'),
        ('scaling "cpu" {}\n scaling "cpu" {}', "one scaling block for each resource"),
    ],
)
def test_scaling_of_a_task_that_is_refused(body: str, message: str) -> None:
    assert message in read(f'task "t" {{\n {body}\n}}').message


def test_scaling_of_a_group_is_horizontal() -> None:
    assert "Invalid scaling policy type" in read('group "g" {\n scaling {\n max = 1\n type = "x"\n }\n}').message


def test_check_restart_of_a_service_holds_for_each_check() -> None:
    body = """group "g" {
      service {
        check_restart {
          limit = 3
          grace = "5s"
        }
        check {}
        check {
          check_restart { limit = 1 }
        }
      }
    }"""
    checks = job(body)["TaskGroups"][0]["Services"][0]["Checks"]
    assert checks == [
        {"CheckRestart": {"Limit": 3, "Grace": 5 * 10**9}},
        {"CheckRestart": {"Limit": 1, "Grace": 5 * 10**9}},
    ]


def test_the_default_identity_of_a_task_stands_apart() -> None:
    task = job('task "t" {\n identity { env = true }\n identity {\n name = "x"\n aud = ["a"]\n }\n}')["TaskGroups"][0][
        "Tasks"
    ][0]
    assert task["Identity"] == {"Env": True, "Name": "default"}
    assert task["Identities"] == [{"Name": "x", "Audience": ["a"]}]
    assert "Duplicate identity block" in read('task "t" {\n identity {}\n identity {}\n}').message


def test_a_task_outside_groups_gets_a_group_of_its_name() -> None:
    found = job('group "g" {}\ntask "t" {\n driver = "raw_exec"\n}')
    assert found["TaskGroups"] == [{"Name": "t", "Tasks": [{"Name": "t", "Driver": "raw_exec"}]}, {"Name": "g"}]


def test_vault_and_secrets_go_down_to_tasks_that_have_none() -> None:
    body = """vault { role = "job" }
    secret "s" { path = "job" }
    group "g" {
      vault { role = "group" }
      task "a" {}
      task "b" {
        vault { role = "task" }
        secret "s" { path = "task" }
      }
    }
    group "h" {
      task "c" {}
    }"""
    found = job(body)
    assert "Vault" not in found
    assert "Secrets" not in found
    tasks = {task["Name"]: task for group in found["TaskGroups"] for task in group["Tasks"]}
    assert {name: task["Vault"]["Role"] for name, task in tasks.items()} == {"a": "group", "b": "task", "c": "job"}
    assert {name: task["Secrets"][0]["Path"] for name, task in tasks.items()} == {"a": "job", "b": "task", "c": "job"}


def test_a_job_may_have_another_id_and_name_than_its_label() -> None:
    found = job('id = "other"\nname = "Shown"')
    assert (found["ID"], found["Name"]) == ("other", "Shown")


def test_periodic_times_are_in_crons_language() -> None:
    assert job('periodic {\n cron = "@daily"\n}')["Periodic"] == {"Spec": "@daily", "SpecType": "cron"}
    assert job('periodic {\n crons = ["@daily"]\n}')["Periodic"] == {"Specs": ["@daily"], "SpecType": "cron"}


def test_tokens_in_a_job_file_are_ignored_with_a_warning() -> None:
    found = read('vault_token = "x"')
    assert found.job == {"ID": "j", "Name": "j"}
    assert [each.render() for each in found.warnings] == [
        'j:1,1-4: Ignored argument; "vault_token" has no effect: tokens do not belong in job files.'
    ]
