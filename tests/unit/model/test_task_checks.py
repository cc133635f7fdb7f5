"""What is wrong with a task."""

from typing import Any

import pytest
from tests.unit.model.raw_jobs import errors_of, made_job

from lepa.model.job_rules import validate


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"Name": ""}, "Missing task name"),
        pytest.param({"Name": "a/b"}, "Task name cannot include slashes", id="B104"),
        pytest.param({"Name": "alloc"}, 'Task cannot be named "alloc"', id="B111"),
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
        pytest.param(
            {"Templates": [{"EmbeddedTmpl": "x", "DestPath": "x", "Envvars": True, "ChangeMode": "signal"}]},
            "cannot use signals with env var templates",
            id="B109",
        ),
        pytest.param(
            {"Templates": [{"EmbeddedTmpl": "x", "DestPath": "x", "ChangeMode": "script"}]},
            "must specify change script configuration value when change mode is script",
            id="B110",
        ),
        ({"Artifacts": [{}]}, "source must be specified"),
        ({"Artifacts": [{"GetterSource": "x", "RelativeDest": "../../../etc"}]}, "escapes allocation directory"),
        ({"Artifacts": [{"GetterSource": "x", "GetterOptions": {"checksum": "md5:1"}}]}, "expected 32 hex digits"),
        ({"Actions": [{"Name": "a b", "Command": "x"}]}, 'Action name "a b" must be'),
        ({"DispatchPayload": {"File": "../../x"}}, "escapes allocation directory"),
    ],
)
def test_a_broken_task_is_refused_with_its_group_and_name(task: dict[str, Any], message: str) -> None:
    assert any(
        message in error and error.startswith("Task group api validation failed: ") for error in errors_of(**task)
    )


def test_disk_asked_for_by_a_task_is_ignored_with_a_warning() -> None:
    """Nomad's own end-to-end jobs still ask for it."""
    problems = validate(made_job(Resources={"DiskMB": 5}))
    assert problems.errors == ()
    assert "Task can't ask for disk resources" in problems.warnings[0]
