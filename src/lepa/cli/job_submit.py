"""`lepa job run`, `plan` and `validate`: what starts from a job file."""

from collections.abc import Callable
from typing import Any

from lepa.cli import placement
from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.job_file import JobFile, read_job
from lepa.cli.monitor import Monitor
from lepa.cli.output import Json, paint, pretty_json
from lepa.cli.pages import with_ui
from lepa.cli.plan_view import changes_allocations, diff_lines
from lepa.cli.session import Session, Shape, api, job_page, segment
from lepa.kit.durations import ZERO_TIME
from lepa.model.errors import LepaError, invalid

PLAN_ERROR = 255
ANY_REGION = "global"
"""What a job says that leaves its region to the agent."""


def from_job_file(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a job file with the flags that say how to read it."""
    for decorate in (
        argument("path", shown="<path>"),
        repeated("var", "Value of an input variable.", metavar="name=value"),
        repeated("var-file", "File with values of input variables.", metavar="path"),
        flag("hcl2-strict", "Values for undeclared variables are errors.", default=True),
        option("vault-namespace", "Accepted, and without effect.", metavar="name", hidden=True),
    ):
        function = decorate(function)
    return function


@command()
@from_job_file
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@flag("output", "Print the job as JSON, and submit nothing.")
@flag("json", "The file is JSON.")
@option("check-index", "Run only if the job has this modify index; 0: only if there is no such job.", metavar="index")
@option("eval-priority", "Priority of the evaluation, 1 to 100.", kind=int, default=0, metavar="number")
@flag("preserve-counts", "Keep the counts of groups that run already.")
@flag("preserve-resources", "Keep the resources of tasks that run already.")
@flag("policy-override", "Accepted, and without effect.", hidden=True)
@option("consul-namespace", "Accepted, and without effect.", metavar="name", hidden=True)
@api
@with_ui("jobs")
def run(
    session: Session,
    path: str,
    var: tuple[str, ...],
    var_file: tuple[str, ...],
    hcl2_strict: bool,
    detach: bool,
    verbose: bool,
    output: bool,
    json: bool,
    check_index: str | None,
    eval_priority: int,
    preserve_counts: bool,
    preserve_resources: bool,
    **_: Any,
) -> int:
    """Run the job of a file, or change the running job to what the file says.

    The path is a file, an http or https URL, or - for standard input. Unless -detach is given the evaluation and the
    deployment are followed: the exit code is 0 when all is placed and healthy, 1 when something failed, 2 when the
    cluster has no room for a part of it.
    """
    file = read_job(path, var, var_file, json=json, strict=hcl2_strict)
    if output:
        session.out.line(pretty_json({"Job": file.job}))
        return 0
    body: Json = {
        "Job": file.job,
        "Submission": file.submission,
        "PreserveCounts": preserve_counts,
        "PreserveResources": preserve_resources,
        "EvalPriority": eval_priority,
    }
    if check_index is not None:
        body |= {"EnforceIndex": True, "JobModifyIndex": _index(check_index)}
    answer = _registered(session, file, body)
    _warn(session, file, answer)
    return _followed(session, file.job, answer["EvalID"], detach=detach, verbose=verbose)


def _index(text: str) -> int:
    if not text.isdigit():
        raise invalid(f'-check-index is a number, as `lepa job plan` prints it, not "{text}"')
    return int(text)


def _registered(session: Session, file: JobFile, body: Json) -> Json:
    try:
        answer: Json = session.nomad.put("/v1/jobs", body, _scope(session, file.job)).value
    except LepaError as error:
        if "nforcing job modify index" in error.message:
            hint = "; someone else has changed the job: plan again to see what running it would do now"
            raise LepaError("conflict", f"{error.message}{hint}") from error
        raise LepaError(error.code, f"Error submitting job: {error.message}", **error.facts) from error
    session.page = job_page(file.job)
    return answer


def _scope(session: Session, job: Json) -> dict[str, str | None]:
    """Where a job file says the job belongs; otherwise flags and environment say it. All that is asked about the job
    afterwards is asked in its region too."""
    if job.get("Region") and job["Region"] != ANY_REGION:
        session.nomad.target = session.nomad.target._replace(region=job["Region"])
    return {"namespace": job["Namespace"]} if job.get("Namespace") else {}


def _warn(session: Session, file: JobFile, answer: Json) -> None:
    for warning in (*file.warnings, *filter(None, (answer.get("Warnings") or "").split("\n"))):
        session.out.line(paint(warning, "yellow"))


def _followed(session: Session, job: Json, evaluation: str, *, detach: bool, verbose: bool) -> int:
    if not evaluation:
        session.out.line("Job registration successful")
        if job.get("Periodic") and (launch := _next_launch(session, job)):
            session.out.line(f"Approximate next launch time: {launch}")
        return 0
    if detach:
        session.out.line(f"Job registration successful\nEvaluation ID: {evaluation}")
        return 0
    return Monitor(session, verbose=verbose).evaluation(evaluation)


def _next_launch(session: Session, job: Json) -> str:
    """When a periodic job is due next: a plan of it knows."""
    body = {"Job": job, "Diff": False}
    answer = session.nomad.put(f"/v1/job/{segment(job['ID'])}/plan", body, _scope(session, job)).value
    launch = answer.get("NextPeriodicLaunch") or ZERO_TIME
    return "" if launch == ZERO_TIME else f"{launch} ({session.ago(launch)})"


@command(error_code=PLAN_ERROR)
@from_job_file
@flag("diff", "Show what would change in the job.", default=True)
@flag("verbose", "Show fields of tasks that are added or taken away, too.")
@flag("json", "The file is JSON.")
@flag("json-output", "Print the API's JSON.")
@option("t", "Print through a Go template.", metavar="template")
@flag("policy-override", "Accepted, and without effect.", hidden=True)
@api
def plan(
    session: Session,
    path: str,
    var: tuple[str, ...],
    var_file: tuple[str, ...],
    hcl2_strict: bool,
    diff: bool,
    verbose: bool,
    json: bool,
    json_output: bool,
    t: str | None,
    **_: Any,
) -> int:
    """Show what running a job file would change, and change nothing.

    The exit code is 0 when no allocation would be created or destroyed, 1 when some would, 255 for an error.
    """
    file = read_job(path, var, var_file, json=json, strict=hcl2_strict)
    body = {"Job": file.job, "Diff": diff}
    answer = session.nomad.put(f"/v1/job/{segment(file.job['ID'])}/plan", body, _scope(session, file.job)).value
    shape = Shape(json_output, t)
    if shape:
        session.out.line(shape.render(answer))
    else:
        _show_plan(session, file, answer, path, verbose)
    return 1 if changes_allocations(answer) else 0


def _show_plan(session: Session, file: JobFile, answer: Json, path: str, verbose: bool) -> None:
    out = session.out
    if answer.get("Diff"):
        out.line("\n".join(diff_lines(answer["Diff"], verbose)))
        out.line()
    out.line(paint("Scheduler dry-run:", "bold"))
    for line in dry_run(session, answer):
        out.line(line)
    out.line()
    _warn(session, file, answer)
    out.line(paint(f"Job Modify Index: {answer['JobModifyIndex']}", "bold"))
    out.line("To submit the job with version verification run:\n")
    out.line(f"lepa job run -check-index {answer['JobModifyIndex']} {path}\n")
    out.line(
        "With -check-index the job is run only while it still has this modify index. Has somebody else changed it\n"
        "meanwhile, the plan above no longer tells what would happen, and running is refused."
    )


def dry_run(session: Session, answer: Json) -> list[str]:
    """What the scheduler would do, in words."""
    failed = answer.get("FailedTGAllocs") or {}
    if failed:
        lines = [paint("- WARNING: Failed to place all allocations.", "yellow")]
        lines += [f"  {line}" for line in placement.failures(failed)]
    else:
        lines = [paint("- All tasks successfully allocated.", "green")]
    launch = answer.get("NextPeriodicLaunch") or ZERO_TIME
    if launch != ZERO_TIME:
        lines.append(f"- If submitted now, next periodic launch would be at {launch} ({session.ago(launch)}).")
    preempted = (answer.get("Annotations") or {}).get("PreemptedAllocs") or ()
    if preempted:
        lines.append("- Evicts allocations of lower priority:")
        lines += [f"  * {stub['ID'][:8]} of job {stub['JobID']}, group {stub['TaskGroup']}" for stub in preempted]
    return lines


@command()
@from_job_file
@flag("json", "The file is JSON.")
@api
def validate(
    session: Session,
    path: str,
    var: tuple[str, ...],
    var_file: tuple[str, ...],
    hcl2_strict: bool,
    json: bool,
    **_: Any,
) -> int:
    """Check a job file here, and by the servers where an agent answers."""
    file = read_job(path, var, var_file, json=json, strict=hcl2_strict)
    answer = _checked_by_server(session, file.job)
    errors = (answer.get("ValidationErrors") or [answer["Error"]]) if answer.get("Error") else []
    _warn(session, file, answer)
    if errors:
        session.out.error("Job validation errors:\n" + "\n".join(f"  * {error}" for error in errors))
        return 1
    session.out.line(paint("Job validation successful", "green"))
    return 0


def _checked_by_server(session: Session, job: Json) -> Json:
    """What the servers say; without an agent, what this program knows by itself."""
    try:
        answer: Json = session.nomad.put("/v1/validate/job", {"Job": job}, _scope(session, job)).value
    except LepaError as error:
        if error.code != "no_leader" or "status" in error.facts:
            raise
        return _checked_here(job)
    return answer


def _checked_here(job: Json) -> Json:
    from lepa.model.job_rules import canonicalise
    from lepa.model.job_rules import validate as problems_of

    problems = problems_of(canonicalise(job))
    return {
        "Error": problems.error_text,
        "ValidationErrors": list(problems.errors),
        "Warnings": "\n".join([*problems.warnings, "No agent answers: checked without the servers."]),
    }
