"""`lepa job …`: looking at jobs."""

from typing import Any

from lepa.cli import placement
from lepa.cli.alloc_view import allocation_table
from lepa.cli.deployment_view import describe
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, ago, paint, pairs, short, table
from lepa.cli.pages import with_ui
from lepa.cli.plan_view import diff_lines
from lepa.cli.session import Session, Shape, api, find_job, job_path, shaped
from lepa.cli.task_failures import failure_lines
from lepa.kit.durations import SECOND, parse_rfc3339, rfc3339
from lepa.model.errors import invalid

SUMMARY = ("Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown")


@command()
@argument("job", required=False)
@flag("short", "Only the head.")
@flag("evals", "With the evaluations.")
@flag("all-allocs", "With allocations of earlier jobs of this id.")
@flag("verbose", "Whole ids and times.")
@shaped
@api
@with_ui("jobs")
def status(
    session: Session, job: str | None, shape: Shape, short: bool, evals: bool, all_allocs: bool, verbose: bool
) -> int:
    """List jobs, or show one with its groups, its deployment and its allocations."""
    if job is None:
        return _list(session, shape)
    stub = find_job(session, job)
    path, query = job_path(stub)
    full = session.nomad.get(path, query).value
    if shape:
        session.out.line(shape.render(full))
        return 0
    session.out.line(pairs(_head(session, full)))
    if not short:
        _details(session, stub, full, evals=evals, all_allocs=all_allocs, verbose=verbose)
    return 0


def _list(session: Session, shape: Shape) -> int:
    jobs = list(session.nomad.pages("/v1/jobs"))
    if shape:
        session.out.line(shape.render(jobs))
        return 0
    if not jobs:
        session.out.line("No running jobs")
        return 0
    everywhere = session.nomad.target.namespace == "*"
    header = ["ID", *(["Namespace"] if everywhere else []), "Type", "Priority", "Status", "Submit Date"]
    rows = [
        [
            job["ID"],
            *([job["Namespace"]] if everywhere else []),
            _kind(job["Type"], job["Periodic"], job["ParameterizedJob"]),
            job["Priority"],
            _state(job),
            _date(job["SubmitTime"]),
        ]
        for job in jobs
    ]
    session.out.line(table(header, rows))
    return 0


def _kind(kind: str, periodic: object, parameterized: object) -> str:
    return kind + ("/periodic" if periodic else "") + ("/parameterized" if parameterized else "")


def _state(job: Json) -> str:
    return f"{job['Status']} (stopped)" if job["Stop"] else str(job["Status"])


