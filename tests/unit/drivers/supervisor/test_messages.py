import json
from typing import Any

import pytest

from lepa.drivers.supervisor.messages import (
    Command,
    Exit,
    Identity,
    LogFiles,
    TaskInfo,
    TaskSpec,
    task_info,
    task_spec,
    to_json,
)

COMMAND = Command(("/bin/x", "a"), {"K": "v"}, "/tmp", Identity(1, 2, (3,)), 10)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(to_json(value)))


def test_a_spec_survives_the_way() -> None:
    spec = TaskSpec("t", COMMAND, LogFiles("/l/t.stdout", 3, 99), None, ("/cg",), "0,2", "/pid", "/error", ("/own",))
    assert task_spec(through_json(spec)) == spec


def test_an_info_survives_the_way() -> None:
    for exit in (None, Exit(137, 9, True, "why", 5)):
        info = TaskInfo("t", 7, 8, ("/cg",), exit)
        assert task_info(through_json(info)) == info


@pytest.mark.parametrize("argv", [[], ["relative"], ["/bin/x", "nul\0"]])
def test_a_command_that_cannot_be_run_safely_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"argv|argument"):
        task_spec({"id": "t", "command": {"argv": argv}})


def test_what_is_left_out_has_harmless_defaults() -> None:
    spec = task_spec({"id": "t", "command": {"argv": ["/bin/x"]}})
    assert spec == TaskSpec("t", Command(("/bin/x",)))
