"""`lepa scaling policy …` and `lepa job scaling-events`: how counts may change, and how they did."""

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, moment, pairs, pretty_json, short, table
from lepa.cli.session import Session, Shape, api, find_job, job_path, segment, shaped
from lepa.kit.durations import SECOND, rfc3339
from lepa.model.errors import LepaError, not_found

EVENTS_SHOWN = 20


@command()
@option("job", "Only policies of this job.", metavar="id")
@option("type", "Only policies of this type, such as horizontal.", metavar="type")
@flag("verbose", "Whole ids.")
@shaped
@api
def policy_list(session: Session, shape: Shape, job: str | None, type: str | None, verbose: bool) -> None:
    """List scaling policies."""
    found = session.nomad.get("/v1/scaling/policies", {"job": job, "type": type}).value or []
    if shape:
        session.out.line(shape.render(found))
        return
    if not found:
        session.out.line("No policies found")
        return
    rows = [(short(each["ID"], verbose), each["Enabled"], each["Type"], target(each)) for each in found]
    session.out.line(table(("ID", "Enabled", "Type", "Target"), rows))


def target(policy: Json) -> str:
    """What a policy scales, as people read it."""
    of = policy.get("Target") or {}
    return ",".join(f"{key}:{of[key]}" for key in ("Namespace", "Job", "Group", "Task") if of.get(key))


@command()
@argument("policy", shown="<policy id>")
@flag("verbose", "Whole ids.")
@shaped
@api
def policy_info(session: Session, policy: str, shape: Shape, verbose: bool) -> None:
    """Show a scaling policy."""
    listed = session.nomad.get("/v1/scaling/policies", {"prefix": policy, "namespace": "*"}).value or []
    if not listed:
        raise not_found(f'No scaling policies with prefix or ID "{policy}" found')
    if len(listed) > 1 and all(each["ID"] != policy for each in listed):
        rows = table(("ID", "Target"), [(each["ID"], target(each)) for each in listed])
        raise LepaError("invalid", f"Prefix matched multiple scaling policies\n\n{rows}")
    found = session.nomad.get(f"/v1/scaling/policy/{segment(listed[0]['ID'])}").value
    if shape:
        session.out.line(shape.render(found))
        return
    head = [
        ("ID", short(found["ID"], verbose)),
        ("Enabled", found["Enabled"]),
        ("Type", found["Type"]),
        ("Target", target(found)),
        ("Min", found["Min"]),
        ("Max", found["Max"]),
    ]
    session.out.line(pairs(head))
    session.out.title("Policy")
    session.out.line(pretty_json(found["Policy"]) if found.get("Policy") else "None")


@command()
@argument("job")
@flag("verbose", "With the messages' facts and the evaluations.")
@api
def events(session: Session, job: str, verbose: bool) -> None:
    """List the newest changes of the counts of a job's groups."""
    path, query = job_path(find_job(session, job), "scale")
    groups: dict[str, Json] = session.nomad.get(path, query).value["TaskGroups"] or {}
    found = [(each["Time"], name, each) for name, group in groups.items() for each in group.get("Events") or ()]
    if not found:
        session.out.line("No events found")
        return
    newest_first = sorted(found, key=lambda row: -row[0])[:EVENTS_SHOWN]
    header = ["Task Group", "Count", "PrevCount", *(["Error"] if verbose else []), "Date"]
    header += ["Message", "Eval ID", "Meta"] if verbose else []
    session.out.line(table(header, [_event(name, each, verbose) for _, name, each in newest_first]))


def _event(group: str, event: Json, verbose: bool) -> list[object]:
    count = "" if event.get("Count") is None else event["Count"]
    row: list[object] = [group, count, event["PreviousCount"], *([bool(event["Error"])] if verbose else [])]
    row.append(rfc3339(moment(event["Time"]) // SECOND * SECOND))
    if verbose:
        meta = ",".join(f"{key}={value}" for key, value in sorted((event.get("Meta") or {}).items()))
        row += [event["Message"], event.get("EvalID") or "", meta]
    return row
