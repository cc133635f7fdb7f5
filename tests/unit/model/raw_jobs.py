"""Jobs for the tests of job rules, from the keys that matter to a test."""

from typing import Any

from lepa.model.job import Job, TaskGroup
from lepa.model.job_rules import canonicalise, validate
from lepa.model.task import Task


def raw_job(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    """One group, `api`, of one task, `server`."""
    tasks = [{"Name": "server", "Driver": "raw_exec", **task}]
    return {"ID": "web", "TaskGroups": [{"Name": "api", "Tasks": tasks, **(group or {})}], **(job or {})}


def made_job(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> Job:
    """The canonical form of it."""
    return canonicalise(raw_job(job, group, **task))


def made_group(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> TaskGroup:
    """Its group."""
    return made_job(job, group, **task).task_groups[0]


def made_task(**task: Any) -> Task:
    """Its task."""
    return made_group(**task).tasks[0]


def errors_of(job: dict[str, Any] | None = None, group: dict[str, Any] | None = None, **task: Any) -> tuple[str, ...]:
    """What is wrong with it."""
    return validate(made_job(job, group, **task)).errors