def _date(submitted_ns: int) -> str:
    return rfc3339(submitted_ns // SECOND * SECOND)


def _head(session: Session, job: Json) -> list[tuple[str, object]]:
    head: list[tuple[str, object]] = [
        ("ID", job["ID"]),
        ("Name", job["Name"]),
        ("Submit Date", _date(job["SubmitTime"])),
        ("Type", job["Type"]),
        ("Priority", job["Priority"]),
        ("Datacenters", ",".join(job["Datacenters"] or ())),
        ("Namespace", job["Namespace"]),
        ("Node Pool", job["NodePool"]),
        ("Status", _state(job)),
        ("Periodic", bool(job["Periodic"])),
        ("Parameterized", bool(job["ParameterizedJob"])),
    ]
    if tag := job.get("VersionTag"):
        head.append(("Version Tag", tag["Name"]))
    description = (job.get("UI") or {}).get("Description")
    return [*head, ("Description", description)] if description else head


def _details(session: Session, stub: Json, job: Json, *, evals: bool, all_allocs: bool, verbose: bool) -> None:
    summary_path, query = job_path(stub, "summary")
    answer = session.nomad.find(summary_path, query)
    summary = answer.value if answer else {}
    if (job["Periodic"] or job["ParameterizedJob"]) and not job.get("Dispatched"):
        _children(session, stub, summary)
        return
    _groups(session, summary)
    evaluations = session.nomad.get(job_path(stub, "evaluations")[0], query).value or []
    if evals:
        _evaluations(session, evaluations, verbose)
    _unplaced(session, evaluations)
    allocations = session.nomad.get(job_path(stub, "allocations")[0], {**query, "all": all_allocs}).value or []
    _rescheduled_later(session, evaluations, allocations, verbose)
    deployment = session.nomad.get(job_path(stub, "deployment")[0], query).value
    if deployment:
        session.out.title("Latest Deployment")
        session.out.line(describe(deployment, verbose))
    session.out.title("Allocations")
    session.out.line(allocation_table(allocations, session.now_ns(), verbose=verbose))
    failed = [each for each in allocations if each["ClientStatus"] == "failed" and each["DesiredStatus"] == "run"]
    if failures := failure_lines(failed, verbose):
        session.out.title("Failures")
        session.out.line("\n".join(failures))


def _groups(session: Session, summary: Json) -> None:
    session.out.title("Summary")
    rows = [
        [name, *(counts.get(state, 0) for state in SUMMARY)]
        for name, counts in sorted((summary.get("Summary") or {}).items())
    ]
    session.out.line(table(["Task Group", *SUMMARY], rows))


def _children(session: Session, stub: Json, summary: Json) -> None:
    counts = summary.get("Children") or {}
    session.out.title("Children Job Summary")
    states = ("Pending", "Running", "Dead")
    session.out.line(table(states, [[counts.get(state, 0) for state in states]]))
    prefixes = [f"{stub['ID']}/periodic-", f"{stub['ID']}/dispatch-"]
    children = [
        child
        for prefix in prefixes
        for child in session.nomad.get("/v1/jobs", {"prefix": prefix, "namespace": stub["Namespace"]}).value or []
    ]
    session.out.title("Previously Launched Jobs" if stub["Periodic"] else "Dispatched Jobs")
    if children:
        session.out.line(table(("ID", "Status"), [(child["ID"], _state(child)) for child in children]))
    else:
        session.out.line("No instances yet")


def _evaluations(session: Session, evaluations: list[Json], verbose: bool) -> None:
    session.out.title("Evaluations")
    newest_first = sorted(evaluations, key=lambda each: -each["CreateIndex"])
    rows = [
        (
            short(each["ID"], verbose),
            each["Priority"],
            each["TriggeredBy"],
            each["Status"],
            "N/A - In Progress" if each["Status"] == "pending" else bool(each.get("FailedTGAllocs")),
        )
        for each in newest_first
    ]
    session.out.line(table(("ID", "Priority", "Triggered By", "Status", "Placement Failures"), rows))


def _unplaced(session: Session, evaluations: list[Json]) -> None:
    """What the newest scheduling could not place, while something still waits for room."""
    if not any(each["Status"] == "blocked" for each in evaluations):
        return
    failed = [each for each in evaluations if each.get("FailedTGAllocs") and each["Status"] == "complete"]
    if failed:
        session.out.title("Placement Failure")
        newest = max(failed, key=lambda each: each["ModifyIndex"])
        for line in placement.failures(newest["FailedTGAllocs"]):
            session.out.line(line)
        session.out.line(placement.where_to_look(newest["JobID"]))


def _rescheduled_later(session: Session, evaluations: list[Json], allocations: list[Json], verbose: bool) -> None:
    """When allocations that failed are placed again, one line for a group and an evaluation that waits."""
    due = {each["ID"]: parse_rfc3339(each.get("WaitUntil") or "") for each in evaluations}
    now_ns = session.now_ns()
    waiting = {
        (due[follow_up], each["TaskGroup"], follow_up)
        for each in allocations
        if due.get(follow_up := each.get("FollowupEvalID") or "", 0) > now_ns
    }
    if waiting:
        session.out.title("Future Rescheduling Attempts")
        rows = [(group, short(follow_up, verbose), ago(at_ns, now_ns)) for at_ns, group, follow_up in sorted(waiting)]
        session.out.line(table(("Task Group", "Eval ID", "Eval Time"), rows))


@command()
@argument("job")
@flag("all", "Also of earlier jobs of this id.")
@flag("verbose", "Whole ids and times.")
@shaped
@api
def allocs(session: Session, job: str, shape: Shape, all: bool, verbose: bool) -> None:
    """List the allocations of a job."""
    path, query = job_path(find_job(session, job), "allocations")
    found = session.nomad.get(path, {**query, "all": all}).value or []
    session.out.line(shape.render(found) if shape else allocation_table(found, session.now_ns(), verbose=verbose))


@command()
@argument("job")
@flag("latest", "Only the newest, with its groups.")
@flag("all", "Also of earlier jobs of this id.")
@flag("verbose", "Whole ids.")
@shaped
@api
def deployments(session: Session, job: str, shape: Shape, latest: bool, all: bool, verbose: bool) -> None:
    """List the deployments of a job."""
    stub = find_job(session, job)
    path, query = job_path(stub, "deployment" if latest else "deployments")
    found: Any = session.nomad.get(path, {**query, "all": all}).value
    if shape:
        session.out.line(shape.render(found))
    elif not found:
        session.out.line("No deployments found")
    elif latest:
        session.out.line(describe(found, verbose))
    else:
        session.out.line(deployment_table(found, verbose))


def deployment_table(deployments: list[Json], verbose: bool) -> str:
    """Deployments, the newest first."""
    newest_first = sorted(deployments, key=lambda each: -each["CreateIndex"])
    header = ["ID", "Job ID", *(["Namespace"] if verbose else []), "Job Version", "Status", "Description"]
    rows = [
        [
            short(each["ID"], verbose),
            each["JobID"],
            *([each["Namespace"]] if verbose else []),
            each["JobVersion"],
            each["Status"],
            each["StatusDescription"],
        ]
        for each in newest_first
    ]
    return table(header, rows)


@command()
@argument("job")
@option("version", "This version, instead of the newest.", kind=int, metavar="number")
@flag("hcl", "Print the file that it was submitted as.")
@flag("with-vars", "With -hcl: the values of its variables, too.")
@shaped
@api
def inspect(session: Session, job: str, shape: Shape, version: int | None, hcl: bool, with_vars: bool) -> None:
    """Print a job as the servers hold it, as JSON, or with -hcl as it was written."""
    stub = find_job(session, job)
    if hcl or with_vars:
        session.out.line(_source(session, stub, version, with_vars))
        return
    found = _version(session, stub, version)
    template = Shape(as_json=True, template=shape.template)
    session.out.line(template.render(found if shape.template is not None else {"Job": found}))


def _version(session: Session, stub: Json, version: int | None) -> Json:
    if version is None:
        path, query = job_path(stub)
        found: Json = session.nomad.get(path, query).value
        return found
    return version_of(session, stub, version)


def version_of(session: Session, stub: Json, version: int) -> Json:
    """One version of a job that the servers still keep."""
    path, query = job_path(stub, "versions")
    versions: list[Json] = session.nomad.get(path, query).value["Versions"]
    for each in versions:
        if each["Version"] == version:
            return each
    kept = ", ".join(str(each["Version"]) for each in versions)
    raise invalid(f'job "{stub["ID"]}" has no version {version}; kept are {kept}')


def _source(session: Session, stub: Json, version: int | None, with_vars: bool) -> str:
    if version is None:
        path, query = job_path(stub)
        version = session.nomad.get(path, query).value["Version"]
    path, query = job_path(stub, "submission")
    answer = session.nomad.find(path, {**query, "version": version})
    if answer is None:
        raise invalid(f'the file of version {version} of job "{stub["ID"]}" was not kept with it')
    submission = answer.value
    source = str(submission["Source"])
    return f"{source}\n# Variables\n{_variables(source, submission)}".rstrip() if with_vars else source


def _variables(source: str, submission: Json) -> str:
    """A variable file that gives what was given, flags included; where it cannot be read, what was given as it is."""
    from lepa.jobspec import variable_text

    flags, text = submission.get("VariableFlags") or {}, submission.get("Variables") or ""
    written = variable_text(source, variables=flags, var_files=[("variables", text)] if text else ())
    return text + "".join(f"{name} = {flags[name]}\n" for name in sorted(flags)) if written is None else written


@command()
@argument("job")
@flag("p", "With the differences between neighbouring versions.")
@flag("full", "With the whole jobs as JSON.")
@option("version", "Only this version.", kind=int, metavar="number")
@option("diff-version", "With the differences to this version.", kind=int, metavar="number")
@option("diff-tag", "With the differences to the version of this tag.", metavar="name")
@shaped
@api
def history(
    session: Session,
    job: str,
    shape: Shape,
    p: bool,
    full: bool,
    version: int | None,
    diff_version: int | None,
    diff_tag: str | None,
) -> None:
    """Show the versions of a job that are kept, the newest first."""
    path, query = job_path(find_job(session, job), "versions")
    compared = p or diff_version is not None or diff_tag is not None
    answer = session.nomad.get(
        path, {**query, "diffs": compared or None, "diff_version": diff_version, "diff_tag": diff_tag}
    ).value
    versions = answer["Versions"] or []
    chosen = [each for each in versions if version is None or each["Version"] == version]
    if not chosen:
        raise invalid(f"version {version} is not kept; kept are {', '.join(str(v['Version']) for v in versions)}")
    if shape:
        session.out.line(shape.render(chosen))
        return
    diffs = dict(zip((each["Version"] for each in versions), answer.get("Diffs") or (), strict=False))
    blocks = [_version_block(each, diffs.get(each["Version"]), full) for each in chosen]
    session.out.line("\n\n".join(blocks))


def _version_block(job: Json, diff: Json | None, full: bool) -> str:
    from lepa.cli.output import pretty_json

    head: list[tuple[str, object]] = [
        ("Version", job["Version"]),
        ("Stable", job["Stable"]),
        ("Submit Date", _date(job["SubmitTime"])),
    ]
    if tag := job.get("VersionTag"):
        head += [("Tag Name", tag["Name"]), ("Tag Description", tag["Description"])]
    block = pairs(head)
    if diff:
        block += f"\n{paint('Diff', 'bold')}        =\n" + "\n".join(diff_lines(diff))
    return f"{block}\n{pretty_json(job)}" if full else block
