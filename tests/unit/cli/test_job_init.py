"""The example job file."""

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

from lepa import jobspec
from lepa.cli.job_init import TEMPLATES, example
from lepa.jobspec import format_text, parse
from lepa.model.job_rules import canonicalise, validate


@pytest.mark.parametrize("short", [False, True])
def test_the_example_is_a_valid_job_in_canonical_form(short: bool) -> None:
    text = example("python3", short=short)
    parsed = parse(text)
    assert parsed.job is not None, parsed.message
    assert validate(canonicalise(parsed.job)).errors == ()
    assert format_text(text).text == text
    service = parsed.job["TaskGroups"][0]["Services"][0]
    assert (service["Name"], service["Provider"]) == ("web", "nomad")
    assert ("#" in text) is not short


def test_init_writes_a_file_and_never_over_one(tmp_path: Path, lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lepa("job", "init").code == 0
    text = (tmp_path / "example.nomad.hcl").read_text()
    assert 'job "example"' in text
    done = lepa("init")
    assert (done.code, (tmp_path / "example.nomad.hcl").read_text()) == (1, text)
    assert "already exists" in done.error
    assert lepa("init", "-short", "own.hcl").code == 0
    assert len((tmp_path / "own.hcl").read_text()) < len(text)
    assert "cannot write" in lepa("init", "no/such/dir.hcl").error


def test_another_python_is_named_where_there_is_none_in_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from lepa.cli import job_init

    monkeypatch.setattr(job_init, "USUAL_PATH", "/nowhere")
    assert job_init.python().startswith("/")


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_other_examples_are_jobs_too(name: str, lepa: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.nomad.hcl"
    assert lepa("job", "init", f"-template={name}", str(path)).code == 0
    parsed = jobspec.parse(path.read_text())
    assert parsed.job is not None, [each.render() for each in parsed.diagnostics]
    assert parsed.job["Type"] == "batch"


def test_examples_are_listed_and_unknown_ones_refused(lepa: Run) -> None:
    assert lepa("job", "init", "-list-templates").out.split() == ["service", "batch", "parameterized", "periodic"]
    assert "there is no example" in lepa("job", "init", "-template=x").error
    assert "no service mesh" in lepa("job", "init", "-connect").error
