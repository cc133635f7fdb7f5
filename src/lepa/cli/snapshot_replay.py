"""`lepa operator snapshot replay`: an evaluation once more, on a saved state, on whatever machine.

The scheduler is pure: the same state, evaluation, time and seed give the same plan. So a state that was saved where
something went wrong can be asked elsewhere, without an agent and without touching a cluster, what the scheduler makes
of it and why.
"""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lepa.cli.explain import explanation_lines
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, short
from lepa.cli.session import Session, Shape, api, shaped
from lepa.cli.snapshot import read_archive
from lepa.model.errors import invalid, not_found

if TYPE_CHECKING:
    from lepa.model.evaluation import Evaluation
    from lepa.scheduler.outcome import Outcome
    from lepa.state.snapshot import Snapshot

SEED = 0


@command()
@argument("file", shown="<file>")
@argument("evaluation", shown="<evaluation>")
@option("group", "Explain only this group.", metavar="name")
@option("nodes", "How many nodes of each group to show.", kind=int, default=20, metavar="count")
@flag("verbose", "Whole ids, scores, and every reason.")
@shaped
@api
def replay(
    session: Session, file: str, evaluation: str, group: str | None, nodes: int, shape: Shape, verbose: bool
) -> None:
    """Schedule an evaluation once more on a saved state: what would be placed and stopped, and why.

    The evaluation is named by its id, or its first characters. No agent is asked, and nothing is changed.
    """
    import msgspec

    from lepa.model.wire import to_builtins
    from lepa.rpc.requests import JobExplainRequest
    from lepa.server.endpoints.explanations import explain_job
    from lepa.state.reducer import load
    from lepa.store.protocol import Read

    archive = read_archive(Path(file))
    state = load(Read(archive.meta.index, list(archive.entries)))
    found = _evaluation(state, evaluation)
    again = msgspec.structs.replace(found, status="pending", annotate_plan=True)
    outcome = _scheduled(again, state, archive.meta.created)
    request = JobExplainRequest(id=found.job_id, namespace=found.namespace, group=group or "", nodes_max=nodes)
    explanation = explain_job(state, request, archive.meta.created)
    told: Json = {
        "Evaluation": to_builtins(found),
        "Plan": _plan(outcome),
        "Explanation": to_builtins(explanation) if explanation is not None else None,
    }
    if shape:
        session.out.line(shape.render(told))
        return
    for line in _lines(told, session, verbose):
        session.out.line(line)


def _evaluation(state: "Snapshot", prefix: str) -> "Evaluation":
    found = list(state.evaluations_by_prefix(prefix))
    if not found:
        raise not_found(f'the saved state holds no evaluation whose id begins with "{prefix}"')
    if len(found) > 1 and all(each.id != prefix for each in found):
        listed = "\n".join(f"{each.id}  {each.job_id}  {each.status}" for each in found[:20])
        raise invalid(f"Prefix matched multiple evaluations\n\n{listed}")
    return next((each for each in found if each.id == prefix), found[0])


def _scheduled(evaluation: "Evaluation", state: "Snapshot", now_ns: int) -> "Outcome":
    from lepa.scheduler.columns import NodeColumns
    from lepa.scheduler.process import process

    chance = random.Random(SEED)
    return process(
        evaluation,
        state,
        now_ns=now_ns,
        seed=SEED,
        new_id=lambda: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        columns=NodeColumns(),
    )


def _plan(outcome: "Outcome") -> Json:
    """What would happen: allocations that are made, changed and stopped, and groups that find no room."""
    from lepa.model.wire import to_builtins

    made = [alloc for alloc in outcome.plan.updates if not alloc.create_index]
    kept = [alloc for alloc in outcome.plan.updates if alloc.create_index]
    return {
        "Placed": [{"Name": each.name, "NodeID": each.node_id, "NodeName": each.node_name} for each in made],
        "Updated": [each.id for each in kept],
        "Stopped": [{"ID": stop.alloc_id, "Reason": stop.description} for stop in outcome.plan.stops],
        "FailedTGAllocs": to_builtins(outcome.evaluation.failed_tg_allocs),
        "DesiredTGUpdates": to_builtins(outcome.plan.annotations),
    }


def _lines(told: Json, session: Session, verbose: bool) -> Iterator[str]:
    from lepa.cli import placement

    evaluation, plan = told["Evaluation"], told["Plan"]
    name = short(evaluation["ID"], verbose)
    yield f'Evaluation {name} of job "{evaluation["JobID"]}", {evaluation["Status"]}, scheduled once more:'
    nothing = True
    for each in plan["Placed"]:
        nothing = False
        yield f"  + {each['Name']} on {each['NodeName'] or short(each['NodeID'], verbose)}"
    for each in plan["Stopped"]:
        nothing = False
        yield f"  - {short(each['ID'], verbose)}: {each['Reason']}"
    if plan["Updated"]:
        nothing = False
        yield f"  ~ {len(plan['Updated'])} changed in place"
    if plan["FailedTGAllocs"]:
        nothing = False
        yield from (f"  {line}" for line in placement.failures(plan["FailedTGAllocs"]))
    if nothing:
        yield "  nothing to do"
    explanation: Any = told["Explanation"]
    if explanation is not None:
        yield ""
        yield from explanation_lines(explanation, session, verbose=verbose)
