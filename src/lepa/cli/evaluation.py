"""`lepa eval …`: evaluations."""

from collections.abc import Iterator
from typing import Any

from lepa.cli import placement
from lepa.cli.alloc_view import allocation_table
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.monitor import Monitor
from lepa.cli.output import Json, pairs, short, table
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, Shape, api, confirmed, find_evaluation, shaped
from lepa.kit.durations import ZERO_TIME
from lepa.model.errors import invalid

COLUMNS = ("ID", "Priority", "Triggered By", "Job ID", "Namespace", "Node ID", "Status", "Placement Failures")


@command()
@option("job", "Only of this job.", metavar="id")
@option("status", "Only in this status.", metavar="status")
@option("filter", "Only those for which this expression holds.", metavar="expression")
@option("per-page", "How many to show.", kind=int, metavar="count")
@option("page-token", "Where to begin.", metavar="token")
@flag("verbose", "Whole ids.")
@shaped
@api
@with_ui("evaluations")
def list_all(session: Session, shape: Shape, verbose: bool, **given: Any) -> None:
    """List evaluations, the newest first."""
    query = {
        "job": given["job"],
        "status": given["status"],
        "filter": given["filter"],
        "per_page": given["per_page"],
        "next_token": given["page_token"],
        "reverse": True,
    }
    answer = session.nomad.get("/v1/evaluations", query)
    if shape:
        session.out.line(shape.render(answer.value or []))
        return
    if not answer.value:
        session.out.line("No evals found")
        return
    session.out.line(table(COLUMNS, [_row(each, verbose) for each in answer.value]))
    if answer.next_token:
        session.out.line(f"\nResults have been paginated. To get the next page run:\n\n-page-token {answer.next_token}")


def _row(evaluation: Json, verbose: bool) -> list[object]:
    return [
        short(evaluation["ID"], verbose),
        evaluation.get("Priority", 0),
        evaluation.get("TriggeredBy", ""),
        evaluation.get("JobID", ""),
        evaluation.get("Namespace", ""),
        short(evaluation.get("NodeID", ""), verbose),
        evaluation["Status"],
        _failures(evaluation),
    ]


def _failures(evaluation: Json) -> object:
    if evaluation["Status"] in ("pending", "blocked"):
        return "N/A - In Progress"
    return bool(evaluation.get("FailedTGAllocs"))


@command()
@argument("evaluation", required=False)
@flag("monitor", "Follow it until it has ended, and its deployment after it.")
@flag("verbose", "Whole ids.")
@shaped
@api
@with_ui("evaluations")
def status(session: Session, evaluation: str | None, shape: Shape, monitor: bool, verbose: bool) -> int:
    """Show an evaluation: what it is for, what came of it, and why something could not be placed."""
    if evaluation is None:
        session.out.line(shape.render(session.nomad.get("/v1/evaluations").value or []) if shape else "Name one.")
        return 0 if shape else 1
    found = find_evaluation(session, evaluation)
    if monitor:
        return Monitor(session, verbose=verbose).evaluation(found["ID"])
    full = session.nomad.get(f"/v1/evaluation/{found['ID']}", {"namespace": found["Namespace"], "related": True}).value
    if shape:
        session.out.line(shape.render(full))
        return 0
    session.out.line(pairs(_head(session, full, verbose)))
    _show_placement(session, full, verbose)
    return 0


def _head(session: Session, evaluation: Json, verbose: bool) -> Iterator[tuple[str, object]]:
    yield "ID", short(evaluation["ID"], verbose)
    yield "Create Time", session.ago(evaluation.get("CreateTime", 0))
    yield "Modify Time", session.ago(evaluation.get("ModifyTime", 0))
    yield "Status", evaluation["Status"]
    yield "Status Description", evaluation.get("StatusDescription") or evaluation["Status"]
    yield "Type", evaluation.get("Type", "")
    yield "TriggeredBy", evaluation.get("TriggeredBy", "")
    yield "Job ID", evaluation.get("JobID", "")
    yield "Namespace", evaluation.get("Namespace", "")
    if node := evaluation.get("NodeID"):
        yield "Node ID", short(node, verbose)
    yield "Priority", evaluation.get("Priority", 0)
    yield "Placement Failures", _failures(evaluation)
    for label, key in (("Previous Eval", "PreviousEval"), ("Next Eval", "NextEval"), ("Blocked Eval", "BlockedEval")):
        if other := evaluation.get(key):
            yield label, short(other, verbose)
    if evaluation.get("WaitUntil", ZERO_TIME) != ZERO_TIME:
        yield "Wait Until", evaluation["WaitUntil"]


def _show_placement(session: Session, evaluation: Json, verbose: bool) -> None:
    out = session.out
    if failed := evaluation.get("FailedTGAllocs"):
        out.title("Failed Placements")
        for line in placement.failures(failed):
            out.line(line)
        if blocked := evaluation.get("BlockedEval"):
            out.line(f'\nEvaluation "{short(blocked, verbose)}" waiting for additional capacity to place remainder')
    if related := evaluation.get("RelatedEvals"):
        out.title("Related Evaluations")
        rows = [(short(each["ID"], verbose), each["Priority"], each["TriggeredBy"], each["Status"]) for each in related]
        out.line(table(("ID", "Priority", "Triggered By", "Status"), rows))
    path = f"/v1/evaluation/{evaluation['ID']}/allocations"
    allocations = session.nomad.get(path, {"namespace": evaluation["Namespace"]}).value or []
    if allocations:
        out.title("Placed Allocations")
        out.line(allocation_table(allocations, session.now_ns(), verbose=verbose))


@command()
@argument("evaluations", many=True, required=False, shown="[evaluation] ...")
@option("filter", "All evaluations for which this expression holds.", metavar="expression")
@flag("yes", "Ask nothing.")
@api
def delete(session: Session, evaluations: tuple[str, ...], filter: str | None, yes: bool) -> int:
    """Delete evaluations, by id or by a filter, while the broker is paused.

    `lepa operator scheduler set-config -pause-eval-broker` pauses it. What still runs, or waits for a replacement,
    keeps its evaluation.
    """
    if bool(evaluations) == bool(filter):
        raise invalid("name evaluations, or give a -filter")
    found = [find_evaluation(session, each)["ID"] for each in evaluations]
    if filter:
        count = session.nomad.get("/v1/evaluations/count", {"filter": filter, "namespace": "*"}).value["Count"]
        if not count:
            session.out.line("No evaluations match")
            return 0
        question = f"Delete {count} evaluations?"
    else:
        question = f"Delete {len(found)} evaluations?"
    if not yes and not confirmed(question):
        return 1
    body: Json = {"Filter": filter} if filter else {"EvalIDs": found}
    answer = session.nomad.delete("/v1/evaluations", {"namespace": "*"} if filter else None, body).value
    session.out.line(f"Successfully deleted {answer['Count']} evaluation{'' if answer['Count'] == 1 else 's'}")
    return 0
