"""Pure: the text of a job file, HCL2 or JSON -> the job as a plain dict in the API's JSON shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lepa.jobspec import hcl, json_text
from lepa.jobspec.diagnostics import Diagnostic, Refusal, Reporter, Source
from lepa.jobspec.expressions import Budget, Scope
from lepa.jobspec.functions import function_table
from lepa.jobspec.job_blocks import JOB
from lepa.jobspec.mapping import Found, Mapper
from lepa.jobspec.syntax import Block, Body
from lepa.jobspec.variables import Given, declarations, local_values, variable_values

HCL_SIZE_MAX = 2 * 1024 * 1024
"""Characters of a job file in HCL; Nomad keeps at most a million bytes of one."""

JSON_SIZE_MAX = 16 * 1024 * 1024
"""Characters of a job file in JSON, which programs write."""

ReadFile = Callable[[str], str]


class Parsed(Struct, frozen=True):
    """A job file that was read. job: None when there are errors. diagnostics: the errors; warnings: the doubts."""

    job: dict[str, Any] | None
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def message(self) -> str:
        """All errors, one a line."""
        return "\n".join(each.render() for each in self.diagnostics)


def parse(
    text: str,
    *,
    filename: str = "job.nomad.hcl",
    variables: Mapping[str, str] | None = None,
    var_files: Sequence[tuple[str, str]] = (),
    env: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
    strict: bool = True,
    hcl1: bool = False,
) -> Parsed:
    """Read a job file; never raises for what the text holds.

    variables: values by name, as given with -var. var_files: (name, text) of variable files, HCL or JSON. env: the
    environment, for NOMAD_VAR_*, LEPA_VAR_* and HOME. read_file: reads what file() and templatefile() name, and raises
    OSError; without it they are refused. strict: values for undeclared variables are errors. hcl1: the caller asked for
    HCL1, which is refused.
    """
    report = Reporter(Source(filename, text))
    given = Given(variables or {}, var_files, env or {}, strict)
    job: dict[str, Any] | None = None
    is_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    size_max = JSON_SIZE_MAX if is_json else HCL_SIZE_MAX
    if hcl1:
        report.general("HCL1 is not supported", "Write the job file in HCL2 or JSON.")
    elif len(text) > size_max:
        report.general("File too large", f"A job file has at most {size_max} characters.")
    elif is_json:
        job = _json_job(report)
    else:
        job = _hcl_job(report, given, read_file)
    errors = tuple(each for each in report.found if each.severity == "error")
    warnings = tuple(each for each in report.found if each.severity == "warning")
    return Parsed(None if errors else job, errors, warnings)


def _json_job(report: Reporter) -> dict[str, Any] | None:
    """A job in the API's own JSON, bare or as `{"Job": {...}}`."""
    found = json_text.read_object(report, "A job")
    if found is None:
        return None
    wrapped = next((found[key] for key in found if key.lower() == "job"), found)
    if not isinstance(wrapped, dict):
        report.error(0, 1, "Invalid job", 'The value of "Job" must be an object.')
        return None
    if "job" in found and wrapped and all(isinstance(value, dict) for value in wrapped.values()):
        detail = 'Write HCL, or the API\'s JSON, as in {"Job": {"ID": "web", ...}}.'
        report.error(0, 1, "HCL as JSON is not read", detail)
        return None
    return wrapped


def _hcl_job(report: Reporter, given: Given, read_file: ReadFile | None) -> dict[str, Any] | None:
    body = hcl.parse_body(report)
    if report.failed:
        return None
    job = _job_block(body, report)
    functions = function_table(read_file=read_file, home=given.environment.get("HOME", ""))
    scope = Scope(report.source.text, {"var": {}, "local": {}}, functions, Budget())
    try:
        return _mapped(body, job, given, report, scope)
    except Refusal as problem:
        report.refuse(problem)
        return None


def _mapped(body: Body, job: Block | None, given: Given, report: Reporter, scope: Scope) -> dict[str, Any] | None:
    declaring = [block for block in body.blocks if block.type in ("variable", "variables")]
    declared = declarations(declaring, report, scope)
    scope = scope.child({"var": variable_values(declared, given, report, scope)})
    locals_blocks = [block for block in body.blocks if block.type == "locals"]
    scope = scope.child({"local": local_values(locals_blocks, report, scope)})
    if job is None:
        return None
    labels = tuple(label.text for label in job.labels)
    return Mapper(report).block(Found("job", labels, job.body, scope, (job.start, job.end)), JOB)


def _job_block(body: Body, report: Reporter) -> Block | None:
    """The one job block of a file; anything else at the top is refused."""
    for attribute in body.attributes.values():
        detail = (
            f'An argument named "{attribute.name}" is not expected here. A job file holds job, variable and locals.'
        )
        report.error(attribute.start, attribute.end, "Unsupported argument", detail)
    for block in body.blocks:
        if block.type not in ("job", "variable", "variables", "locals"):
            detail = (
                f'Blocks of type "{block.type}" are not expected here. A job file holds job, variable, variables and '
                "locals blocks."
            )
            report.error(block.start, block.end, "Unsupported block type", detail)
    jobs = [block for block in body.blocks if block.type == "job"]
    if not jobs:
        report.error(body.start, body.end, "Missing job block", 'A job file needs a block job "name" { ... }.')
        return None
    for extra in jobs[1:]:
        where = report.source.where(jobs[0].start, jobs[0].end)
        name = f' "{extra.labels[0].text}"' if extra.labels else ""
        detail = f"Only one job block is allowed, but there is also job{name}. The first was defined at {where}."
        report.error(extra.start, extra.end, "Duplicate job block", detail)
    return jobs[0]
