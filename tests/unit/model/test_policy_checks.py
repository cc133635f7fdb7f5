"""Policies that cannot be followed."""

from typing import Any

import pytest
from tests.unit.model.raw_jobs import errors_of

from lepa.kit.durations import HOUR, MINUTE


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"Periodic": {"Specs": ["@daily"]}}, 'Periodic can only be used with "batch" or "sysbatch" scheduler'),
        ({"ParameterizedJob": {}}, 'Parameterized job can only be used with "batch" or "sysbatch" scheduler'),
    ],
)
def test_periodic_and_parameterized_jobs_are_batch_jobs(job: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors_of(job))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"MaxRunDuration": 5}, 'Job type "service" does not allow max_run_duration'),
        ({"Disconnect": {"LostAfter": 5, "StopOnClientAfter": 5}}, "cannot be configured with both lost_after and"),
        pytest.param({"Scaling": {"Min": 1}}, "maximum count must be specified and non-negative", id="B113"),
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
    ],
)
def test_a_broken_policy_is_refused(group: dict[str, Any], message: str) -> None:
    """B022: attempts in an interval of 0 would be attempts for ever."""
    assert any(message in error for error in errors_of(group=group))


def test_no_restart_at_all_needs_no_interval() -> None:
    assert errors_of(group={"RestartPolicy": {"Attempts": 0, "Interval": 0}}) == ()


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
    errors = errors_of({"Type": "batch", "Periodic": periodic})
    assert any(error.startswith(message) for error in errors)


def test_periodic_blocks_that_work_are_accepted() -> None:
    for periodic in ({"Specs": ["@daily", "0 0 L * *"], "TimeZone": "Europe/Berlin"}, {"Enabled": False}):
        assert errors_of({"Type": "batch", "Periodic": periodic}) == ()


def test_batch_jobs_have_no_deployments() -> None:
    errors = errors_of({"Type": "batch"}, {"Update": {"MaxParallel": 1}, "Migrate": {}})
    assert [error.rpartition(": ")[2] for error in errors] == [
        'Job type "batch" does not allow update block',
        'Job type "batch" does not allow migrate block',
    ]


def test_system_jobs_run_once_a_node_and_are_not_rescheduled() -> None:
    errors = errors_of({"Type": "system"}, {"Count": 2, "ReschedulePolicy": {"Attempts": 1}, "Scaling": {"Max": 3}})
    assert any("Count cannot exceed 1 with system scheduler" in error for error in errors)
    assert any("System or sysbatch jobs should not have a reschedule policy" in error for error in errors)
    assert any("Task groups with job type system do not support scaling blocks" in error for error in errors)
