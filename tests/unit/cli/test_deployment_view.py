"""A deployment as people see it."""

from tests.unit.cli.objects import deployment

from lepa.cli.deployment_view import describe, groups


def test_head_and_groups() -> None:
    assert describe(deployment()) == (
        "ID          = 44444444\n"
        "Job ID      = web\n"
        "Job Version = 1\n"
        "Status      = running\n"
        "Description = Deployment is running\n"
        "\n"
        "Deployed\n"
        "Task Group  Desired  Placed  Healthy  Unhealthy  Progress Deadline\n"
        "page        2        2       1        0          2026-05-28T20:30:00Z"
    )


def test_columns_for_canaries_and_reverting_are_there_where_needed() -> None:
    header, row = groups(deployment(desired_canaries=1, auto_revert=True)).split("\n")
    assert header.split("  ")[:2] == ["Task Group", "Auto Revert"]
    assert "Promoted" in header
    assert "Canaries" in header
    assert row.split() == ["page", "true", "false", "2", "1", "2", "1", "0", "2026-05-28T20:30:00Z"]
