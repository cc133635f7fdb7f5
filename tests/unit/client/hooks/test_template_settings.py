"""What the operator says about templates."""

from pathlib import Path
from typing import Any, cast

import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import Setup
from lepa.client.hooks.template_settings import TemplateSettings
from lepa.client.hooks.template_text import render
from lepa.client.hooks.templates import _World
from lepa.client.task_env import Directories, Place
from lepa.model.errors import LepaError


def world(tmp_path: Path, settings: TemplateSettings) -> _World:
    task = make_task()
    job = make_job(groups=(make_group(tasks=(task,)),))
    place = Place(
        make_node(), "global", job, job.task_groups[0], task, make_alloc("a", job=job), Directories("", "", "")
    )
    directory = AllocDir(tmp_path / "allocs", "a")
    directory.build([task.name])
    (directory.task(task.name).local / "own").write_text("own")
    return _World(directory, Setup(place, {"A": "b"}, cast(Any, None)), {}, 0, settings)


def test_waits_are_held_within_bounds() -> None:
    settings = TemplateSettings(quiet_s=5, quiet_max_s=240, bounds_s=(2, 60))
    assert [settings.quiet(wanted) for wanted in (None, 0, 10, 100)] == [5, 2, 10, 60]
    assert [settings.quiet_max(wanted) for wanted in (None, 1, 100)] == [240, 2, 60]


def test_functions_are_denied_as_the_operator_says(tmp_path: Path) -> None:
    """S8."""
    seen = world(tmp_path, TemplateSettings())
    assert render('{{ env "A" }}', seen).text == "b"
    with pytest.raises(LepaError, match="env is not allowed on this node"):
        render('{{ env "A" }}', seen, denied=("env",))
    with pytest.raises(LepaError, match="plugin is not allowed on this node"):
        render('{{ plugin "/bin/id" }}', seen)
    with pytest.raises(LepaError, match="plugin"):
        render('{{ plugin "/bin/id" }}', seen, denied=())


def test_files_of_the_host_are_read_only_without_the_sandbox(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.write_text("host's")
    closed = world(tmp_path / "closed", TemplateSettings())
    assert closed.read_file("local/own") == "own"
    for path in (str(host), "../../../host", "local/../../../../host"):
        with pytest.raises(LepaError):
            closed.read_file(path)
    opened = world(tmp_path / "open", TemplateSettings(file_sandbox=False))
    assert opened.read_file(str(host)) == "host's"
    assert opened.read_file("/local/own") == "own"
