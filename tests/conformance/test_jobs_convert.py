"""Real job files become canonical jobs, and every one can be judged."""

import re

import pytest
from tests.conformance.test_jobfiles import parsed_with_guesses
from tests.jobfiles import JobFile, job_files

from lepa.model.job import Job
from lepa.model.job_diff import diff_jobs
from lepa.model.job_rules import canonicalise, implied_constraints, spec_changed, validate
from lepa.model.wire import from_json, to_builtins, to_json

FILES = [file for file in job_files() if file.expected == "ok"]
MEANT_TO_RUN = re.compile(r"nomad-v1\.6\.0/e2e/(?!.*(gateway|ingress|connect_|namespace_default_[23]))")
"""Job files that Nomad's own end-to-end tests run: not those that are bad on purpose or need a mesh gateway."""


def converted(file: JobFile) -> Job | None:
    """The canonical job; None when the text does not parse."""
    found = parsed_with_guesses(file)
    if found.job is None:
        assert found.message
        return None
    return canonicalise(found.job)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_real_job_file_becomes_a_canonical_job(file: JobFile) -> None:
    job = converted(file)
    if job is None:
        return
    assert job.id
    assert from_json(to_json(job), Job) == job
    again = canonicalise(to_builtins(job))
    assert again == job
    assert not spec_changed(job, again)
    assert diff_jobs(job, again, False).type == "None"
    assert diff_jobs(None, job, True).type == "Added"
    problems = validate(implied_constraints(job))
    assert validate(job).errors == problems.errors
    if MEANT_TO_RUN.match(file.name):
        assert problems.errors == ()


def test_nearly_all_real_job_files_convert() -> None:
    refused = [file.name for file in FILES if converted(file) is None]
    assert len(refused) <= len(FILES) // 50, refused
