"""`lepa job explain`: why each node was chosen for a group, or was not."""

from collections.abc import Iterable, Iterator

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, paint, short
from lepa.cli.session import Session, Shape, api, find_job, job_path, shaped

REASONS_SHOWN = 3
LOOKS = {"chosen": "green", "fits": "cyan", "exhausted": "yellow"}


@command()
@argument("job")
@option("group", "Only this group.", metavar="name")
@option("nodes", "How many nodes of each group to show.", kind=int, default=20, metavar="count")
@flag("verbose", "Whole ids, scores, and every reason.")
@shaped
@api
def explain(session: Session, job: str, shape: Shape, group: str | None, nodes: int, verbose: bool) -> None:
    """Say why each node was or was not chosen for each group of a job.

    Nodes are looked at as they are now, as if the group were placed anew; what past schedulings wrote down follows.
    """
    path, query = job_path(find_job(session, job), "explain")
    found = session.nomad.get(path, {**query, "group": group, "nodes": nodes}).value
    if shape:
        session.out.line(shape.render(found))
        return
    for line in explanation_lines(found, session, verbose=verbose):
        session.out.line(line)


def explanation_lines(found: Json, session: Session, *, verbose: bool) -> Iterator[str]:
    """The explanation as people read it."""
    if found.get("Waiting"):
        yield f"The job waits before it begins: {found['Waiting']}\n"
    for number, group in enumerate(found["Groups"]):
        if number:
            yield ""
        yield paint(f'Group "{group["Name"]}": {group["Summary"]}', "bold")
        for node in group["Nodes"]:
            yield from _node(node, verbose)
        if group["NodesOmitted"]:
            rest = ", ".join(f"{count} {verdict}" for verdict, count in group["Verdicts"].items())
            yield f"  and {group['NodesOmitted']} nodes more (of all: {rest})"
    if found["Recorded"]:
        yield f"\n{paint('As it was decided', 'bold')}"
        for decision in found["Recorded"]:
            yield from _decision(decision, session, verbose)


def _node(node: Json, verbose: bool) -> Iterator[str]:
    here = f", runs {node['Running']}" if node["Running"] else ""
    would = f" x{node['Placed']}" if node["Placed"] > 1 else ""
    score = f", score {node['Score']:.3f}, rank {node['Rank']}" if node["Rank"] else ""
    verdict = node["Verdict"] + would
    shown = paint(verdict, LOOKS[node["Verdict"]]) if node["Verdict"] in LOOKS else verdict
    yield f"  {node['NodeName'] or '-'} ({short(node['NodeID'], verbose)}): {shown}{score}{here}"
    yield from _bullets(node["Reasons"], verbose)
    if verbose and node["Scores"]:
        terms = ", ".join(f"{name} {value:.3f}" for name, value in sorted(node["Scores"].items()))
        yield f"    * score: mean of {terms}"


def _bullets(reasons: Iterable[str], verbose: bool) -> Iterator[str]:
    listed = list(reasons)
    shown = listed if verbose else listed[:REASONS_SHOWN]
    yield from (f"    * {reason}" for reason in shown)
    if len(listed) > len(shown):
        yield f"    * and {len(listed) - len(shown)} reasons more (-verbose)"


def _decision(decision: Json, session: Session, verbose: bool) -> Iterator[str]:
    if decision["AllocationID"]:
        where = f"went to {decision['NodeName'] or short(decision['NodeID'], verbose)}"
        head = f"  {decision['Name']} ({short(decision['AllocationID'], verbose)}) {where}"
    else:
        head = f'  Group "{decision["Group"]}"'
    yield f"{head}, {session.ago(decision['Time'])}, evaluation {short(decision['EvalID'], verbose)}"
    yield from _bullets(decision["Reasons"], verbose)
