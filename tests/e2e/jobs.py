"""Job bodies for tests on real agents: shell scripts under raw_exec, quick to become healthy and to restart."""

from typing import Any

MILLISECOND, SECOND = 1_000_000, 1_000_000_000

WAIT = "trap 'exit 0' INT TERM; while :; do sleep 0.05; done"
"""A script that runs until it is told to stop."""


def shell_task(name: str, script: str, *, cpu: int = 20, memory_mb: int = 16, **fields: Any) -> dict[str, Any]:
    """A task that runs a script."""
    return {
        "Name": name,
        "Driver": "raw_exec",
        "Config": {"command": "/bin/sh", "args": ["-c", script]},
        "Resources": {"CPU": cpu, "MemoryMB": memory_mb},
        "KillTimeout": 2 * SECOND,
        "LogConfig": {"MaxFiles": 2, "MaxFileSizeMB": 1},
        **fields,
    }


def shell_job(
    job_id: str,
    script: str = WAIT,
    *,
    kind: str = "service",
    count: int = 1,
    task: dict[str, Any] | None = None,
    group: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A job of one group "main" with one task "main". task, group, fields: what differs on each level."""
    return {
        "ID": job_id,
        "Type": kind,
        "TaskGroups": [
            {
                "Name": "main",
                "Count": count,
                "Tasks": [shell_task("main", script, **(task or {}))],
                "EphemeralDisk": {"SizeMB": 20},
                "RestartPolicy": {"Attempts": 0, "Interval": 60 * SECOND, "Delay": 50 * MILLISECOND, "Mode": "fail"},
                "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
                **(group or {}),
            }
        ],
        **({"Update": quick_update()} if kind == "service" else {}),
        **fields,
    }


def quick_update(**fields: Any) -> dict[str, Any]:
    """A rolling update whose allocations are healthy as soon as they run."""
    return {
        "MaxParallel": 1,
        "HealthCheck": "task_states",
        "MinHealthyTime": 50 * MILLISECOND,
        "HealthyDeadline": 20 * SECOND,
        "ProgressDeadline": 60 * SECOND,
        **fields,
    }
